"""The tools by which a model ends its task: names, what they return, the result, the last message."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import (
    ControlTool,
    Session,
    SetupError,
    Texts,
    ThreadError,
    build_graph,
    go_on,
    outcome_of,
    standard_controls,
)
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from tests.support.interrupting import interrupt_process
from tests.support.plays import (
    ASK,
    FAIL,
    FINISH,
    GO,
    TEXTS,
    THINK,
    THREAD,
    WRITE,
    Play,
    ai,
    check,
    done,
    labelled,
    play,
    results,
    saved,
    user,
)

YES: Any = Command(resume="yes")
NO: Any = Command(resume="Not yet.")
PARTIAL = call("finish_task", summary="x", outcome="partial")
BLOCKED = call("finish_task", summary="No key.", outcome="blocked")
LONG = "w " * 25_000


@tool
def escalate(reason: str) -> str:
    """Give the task to a person."""
    return "paged"


ESCALATE, TASK_DONE = call("escalate", reason="too hard"), call("task_done", summary="All of it.")


def beside(given: Any, effect: Any = "finish", **options: Any) -> dict[str, Any]:
    return {"control_tools": [*standard_controls(), ControlTool(given, effect, **options)]}


def named(**options: Any) -> dict[str, Any]:
    return {"control_tools": standard_controls(**options)}


FINISHES = {
    "work before a finish in its reply": play([[WRITE, WRITE, FINISH]], ran="write write", turns=1),
    "work after it never runs": play([[FINISH, WRITE]], told="<after_control> finish_task", whole=True),
    "an honest end without success": play([BLOCKED], claim="blocked", verified="asserted"),
    "a summary of 50,000 characters": play([ai(("finish_task", "f", {"summary": LONG}))], summary=LONG),
    "a reason in place of a summary": play([call("finish_task", summary=" ", reason="So.")], summary="So."),
    "a tool that finishes": play([ESCALATE], options=beside(escalate), reason="escalate", result="paged"),
    "a tool that asks": play([ESCALATE, FINISH], then=NO, options=beside(escalate, "ask"), waits="question"),
    "a tool that goes on": play([ESCALATE, FINISH], options=beside(escalate, "continue"), told="<thought>"),
    "an alias": play([TASK_DONE], options=named(aliases=["task_done"])),
    "another name": play([TASK_DONE], options=named(finish="task_done"), reason="task_done", turns=1),
}


@pytest.mark.parametrize("name", FINISHES)
def test_a_finish(name: str) -> None:
    check(FINISHES[name])


def test_another_name_is_told_everywhere_and_another_tool_in_the_prompt() -> None:
    model = ScriptedModel(["hm", call("task_done", summary=""), TASK_DONE])
    build_graph(model, **named(finish="task_done")).invoke(GO)
    for seen in model.seen:
        shown = "\n".join(message.text for message in seen.messages) + str(seen.tools)
        assert ("finish_task" in shown, "task_done" in shown) == (False, True)
    model = ScriptedModel([ESCALATE])
    build_graph(model, control_tools=[ControlTool(escalate, "finish")]).invoke(GO)
    assert "`escalate`" in model.seen[0].messages[0].text


def test_an_alias_that_is_another_tool_is_refused() -> None:
    for alias, names in (("think", "control tool"), ("escalate", "escalate")):
        with pytest.raises(SetupError, match=names):
            build_graph(ScriptedModel([]), [escalate], **named(aliases=[alias]))


# A finishing tool of one's own is run, at most once, and says whether the task has ended.


class Submit:
    """A finishing tool that gives its answers one after another, and counts how often it is run."""

    def __init__(self, *answers: Any, **metadata: Any) -> None:
        self.ran, self.answers = 0, answers
        self.tool = StructuredTool.from_function(self.submit, description="Hand in.", metadata=metadata)

    def submit(self, report: str) -> Any:
        self.ran += 1
        answer = self.answers[min(self.ran, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


def hands_in(*answers: Any, **more: Any) -> Callable[[], dict[str, Any]]:
    """The settings of a graph with a new `submit`, which counts."""
    return lambda: beside(Submit(*answers).tool, **more)


SUBMIT = call("submit", report="42")


def goes_on_for_two(value: Any) -> str:
    return "continue" if value == [1, 2] else "finish"


def asks_itself() -> Any:
    return interrupt("really?")


def submits(*answers: Any, script: Sequence[Any] = (SUBMIT,), decide: Any = None, **ends: Any) -> Play:
    """The model hands in, and the tool gives these answers."""
    more = {"decide": decide} if decide else {}
    return play(script, options=hands_in(*answers, **more), **{"reason": "submit", **ends})


TWICE = [SUBMIT, SUBMIT]
THEN_FINISH: dict[str, Any] = {"script": [SUBMIT, FINISH], "reason": "finish_task"}
NO_NETWORK, UNRUN = ValueError("no network"), hands_in(AssertionError("it must not run"))
BLOCKS = [{"type": "image_url", "image_url": {"url": "https://host/a.png"}}]
FIRST_NOT = {"shouldContinue": True, "hint": "missing"}
IMPORTED = [user(), ai(("submit", "s", {"report": "42"})), done("s")]
RUN = {
    "what it returns is the result": submits({"ticket": 7}, result={"ticket": 7}, refusals=0),
    "and so are the blocks of a message": submits(BLOCKS, result=BLOCKS),
    "shouldContinue goes on": submits(FIRST_NOT, "sent", script=TWICE, refusals=0, told="missing"),
    "a function decides": submits([1, 2], decide=goes_on_for_two, told="[1, 2]", **THEN_FINISH),
    "it fails: a refusal": submits(NO_NETWORK, "sent", script=TWICE, refusals=1, told="no network"),
    "it fails again: a limit": submits(NO_NETWORK, script=TWICE, saved=False, reason="review_deadlock"),
    "it fails again: a person": submits(NO_NETWORK, script=TWICE, then=YES, verified="unverified"),
    "its function fails": submits("x", decide=lambda value: value["no"], refusals=1, **THEN_FINISH),
    "it asks for a person": submits("look", decide=lambda _: "ask", then=YES, waits="finish", result="look"),
    "not beside a call that failed": play([[FAIL, SUBMIT], FINISH], options=UNRUN, ran="fail", refusals=1),
    "not after a check failed": play([SUBMIT, PARTIAL], options=UNRUN, checks=["false"], claim="partial"),
    "not of an import with a result": play([], sent=[IMPORTED], options=UNRUN, reason="submit", result="ok"),
    "it may ask by itself": submits(asks_itself, then=YES, waits="foreign", result="yes"),
}


@pytest.mark.parametrize("name", RUN)
def test_a_finishing_tool_is_run(name: str) -> None:
    check(RUN[name])


def test_it_is_run_only_when_a_person_has_confirmed() -> None:
    ran: list[str] = []

    def submit(report: str, requires_user_confirmation: bool = False) -> str:
        """Hand in."""
        ran.append(report)
        return "sent"

    confirmed = call("submit", report="42", requires_user_confirmation=True)
    graph = build_graph(ScriptedModel([confirmed, confirmed]), **saved(), **beside(tool(submit)))
    for given, runs in ((GO, []), (NO, []), (YES, ["42"])):
        graph.invoke(given, THREAD)
        assert ran == runs


CUT_SHORT: dict[str, tuple[dict[str, Any], Any, tuple[str, int, int]]] = {
    # Its metadata, what comes next, and how the task ends: by what, with how many refusals and runs.
    "nobody knows whether it took effect": ({}, None, ("finish_task", 1, 1)),
    "it may be repeated": ({"idempotent": True}, None, ("submit", 0, 2)),
    "a message begins another task": ({}, GO, ("finish_task", 0, 1)),
}


@pytest.mark.parametrize("name", CUT_SHORT)
def test_a_kill_in_the_middle_of_it(name: str) -> None:
    metadata, given, (reason, refusals, ran) = CUT_SHORT[name]
    submit, storage = Submit(interrupt_process, "sent", **metadata), saved()
    policy = {"texts": TEXTS}
    graph = build_graph(ScriptedModel([SUBMIT, FINISH]), policy=policy, **storage, **beside(submit.tool))
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    result = graph.invoke(given, THREAD)
    ended = outcome_of(result)
    assert (ended.reason, ended.refusals, submit.ran) == (reason, refusals, ran)
    if given is GO:
        assert results(result, "submit")[0].startswith("<unknown_outcome> submit")
        assert [task.reason for task in read_ended(storage["store"])] == ["superseded", "finish_task"]


def test_without_a_journal_building_warns_unless_it_only_reads() -> None:
    with pytest.warns(UserWarning, match="submit"):
        build_graph(ScriptedModel([]), checkpointer=InMemorySaver(), **beside(Submit("x").tool))
    build_graph(ScriptedModel([]), checkpointer=InMemorySaver(), **beside(Submit("x", kind="read").tool))


# A result of a given shape: what fits is carried by the outcome, what does not is refused.


class Page(BaseModel):
    """A page."""

    title: str
    views: int = Field(ge=0, alias="seen", default=0)


@dataclass
class Place:
    """A town."""

    name: str
    day: int


class Sum(TypedDict):
    """A number."""

    total: int


TAGS: dict[str, Any] = {
    "title": "Page",
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}}},
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"Tag": {"type": "string", "maxLength": 5}},
}


def gives(result: Any, **more: Any) -> Any:
    return call("finish_task", summary="All of it.", result=result, **more)


def misfits(form: Any, given: Any, told: str) -> Play:
    script = [gives(given), gives(A)]
    return play(script, form=form, refusals=1, told=told)


@tool
def submit(title: str, views: int) -> dict[str, Any]:
    """Hand a page in."""
    return {"title": title, "views": views}


A = {"title": "a"}
PAGE: dict[str, Any] = {"response_format": Page}
KEPT = {"title": "a", "views": 0}
ABOVE, BELOW = call("submit", title="a", views=0), call("submit", title="a", views=-1)
HALF = call("finish_task", summary="x", completion_percentage=50)
ASKS = call("finish_task", summary="x", requires_user_confirmation=True)


def unfit(script: list[Any], form: Any = Page, options: Any = None) -> Play:
    """What lacks its result ends at a limit, and is never offered to a person."""
    return play(script, form=form, options=options, reason="review_deadlock", result=None, waits="")


CONFIRMED: dict[str, Any] = {"options": hands_in(FIRST_NOT), "approvals": {"submit": True}}
FORMS = {
    "a field of a model is missing": misfits(Page, {}, "result.title"),
    "a field of a model is wrong": misfits(Page, {"title": "a", "seen": -1}, "result.seen"),
    "a field of a schema, deep inside": misfits(TAGS, {"title": "a", "tags": ["b", "longer"]}, "tags.1"),
    "none at all": play([FINISH, gives(A)], form=Page, refusals=1, told="<arguments>"),
    "partial needs one": play([PARTIAL, gives(A, outcome="partial")], form=Page, claim="partial", refusals=1),
    "blocked needs none": play([BLOCKED], form=Page, claim="blocked", result=None, refusals=0),
    "a phase needs none": play([HALF, gives(A)], form=Page, refusals=0),
    "a finishing tool returns it": play([ABOVE], form=Page, options=beside(submit), reason="submit"),
    "a valid one, despite a check": play([gives(A)] * 2, then=YES, form=Page, checks=["false"], result=KEPT),
    "a confirmed one goes on": play([SUBMIT, gives(A)], then=YES, form=Page, **CONFIRMED, told="hint"),
    "it never fits": unfit([gives({})] * 2),
    "a person would be asked to confirm it": unfit([ASKS] * 2),
    "a finishing tool returns something else": unfit([BELOW] * 2, options=beside(submit)),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_result_of_a_given_shape(name: str) -> None:
    check(FORMS[name])


TAGGED = {"title": "a", "tags": ["b"]}
SHAPES: dict[str, tuple[Any, Any, Any, Any]] = {
    # What the model gives, the instance, and what is stored.
    "a model": (Page, {"title": "a", "seen": 3}, Page(title="a", seen=3), {"title": "a", "views": 3}),
    "a dataclass": (Place, {"name": "Graz", "day": "1"}, Place("Graz", 1), {"name": "Graz", "day": 1}),
    "a TypedDict, given as text": (Sum, '{"total": 3}', {"total": 3}, {"total": 3}),
    "a JSON schema": (TAGS, TAGGED, TAGGED, TAGGED),
    "text around the object": (TAGS, '{"title": "a"}', A, A),
}


@pytest.mark.parametrize(("form", "given", "instance", "stored"), SHAPES.values(), ids=SHAPES)
def test_the_instance_and_what_is_stored(form: Any, given: Any, instance: Any, stored: Any) -> None:
    model = ScriptedModel([gives(given)])
    graph = build_graph(model, response_format=form, **saved())
    result = graph.invoke(GO, THREAD)
    assert (outcome_of(result).result, result["outcome"]["result"]) == (instance, stored)
    # Nothing says in a state of what type it is.
    values = graph.get_state(THREAD).values
    assert outcome_of(values).result == stored
    assert outcome_of(result).model_dump() == values["outcome"]
    told = next(one["function"] for one in model.seen[0].tools if one["function"]["name"] == "finish_task")
    assert told["parameters"]["required"] == ["summary", "result"]
    assert "$ref" not in str(told)


def test_what_has_no_outcome_and_a_result_of_another_shape_are_refused() -> None:
    with pytest.raises(ThreadError):
        outcome_of(build_graph(ScriptedModel([ASK]), **saved()).invoke(GO, THREAD))
    with pytest.raises(SetupError):
        outcome_of({"messages": []})
    finished = build_graph(ScriptedModel([gives(A)]), **PAGE).invoke(GO)
    with pytest.raises(SetupError, match="response_format"):
        outcome_of(dict(finished), Place)


def test_a_shape_needs_finish_task_and_a_schema_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="finish_task"):
        build_graph(ScriptedModel([]), control_tools=[ControlTool(escalate, "finish")], **PAGE)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SetupError, match="schema"):
        build_graph(ScriptedModel([]), response_format=TAGS)


# The last message of a run is the answer; it is no turn, and shown to the next task alone.

ANSWERS = replace(TEXTS, answers=labelled(Texts().answers))
ONE: dict[str, Any] = {"limits": {"turns": 1}}
LAST: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    # What stands in it, in this order.
    "a finish": (FINISH, {}, ["<success>", "All of it."]),
    "a claim of less": (BLOCKED, {}, ["<claimed> blocked", "No key."]),
    "a limit": (THINK, ONE, ["<limit>", "1 of 1"]),
    "a limit after words": ("Half of it.", ONE, ["<limit>", "1 of 1", "<last_words> Half of it."]),
    "an error": (ASK, {}, ["<error>", "Which one?"]),
    "an answer beside the summary": (
        call("finish_task", summary="All of it.", answer="It is 42."),
        named(answer="argument"),
        ["<success>", "It is 42."],
    ),
    "none": (FINISH, named(answer="none"), ["<accepted>"]),
}


@pytest.mark.parametrize(("step", "options", "parts"), LAST.values(), ids=LAST)
def test_the_last_message_is_the_answer(step: Any, options: dict[str, Any], parts: list[str]) -> None:
    result = build_graph(ScriptedModel([step]), policy={"texts": ANSWERS}, **options).invoke(GO)
    text = result["messages"][-1].text
    assert [part for part in parts if part not in text] == []
    assert sorted(parts, key=text.index) == parts


def test_an_answer_that_is_asked_for_and_missing_is_refused() -> None:
    empty = call("finish_task", summary="x", answer=" ")
    half = call("finish_task", summary="x", completion_percentage=50)
    whole = call("finish_task", summary="x", answer="42")
    script = [FINISH, empty, half, whole]
    played = check(play(script, options=named(answer="argument"), refusals=2))
    assert played.result["messages"][-1].text == "42"


def test_every_end_keeps_its_answer_and_it_is_no_turn() -> None:
    model = ScriptedModel([THINK, RuntimeError("down"), FINISH, FINISH])
    policy = {"texts": ANSWERS, "model_retries": None}
    graph = build_graph(model, policy=policy, **saved(), **ONE)
    for given in (GO, go_on(turns=1), go_on(), GO):
        result = graph.invoke(given, THREAD)
    answers = [message.text.split()[0] for message in result["messages"] if message.text.startswith("<")]
    ends = [word for word in answers if word in ("<limit>", "<error>", "<success>")]
    assert ends == ["<limit>", "<error>", "<success>", "<success>"]
    assert [len({turn.number for turn in Session(graph, "t").history()}), outcome_of(result).turns] == [2, 1]
    # Only what was accepted is shown again.
    shown = [str(message.text) for seen in model.seen for message in seen.messages]
    assert not any(text.startswith(("<limit>", "<error>")) for text in shown)
    assert shown.count("<success> All of it.") == 1


def test_as_a_node_of_another_graph_it_is_what_that_graph_shows() -> None:
    graph = build_graph(ScriptedModel([FINISH]), name="worker")
    outer = StateGraph(MessagesState).add_node("worker", graph)
    last = outer.add_edge(START, "worker").add_edge("worker", END).compile().invoke(GO)["messages"][-1]
    assert (last.text, last.name, graph.name) == ("All of it.", "worker", "worker")
