"""The events of a session: what each of them says, live and in a history, and that they go through JSON."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jsonschema  # type: ignore[import-untyped]  # the package has no stubs
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.prebuilt import ToolRuntime

from signoff import Answer, Approval, Question, Session, SetupError, Waiting, build_graph
from signoff.events import (
    Answered,
    CallDecided,
    CallFinished,
    CallProgress,
    CallStarted,
    Confirmed,
    Decided,
    Entered,
    Nudged,
    PhaseAccepted,
    Resumed,
    Said,
    SessionEvent,
    TaskEnded,
    Thought,
    Token,
    Wrote,
    events_schema,
    from_dict,
)
from signoff.models import ScriptedModel, call, reply
from tests.support.benches.session import DONE, Bench

E = TypeVar("E")
Events = Sequence[SessionEvent]
SCHEMA = jsonschema.Draft202012Validator(events_schema())
ASK = call("ask_user", question="Which?")
PAY = call("pay", amount=50)


def of(kind: type[E], events: Events) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def words(events: Events) -> str:
    return "".join(token.text for token in of(Token, events))


def run(session: Session, command: Any, **options: Any) -> Events:
    """The events of a run. Each fits the schema, and goes through JSON."""
    events = list(session.events(command, **options))
    for event in events:
        document = event.to_dict()
        SCHEMA.validate(document)
        assert from_dict(json.loads(json.dumps(document, allow_nan=False))) == event
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return events


# A run.


def test_events_tell_everything_in_order(bench: Bench) -> None:
    before = time.time()
    events = run(bench("Hm.", call("look", where="here"), DONE), "do it")
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
    assert (states[:4], states[-2:]) == (["decide", "call_llm", "route_tools", "nudge"], ["review", "finish"])
    times = [before, *[event.at or 0 for event in events], time.time()]
    assert (times, {event.path for event in events}) == (sorted(times), {()})


def test_ids_are_those_of_the_history(bench: Bench) -> None:
    looks = reply("I look.", call("look", where="here"), call("think", thought="so"))
    session = bench("Hm.", looks, ASK, DONE)
    events = [*run(session, "do it"), *run(session, Answer("this"))]
    messages = {message.id: message for message in session.status().values["messages"]}
    for said in of(Said, events):
        message = messages[said.message_id]
        assert isinstance(message, AIMessage)
        calls = [(one["id"], one["name"], one["args"]) for one in message.tool_calls]
        assert calls == [(called.call_id, called.name, called.args) for called in said.calls]
    told: list[Token | Nudged] = [*of(Token, events), *of(Nudged, events)]
    assert [one for one in told if one.text not in messages[one.message_id].text] == []
    results: list[Any] = [*of(CallFinished, events), *of(Thought, events), *of(Answered, events)]
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
    events = run(bench(calls, DONE, tools=[build, measure, inspect]), "do it")
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

    events = run(bench(reply("Outside.", call("hire", task="x", id="h")), DONE, tools=[hire]), "do it")
    assert words(events) == "Outside."
    assert [(one.call_id, one.data) for one in of(CallProgress, events)] == [("h", "hired")]
    assert [(one.name, one.result) for one in of(CallFinished, events)] == [("hire", "success")]


# What people do.


def test_the_arguments_that_ran_are_told_after_an_edit(bench: Bench) -> None:
    session = bench(PAY, DONE, call("look", where="here"), DONE, approvals={"pay": True})
    waiting = session.run("do it")
    assert isinstance(waiting, Approval)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5}}}
    events = run(session, Answer([edit], waiting.interrupt_id, by="ada"))
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


PERSON = call("finish_task", summary="Done.", requires_user_confirmation=True)
RESPOND = [{"type": "respond", "message": "It is paid."}]
OBSERVED = {"output": "a.txt", "seconds": 2.0}
ACCEPTED: dict[str, Any] = {"ok": True, "words": ""}


@dataclass
class Who:
    """first: what the model does. answer: what Ada answers. fields: of the event that tells it."""

    first: Any
    answer: Any
    kind: type[SessionEvent]
    fields: dict[str, Any]
    decision: str = ""
    options: dict[str, Any] = field(default_factory=dict)


PAID: dict[str, Any] = {"approvals": {"pay": True}}
DRIVEN: dict[str, Any] = {"approvals": {"run": "hand_over"}}
WHO = {
    "approved": Who(PAY, "approve", CallFinished, {"ok": True, "not_run": "", "person": ""}, "approve", PAID),
    "rejected": Who(PAY, "no", CallFinished, {"ok": False, "not_run": "rejected"}, "reject", PAID),
    "responded": Who(PAY, RESPOND, CallFinished, {"ok": True, "person": "responded"}, "respond", PAID),
    "ran what was handed over": Who(
        call("run", command="ls"), OBSERVED, CallFinished, {"result": "a.txt", "seconds": 2.0}, "", DRIVEN
    ),
    "answered a question": Who(ASK, "this", Answered, {"question": "Which?", "answer": "this"}),
    "answered what the model said": Who(
        "Which?", "this", Wrote, {"text": "this", "answers": True}, "", {"policy": {"talk": "natural"}}
    ),
    "confirmed a finish": Who(PERSON, "yes", Confirmed, ACCEPTED),
    "refused a finish": Who(PERSON, "too short", Confirmed, {"ok": False, "words": "too short"}),
}


@pytest.mark.parametrize("name", WHO)
def test_who_did_what_is_told_live_and_in_the_history(name: str, bench: Bench) -> None:
    case = WHO[name]
    session = bench(case.first, DONE, **case.options)
    waiting = session.run("do it")
    assert isinstance(waiting, Waiting)
    events = run(session, Answer(case.answer, by="ada"))
    event: Any
    event, *_ = of(case.kind, events)
    assert {name: getattr(event, name) for name in case.fields} == case.fields
    assert event.by == "ada"
    assert [(one.decision, one.by) for one in of(CallDecided, events)] == [(case.decision, "ada")][
        : bool(case.decision)
    ]
    assert len(of(CallStarted, events)) == (case.decision == "approve")
    (first, *_) = session.history()
    assert (event in first.events, first.message_id) == (True, waiting.document()["reply_id"])


def test_an_accepted_phase_is_told(bench: Bench) -> None:
    half = call("finish_task", summary="Half.", completion_percentage=50, next_phase="The rest.")
    session = bench(half, PAY, DONE)
    (phase,) = of(PhaseAccepted, run(session, "do it"))
    assert (phase.turn, phase.percentage, phase.summary, phase.next_phase) == (1, 50, "Half.", "The rest.")
    assert session.history()[0].events == (phase,)


# As JSON.


def in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ODD: dict[str, tuple[Any, Any]] = {
    # What a tool writes, and what is told of it.
    "no number": (float("nan"), "nan"),
    "half a character": ("\ud800", "\ufffd"),
    "keys": ({1: {None: (2,)}}, {"1": {"None": [2]}}),
}


@pytest.mark.parametrize(("value", "told"), ODD.values(), ids=ODD)
def test_progress_of_any_make_goes_through_json(value: Any, told: Any, bench: Bench) -> None:

    @tool
    def odd() -> str:
        """Write something odd."""
        get_stream_writer()(value)
        get_stream_writer()(in_itself())
        return "odd"

    events = of(CallProgress, list(bench(call("odd"), DONE, tools=[odd]).events("do it")))
    first, second = (event.to_dict() for event in events)
    assert (first["data"], type(second["data"])) == (told, str)
    json.dumps(first, allow_nan=False, ensure_ascii=False).encode()


NO_EVENTS: list[Any] = [{"type": "nothing"}, {"type": "token"}, None]


@pytest.mark.parametrize("given", NO_EVENTS, ids=json.dumps)
def test_what_is_no_event_is_refused(given: Any) -> None:
    with pytest.raises(SetupError):
        from_dict(given)
