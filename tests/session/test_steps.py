"""The driver of a thread: what each step gives, and what it refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from signoff import (
    Action,
    Answer,
    Approval,
    Extend,
    Failed,
    Finished,
    Limits,
    Message,
    Question,
    Retry,
    Session,
    SetupError,
    ThreadError,
    build_graph,
)
from signoff.models import ScriptedModel, call, reply
from signoff.session.events import CallFinished, CallStarted, Decided, Ended, Entered, Nudged, Said, Token
from signoff.storage.sqlite import SqliteStorage
from tests.random_kills import storage_at
from tests.support.benches.session import DONE, Bench, Sync, kinds, play, ways


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


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
    texts = [m.text for m in session.session.status().values["messages"] if m.type == "tool"]
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
    assert session.session.status().values["outcome"]["status"] == "success"


@ways
async def test_events_tell_everything_in_order(bench: Bench, way: type[Sync]) -> None:
    session = way(bench("Hm.", call("look", where="here"), DONE))
    events = await session.events("do it")
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
    assert states[-4:] == ["route_tools", "decide", "review", "finish"]


def test_the_context_counts_in_every_run(bench: Bench) -> None:
    script = [call("look", where=str(n)) for n in range(9)]
    session = bench(*script, DONE, context={"turns": 2})
    end = session.run("do it")
    assert isinstance(end, Finished)
    assert (end.outcome.status, end.outcome.turns) == ("limit", 2)
    after = session.extend(1)
    assert isinstance(after, Finished)
    assert after.outcome.turns == 3


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
    texts = [m.text for m in session.status().values["messages"] if m.name == "pay"]
    assert ["no" in texts[0], texts[1]] == [True, "paid 2"]
