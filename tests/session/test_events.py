"""The events of a session: what each of them says, live and in a history, and that they go through JSON."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import jsonschema  # type: ignore[import-untyped]  # the package has no stubs
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.prebuilt import ToolRuntime

from signoff import Answer, Approval, ModelRetries, Question, Session, SetupError, build_graph, go_on
from signoff.events import (
    Answered,
    CallDecided,
    Called,
    CallFinished,
    CallProgress,
    CallStarted,
    Confirmed,
    Decided,
    Entered,
    Nudged,
    PhaseAccepted,
    Resumed,
    Retrying,
    Said,
    SessionEvent,
    TaskEnded,
    Thought,
    Token,
    Wrote,
    events_schema,
    from_dict,
)
from signoff.machine import State
from signoff.models import ScriptedModel, call, reply
from tests.support.benches.session import DONE, Bench

E = TypeVar("E")
SCHEMA = jsonschema.Draft202012Validator(events_schema())
ASK = call("ask_user", question="Which?")
PAY = call("pay", amount=50)


def of(kind: type[E], events: Iterable[Any]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def words(events: Iterable[Any]) -> str:
    return "".join(token.text for token in of(Token, events))


# A run.


def test_events_tell_everything_in_order(bench: Bench) -> None:
    before = time.time()
    events = list(bench("Hm.", call("look", where="here"), DONE).events("do it"))
    assert words(events) == "Hm."
    told = [event for event in events if not isinstance(event, Entered | Token)]
    assert [type(event) for event in told] == [
        *(Said, Nudged),
        *(Said, CallStarted, CallFinished),
        *(Said, TaskEnded, Decided),
    ]
    (started,), (finished,) = of(CallStarted, told), of(CallFinished, told)
    assert (started.call_id, finished.result, finished.ok) == (finished.call_id, "nothing in here", True)
    states = [str(event.state) for event in of(Entered, events)]
    assert states[:5] == ["decide", "call_llm", "route_tools", "nudge", "compress"]
    assert states[-4:] == ["route_tools", "decide", "review", "finish"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    times = [before, *[event.at or 0 for event in events], time.time()]
    assert (times, {event.path for event in events}) == (sorted(times), {()})


def test_ids_are_those_of_the_history(bench: Bench) -> None:
    looks = reply("I look.", call("look", where="here"), call("think", thought="so"))
    session = bench("Hm.", looks, ASK, DONE)
    events = [*session.events("do it"), *session.events(Answer("this"))]
    messages = {message.id: message for message in session.status().values["messages"]}
    for said in of(Said, events):
        message = messages[said.message_id]
        assert isinstance(message, AIMessage)
        calls = [(one["id"], one["name"], one["args"]) for one in message.tool_calls]
        assert calls == [(called.call_id, called.name, called.args) for called in said.calls]
    assert [one for one in of(Token, events) if one.text not in messages[one.message_id].text] == []
    assert [one.text for one in of(Nudged, events)] == [
        messages[one.message_id].text for one in of(Nudged, events)
    ]
    results: list[CallFinished | Thought | Answered]
    results = [*of(CallFinished, events), *of(Thought, events), *of(Answered, events)]
    assert len(results) == 3
    for result in results:
        message, asked = messages[result.message_id], messages[result.reply_id]
        assert isinstance(message, ToolMessage)
        assert isinstance(asked, AIMessage)
        assert result.call_id == message.tool_call_id
        assert result.call_id in [one["id"] for one in asked.tool_calls]
    (question,) = [one.decision for one in of(Decided, events) if isinstance(one.decision, Question)]
    (asking,) = [one for one in of(Said, events) if "ask_user" in [called.name for called in one.calls]]
    shown = question.document()
    assert (shown["reply_id"], shown["call_id"]) == (asking.message_id, asking.calls[0].call_id)


def test_a_reply_whose_id_is_taken_has_one_id_in_all_events(bench: Bench) -> None:
    same = [AIMessage(text, id="same") for text in ("One.", "Two.")]
    session = bench(*same, DONE)
    events = list(session.events("do it"))
    said = {one.text: one.message_id for one in of(Said, events) if one.text}
    assert len(set(said.values())) == 2
    assert {one.message_id: one.text for one in of(Token, events)} == {id: text for text, id in said.items()}
    assert set(said.values()) <= {message.id for message in session.status().values["messages"]}


def test_pieces_of_replies_are_left_out_where_nobody_wants_them(bench: Bench) -> None:
    assert words(bench("Hm.", DONE).events("do it", tokens=False)) == ""


def test_a_retry_of_the_model_is_told(bench: Bench) -> None:
    retries = ModelRetries(tries=3, first_wait=0)
    graph = build_graph(
        ScriptedModel([ConnectionError("no line"), DONE]),
        storage=bench.storage,
        policy={"model_retries": retries},
    )
    (retrying,) = of(Retrying, Session(graph, "t").events("do it"))
    assert (bool(retrying.why), retrying.tries, retrying.most) == (True, 1, 3)


# What tools write.


@tool
def build(target: str) -> str:
    """Build."""
    write = get_stream_writer()
    write({"done": 1, "of": 2})
    write(f"{target} is built")
    return "built"


@tool
def inspect(target: str, runtime: ToolRuntime) -> str:
    """Inspect."""
    runtime.stream_writer(["inspecting", target])
    return target


@tool
async def measure(target: str) -> str:
    """Measure."""
    get_stream_writer()(f"measuring {target}")
    return target


for read in (inspect, measure):
    read.metadata = {"kind": "read"}


def test_what_a_tool_writes_is_told_with_its_call(bench: Bench) -> None:
    calls = [call(name, target=name, id=name[0]) for name in ("measure", "inspect", "build")]
    events = list(bench(calls, DONE, tools=[build, measure, inspect]).events("do it"))
    assert sorted((one.name, one.call_id, json.dumps(one.data)) for one in of(CallProgress, events)) == [
        ("build", "b", '"build is built"'),
        ("build", "b", '{"done": 1, "of": 2}'),
        ("inspect", "i", '["inspecting", "inspect"]'),
        ("measure", "m", '"measuring measure"'),
    ]
    # Each comes between the start and the end of its own call, and they stand in its reply.
    for progress in of(CallProgress, events):
        (started,) = [one for one in of(CallStarted, events) if one.call_id == progress.call_id]
        (finished,) = [one for one in of(CallFinished, events) if one.call_id == progress.call_id]
        assert started.seq < progress.seq < finished.seq
        (said,) = [one for one in of(Said, events) if one.message_id == progress.reply_id]
        assert progress.call_id in [called.call_id for called in said.calls]


def test_whoever_streams_the_graph_itself_gets_the_bare_values(bench: Bench) -> None:
    graph = bench(call("build", target="c"), DONE, tools=[build]).graph
    config: Any = {"configurable": {"thread_id": "bare"}}
    given: Any = {"messages": [("user", "do it")]}
    assert list(graph.stream(given, config, stream_mode="custom")) == [{"done": 1, "of": 2}, "c is built"]


def test_a_machine_inside_of_a_tool_is_not_taken_for_the_threads_own(bench: Bench) -> None:
    inner = build_graph(ScriptedModel(["Inside.", call("build", target="c"), DONE]), [build])

    @tool
    def hire(task: str) -> str:
        """Hire."""
        get_stream_writer()("hired")
        return str(inner.invoke({"messages": [("user", task)]})["outcome"]["status"])

    events = list(
        bench(reply("Outside.", call("hire", task="x", id="h")), DONE, tools=[hire]).events("do it")
    )
    assert words(events) == "Outside."
    assert [(one.call_id, one.data) for one in of(CallProgress, events)] == [("h", "hired")]
    assert [(one.name, one.result) for one in of(CallFinished, events)] == [("hire", "success")]


def test_a_call_that_is_given_up_on_tells_nothing_any_more(bench: Bench) -> None:
    @tool
    def slow() -> str:
        """Slow."""
        write = get_stream_writer()
        write("before")
        time.sleep(0.3)
        write("after")
        return "late"

    @tool
    def wait() -> str:
        """Wait until it is over."""
        time.sleep(0.4)
        return "waited"

    slow.metadata = {"seconds": 0.1}
    events = list(bench(call("slow"), call("wait"), DONE, tools=[slow, wait]).events("do it"))
    assert [event.data for event in of(CallProgress, events)] == ["before"]
    (finished,) = [event for event in of(CallFinished, events) if event.name == "slow"]
    assert (finished.ok, finished.unknown) == (False, True)


# What people do.


def test_the_arguments_that_ran_are_told_after_an_edit(bench: Bench) -> None:
    session = bench(PAY, DONE, call("look", where="here"), DONE, approvals={"pay": True})
    waiting = session.run("do it")
    assert isinstance(waiting, Approval)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5}}}
    events = list(session.events(Answer([edit], waiting.interrupt_id, by="ada")))
    assert events[0] == Resumed("answer", waiting.interrupt_id, "ada")
    (decided,), (started,) = of(CallDecided, events), of(CallStarted, events)
    (finished,) = of(CallFinished, events)
    assert (decided.decision, decided.args, decided.by) == ("edit", {"amount": 5}, "ada")
    assert (started.args, started.asked) == ({"amount": 5}, {"amount": 50})
    assert (finished.args, finished.asked, finished.person) == ({"amount": 5}, {"amount": 50}, "edited")
    assert finished.by == "ada"
    assert decided.call_id == started.call_id == finished.call_id == waiting.calls[0].id
    assert decided.reply_id == started.reply_id == finished.reply_id == waiting.document()["reply_id"]
    # The next task drops the decisions; what the history says does not change.
    session.run("and look")
    assert session.history()[0].events == (finished,)


DECIDED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "approved": ("approve", "approve", {"ok": True, "not_run": "", "person": ""}),
    "rejected": ("reject: too much", "reject", {"ok": False, "not_run": "rejected", "person": ""}),
    "responded": (
        [{"type": "respond", "message": "It is paid."}],
        "respond",
        {"ok": True, "not_run": "", "person": "responded"},
    ),
}


@pytest.mark.parametrize("name", DECIDED)
def test_who_decided_on_a_call(name: str, bench: Bench) -> None:
    answer, decision, told = DECIDED[name]
    session = bench(PAY, DONE, approvals={"pay": True})
    session.run("do it")
    events = list(session.events(Answer(answer, by="ada")))
    (decided,), (finished,) = of(CallDecided, events), of(CallFinished, events)
    assert (decided.decision, decided.by, finished.by) == (decision, "ada", "ada")
    assert {name: getattr(finished, name) for name in told} == told
    assert len(of(CallStarted, events)) == (decision == "approve")
    assert session.history()[0].events == (finished,)


@pytest.mark.parametrize("by", ["ada", None])
def test_who_answered_a_question(by: str | None, bench: Bench) -> None:
    session = bench(ASK, DONE)
    session.run("do it")
    (answered,) = of(Answered, session.events(Answer("this", by=by)))
    assert (answered.question, answered.answer, answered.by) == ("Which?", "this", by or "")
    assert session.history()[0].events == (answered,)


def test_who_answered_what_the_model_said(bench: Bench) -> None:
    session = bench("Which?", DONE, policy={"talk": "natural"})
    asked = session.run("do it")
    assert isinstance(asked, Question)
    (wrote,) = of(Wrote, session.events(Answer("this", by="ada")))
    assert (wrote.text, wrote.answers, wrote.by) == ("this", True, "ada")
    (first, *_) = session.history()
    assert (asked.document()["reply_id"], first.events) == (first.message_id, (wrote,))


def test_who_ran_what_was_handed_over(bench: Bench) -> None:
    session = bench(call("run", command="ls"), DONE, approvals={"run": "hand_over"})
    session.run("do it")
    (finished,) = of(CallFinished, session.events(Answer({"output": "a.txt", "seconds": 2.0}, by="robot")))
    assert (finished.result, finished.by, finished.seconds) == ("a.txt", "robot", 2.0)


@pytest.mark.parametrize(("answer", "ok", "said"), [("yes", True, ""), ("too short", False, "too short")])
def test_who_confirmed_a_finish(answer: str, ok: bool, said: str, bench: Bench) -> None:
    session = bench(call("finish_task", summary="Done.", requires_user_confirmation=True), DONE)
    waiting = session.run("do it")
    assert isinstance(waiting, Approval)
    events = list(session.events(Answer(answer, by="ada")))
    (confirmed,) = of(Confirmed, events)
    assert (confirmed.ok, confirmed.words, confirmed.by) == (ok, said, "ada")
    assert (confirmed.call_id, confirmed.reply_id) == (waiting.calls[0].id, waiting.document()["reply_id"])
    assert of(Confirmed, session.history()[0].events) == [confirmed]
    assert [event.ok for event in of(CallFinished, events)] == [False] * (not ok)


def test_an_accepted_phase_is_told(bench: Bench) -> None:
    half = call("finish_task", summary="Half.", completion_percentage=50, next_phase="The rest.")
    session = bench(half, PAY, DONE)
    (phase,) = of(PhaseAccepted, session.events("do it"))
    assert (phase.turn, phase.percentage, phase.summary, phase.next_phase) == (1, 50, "Half.", "The rest.")
    assert session.history()[0].events == (phase,)


def test_more_turns_are_told_also_where_more_than_the_limit_were_used(bench: Bench) -> None:
    def turns_of(events: Iterable[SessionEvent]) -> list[tuple[int, int]]:
        """The turns that were told, each with how many there may be."""
        return list(dict.fromkeys((event.turn, event.turns) for event in of(Entered, events)))

    one, two, three = (call("pay", amount=amount) for amount in (1, 2, 3))
    session = bench(ASK, one, two, ASK, three, DONE, limits={"turns": 1})
    session.run("do it")
    assert turns_of(session.events(Answer("this"))) == [(1, 1), (2, 1)]
    first, *rest = session.events(go_on(2))
    assert (first, turns_of(rest)) == (Resumed("go on", turns=2), [(2, 4), (3, 4), (4, 4)])
    assert turns_of(session.events(Answer("this"))) == [(4, 4), (5, 4)]
    assert turns_of(session.events(go_on(1))) == [(5, 6), (6, 6)]


# As JSON.

EVENTS: list[SessionEvent] = [
    Entered(State.CALL_LLM, 1, 9, 3, State.DECIDE, seq=4, at=2.5, path=("execute:1",)),
    Token("a", "m"),
    Retrying(1.5, "rate limit", 2, 5, True),
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
    Resumed("go on", turns=3),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_goes_through_json(event: SessionEvent) -> None:
    given = event.to_dict()
    SCHEMA.validate(given)
    back = from_dict(json.loads(json.dumps(given, allow_nan=False)))
    assert (back, back.seq, back.at, given["type"]) == (event, event.seq, event.at, event.type)


def test_all_events_of_a_run_fit_the_schema(bench: Bench) -> None:
    script = [
        "Hm.",
        reply("I look.", call("look", where="here"), call("think", thought="so"), PAY),
        call("run", command="ls"),
        call("ask_user", question="Which?", options=["a", "b"]),
        call("finish_task", summary="Done.", requires_user_confirmation=True),
    ]
    session = bench(*script, approvals={"pay": True, "run": "hand_over"})
    moves = ("do it", Answer("approve"), Answer("a.txt"), Answer(1), Answer("yes"))
    events = [event for move in moves for event in session.events(move)]
    kinds = [type(event.decision).__name__ for event in of(Decided, events)]
    assert kinds == ["Approval", "Action", "Question", "Approval", "Ended"]
    assert len(of(TaskEnded, events)) == 1
    for event in events:
        SCHEMA.validate(event.to_dict())
        assert from_dict(json.loads(json.dumps(event.to_dict()))) == event


def in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ODD: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    # What a tool writes, and whether it is told well.
    "no number": (float("nan"), lambda told: told == "nan"),
    "infinity": (float("inf"), lambda told: told == "inf"),
    "half a character": ("\ud800", lambda told: told == "\ufffd"),
    "an object": (Path("a"), lambda told: told == "a"),
    "a set in a list": ([{1}], lambda told: told == ["{1}"]),
    "keys": ({1: {None: (2,)}}, lambda told: told == {"1": {"None": [2]}}),
    "a list that holds itself": (in_itself(), lambda told: isinstance(told, str)),
}


@pytest.mark.parametrize("name", ODD)
def test_progress_of_any_make_goes_through_json(name: str) -> None:
    value, is_told = ODD[name]
    given = CallProgress(1, "pay", "c", value).to_dict()
    assert is_told(given["data"])
    json.dumps(given, allow_nan=False, ensure_ascii=False).encode()


NO_EVENTS: list[Any] = [
    {},
    {"type": "nothing"},
    {"type": "token"},
    {"type": "decided", "decision": {"type": "token"}},
    [],
    None,
]


@pytest.mark.parametrize("given", NO_EVENTS, ids=json.dumps)
def test_what_is_no_event_is_refused(given: Any) -> None:
    with pytest.raises(SetupError):
        from_dict(given)
