"""The worlds of machines that call each other: a graph and two delegates, a person, and what is killed."""

from collections.abc import Callable, Mapping
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Limits, build_graph, delegate
from signoff.models import ScriptedModel
from signoff.session.status import deps_of
from signoff.verify.machine import ALPHABET, Names, Symbol
from signoff.verify.tree import TOP, Part, Tree, TreeWorld
from tests.proof.worlds import NAMES, write
from tests.support.adapted import adapted

LEAD: Names = {**NAMES, "left": ("left", {"task": "Look left."}), "right": ("right", {"task": "Look right."})}
BOTH = {"both": Symbol(calls=[("left", {}), ("right", {})])}
ONE = {name: Symbol(calls=[(name, {})]) for name in ("left", "right")}
ENDS = {
    "done": ALPHABET["finish"],
    "left is open": Symbol(calls=[("finish", {"pending_issues": ["left has failed"]})]),
}


def said(*names: str) -> Mapping[str, Symbol]:
    return {name: ALPHABET[name] for name in names}


def child(turns: int = 1, *below: Any) -> Any:
    limits = Limits(turns=turns, repeats=None, refusals=None, talk_turns=1)
    return build_graph(ScriptedModel([]), [write, *below], limits=limits)


def world(
    name: str,
    lead: Mapping[str, Symbol],
    left: Mapping[str, Symbol],
    right: Mapping[str, Symbol],
    events: tuple[str, ...] = (),
    outside: int = 0,
    *,
    turns: int = 2,
    below: int = 1,
    limits: Mapping[str, Any] | None = None,
    **given: Any,
) -> TreeWorld:
    bounds = Limits(turns=turns, repeats=None, refusals=None, talk_turns=1, **(limits or {}))
    team = [delegate(one, child(below), description="Works.") for one in ("left", "right")]
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    graph = build_graph(ScriptedModel([]), team, limits=bounds, **saved, **adapted(**given))
    parts = {TOP: Part(LEAD, lead), "left": Part(NAMES, left), "right": Part(NAMES, right)}
    return TreeWorld(name, Tree(deps_of(graph), parts), events, outside)


def chain(
    name: str,
    lead: Mapping[str, Symbol],
    left: Mapping[str, Symbol],
    deeper: Mapping[str, Symbol],
    events: tuple[str, ...],
    outside: int,
) -> TreeWorld:
    """A graph whose delegate has one, too."""
    below = delegate("deeper", child(1), description="Works.")
    team = [delegate("left", child(2, below), description="Works.")]
    bounds = Limits(turns=2, repeats=None, refusals=None, talk_turns=1)
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    graph = build_graph(ScriptedModel([]), team, limits=bounds, approvals={"write": True}, **saved)
    middle: Names = {**NAMES, "deeper": ("deeper", {"task": "Look deeper."})}
    parts = {TOP: Part(LEAD, lead), "left": Part(middle, left), "deeper": Part(NAMES, deeper)}
    return TreeWorld(name, Tree(deps_of(graph), parts), events, outside)


def both_ask(name: str, events: tuple[str, ...], outside: int) -> TreeWorld:
    """Both of them work, and ask, and work on: what one that waits has used, the other one must not use."""
    lead, below = {**BOTH, "done": ALPHABET["finish"]}, said("write + ask")
    return world(name, lead, below, below, events, outside, limits={"tool_calls": 4})


WORK = said("write", "finish", "write + finish")
ENDED = said("finish", "blocked")

COMPOSITIONS: Mapping[str, Callable[[], TreeWorld]] = {
    "a crash": lambda: world("a crash", {**BOTH, **ENDS}, WORK, WORK, ("kill",), 1),
    "two ask": lambda: world(
        "two ask", {**BOTH, **ENDS}, said("ask", "write + ask", "finish"), said("ask", "finish"), below=2
    ),
    "two need approval": lambda: world(
        "two need approval",
        {**BOTH, **ENDS},
        said("write + finish", "finish"),
        said("write + finish"),
        ("kill",),
        1,
        approvals={"write": True},
    ),
    "few tokens": lambda: world(
        "few tokens",
        {**BOTH, "done": ALPHABET["finish"]},
        said("write", "finish"),
        said("write"),
        below=3,
        turns=3,
        limits={"tokens": 7},
    ),
    "few calls": lambda: world(
        "few calls",
        {**BOTH, "done": ALPHABET["finish"]},
        said("two writes"),
        said("write", "finish"),
        below=2,
        limits={"tool_calls": 4},
    ),
    "few calls, one by one": lambda: world(
        "few calls, one by one",
        {**ONE, "done": ALPHABET["finish"]},
        said("two writes", "finish"),
        said("write", "write + ask"),
        ("kill",),
        1,
        turns=3,
        below=2,
        limits={"tool_calls": 5},
    ),
    "few tokens, and a copy": lambda: world(
        "few tokens, and a copy",
        {**BOTH, "done": ALPHABET["finish"]},
        said("write"),
        said("ask"),
        ("kill", "fork"),
        1,
        below=2,
        limits={"tokens": 7},
    ),
    "few calls, and a copy": lambda: both_ask("few calls, and a copy", ("kill", "fork"), 1),
    "few calls, on again": lambda: both_ask("few calls, on again", ("fork", "stop", "go further"), 2),
    "a message and a stop": lambda: world(
        "a message and a stop",
        {**BOTH, "done": ALPHABET["finish"]},
        said("write + ask", "finish"),
        said("write + finish"),
        ("message", "stop"),
        1,
        below=2,
    ),
    "again": lambda: world("again", {**BOTH, **ENDS, "left": ONE["left"]}, ENDED, ENDED, turns=4),
    "one below another": lambda: chain(
        "one below another",
        {"left": ONE["left"], **ENDS},
        {"deeper": Symbol(calls=[("deeper", {})]), **said("finish")},
        said("write + finish", "ask"),
        ("kill", "stop"),
        1,
    ),
    "finish beside": lambda: world(
        "finish beside",
        {"left + finish": Symbol(calls=[("left", {}), ("finish", {})]), **ENDS},
        ENDED,
        ENDED,
    ),
}
