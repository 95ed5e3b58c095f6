"""The machine of an older version: the same parts, one state under another name."""

from collections.abc import Hashable, Mapping
from typing import Any

from langgraph.graph import END, START, StateGraph

from signoff.graph.build import Graph
from signoff.graph.compiled.states import NODES, declare
from signoff.graph.machine import FIRST, LAST, State, edges
from signoff.graph.state import AgentState, Context, Input, Output
from signoff.nodes.node import Branch, Dependencies, Node

OLD = "as_it_was_called"
Declared = StateGraph[AgentState, Any, Any, Output]


def deps_of(graph: Graph) -> Dependencies:
    node = graph.builder.nodes[str(FIRST)].runnable
    assert isinstance(node, Node)
    return node.deps


def older(graph: Graph, state: State, name: str = OLD) -> Graph:
    """`graph` as it was when `state` was called `name`."""
    deps = deps_of(graph)
    names = {known: name if known is state else str(known) for known in State}
    declared: Declared = StateGraph(
        AgentState, context_schema=Context, input_schema=Input, output_schema=Output
    )
    for known, work in NODES.items():
        declared.add_node(names[known], Node(known, deps, work))
    declared.add_edge(START, names[FIRST])
    for known, targets in edges().items():
        labels: dict[Hashable, str] = {label: names[target] for target, label in targets.items()}
        if known is LAST:
            labels[END] = END
        declared.add_conditional_edges(names[known], Branch(known), labels)
    return compiled(declared, graph)


def aliased(graph: Graph, aliases: Mapping[str, State]) -> Graph:
    """`graph` with these older names of its states."""
    return compiled(declare(deps_of(graph), aliases), graph)


def compiled(declared: Declared, like: Graph) -> Graph:
    made = declared.compile(checkpointer=like.checkpointer, store=like.store)
    made.__class__ = type(like)
    assert isinstance(made, Graph)
    return made
