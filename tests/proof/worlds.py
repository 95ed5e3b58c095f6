"""The worlds that are explored: graphs of every sort, and what may happen to them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, build_graph
from signoff.graph.limits import Prices
from signoff.models import ScriptedModel
from signoff.session.status import deps_of
from signoff.verify.choices import EVENTS, World
from signoff.verify.machine import ALPHABET, Machine, Names
from tests.support.adapted import adapted
from tests.support.histories import ai, broken, done, user

NAMES: Names = {
    "read": ("read", {}),
    "write": ("write", {}),
    "finish": ("finish_task", {"summary": "All of it."}),
    "ask": ("ask_user", {"question": "Which one?"}),
    "think": ("think", {"thought": "hm"}),
}
TASK = {"a task": [("user", "do it")]}
IMPORTS: Mapping[str, Any] = {
    "nothing": [],
    "a finish and its result": [user(), ai(("finish_task", "f")), done("f")],
    "a finish, its result and words": [user(), ai(("finish_task", "f")), done("f"), ai("Bye!")],
    "a finish of an earlier task": [user("a"), ai(("finish_task", "f")), done("f"), user("b")],
    "a bad finish": [user(), ai(("finish_task", "f", {"summary": ""})), done("f")],
    "a finish with an error": [user(), ai(("finish_task", "f")), broken("f")],
    "an open write": [user(), ai(("write", "w", {"plays": "ok"}))],
    "an open write in the middle": [user(), ai(("write", "w", {"plays": "ok"})), user("b")],
    "an open write and a finish": [user(), ai(("write", "w", {"plays": "ok"}), ("finish_task", "f"))],
    "a finish, then a question": [user(), ai(("finish_task", "f")), ai(("ask_user", "q"))],
    "words": [user(), ai("All done!")],
    "no person": [ai("x"), ai(("finish_task", "f"))],
}


def played(plays: str) -> str:
    """What a call comes to: its argument says it."""
    if plays == "fail":
        raise ToolException("It has failed.")
    return "It has run."


@tool
def write(plays: str) -> str:
    """Write something."""
    return played(plays)


@tool
def read(plays: str) -> str:
    """Read something."""
    return played(plays)


read.metadata = {"kind": "read"}
TOOLS: list[BaseTool] = [write, read]
UNDONE: list[BaseTool] = [write.model_copy(update={"metadata": {"undo": lambda args, result: None}}), read]


def machine(
    *,
    can_ask: bool = True,
    repeats: int | None = None,
    turns: int = 3,
    finish: Mapping[str, Any] | None = None,
    **given: Any,
) -> Machine:
    """A machine whose graph was built as a user builds one. finish: further arguments of a valid finish."""
    names = ("talk_turns", "refusals", "tool_calls", "tokens", "cost", "prices")
    more = {name: given.pop(name) for name in names if name in given}
    limits = Limits(**{"turns": turns, "repeats": repeats, "refusals": None, "talk_turns": 2, **more})
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    tools = UNDONE if "on_failure" in given else TOOLS
    deps = deps_of(build_graph(ScriptedModel([]), tools, limits=limits, **adapted(**saved, **given)))
    name, arguments = NAMES["finish"]
    played_by: Names = {**NAMES, "finish": (name, {**arguments, **(finish or {})})}
    return Machine(replace(deps, readings={}), played_by, can_ask=can_ask)


SOME = ("talk", "write", "write + finish", "failing write + finish", "finish + write", "write + ask", "think")
FEW = (*SOME, "finish", "failing write", "ask", "empty", "cut write", "two writes", "empty finish")
ODD = ("repeated id", "no id", "malformed", "unknown tool", "write", "finish")
REVIEWED = ("unproven finish", "phase", "finish to confirm", "blocked")

WORLDS: Mapping[str, Callable[[], World]] = {
    "every reply": lambda: World("every reply", machine(turns=3)),
    "nobody to ask": lambda: World(
        "nobody to ask",
        machine(turns=3, can_ask=False),
        (*FEW, "unknown tool + finish", "phase", "finish to confirm"),
    ),
    "one event": lambda: World(
        "one event", machine(turns=1, talk_turns=1), tuple(ALPHABET), ("kill", "message"), 1
    ),
    "two events": lambda: World("two events", machine(turns=1), FEW, EVENTS, 2),
    "by hand": lambda: World("by hand", machine(turns=2), SOME, ("fork", "go on", "expire"), 1),
    "imports": lambda: World("imports", machine(turns=2), SOME, ("message", "stop", "nothing"), 1, IMPORTS),
    "repetitions": lambda: World(
        "repetitions", machine(turns=5, repeats=3), ("talk", "think", "read", "write", "finish")
    ),
    "approvals": lambda: World(
        "approvals", machine(turns=2, approvals={"write": True}), SOME, ("kill", "message", "stop"), 1
    ),
    "hand over": lambda: World(
        "hand over", machine(turns=2, approvals={"write": "hand_over"}), SOME, ("message",), 1
    ),
    "checks": lambda: World(
        "checks", machine(turns=3, checks=[lambda: True]), (*FEW, *REVIEWED), ("kill",), 1
    ),
    "a result": lambda: World(
        "a result",
        machine(turns=4, response_format={"type": "integer"}, finish={"result": 3}),
        ("finish without a result", "finish", "phase", "blocked", "finish to confirm", "write"),
        ("kill",),
        1,
    ),
    "a dialogue": lambda: World("a dialogue", machine(turns=2, talk="natural"), FEW, ("message",), 1),
    "rounds": lambda: World("rounds", machine(turns=4, rounds=True), FEW),
    "few calls": lambda: World("few calls", machine(turns=4, tool_calls=2), (*FEW, "two reads + write")),
    "refusals": lambda: World(
        "refusals", machine(turns=4, talk_turns=4), ("refusal", "talk", "write", "finish")
    ),
    "refused finishes": lambda: World(
        "refused finishes",
        machine(turns=5, can_ask=False, refusals=3),
        ("empty finish", "blank finish", "unknown tool + finish", "talk", "write", "finish"),
    ),
    "errors": lambda: World(
        "errors", machine(turns=2), ("error", "too long", "write", "finish"), ("go further",), 1
    ),
    "odd ids": lambda: World("odd ids", machine(turns=3), ODD),
    "few tokens": lambda: World("few tokens", machine(turns=9, tokens=5), FEW),
    "little money": lambda: World(
        "little money", machine(turns=9, cost=5.0, prices=Prices(input=1e6, output=1e6)), FEW
    ),
    "undo": lambda: World(
        "undo",
        machine(turns=2, on_failure="undo"),
        ("write", "two writes", "failing write", "finish"),
        ("kill", "message", "stop", "go further", "undo"),
        2,
    ),
    "undo on request": lambda: World(
        "undo on request",
        machine(turns=2, on_failure="ask"),
        ("write", "two writes", "finish"),
        ("kill", "undo"),
        2,
    ),
}
