"""The events of a session: what each of them says, live and in a history, and that they go through JSON."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jsonschema  # type: ignore[import-untyped]  # the package has no stubs
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.prebuilt import ToolRuntime

from signoff import Answer, Approval, Confirmation, Extend, Limits, Question, SetupError, build_graph
from signoff.graph.inside import private
from signoff.graph.machine import State
from signoff.models import ScriptedModel, call, reply
from signoff.nodes.tool_calls.progress import ListeningControl
from signoff.session.drive import Wanted
from signoff.session.events import (
    Answered,
    CallDecided,
    Called,
    CallFinished,
    CallProgress,
    CallStarted,
    Confirmed,
    Decided,
    Ended,
    Entered,
    Nudged,
    PhaseAccepted,
    Resumed,
    Retrying,
    Said,
    SessionEvent,
    Thought,
    Token,
    Wrote,
    events_schema,
    from_dict,
)
from signoff.session.following import Follower
from signoff.session.status import deps_of
from tests.random_kills import storage_at
from tests.support.benches.session import DONE, Async, Bench, Sync, ways

E = TypeVar("E")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with storage_at(str(tmp_path / "t.sqlite")) as storage:
        yield Bench(storage)


def of(kind: type[E], events: Any) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


@tool
def build(target: str) -> str:
    """Build."""
    write = get_stream_writer()
    write({"done": 1, "of": 2})
    write(f"{target} is built")
    return "built"


@tool
async def measure(target: str) -> str:
    """Measure."""
    get_stream_writer()(f"measuring {target}")
    return target


@tool
def inspect(target: str, runtime: ToolRuntime) -> str:
    """Inspect."""
    runtime.stream_writer(["inspecting", target])
    return target


for made in (measure, inspect):
    made.metadata = {"kind": "read"}


@pytest.mark.parametrize("named", [True, False], ids=["with the private name", "without"])
@ways
async def test_what_a_tool_writes_is_told_with_its_call(
    bench: Bench, way: type[Sync], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not named:
        monkeypatch.setattr(private, "RUNTIME", None)
    calls = [
        call("measure", target="a", id="m"),
        call("inspect", target="b", id="i"),
        call("build", target="c", id="b"),
    ]
    session = way(bench(calls, DONE, tools=[build, measure, inspect]))
    events = await session.events("do it")
    told = {(event.name, event.call_id, json.dumps(event.data)) for event in of(CallProgress, events)}
    assert told == {
        ("measure", "m", '"measuring a"'),
        ("inspect", "i", '["inspecting", "b"]'),
        ("build", "b", '{"done": 1, "of": 2}'),
        ("build", "b", '"c is built"'),
    }
    # Each comes between the start and the end of its own call, and they stand in its reply.
    for progress in of(CallProgress, events):
        (started,) = [event for event in of(CallStarted, events) if event.call_id == progress.call_id]
        (finished,) = [event for event in of(CallFinished, events) if event.call_id == progress.call_id]
        assert started.seq < progress.seq < finished.seq
        (said,) = [event for event in of(Said, events) if event.message_id == progress.reply_id]
        assert progress.call_id in [called.call_id for called in said.calls]


@ways
async def test_whoever_streams_the_graph_itself_gets_the_bare_values(bench: Bench, way: type[Sync]) -> None:
    graph = bench(call("build", target="c"), DONE, tools=[build]).graph
    config: Any = {"configurable": {"thread_id": "bare"}}
    given: Any = {"messages": [HumanMessage("do it")]}
    if way is Async:
        found = [item async for item in graph.astream(given, config, stream_mode="custom")]
    else:
        found = list(graph.stream(given, config, stream_mode="custom"))
    assert found == [{"done": 1, "of": 2}, "c is built"]


@ways
async def test_a_machine_inside_of_a_tool_is_not_taken_for_the_threads_own(
    bench: Bench, way: type[Sync]
) -> None:
    inner = build_graph(ScriptedModel(["Inside.", call("build", target="c"), DONE]), [build])

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        get_stream_writer()("delegated")
        return str(inner.invoke({"messages": [HumanMessage(task)]})["outcome"]["status"])

    session = way(bench(reply("Outside.", call("delegate", task="x", id="d")), DONE, tools=[delegate]))
    events = await session.events("do it")
    assert "".join(token.text for token in of(Token, events)) == "Outside."
    assert [(found.call_id, found.data) for found in of(CallProgress, events)] == [("d", "delegated")]
    assert [found.name for found in of(CallFinished, events)] == ["delegate"]
    assert [found.result for found in of(CallFinished, events)] == ["success"]


def test_a_call_that_is_given_up_on_tells_nothing_any_more(bench: Bench) -> None:
    @tool
    def slow() -> str:
        """Slow."""
        write = get_stream_writer()
        write("before")
        time.sleep(0.3)
        write("after")
        return "late"

    slow.metadata = {"seconds": 0.1}
    session = bench(call("slow"), call("look", where="here"), DONE, tools=[slow, *bench_tools()])
    events = list(session.events("do it"))
    assert [event.data for event in of(CallProgress, events)] == ["before"]
    (finished,) = [event for event in of(CallFinished, events) if event.name == "slow"]
    assert (finished.ok, finished.unknown) == (False, True)


def bench_tools() -> list[Any]:
    @tool
    def look(where: str) -> str:
        """Look."""
        time.sleep(0.4)
        return where

    return [look]


@ways
async def test_every_event_is_numbered_and_has_a_time(bench: Bench, way: type[Sync]) -> None:
    before = time.time()
    events = await way(bench("Hm.", call("look", where="here"), DONE)).events("do it")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    times = [event.at for event in events]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time()
    assert {event.path for event in events} == {()}


@ways
async def test_ids_are_those_of_the_history(bench: Bench, way: type[Sync]) -> None:
    script = [
        "Hm.",
        reply("I look.", call("look", where="here"), call("think", thought="so")),
        call("ask_user", question="Which?"),
        DONE,
    ]
    session = way(bench(*script))
    events = [*await session.events("do it"), *await session.events(Answer("this"))]
    messages = {message.id: message for message in session.session.status().values["messages"]}
    for said in of(Said, events):
        message = messages[said.message_id]
        assert isinstance(message, AIMessage)
        assert [(c["id"], c["name"], c["args"]) for c in message.tool_calls] == [
            (called.call_id, called.name, called.args) for called in said.calls
        ]
    for token in of(Token, events):
        assert token.text in messages[token.message_id].text
    for nudged in of(Nudged, events):
        assert messages[nudged.message_id].text == nudged.text
    results: list[CallFinished | Thought | Answered]
    results = [*of(CallFinished, events), *of(Thought, events), *of(Answered, events)]
    assert len(results) == 3
    for found in results:
        message, asked = messages[found.message_id], messages[found.reply_id]
        assert isinstance(message, ToolMessage)
        assert isinstance(asked, AIMessage)
        assert found.call_id == message.tool_call_id
        assert found.call_id in [c["id"] for c in asked.tool_calls]
    (question,) = [d.decision for d in of(Decided, events) if isinstance(d.decision, Question)]
    (asking,) = [said for said in of(Said, events) if question.call_id in [c.call_id for c in said.calls]]
    assert question.reply_id == asking.message_id


def test_a_reply_whose_id_is_taken_has_one_id_in_all_events(bench: Bench) -> None:
    script = [AIMessage("One.", id="same"), AIMessage("Two.", id="same"), DONE]
    session = bench(*script)
    follower = Follower(session.status().task, deps_of(session.graph).toolbox, 9, messages=[])
    tokens = []
    for step in script[:2]:
        assert isinstance(step, AIMessage)
        tokens.append(follower.token("x", step.id).message_id)
        list(follower.update(*_replied(step.model_copy(update={"id": tokens[-1]}))))
    assert tokens == ["same", "same-1"]


def _replied(message: AIMessage) -> tuple[Any, dict[str, Any]]:
    return State.CALL_LLM, {"messages": [message], "event": "replied"}


EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5}}}


@ways
async def test_the_arguments_that_ran_are_told_after_an_edit(bench: Bench, way: type[Sync]) -> None:
    script = [call("pay", amount=50), DONE, call("look", where="here"), DONE]
    session = way(bench(*script, approvals={"pay": True}))
    await session.events("do it")
    waiting = session.session.status().waiting
    assert isinstance(waiting, Approval)
    events = await session.events(Answer([EDIT], waiting.interrupt_id, by="ada"))
    resumed, decided = events[0], of(CallDecided, events)[0]
    assert resumed == Resumed("answer", waiting.interrupt_id, "ada")
    assert (decided.decision, decided.args, decided.by) == ("edit", {"amount": 5}, "ada")
    (started,) = of(CallStarted, events)
    (finished,) = of(CallFinished, events)
    assert (started.args, started.asked) == ({"amount": 5}, {"amount": 50})
    assert (finished.args, finished.asked, finished.person) == ({"amount": 5}, {"amount": 50}, "edited")
    assert finished.by == "ada"
    assert decided.call_id == started.call_id == finished.call_id == waiting.calls[0].call_id
    assert decided.reply_id == started.reply_id == finished.reply_id == waiting.reply_id
    # The next task drops the decisions; what the history says does not change.
    await session.run("and look")
    (kept,) = [event for turn in session.session.history() for event in turn.events if turn.number == 1][:1]
    assert kept == finished


@pytest.mark.parametrize(
    ("answer", "decision", "told"),
    [
        ("approve", "approve", {"ok": True, "not_run": "", "person": ""}),
        ("reject: too much", "reject", {"ok": False, "not_run": "rejected", "person": ""}),
        (
            [{"type": "respond", "message": "It is paid."}],
            "respond",
            {"ok": True, "not_run": "", "person": "responded"},
        ),
    ],
)
def test_who_decided_on_a_call(bench: Bench, answer: Any, decision: str, told: dict[str, Any]) -> None:
    session = bench(call("pay", amount=50), DONE, approvals={"pay": True})
    session.run("do it")
    events = list(session.events(Answer(answer, by="ada")))
    (decided,) = of(CallDecided, events)
    (finished,) = of(CallFinished, events)
    assert (decided.decision, decided.by, finished.by) == (decision, "ada", "ada")
    assert {name: getattr(finished, name) for name in told} == told
    assert [type(event) for event in events].count(CallStarted) == (decision == "approve")
    assert session.history()[0].events == (finished,)


@pytest.mark.parametrize("by", ["ada", None])
def test_who_answered_a_question(bench: Bench, by: str | None) -> None:
    session = bench(call("ask_user", question="Which?"), DONE)
    session.run("do it")
    events = list(session.events(Answer("this", by=by)))
    (answered,) = of(Answered, events)
    assert (answered.question, answered.answer, answered.by) == ("Which?", "this", by or "")
    assert session.history()[0].events == (answered,)


def test_who_answered_what_the_model_said(bench: Bench) -> None:
    session = bench("Which?", DONE, talk="natural")
    asked = session.run("do it")
    assert isinstance(asked, Question)
    events = list(session.events(Answer("this", by="ada")))
    (wrote,) = of(Wrote, events)
    assert (wrote.text, wrote.answers, wrote.by) == ("this", True, "ada")
    assert asked.reply_id == session.history()[0].message_id
    assert session.history()[0].events == (wrote,)


def test_who_ran_what_was_handed_over(bench: Bench) -> None:
    session = bench(call("run", command="ls"), DONE, hand_over=["run"])
    session.run("do it")
    (finished,) = of(CallFinished, session.events(Answer({"output": "a.txt", "seconds": 2.0}, by="robot")))
    assert (finished.result, finished.by, finished.seconds) == ("a.txt", "robot", 2.0)


@pytest.mark.parametrize(("answer", "ok", "words"), [("yes", True, ""), ("too short", False, "too short")])
def test_who_confirmed_a_finish(bench: Bench, answer: str, ok: bool, words: str) -> None:
    asks = call("finish_task", summary="Done.", requires_user_confirmation=True)
    session = bench(asks, DONE)
    waiting = session.run("do it")
    assert isinstance(waiting, Confirmation)
    events = list(session.events(Answer(answer, by="ada")))
    (confirmed,) = of(Confirmed, events)
    assert (confirmed.ok, confirmed.words, confirmed.by) == (ok, words, "ada")
    assert (confirmed.call_id, confirmed.reply_id) == (waiting.call_id, waiting.reply_id)
    assert of(Confirmed, session.history()[0].events) == [confirmed]
    assert [event.ok for event in of(CallFinished, events)] == ([] if ok else [False])


@pytest.mark.parametrize("by", [3, ["ada"], object()])
def test_who_answers_is_text(bench: Bench, by: Any) -> None:
    session = bench(call("ask_user", question="Which?"), DONE)
    asked = session.run("do it")
    with pytest.raises(SetupError, match="by="):
        session.resume("this", by=by)
    assert session.status().waiting == asked


def test_an_accepted_phase_is_told(bench: Bench) -> None:
    half = call(
        "finish_task",
        summary="Half.",
        completion_percentage=50,
        next_phase="The rest.",
    )
    session = bench(half, call("pay", amount=1), DONE)
    events = list(session.events("do it"))
    phases = of(PhaseAccepted, events)
    assert [(phase.turn, phase.percentage, phase.summary, phase.next_phase) for phase in phases] == [
        (1, 50, "Half.", "The rest.")
    ]
    assert session.history()[0].events == tuple(phases)


def test_more_turns_are_told(bench: Bench) -> None:
    session = bench(call("pay", amount=1), call("pay", amount=2), DONE, limits=Limits(turns=1))
    session.run("do it")
    first, *rest = session.events(Extend(2))
    assert first == Resumed("extend", turns=2)
    assert {event.turns for event in of(Entered, rest)} == {3}


def test_more_turns_are_told_where_more_than_the_limit_were_used(bench: Bench) -> None:
    asks = call("ask_user", question="Which?")
    script = [asks, call("pay", amount=1), call("pay", amount=2), asks, call("pay", amount=3), DONE]
    session = bench(*script, limits=Limits(turns=1))
    session.run("do it")
    assert turns_of(session.events(Answer("this"))) == [(1, 1), (2, 1)]
    assert turns_of(session.events(Extend(2))) == [(2, 4), (3, 4), (4, 4)]
    assert turns_of(session.events(Answer("this"))) == [(4, 4), (5, 4)]
    assert turns_of(session.events(Extend(1))) == [(5, 6), (6, 6)]


def turns_of(events: Iterable[SessionEvent]) -> list[tuple[int, int]]:
    """The turns that were told, each with how many there may be."""
    return list(dict.fromkeys((event.turn, event.turns) for event in of(Entered, events)))


def test_a_retry_of_the_model_is_told(bench: Bench) -> None:
    session = bench(DONE)
    follower = Follower(session.status().task, deps_of(session.graph).toolbox, 9)
    told = {
        "type": "signoff_retrying",
        "seconds": 20.0,
        "why": "rate limit",
        "tries": 1,
        "most": 5,
        "more": 1,
    }
    assert list(follower.wrote(told)) == [Retrying(20.0, "rate limit", 1, 5)]
    assert list(follower.wrote({"type": "anything else"})) == []


def test_nobody_who_only_runs_pays_for_events(bench: Bench) -> None:
    """A run asks LangGraph for updates alone: no pieces of replies, no threads, no ids."""
    session = bench(call("build", target="c"), DONE, tools=[build])
    events = list(session._events("do it", Wanted()))
    assert {event.seq for event in events} == {0}
    assert [*of(Token, events), *of(CallProgress, events)] == []
    assert not isinstance(session._thread.asked.control(False), ListeningControl)
    again = bench("Hm.", DONE, thread_id="2")
    assert of(Token, again.events("do it", tokens=False)) == []
    assert "".join(token.text for token in of(Token, bench("Hm.", DONE, thread_id="3").events("x"))) == "Hm."


SEVERAL: list[Any] = [
    Entered(State.CALL_LLM, 1, 9, 3, State.DECIDE, seq=4, at=2.5, path=("execute:1",)),
    Token("a", "m"),
    Retrying(1.5, "rate limit", 2, 5, True, "other"),
    Wrote("do it", True, "m", "ada"),
    Said(1, "text", (Called("pay", {"a": [1, {"b": None}]}, "c"),), 5, 0.5, "beside", 1, "m"),
    CallDecided(1, "pay", "c", "edit", {"a": 1}, "", "ada", "m"),
    CallStarted(1, "pay", {"a": 1}, "c", {"a": 2}, "m"),
    CallProgress(1, "pay", "c", {"done": [0.5, "half", True, None]}, "m"),
    CallFinished(1, "pay", {"a": 1}, True, "paid", "c", 1.0, "edited", {"a": 2}, 2.0, "ada"),
    Thought(1, "hm", "approach", None, "c"),
    Answered(1, "which?", "this", 3.0, "ada", True),
    PhaseAccepted(1, 50.0, "Half.", "The rest."),
    Confirmed(1, True, "fine"),
    Nudged("talked", "go on", "m"),
    Resumed("extend", turns=3),
]


@pytest.mark.parametrize("event", SEVERAL, ids=lambda event: event.type)
def test_an_event_goes_through_json(event: SessionEvent) -> None:
    given = event.to_dict()
    jsonschema.validate(given, events_schema())
    back = from_dict(json.loads(json.dumps(given, allow_nan=False)))
    assert (back, back.seq, back.at) == (event, event.seq, event.at)
    assert given["type"] == event.type


@ways
async def test_all_events_of_a_run_fit_the_schema(bench: Bench, way: type[Sync]) -> None:
    script = [
        "Hm.",
        reply("I look.", call("look", where="here"), call("think", thought="so"), call("pay", amount=3)),
        call("run", command="ls"),
        call("ask_user", question="Which?", options=["a", "b"]),
        call("finish_task", summary="Done.", requires_user_confirmation=True),
    ]
    session = way(bench(*script, hand_over=["run"], approvals={"pay": True}))
    events: list[Any] = []
    for move in ("do it", Answer("approve"), Answer("a.txt"), Answer(1), Answer("yes")):
        events += await session.events(move)
    kinds = [type(event.decision).__name__ for event in of(Decided, events)]
    assert kinds == ["Approval", "Action", "Question", "Confirmation", "Finished"]
    assert len(of(Ended, events)) == 1
    check = jsonschema.Draft202012Validator(events_schema())
    for event in events:
        check.validate(event.to_dict())
        assert from_dict(json.loads(json.dumps(event.to_dict()))) == event


VALUES = [
    ("no number", float("nan"), "nan"),
    ("infinity", float("inf"), "inf"),
    ("half a character", "\ud800", "\ufffd"),
    ("an object", Path("a"), "a"),
    ("a set in a list", [{1}], ["{1}"]),
    ("keys", {1: {None: (2,)}}, {"1": {"None": [2]}}),
]


@pytest.mark.parametrize(("value", "told"), [case[1:] for case in VALUES], ids=[case[0] for case in VALUES])
def test_progress_of_any_make_goes_through_json(value: Any, told: Any) -> None:
    given = CallProgress(1, "pay", "c", value).to_dict()
    assert given["data"] == told
    json.dumps(given, allow_nan=False, ensure_ascii=False).encode()


def test_progress_that_holds_itself_is_told_as_text() -> None:
    value: list[Any] = []
    value.append(value)
    assert isinstance(CallProgress(1, "pay", "c", value).to_dict()["data"], str)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"type": "nothing"},
        {"type": "token"},
        {"type": "decided", "decision": {"type": "token"}},
        [],
        None,
    ],
    ids=json.dumps,
)
def test_what_is_no_event_is_refused(given: Any) -> None:
    with pytest.raises(SetupError, match="This is not"):
        from_dict(given)
