"""The driver of a thread: what each step gives, what each move does, and what it refuses."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from signoff import (
    Action,
    Answer,
    Approval,
    Decision,
    Extend,
    Failed,
    Finished,
    Limits,
    Message,
    Paused,
    Question,
    Retry,
    Session,
    SetupError,
    ThreadBusy,
    ThreadError,
    build_graph,
    request_pause,
)
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call, reply
from signoff.session.events import CallFinished, CallStarted, Decided, Ended, Entered, Nudged, Said, Token
from signoff.storage import SqliteStorage
from tests.random_kills import storage_at


@tool
def look(where: str) -> str:
    """Look."""
    return f"nothing in {where}"


look.metadata = {"kind": "read"}


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def run(command: str) -> str:
    """Run."""
    raise AssertionError("the driver runs it")


run.metadata = {"kind": "terminal"}
DONE = call("finish_task", summary="Done.")


def play(*steps: Any) -> Callable[[list[Any]], Any]:
    """The step after as many replies as the history holds: it also serves a thread that goes on elsewhere."""
    return lambda messages: steps[sum(isinstance(message, AIMessage) for message in messages)]


class Bench:
    """A database, and sessions on its threads, each of a graph of its own as after a restart."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __call__(self, *steps: Any, thread_id: str = "t", **options: Any) -> Session:
        given = {key: options.pop(key) for key in ("on_pending", "context", "config") if key in options}
        graph = build_graph(
            ScriptedModel(play(*steps)),
            options.pop("tools", [look, pay, run]),
            storage=self.storage,
            **options,
        )
        return Session(graph, thread_id, **given)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


class Sync:
    """The methods of a session, for tests that go through both ways."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def step(self, move: Any = None) -> Decision:
        return self.session.step(move)

    async def run(self, move: Any = None) -> Decision:
        return self.session.run(move)

    async def resume(self, answer: Any) -> Decision:
        return self.session.resume(answer)

    async def events(self, move: Any = None, **options: Any) -> list[Any]:
        return list(self.session.events(move, **options))


class Async(Sync):
    async def step(self, move: Any = None) -> Decision:
        return await self.session.astep(move)

    async def run(self, move: Any = None) -> Decision:
        return await self.session.arun(move)

    async def resume(self, answer: Any) -> Decision:
        return await self.session.aresume(answer)

    async def events(self, move: Any = None, **options: Any) -> list[Any]:
        return [event async for event in self.session.aevents(move, **options)]


ways = pytest.mark.parametrize("way", [Sync, Async])


def kinds(decisions: list[Decision]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


@ways
async def test_step_by_step(bench: Bench, way: type[Sync]) -> None:
    script = [
        "Let me think.",
        reply("I look first.", call("look", where="here"), call("run", command="ls")),
        call("ask_user", question="Which?", options=["a", "b"]),
        call("pay", amount=3),
        DONE,
    ]
    session = way(bench(*script, hand_over=["run"], approvals={"pay": True}))
    found = [await session.step("do it"), await session.step(), await session.step()]
    action = found[-1]
    assert isinstance(action, Action)
    assert (action.tool, action.args, action.kind, action.unknown) == (
        "run",
        {"command": "ls"},
        "terminal",
        False,
    )
    found.append(await session.step(Answer({"output": "a.txt", "status": "success"})))
    found.append(await session.step(Answer(2)))
    found.append(await session.step(Answer("approve")))
    assert kinds(found) == ["Message", "Message", "Action", "Question", "Approval", "Finished"]
    assert [d.text for d in found if isinstance(d, Message)] == ["Let me think.", "I look first."]
    assert [d.calls for d in found if isinstance(d, Message)] == [(), ("look", "run")]
    end = found[-1]
    assert isinstance(end, Finished)
    assert (end.outcome.status, end.outcome.nudges, end.outcome.turns) == ("success", 1, 5)
    texts = [m.text for m in session.session.standing().values["messages"] if m.type == "tool"]
    assert texts == ["nothing in here", "a.txt", "b", "paid 3", texts[-1]]


@ways
async def test_run_passes_messages_over(bench: Bench, way: type[Sync]) -> None:
    session = way(bench("Well.", call("ask_user", question="Which?"), DONE))
    asked = await session.run("do it")
    assert isinstance(asked, Question)
    assert await session.run() == asked
    assert isinstance(await session.resume("this one"), Finished)
    assert isinstance(await session.run(), Finished)


@ways
async def test_an_error_is_a_decision_and_is_tried_again(bench: Bench, way: type[Sync]) -> None:
    session = way(bench(RuntimeError("no quota"), thread_id="e"))
    failed = await session.run("do it")
    assert isinstance(failed, Failed)
    assert (failed.outcome.reason, "no quota" in failed.error) == ("model_error", True)
    again = way(bench(DONE, thread_id="e"))
    assert isinstance(await again.run(Retry()), Finished)


@ways
async def test_a_limit_is_an_end_and_is_extended(bench: Bench, way: type[Sync]) -> None:
    script = [call("look", where=str(number)) for number in range(3)]
    session = way(bench(*script, DONE, limits=Limits(turns=2)))
    end = await session.run("do it")
    assert isinstance(end, Finished)
    assert end.outcome.status == "limit"
    assert isinstance(await session.run(Extend(2)), Finished)
    assert session.session.standing().values["outcome"]["status"] == "success"


@ways
async def test_events_tell_everything_in_order(bench: Bench, way: type[Sync]) -> None:
    session = way(bench("Hm.", call("look", where="here"), DONE))
    events = await session.events("do it", tokens=True)
    words = "".join(event.text for event in events if isinstance(event, Token))
    assert words == "Hm."
    told = [event for event in events if not isinstance(event, Entered | Token)]
    assert [type(event) for event in told] == [
        Said, Nudged, Said, CallStarted, CallFinished, Said, Ended, Decided,
    ]  # fmt: skip
    started, finished = told[3], told[4]
    assert isinstance(started, CallStarted)
    assert isinstance(finished, CallFinished)
    assert (started.call_id, finished.result, finished.ok) == (finished.call_id, "nothing in here", True)
    states = [str(event.state) for event in events if isinstance(event, Entered)]
    talk = ["decide", "call_llm", "route_tools", "nudge", "compress"]
    assert states[:5] == talk
    assert states[-4:] == ["route_tools", "compress", "decide", "review", "finish"][-4:]


QUESTION_ANSWERS: list[tuple[Any, str]] = [
    ("blue", "blue"),
    (7, "7"),
    (1, "red"),
    ("2", "green"),
    (2.5, "2.5"),
    ("", "(no answer)"),
    (None, "(no answer)"),
    ({}, "(no answer)"),
    ([], "(no answer)"),
    (True, "true"),
    ({"answer": "blue"}, "blue"),
    ([{"type": "response", "args": "blue"}], "blue"),
    ({"decisions": [{"type": "respond", "message": "blue"}]}, "blue"),
    ({"colour": "blue", "shade": 3}, '{"colour": "blue", "shade": 3}'),
    ("half \ud800", "half \ufffd"),
    ({"x": {1, 2}}, '{"x": "{1, 2}"}'),
]


@pytest.mark.parametrize("case", QUESTION_ANSWERS, ids=lambda case: ascii(case[0]))
def test_answers_to_a_question(bench: Bench, case: tuple[Any, str]) -> None:
    given, read = case
    session = bench(call("ask_user", question="Which?", options=["red", "green"]), DONE)
    session.run("do it")
    assert isinstance(session.resume(given), Finished)
    (answer,) = [m.text for m in session.standing().values["messages"] if m.name == "ask_user"]
    texts = DEFAULT_TEXTS.results
    assert answer == (texts["no_answer"] if read == "(no answer)" else read)


APPROVES: list[Any] = [
    "approve",
    " Yes ",
    True,
    {"type": "approve"},
    [{"type": "accept", "args": None}],
    {"decisions": [{"type": "approve"}]},
    '{"decisions": [{"type": "approve"}]}',
]
REJECTS: list[Any] = [
    "no",
    "reject: too much",
    False,
    [{"type": "ignore"}],
    {"type": "reject", "message": "x"},
]
NO_DECISION: list[Any] = [
    None,
    "",
    {},
    [],
    7,
    "perhaps",
    "{",
    [{"type": "approve"}] * 2,
    [{"type": "shout"}],
    object(),
]


@pytest.mark.parametrize("answer", APPROVES + REJECTS, ids=ascii)
def test_answers_to_an_approval(bench: Bench, answer: Any) -> None:
    session = bench(call("pay", amount=3), DONE, approvals={"pay": True})
    session.run("do it")
    assert isinstance(session.resume(answer), Finished)
    texts = [m.text for m in session.standing().values["messages"] if m.name == "pay"]
    assert (texts == ["paid 3"]) == (answer in APPROVES)


@pytest.mark.parametrize("answer", NO_DECISION, ids=lambda answer: type(answer).__name__ + ascii(answer)[:12])
def test_what_is_no_decision_is_refused_and_changes_nothing(bench: Bench, answer: Any) -> None:
    session = bench(call("pay", amount=3), DONE, approvals={"pay": True})
    asked = session.run("do it")
    before = session.graph.get_state(session._thread.config).config
    with pytest.raises(ThreadError):
        session.resume(answer)
    assert session.graph.get_state(session._thread.config).config == before
    assert session.run() == asked


class TestNothingWaits:
    def test_an_answer_twice(self, bench: Bench) -> None:
        session = bench(call("ask_user", question="?"), call("ask_user", question="And?"), DONE)
        first = session.run("do it")
        assert isinstance(first, Question)
        second = session.resume("a", first.interrupt_id)
        with pytest.raises(ThreadError, match="does not wait for this answer any more"):
            session.resume("a", first.interrupt_id)
        assert session.run() == second

    def test_an_ended_thread(self, bench: Bench) -> None:
        session = bench(DONE)
        session.run("do it")
        with pytest.raises(ThreadError, match="has ended and waits for no answer"):
            session.resume("a")
        for move in (Extend(3), Retry()):
            with pytest.raises(ThreadError):
                session.run(move)
        with pytest.raises(ThreadError, match="nothing to stop"):
            session.stop()

    def test_an_unknown_thread(self, bench: Bench) -> None:
        session = bench()
        for act in (session.run, session.step, lambda: session.resume("a"), session.stop, session.fork):
            with pytest.raises(ThreadError, match="no thread 't'"):
                act()
        assert bench.storage.threads() == []
        assert session.history() == []


class TestNewMessage:
    """A task that is given while something waits."""

    def waiting(self, bench: Bench, kind: str, **options: Any) -> Session:
        first = {
            "question": call("ask_user", question="Which?"),
            "approval": call("pay", amount=3),
            "action": call("run", command="ls"),
            "confirmation": call("finish_task", summary="Done.", requires_user_confirmation=True),
        }[kind]
        session = bench(first, DONE, DONE, approvals={"pay": True}, hand_over=["run"], **options)
        assert type(session.run("the first task")).__name__.lower() == kind
        return session

    KINDS = ("question", "approval", "action", "confirmation")

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_the_answer(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind)
        end = session.run("never mind")
        assert isinstance(end, Finished)
        messages = session.standing().values["messages"]
        assert end.outcome.task == messages[0].id
        assert any("never mind" in m.text for m in messages if m.type == "tool")

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_supersedes(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind, on_pending="supersede")
        end = session.run("something else")
        assert isinstance(end, Finished)
        (second,) = [m for m in session.standing().values["messages"] if m.text == "something else"]
        assert (end.outcome.task, end.outcome.turns) == (second.id, 1)
        items = bench.storage.store.search(("signoff", "outcomes", "t"))
        assert sorted(item.value["reason"] for item in items) == ["finish_task", "superseded"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_refused(self, bench: Bench, kind: str) -> None:
        session = self.waiting(bench, kind, on_pending="refuse")
        before = session.standing().values["messages"]
        with pytest.raises(ThreadError, match="waits for"):
            session.run("something else")
        assert session.standing().values["messages"] == before
        assert type(session.run()).__name__.lower() == kind


class TestActions:
    def test_a_second_hand_out_is_marked_unknown(self, bench: Bench) -> None:
        script = [call("run", command="pay"), DONE]
        first = bench(*script, hand_over=["run"]).run("do it")
        second = bench(*script, hand_over=["run"]).run()
        assert isinstance(first, Action)
        assert isinstance(second, Action)
        assert (first.unknown, second.unknown) == (False, True)
        assert second.interrupt_id == first.interrupt_id

    def test_a_superseded_action_may_have_happened(self, bench: Bench) -> None:
        session = bench(call("run", command="pay"), DONE, hand_over=["run"], on_pending="supersede")
        session.run("do it")
        session.run("something else")
        (told,) = [m.text for m in session.standing().values["messages"] if m.name == "run"]
        assert "unknown" in told


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


class TestPause:
    def slow(self, bench: Bench, entered: threading.Event, go: threading.Event, **options: Any) -> Session:
        @tool
        def wait() -> str:
            """Wait."""
            entered.set()
            assert go.wait(20)
            return "waited"

        return bench(call("wait"), call("look", where="x"), DONE, tools=[wait, look], **options)

    @pytest.mark.parametrize("by", ["pause", "request"])
    def test_a_run_stops_at_the_next_boundary_and_goes_on(self, bench: Bench, by: str) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        if by == "pause":
            assert session.pause()
        else:
            request_pause(bench.storage.store, "t")
        go.set()
        thread.join(20)
        assert found == [Paused(by)]
        texts = [m.text for m in session.standing().values["messages"] if m.type == "tool"]
        assert texts == ["waited"]
        assert isinstance(session.run(), Finished)

    def test_a_request_for_nobody_pauses_nothing(self, bench: Bench) -> None:
        session = bench(DONE)
        assert not session.pause()
        request_pause(bench.storage.store, "t")
        assert isinstance(session.run("do it"), Finished)

    def test_stop_ends_the_task(self, bench: Bench) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        assert session.stop() is None
        go.set()
        thread.join(20)
        (failed,) = found
        assert isinstance(failed, Failed)
        assert (failed.outcome.reason, failed.outcome.turns) == ("cancelled", 1)
        assert isinstance(session.run(Retry()), Finished)

    @pytest.mark.parametrize("kind", ["ask_user", "pay", "run"])
    def test_stop_while_something_waits(self, bench: Bench, kind: str) -> None:
        arguments: dict[str, dict[str, Any]] = {
            "ask_user": {"question": "?"},
            "pay": {"amount": 3},
            "run": {"command": "x"},
        }
        session = bench(call(kind, args=arguments[kind]), DONE, approvals={"pay": True}, hand_over=["run"])
        session.run("do it")
        failed = session.stop()
        assert isinstance(failed, Failed)
        assert failed.outcome.reason == "cancelled"
        answered = {m.tool_call_id for m in session.standing().values["messages"] if m.type == "tool"}
        assert len(answered) == 1

    def test_one_run_a_session_and_one_a_thread(self, bench: Bench) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        with pytest.raises(ThreadError, match="running its thread already"):
            session.run()
        with pytest.raises(ThreadBusy, match="'t' is running elsewhere"):
            bench(DONE).run()
        with pytest.raises(ThreadBusy):
            asyncio.run(bench(DONE).arun("more"))
        go.set()
        thread.join(20)
        assert kinds(found) == ["Finished"]


def test_leaving_the_events_stops_the_run_and_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.events("do it")
    for event in events:
        if isinstance(event, CallFinished):
            break
    events.close()  # type: ignore[attr-defined]  # a generator
    assert isinstance(session.run(), Finished)


async def test_leaving_the_async_events_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.aevents("do it")
    async for event in events:
        if isinstance(event, Said):
            break
    await events.aclose()  # type: ignore[attr-defined]  # a generator
    assert isinstance(await session.arun(), Finished)


def test_the_context_counts_in_every_run(bench: Bench) -> None:
    script = [call("look", where=str(n)) for n in range(9)]
    session = bench(*script, DONE, context={"turns": 2})
    end = session.run("do it")
    assert isinstance(end, Finished)
    assert (end.outcome.status, end.outcome.turns) == ("limit", 2)
    after = session.extend(1)
    assert isinstance(after, Finished)
    assert after.outcome.turns == 3


class TestFork:
    SCRIPT = (call("look", where="a"), call("look", where="b"), call("look", where="c"), DONE)

    @pytest.mark.parametrize(("at", "seen"), [(0, ""), (1, "a"), (3, "abc"), (None, "abc"), (4, "abc")])
    def test_at_a_turn(self, bench: Bench, at: int | None, seen: str) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        forked = session.fork(at)
        messages = forked.standing().values["messages"]
        assert "".join(m.text[-1] for m in messages if m.name == "look") == seen
        assert isinstance(forked.run(), Finished)
        assert [m.text for m in session.standing().values["messages"] if m.type == "human"] == ["do it"]

    def test_the_way_from_there_is_its_own(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        forked = session.fork(1, "other")
        end = forked.run("Do it another way.")
        assert isinstance(end, Finished)
        assert forked.standing().values["messages"][-1].text != ""
        assert len(session.history()) == 4
        assert bench.storage.threads() == ["other", "t"]

    def test_by_a_checkpoint(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        first = session.history()[0].steps[-1]
        assert len(session.fork(first.checkpoint_id).history()) == 1

    def test_an_effect_does_not_happen_again(self, bench: Bench) -> None:
        paid: list[int] = []

        def give(amount: int) -> str:
            """Give."""
            paid.append(amount)
            return "given"

        session = bench(call("give", amount=3), DONE, tools=[give])
        session.run("do it")
        before = next(step for step in session.history()[0].steps if step.next == ("execute",))
        forked = session.fork(before.checkpoint_id)
        assert isinstance(forked.run(), Finished)
        assert paid == [3]

    @pytest.mark.parametrize("at", [-1, 9, "no-such", 1.5, True, [], "../x"])
    def test_no_such_point(self, bench: Bench, at: Any) -> None:
        session = bench(*self.SCRIPT)
        session.run("do it")
        with pytest.raises(ThreadError if isinstance(at, int | str) and at is not True else SetupError):
            session.fork(at)
        assert bench.storage.threads() == ["t"]

    def test_a_taken_id(self, bench: Bench) -> None:
        session = bench(DONE)
        session.run("do it")
        with pytest.raises(ThreadError, match="already"):
            session.fork(thread_id="t")

    async def test_async(self, bench: Bench) -> None:
        session = bench(*self.SCRIPT)
        await session.arun("do it")
        forked = await session.afork(2)
        assert len(await forked.ahistory()) == 2
        assert isinstance(await forked.arun(), Finished)


def test_the_history_reads_back(bench: Bench) -> None:
    session = bench("Hm.", call("look", where="here"), call("think", thought="so"), DONE, DONE)
    session.run("the first")
    session.run("the second")
    told = [(turn.number, turn.text, [type(e).__name__ for e in turn.events]) for turn in session.history()]
    assert told == [
        (1, "Hm.", ["Nudged"]),
        (2, "", ["CallFinished"]),
        (3, "", ["Thought"]),
        (4, "", []),
        (1, "", []),
    ]
    rules = [step.rule for step in session.history()[0].steps if step.rule]
    assert rules == ["think"]
    assert [step.rule for step in session.history()[3].steps if step.rule][-1] != ""


GARBAGE: list[tuple[str, Callable[[Session], Any]]] = [
    ("thread id", lambda s: Session(s.graph, "")),
    ("thread id type", lambda s: Session(s.graph, 3)),  # type: ignore[arg-type]  # what is tested
    ("graph", lambda s: Session("graph", "t")),  # type: ignore[arg-type]  # what is tested
    ("no checkpointer", lambda s: Session(build_graph(ScriptedModel([])), "t")),
    ("on_pending", lambda s: Session(s.graph, "t", on_pending="shout")),  # type: ignore[arg-type]  # what is tested
    ("context", lambda s: Session(s.graph, "t", context=3)),
    ("empty task", lambda s: s.run("  ")),
    ("no task", lambda s: s.run([])),
    ("system only", lambda s: s.run([("system", "x")])),  # type: ignore[list-item]  # what is tested
    ("number", lambda s: s.run(3)),  # type: ignore[arg-type]  # what is tested
    ("bytes", lambda s: s.run(b"x")),  # type: ignore[arg-type]  # what is tested
    ("object", lambda s: s.run(object())),  # type: ignore[arg-type]  # what is tested
]


@pytest.mark.parametrize("case", GARBAGE, ids=lambda case: case[0])
def test_garbage_is_refused_before_anything_runs(
    bench: Bench, case: tuple[str, Callable[[Session], Any]]
) -> None:
    with pytest.raises(SetupError):
        case[1](bench())
    assert bench.storage.threads() == []


@pytest.mark.parametrize("turns", [0, -1, 1.5, "3", None, True])
def test_turns_are_a_whole_number(bench: Bench, turns: Any) -> None:
    session = bench(call("look", where="x"), DONE, limits=Limits(turns=1))
    session.run("do it")
    with pytest.raises(SetupError):
        session.extend(turns)


IDS = ["a/b", "../up", 'it\'s "quoted"', "nul\0", "x" * 10_000, "é\n日本", "half \ud800", "a.b*?%"]


@pytest.mark.parametrize("thread_id", IDS, ids=lambda name: ascii(name)[:12])
def test_any_thread_id_works_or_is_refused_in_a_sentence(bench: Bench, thread_id: str) -> None:
    def whole() -> None:
        session = bench(call("pay", amount=1), call("ask_user", question="?"), DONE, thread_id=thread_id)
        session.run("do it")
        assert isinstance(session.resume("a"), Finished)
        assert len(session.history()) == 3

    too_long = len(thread_id) > 512 and not isinstance(bench.storage, SqliteStorage)
    if too_long or "\0" in thread_id or "\ud800" in thread_id:
        with pytest.raises((SetupError, ThreadError), match="thread id"):
            whole()
        assert bench.storage.threads() == []
    else:
        whole()


def test_any_checkpointer_will_do() -> None:
    model = ScriptedModel(play(call("ask_user", question="?"), DONE))
    graph = build_graph(model, checkpointer=InMemorySaver())
    session = Session(graph, "t")
    assert isinstance(session.run([HumanMessage("do it")]), Question)
    assert isinstance(session.resume("a"), Finished)
    assert [turn.number for turn in session.history()] == [1, 2]
    assert isinstance(session.fork(1).run(), Finished)


def test_an_approval_of_several_calls_shows_all(bench: Bench) -> None:
    session = bench([call("pay", amount=1), call("pay", amount=2)], DONE, approvals={"pay": True})
    asked = session.run("do it")
    assert isinstance(asked, Approval)
    assert [pending.args for pending in asked.calls] == [{"amount": 1}, {"amount": 2}]
    session.resume([{"type": "reject", "message": "no"}, {"type": "approve"}])
    texts = [m.text for m in session.standing().values["messages"] if m.name == "pay"]
    assert ["no" in texts[0], texts[1]] == [True, "paid 2"]
