"""The tools by which a model ends its task: names, what they return, the result, the last message."""

import copy
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, assert_type

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import (
    ControlTool,
    Ended,
    Graph,
    Outcome,
    Session,
    SetupError,
    Texts,
    ThreadError,
    build_graph,
    go_on,
    outcome_of,
    standard_controls,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from signoff.outcome import RunResult
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


@tool
def escalate(reason: str) -> str:
    """Give the task to a person."""
    return f"paged: {reason}"


ESCALATE, TASK_DONE = call("escalate", reason="too hard"), call("task_done", summary="All of it.")


def beside(given: Any, effect: Any = "finish", **options: Any) -> dict[str, Any]:
    return {"control_tools": [*standard_controls(), ControlTool(given, effect, **options)]}


def named(**options: Any) -> dict[str, Any]:
    return {"control_tools": standard_controls(**options)}


FINISHES = {
    "work before a finish in its reply": play([[WRITE, WRITE, FINISH]], ran="write write", turns=1),
    "work after it never runs": play([[FINISH, WRITE]], told="<after_control> finish_task", whole=True),
    "a question after it is not asked": play([[FINISH, ASK]], told="<after_control>", whole=True, waits=""),
    "a thought before it": play([[THINK, FINISH]], told="<thought>"),
    "words beside it": play([["I am not done yet!", FINISH]], turns=1),
    "an honest end without success": play([BLOCKED], claim="blocked", verified="asserted"),
    "a summary of 1 MB": play(
        [ai(("finish_task", "f", {"summary": "w " * 500_000}))], summary="w " * 500_000
    ),
    "a tool that finishes": play(
        [ESCALATE], options=beside(escalate), reason="escalate", result="paged: too hard"
    ),
    "a tool that asks": play(
        [ESCALATE, FINISH], then=NO, options=beside(escalate, "ask"), waits="question", told="Not yet."
    ),
    "a tool that goes on": play(
        [ESCALATE, FINISH], options=beside(escalate, "continue"), told="<thought>", turns=2
    ),
    "an alias": play([TASK_DONE], options=named(aliases=["task_done"])),
    "beside which the name stays": play([FINISH], options=named(aliases=["task_done"])),
    "a slip of an alias": play(
        [call("functions.task_done", summary="x")], options=named(aliases=["task_done"])
    ),
    "another name": play([TASK_DONE], options=named(finish="task_done"), reason="task_done", turns=1),
    "of which the first is an alias": play(
        [FINISH], options=named(finish="task_done"), reason="task_done", turns=1
    ),
}


@pytest.mark.parametrize("name", FINISHES)
def test_a_finish(name: str) -> None:
    check(FINISHES[name])


def test_an_alias_stops_the_stream_too() -> None:
    graph = build_graph(ScriptedModel([[TASK_DONE, WRITE]]), **named(aliases=["task_done"]))
    messages = graph.invoke(GO)["messages"]
    assert [found["name"] for found in messages[1].tool_calls] == ["finish_task"]


def test_another_name_is_told_everywhere_and_another_tool_in_the_prompt() -> None:
    model = ScriptedModel(["hm", call("task_done", summary=""), TASK_DONE])
    build_graph(model, **named(finish="task_done")).invoke(GO)
    for seen in model.seen:
        shown = "\n".join(message.text for message in seen.messages) + str(seen.tools)
        assert ("finish_task" in shown, "task_done" in shown) == (False, True)
    model = ScriptedModel([ESCALATE])
    build_graph(model, control_tools=[ControlTool(escalate, "finish")]).invoke(GO)
    assert "`escalate`" in model.seen[0].messages[0].text


CLASHES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "an alias that is a control tool": (lambda: named(aliases=["think"]), "control"),
    "an alias twice": (lambda: named(aliases=["done", "done"]), "control"),
    "an alias that is a tool": (lambda: {"tools": [escalate], **named(aliases=["escalate"])}, "escalate"),
    "a decision of what is no finish": (
        lambda: beside(escalate, "ask", decide=lambda value: "finish"),
        "finish",
    ),
    "an answer that is none of three": (lambda: named(answer="off"), "answer"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_control_tools_that_cannot_work_are_refused(name: str) -> None:
    options, says = CLASHES[name]
    with pytest.raises(SetupError, match=says):
        build_graph(ScriptedModel([]), **options())


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


def confused(value: Any) -> Any:
    raise KeyError("what")


SUBMIT = call("submit", report="42")


def goes_on_for_two(value: Any) -> str:
    return "continue" if value == [1, 2] else "finish"


def asks_itself() -> Any:
    return interrupt("really?")


NO_NETWORK, SECOND = ValueError("no network"), {"shouldContinue": False}
ASKS = hands_in("look", decide=lambda _: "ask")
UNRUN = hands_in(AssertionError("it must not run"))
FIRST_NOT = {"shouldContinue": True, "hint": "missing"}
IMPORTED = [user(), ai(("submit", "s", {"report": "42"}))]
RUN = {
    "what it returns is the result": play(
        [SUBMIT], options=hands_in({"ticket": 7}), reason="submit", result={"ticket": 7}, refusals=0
    ),
    "a text is one, too": play([SUBMIT], options=hands_in("sent"), reason="submit", result="sent"),
    "shouldContinue goes on with its answer": play(
        [SUBMIT, SUBMIT],
        options=hands_in(FIRST_NOT, SECOND),
        reason="submit",
        turns=2,
        refusals=0,
        told="missing",
    ),
    "should_continue, too": play([SUBMIT, FINISH], options=hands_in({"should_continue": True})),
    "a word that is not true does not": play(
        [SUBMIT], options=hands_in({"shouldContinue": "false"}), reason="submit"
    ),
    "what it returned before is no result of another finish": play(
        [SUBMIT, FINISH], options=hands_in(FIRST_NOT), result=None
    ),
    "a function decides by what it returned": play(
        [SUBMIT, FINISH], options=hands_in([1, 2], decide=goes_on_for_two), told="[1, 2]"
    ),
    "it fails: the claim is refused": play(
        [SUBMIT, SUBMIT], options=hands_in(NO_NETWORK, "sent"), reason="submit", refusals=1, told="no network"
    ),
    "it fails again: a limit": play(
        [SUBMIT, SUBMIT], options=hands_in(NO_NETWORK), saved=False, reason="review_deadlock"
    ),
    "it fails again: a person accepts": play(
        [SUBMIT, SUBMIT],
        then=YES,
        options=hands_in(NO_NETWORK),
        reason="submit",
        verified="unverified",
        result=None,
    ),
    "its function fails: the claim is refused": play(
        [SUBMIT, FINISH], options=hands_in("x", decide=confused), refusals=1
    ),
    "its function says no effect": play(
        [SUBMIT, FINISH], options=hands_in("x", decide=lambda _: "perhaps"), refusals=1
    ),
    "it asks for a person": play(
        [SUBMIT], then=YES, options=ASKS, waits="finish", reason="submit", result="look"
    ),
    "it asks for a person, who says no": play(
        [SUBMIT, FINISH], then=NO, options=ASKS, refusals=1, told="<sent_back> Not yet."
    ),
    "it asks for a person, and there is none": play(
        [SUBMIT], saved=False, options=ASKS, reason="needs_person", claim="done"
    ),
    "beside a call that failed it is not run": play(
        [[FAIL, SUBMIT], FINISH], options=UNRUN, ran="fail", refusals=1, told="<siblings> fail"
    ),
    "after a check that failed it is not run": play(
        [SUBMIT, PARTIAL], options=UNRUN, checks=[lambda: False], claim="partial", refusals=1
    ),
    "with wrong arguments it is not run": play(
        [call("submit", text="x"), FINISH], options=UNRUN, refusals=1, told="report"
    ),
    "of an import with its result it is not run": play(
        [], sent=[[*IMPORTED, done("s")]], options=UNRUN, reason="submit", result="ok"
    ),
    "of an import whose result goes on": play(
        [FINISH], sent=[[*IMPORTED, done("s", '{"shouldContinue": true}')]], options=UNRUN, turns=2
    ),
    "of an import whose result is an error": play(
        [FINISH], sent=[[*IMPORTED, ToolMessage("broke", tool_call_id="s", status="error")]], options=UNRUN
    ),
    "it may ask by itself": play(
        [SUBMIT], then=YES, options=hands_in(asks_itself), waits="foreign", reason="submit", result="yes"
    ),
}


@pytest.mark.parametrize("name", RUN)
def test_a_finishing_tool_is_run(name: str) -> None:
    check(RUN[name])


CONFIRMED = call("submit", report="42", requires_user_confirmation=True)


@pytest.mark.parametrize(("answers", "runs"), [([], []), ([NO], []), ([YES], ["42"])], ids=["", "no", "yes"])
def test_it_is_run_only_when_a_person_has_confirmed(answers: list[Any], runs: list[str]) -> None:
    ran: list[str] = []

    def submit(report: str, requires_user_confirmation: bool = False) -> str:
        """Hand in."""
        ran.append(report)
        return "sent"

    graph = build_graph(ScriptedModel([CONFIRMED, FINISH]), **saved(), **beside(tool(submit)))
    for given in [GO, *answers]:
        graph.invoke(given, THREAD)
    assert ran == runs


class Killed(BaseException):
    """What a process that is killed looks like from inside."""


def test_a_kill_after_it_has_run_does_not_run_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, storage = Submit({"ticket": 7}), saved()
    graph = build_graph(ScriptedModel([SUBMIT]), **storage, **beside(submit.tool))
    graph.invoke(GO, THREAD, interrupt_before=["review"])

    def lost(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        # It runs, and nothing of what came of it is saved.
        patched.setattr(storage["checkpointer"], "put_writes", lost)
        patched.setattr(storage["checkpointer"], "put", lost)
        with pytest.raises(Killed):
            graph.invoke(None, THREAD)
    assert (outcome_of(graph.invoke(None, THREAD)).result, submit.ran) == ({"ticket": 7}, 1)


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


class Hidden(BaseModel):
    """What is stored of it cannot be read back."""

    title: str = Field(exclude=True)


@dataclass
class Place:
    """A town."""

    name: str
    days: set[int]


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
BELOW = call("submit", title="a", views=-1)
HALF = call("finish_task", summary="x", completion_percentage=50)


def unfit(script: list[Any], form: Any = Page, options: Any = None) -> Play:
    """What lacks its result ends at a limit, and is never offered to a person."""
    return play(script, form=form, options=options, reason="review_deadlock", result=None, waits="")


FORMS = {
    "a field of a model is missing": misfits(Page, {}, "result.title"),
    "a field of a model is wrong": misfits(Page, {"title": "a", "seen": -1}, "result.seen"),
    "a field of a schema is missing": misfits(TAGS, {}, "'title'"),
    "a field of a schema is wrong, deep inside": misfits(
        TAGS, {"title": "a", "tags": ["b", "longer"]}, "tags.1"
    ),
    "a field too many": misfits(TAGS, {"title": "a", "more": 1}, "'more'"),
    "no object at all": misfits(Page, "the title is a", "result:"),
    "null": misfits(Page, None, "<arguments>"),
    "none at all": play([FINISH, gives(A)], form=Page, refusals=1, told="<arguments>"),
    "partial needs one, too": play(
        [PARTIAL, gives(A, outcome="partial")], form=Page, claim="partial", refusals=1, result=KEPT
    ),
    "blocked needs none": play([BLOCKED], form=Page, claim="blocked", result=None, refusals=0),
    "impossible with an empty one": play(
        [gives({}, outcome="impossible")], form=TAGS, claim="impossible", result=None
    ),
    "blocked with one": play([gives(A, outcome="blocked")], form=Page, claim="blocked", result=KEPT),
    "a phase needs none": play([HALF, gives(A)], form=Page, refusals=0),
    "a person confirms it": play(
        [gives(A, requires_user_confirmation=True)], then=YES, form=Page, waits="finish", result=KEPT
    ),
    "together with another name": play(
        [call("task_done", summary="x", result=A)],
        form=Page,
        options=named(finish="task_done"),
        reason="task_done",
    ),
    "the return value of a finishing tool": play(
        [call("submit", title="a", views=0)], form=Page, options=beside(submit), reason="submit", result=KEPT
    ),
    "a valid one in spite of a check": play(
        [gives(A)] * 2, then=YES, form=Page, checks=[lambda: False], verified="unverified", result=KEPT
    ),
    "it never fits": unfit([gives({})] * 2),
    "a person would be asked to confirm what lacks it": unfit(
        [call("finish_task", summary="x", requires_user_confirmation=True)] * 2
    ),
    "a phase is refused twice": unfit([HALF] * 3),
    "what is stored cannot be read back": unfit([gives(A)] * 2, form=Hidden),
    "a finishing tool returns something else": unfit([BELOW] * 2, options=beside(submit)),
    "a finishing tool that asks returns something else": unfit(
        [BELOW] * 2, options=beside(submit, decide=lambda _: "ask")
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_result_of_a_given_shape(name: str) -> None:
    check(FORMS[name])


TAGGED = {"title": "a", "tags": ["b"]}
SHAPES: dict[str, tuple[Any, Any, Any, Any]] = {
    # What the model gives, the instance, and what is stored.
    "a model": (Page, {"title": "a", "seen": 3}, Page(title="a", seen=3), {"title": "a", "views": 3}),
    "a dataclass": (
        Place,
        {"name": "Graz", "days": ["1", 1]},
        Place("Graz", {1}),
        {"name": "Graz", "days": [1]},
    ),
    "a TypedDict": (Sum, {"total": 3}, {"total": 3}, {"total": 3}),
    "a JSON schema": (TAGS, {"title": "a", "tags": ["b"]}, TAGGED, TAGGED),
    "text around the object": (Sum, '{"total": 3}', {"total": 3}, {"total": 3}),
    "text around the object of a schema": (TAGS, '{"title": "a"}', A, A),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_instance_and_what_is_stored(name: str) -> None:
    form, given, instance, stored = SHAPES[name]
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


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_under_guards(name: str) -> None:
    form, given, instance, stored = SHAPES[name]

    def agent() -> Any:
        return create_agent(ScriptedModel([gives(given)]), middleware=[Guards(response_format=form)])

    plain = agent().invoke(GO)
    assert outcome_of(plain).result == stored
    if isinstance(form, type):
        assert outcome_of(plain, form).result == instance
    assert outcome_of(guarded(agent()).invoke(GO)).result == instance


def test_what_a_type_checker_knows() -> None:
    graph = build_graph(ScriptedModel([FINISH]), response_format=Page)
    assert_type(graph, Graph[Page])
    session = Session(build_graph(ScriptedModel([]), response_format=Page, **saved()), "t")
    assert_type(session, Session[Page])
    assert_type(build_graph(ScriptedModel([])), Graph[Any])
    assert_type(Ended(Outcome(status="error", reason="no")).outcome, Outcome[Any])
    result = build_graph(ScriptedModel([BLOCKED]), response_format=Page).invoke(GO)
    assert_type(result, RunResult[Page])
    assert_type(outcome_of(dict(result), Page).result, Page | None)
    assert (outcome_of(result).claim, outcome_of(result).result) == ("blocked", None)
    # A copy is a dict like any other.
    assert type(pickle.loads(pickle.dumps(result))) is type(copy.deepcopy(result)) is dict


def test_what_has_no_outcome_and_a_result_of_another_shape_are_refused() -> None:
    with pytest.raises(ThreadError):
        outcome_of(build_graph(ScriptedModel([ASK]), **saved()).invoke(GO, THREAD))
    with pytest.raises(SetupError):
        outcome_of({"messages": []})
    finished = build_graph(ScriptedModel([gives(A)]), **PAGE).invoke(GO)
    with pytest.raises(SetupError, match="response_format"):
        outcome_of(dict(finished), Place)


class Untellable:
    """Something that has no JSON schema."""


class Unfinished(BaseModel):
    part: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # a name that nobody has defined


SHAPELESS: dict[str, Any] = {
    "a text": "Page",
    "a number type": int,
    "a class without a schema": Untellable,
    "a model with a part that is defined nowhere": Unfinished,
    "no JSON schema": {"type": "nonsense"},
    "a reference that leads nowhere": {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}},
}


@pytest.mark.parametrize("name", SHAPELESS)
def test_what_is_no_shape_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match="response_format"):
        build_graph(ScriptedModel([]), response_format=SHAPELESS[name])


def test_a_shape_needs_finish_task_and_a_schema_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="finish_task"):
        build_graph(ScriptedModel([]), control_tools=[ControlTool(escalate, "finish")], **PAGE)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SetupError, match="schema"):
        build_graph(ScriptedModel([]), response_format=TAGS)


def test_the_errors_of_a_huge_result_are_short() -> None:
    form = {"type": "object", "additionalProperties": {"type": "integer"}}
    bad = ai(("finish_task", "f", {"summary": "x", "result": {f"k{n}": "x" * 5000 for n in range(50)}}))
    played = check(play([bad, BLOCKED], form=form, claim="blocked"))
    assert len(results(played.result)[0]) < 3000


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


@pytest.mark.parametrize("name", LAST)
def test_the_last_message_is_the_answer(name: str) -> None:
    step, options, parts = LAST[name]
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
    assert [word for word in answers if word in ("<limit>", "<error>", "<success>")] == [
        "<limit>",
        "<error>",
        "<success>",
        "<success>",
    ]
    assert [len({turn.number for turn in Session(graph, "t").history()}), outcome_of(result).turns] == [2, 1]
    # Only what was accepted is shown again.
    shown = [str(message.text) for seen in model.seen for message in seen.messages]
    assert not any(text.startswith(("<limit>", "<error>")) for text in shown)
    assert shown.count("<success> All of it.") == 1


def test_the_same_end_makes_the_same_message() -> None:
    """Of a process that is killed after the step has written, and before that is saved."""
    graph = build_graph(ScriptedModel([FINISH]), **saved())
    first = graph.invoke(GO, THREAD)["messages"]
    before = next(state for state in graph.get_state_history(THREAD) if state.next == ("finish",))
    assert graph.invoke(None, before.config)["messages"] == first
    assert graph.invoke(go_on(), THREAD)["messages"] == first


def test_a_thread_that_is_edited_or_forked_after_its_end_has_an_answer_again() -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH, THINK, FINISH]), **saved())
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"messages": [HumanMessage("and more")]}, "ask_user")
    result = graph.invoke(go_on(), THREAD)
    assert (outcome_of(result).turns, result["messages"][-1].text) == (1, "All of it.")
    fork = Session(graph, "t").fork(0)
    fork.run("do it")
    assert fork.status().values["messages"][-1].text == "All of it."


def test_a_mark_that_a_provider_sends_does_not_make_a_reply_an_answer() -> None:
    said = AIMessage("Hello.", response_metadata={"signoff": {"answer": "m", "after": ""}})
    check(play([said, FINISH], turns=2, nudges=1))


def test_events_tell_the_end_once() -> None:
    session = Session(build_graph(ScriptedModel([FINISH]), **saved()), "t")
    types = [event.type for event in session.events("do it")]
    assert (types.count("said"), types.count("task_ended")) == (1, 1)


def test_as_a_node_of_another_graph_it_is_what_that_graph_shows() -> None:
    graph = build_graph(ScriptedModel([FINISH]), name="worker")
    outer = StateGraph(MessagesState).add_node("worker", graph)
    last = outer.add_edge(START, "worker").add_edge("worker", END).compile().invoke(GO)["messages"][-1]
    assert (last.text, last.name, graph.name) == ("All of it.", "worker", "worker")


# The supervisor's own package uses what LangGraph has moved.
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("mode", ["last_message", "full_history"])
def test_a_supervisor_gets_the_answer(mode: Any) -> None:
    # The lowest versions are tried without this package.
    from langgraph_supervisor import create_supervisor

    graph = build_graph(ScriptedModel([FINISH]), name="worker")
    top = ScriptedModel([call("transfer_to_worker"), "It is done."])
    create_supervisor([graph], model=top, output_mode=mode).compile().invoke(GO)
    assert ("All of it.", "worker") in [(message.text, message.name) for message in top.seen[1].messages]


@pytest.mark.parametrize("name", ["two words", "", "a/b", 3, "x" * 65])
def test_a_name_that_no_provider_takes_is_refused(name: Any) -> None:
    with pytest.raises(SetupError, match="name"):
        build_graph(ScriptedModel([]), name=name)
