"""The machine of another version: the same parts, one state under another name."""

from collections.abc import Hashable
from typing import Any

from langgraph.graph import END, START, StateGraph

from signoff.graph.build import Graph
from signoff.graph.compiled.states import NODES
from signoff.graph.machine import FIRST, LAST, State, edges
from signoff.graph.state import AgentState, Context, Input, Output
from signoff.nodes.node import Branch, Node

OTHER = "as_it_is_called_there"


def other_machine(graph: Graph, state: State) -> Graph:
    """`graph` of a version that calls `state` by another name."""
    first = graph.builder.nodes[str(FIRST)].runnable
    assert isinstance(first, Node)
    names = {known: OTHER if known is state else str(known) for known in State}
    declared: StateGraph[AgentState, Any, Any, Output] = StateGraph(
        AgentState, context_schema=Context, input_schema=Input, output_schema=Output
    )
    for known, work in NODES.items():
        declared.add_node(names[known], Node(known, first.deps, work))
    declared.add_edge(START, names[FIRST])
    for known, targets in edges().items():
        labels: dict[Hashable, str] = {label: names[target] for target, label in targets.items()}
        if known is LAST:
            labels[END] = END
        declared.add_conditional_edges(names[known], Branch(known), labels)
    made = declared.compile(checkpointer=graph.checkpointer, store=graph.store)
    made.__class__ = type(graph)
    assert isinstance(made, Graph)
    return made
