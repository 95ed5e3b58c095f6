"""How a history is read, by what a run makes of it: the task, what stands, what is open, what repeats.

Each table gives a run the history of another program, and asks what happens next.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.types import Command

from signoff import Limits, Outcome, build_graph, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.histories import ai, done, user
from tests.support.plays import THREAD, saved

WRITE, READ, ASK, FINISH = ("write", "w"), ("read", "r"), ("ask_user", "q"), ("finish_task", "f")
EMPTY = ("ask_user", "q", {"question": ""})
ROOMY = Limits(turns=99)


class Ran:
    """A run on a history whose messages have the ids m0, m1, …; the model finishes when it is asked."""

    def __init__(self, history: Sequence[BaseMessage], limits: Limits = ROOMY) -> None:
        self.tools: list[str] = []
        self.model = ScriptedModel([call("finish_task", id="end", summary="Here.")])
        tools = [self.tool(name) for name in ("write", "read", "look")]
        graph = build_graph(self.model, tools, limits=limits, **saved())
        given = [message.model_copy(update={"id": f"m{at}"}) for at, message in enumerate(history)]
        result = graph.invoke({"messages": given}, THREAD)
        self.waits = [wait.value["question"] for wait in result.get("__interrupt__", ())]
        self.outcome: Outcome[Any] | None = None if self.waits else outcome_of(result)
        self.results = [message for message in result["messages"] if isinstance(message, ToolMessage)]

    def tool(self, name: str) -> StructuredTool:
        def work(**_: Any) -> str:
            self.tools.append(name)
            return "new"

        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        return StructuredTool.from_function(work, name=name, description="Work.", args_schema=schema)

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        return len(self.model.seen)

    def result(self, call_id: str) -> str:
        """What the last call of this id came to: "ran", "not run", or the text of an imported result."""
        (*_, found) = [message for message in self.results if message.tool_call_id == call_id]
        if found.text == "new":
            return "ran"
        return "not run" if found.status == "error" and found.text != "it broke" else found.text

    def seen(self, expected: dict[str, Any]) -> dict[str, Any]:
        """What the table names: a call's id stands for its result."""
        ended = self.outcome.model_dump() if self.outcome else {}
        known = {**ended, "tools": self.tools, "asked": self.asked, "waits": bool(self.waits)}
        return {name: known[name] if name in known else self.result(name) for name in expected}


Table = dict[str, tuple[list[BaseMessage], dict[str, Any]]]
STANDS = {"asked": 0, "status": "success", "summary": "All of it."}
ASKED: dict[str, Any] = {"asked": 1, "summary": "Here."}

WHERE_A_TASK_BEGINS: Table = {
    "nothing at all": ([], {"status": "error", "asked": 0}),
    "a system message between parts nothing": ([user("a"), SystemMessage("x"), user("b")], {"task": "m0"}),
    "an answer to a question begins nothing": (
        [user("a"), ai(ASK), user("blue"), user("or green")],
        {"task": "m0", "q": "blue\nor green"},
    ),
    "after the answer is a result, a message begins a task": (
        [user("a"), ai(ASK), user("blue"), done("q", "blue"), user("b")],
        {"task": "m4", "q": "blue"},
    ),
    "a question of an earlier reply still waits": (
        [user("a"), ai(ASK), ai(WRITE), done("w"), user("blue")],
        {"task": "m0", "q": "blue"},
    ),
}  # fmt: skip
WHAT_STANDS: Table = {
    "an open question": ([user(), ai(ASK)], {"waits": True, "asked": 0}),
    "a question without words": ([user(), ai(EMPTY)], {"q": "not run", **ASKED}),
    "a question before a finish": ([user(), ai(ASK, FINISH)], {"waits": True, "asked": 0}),
    "a finish before a question": ([user(), ai(FINISH, ASK)], {"waits": False, "q": "not run", **STANDS}),
    "the first of two finishes": (
        [user(), ai(FINISH, ("finish_task", "g", {"summary": "No."}))],
        {"g": "not run", **STANDS},
    ),
}  # fmt: skip
WHAT_IS_OPEN: Table = {
    "work after a finish": ([user(), ai(FINISH, WRITE)], {"tools": [], "w": "not run", **STANDS}),
    "half a batch": ([user(), ai(WRITE, READ), done("w")], {"tools": ["read"], "w": "ok"}),
    "an id twice in one reply": ([user(), ai(WRITE, WRITE), done("w")], {"tools": ["write"]}),
}
TABLES = WHERE_A_TASK_BEGINS | WHAT_STANDS | WHAT_IS_OPEN


@pytest.mark.parametrize("name", TABLES)
def test_what_a_run_makes_of_a_history(name: str) -> None:
    history, expected = TABLES[name]
    assert Ran(history).seen(expected) == expected


# The same again.


def work(steps: str) -> list[BaseMessage]:
    """`A1` is a call of A with the result 1, `A1+B2` one reply with both, `t` and `u` are thoughts, `?`
    is an answered question."""
    messages: list[BaseMessage] = []
    for at, step in enumerate(steps.split()):
        match step:
            case "t" | "u":
                messages += [ai(("think", f"t{at}", {"thought": step})), done(f"t{at}")]
            case "?":
                messages += [ai(("ask_user", f"q{at}")), done(f"q{at}")]
            case _:
                pairs = [(part[0], f"{part[0]}{at}", part[1]) for part in step.split("+")]
                messages.append(ai(*((name, call_id) for name, call_id, _ in pairs)))
                messages += [done(call_id, text) for _, call_id, text in pairs]
    return messages


COUNTS: dict[str, tuple[str, int]] = {
    "a thought hides nothing": ("A1 t A1 t t A1", 3),
    "an answer begins anew": ("A1 A1 ? A1", 1),
    "a cycle of two": ("A1 B1 A1 B1 A1 B1", 3),
    "a cycle of two with results that change": ("A1 B1 A1 B2 A1 B3", 1),
    "a cycle of three": ("A1 B1 C1 A1 B1 C1 A1 B1 C1", 3),
    "the same call twice in a batch is no row": ("A1+A1", 1),
}


def assert_times(history: list[BaseMessage], times: int) -> None:
    """The last work of the history has come round this often: one more would have been within the limit."""
    within = Limits(turns=99, talk_turns=99, repeats=times + 1)
    assert Ran(history, within).asked == 1
    if times > 1:
        expected = {"reason": "repeats", "asked": 0}
        assert Ran(history, Limits(turns=99, talk_turns=99, repeats=times)).seen(expected) == expected


@pytest.mark.parametrize(("steps", "times"), COUNTS.values(), ids=COUNTS)
def test_how_often_the_work_has_come_round(steps: str, times: int) -> None:
    assert_times([user(), *work(steps)], times)


def look(call_id: str = "l", **args: Any) -> AIMessage:
    return ai(("look", call_id, args or {"a": 1, "b": [2]}))


def kept(name: str) -> str:
    return f"a\n[... 9 characters left out; the full text is in /out/call_{name}-0123456789ab.txt ...]\nb"


PAIRS: dict[str, tuple[list[BaseMessage], list[BaseMessage], bool]] = {
    "arguments in another order": ([look(), done("l")], [look("m", b=[2], a=1), done("m")], True),
    "another argument": ([look(), done("l")], [look("m", a=1, b=[3]), done("m")], False),
    "a long result, kept in two files": (
        [look(), done("l", kept("l"))],
        [look(), done("l", kept("m"))],
        True,
    ),
    "another task": ([look(), done("l")], [user("again"), look(), done("l")], False),
}


@pytest.mark.parametrize(("first", "second", "same"), PAIRS.values(), ids=PAIRS)
def test_what_is_the_same(first: list[BaseMessage], second: list[BaseMessage], same: bool) -> None:
    assert_times([user(), *first, *second], 1 + same)


@pytest.mark.parametrize(("pictures", "reason"), [("aaa", "repeats"), ("abc", "finish_task")])
def test_what_a_tool_shows_beside_its_result_makes_a_difference(pictures: str, reason: str) -> None:
    left = list(pictures)

    @tool
    def show(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Show a picture."""
        return Command(update={"messages": [done(tool_call_id), HumanMessage(f"Picture {left.pop(0)}.")]})

    model = ScriptedModel([*[call("show")] * len(pictures), call("finish_task", summary="Seen.")])
    graph = build_graph(model, [show], limits=Limits(repeats=3))
    assert outcome_of(graph.invoke({"messages": ["go"]})).reason == reason
