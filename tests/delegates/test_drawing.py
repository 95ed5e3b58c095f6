"""What LangGraph's drawing of a graph tells of its delegates."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from signoff import build_graph, delegate
from signoff.graph.build import Graph
from signoff.models import ScriptedModel


def machine(tools: Any = (), **options: Any) -> Graph:
    return build_graph(ScriptedModel([]), tools, **options)


def made(name: str, graph: Any, **options: Any) -> Any:
    return delegate(name, graph, description="Works.", **options)


def itself() -> Graph:
    graph: Graph = machine([made("again", lambda: graph)])
    return graph


def ever_new(depth: int) -> Graph:
    """Each call makes another graph."""
    return machine([made("new", lambda: ever_new(5))], limits={"depth": depth})


def two_of_one_name() -> Graph:
    search = made("search", machine())
    return machine([made(name, machine([search])) for name in ("researcher", "execute")])


CASES: dict[str, tuple[Callable[[], Graph], list[str], int | bool, list[str]]] = {
    "no delegates": (machine, [], True, []),
    "their names alone": (two_of_one_name, ["researcher", "execute"], False, []),
    "one level": (two_of_one_name, ["researcher", "execute"], 1, ["researcher", "execute_2"]),
    "all levels, each with a name of its own": (
        two_of_one_name,
        ["researcher", "execute"],
        True,
        ["researcher", "search", "execute_2", "search_2"],
    ),
    "a graph that delegates to itself, once": (itself, ["again"], True, []),
    "no deeper than they may stand": (lambda: ever_new(2), ["new"], True, ["new", "new_2"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_drawing_shows_which_delegates_a_graph_has(name: str, way: str) -> None:
    build, named, xray, drawn = CASES[name]
    graph = build()
    found = graph.get_graph(xray=xray) if way == "sync" else asyncio.run(graph.aget_graph(xray=xray))
    assert (found.nodes["execute"].metadata or {}).get("delegates", []) == named
    text = found.draw_mermaid()
    assert (f"delegates = {', '.join(named)}" in text) is bool(named)
    assert re.findall(r"^\tsubgraph (\w+)$", text, re.MULTILINE) == drawn


def test_the_ways_to_a_delegate_and_back_lead_from_the_state_that_runs_calls() -> None:
    drawn = machine([made("researcher", machine([made("browser", machine())]))]).get_graph(xray=True)
    between = {
        (edge.source, edge.target): edge.data
        for edge in drawn.edges
        if edge.source.count(":") != edge.target.count(":")
    }
    assert between == {
        ("execute", "researcher:__start__"): "researcher",
        ("researcher:__end__", "execute"): None,
        ("researcher:execute", "researcher:browser:__start__"): "browser",
        ("researcher:browser:__end__", "researcher:execute"): None,
    }
    assert (drawn.first_node(), drawn.last_node()) == (drawn.nodes["__start__"], drawn.nodes["__end__"])
