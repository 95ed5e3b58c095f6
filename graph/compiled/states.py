"""The function of each state, and the transition table as a LangGraph graph."""

from collections.abc import Hashable, Mapping
from typing import Any

from langgraph.graph import END, START, StateGraph

from signoff.graph.machine import FIRST, LAST, WHAT_IT_DOES, State, edges
from signoff.graph.schemas.state import StateSchemas, with_result
from signoff.graph.state import AgentState, Context, Output
from signoff.nodes.approve import approve
from signoff.nodes.ask_user import ask_user
from signoff.nodes.call_llm import call_llm
from signoff.nodes.compress import compress
from signoff.nodes.confirm import confirm
from signoff.nodes.decide import decide
from signoff.nodes.delegates.ledger import in_tree
from signoff.nodes.execute import execute
from signoff.nodes.finish import finish
from signoff.nodes.hand_over import hand_over
from signoff.nodes.node import Branch, Dependencies, Node, Work
from signoff.nodes.nudge import nudge
from signoff.nodes.review import review
from signoff.nodes.route_tools import route_tools
from signoff.nodes.undo import undo

NODES: dict[State, Work] = {
    State.COMPRESS: compress,
    State.DECIDE: decide,
    State.CALL_LLM: call_llm,
    State.ROUTE_TOOLS: route_tools,
    State.APPROVE: approve,
    State.EXECUTE: execute,
    State.HAND_OVER: hand_over,
    State.NUDGE: nudge,
    State.ASK_USER: ask_user,
    State.REVIEW: review,
    State.CONFIRM: confirm,
    State.FINISH: finish,
    State.UNDO: undo,
}


def works_of(deps: Dependencies) -> Mapping[State, Work]:
    """The function of each state in this graph, with its middleware."""
    return NODES if deps.middleware is None else deps.middleware.works(NODES)


def declare(
    deps: Dependencies, schemas: StateSchemas | None = None
) -> StateGraph[AgentState, Any, Any, Output]:
    """The transition table as a StateGraph: one node per state, one labelled edge per pair of states."""
    found: Any = schemas or StateSchemas()
    has_result = deps.result_check is not None
    graph: StateGraph[AgentState, Any, Any, Output] = StateGraph(
        with_result(found.state) if has_result else found.state,
        context_schema=deps.context_form or Context,
        input_schema=found.input,
        output_schema=with_result(found.output) if has_result else found.output,
    )
    for state, work in works_of(deps).items():
        node = Node(state, deps, work, in_tree(state, work))
        graph.add_node(str(state), node, metadata={"description": WHAT_IT_DOES[state]})
    graph.add_edge(START, str(FIRST))
    for state, targets in edges().items():
        if len(targets) == 1 and state is not LAST:
            graph.add_edge(str(state), str(next(iter(targets))))
            continue
        labels: dict[Hashable, str] = {label: str(target) for target, label in targets.items()}
        if state is LAST:
            labels[END] = END
        graph.add_conditional_edges(str(state), Branch(state), labels)
    return graph
