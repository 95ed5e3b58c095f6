"""Builds the LangGraph graph from the table of the machine."""

import warnings
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import platformdirs
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from signoff.graph.durable import DurableGraph, JournalledGraph
from signoff.graph.errors import JournalWarning, SetupError
from signoff.graph.limits import Limits
from signoff.graph.machine import FIRST, TRANSITIONS, WHAT_IT_DOES, Event, State, edges, next_state
from signoff.graph.state import AgentState, Context, Input, Output
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.nodes.approve import approve
from signoff.nodes.ask_user import ask_user
from signoff.nodes.call_llm import call_llm
from signoff.nodes.compress import compress
from signoff.nodes.decide import decide
from signoff.nodes.execute import execute
from signoff.nodes.finish import finish
from signoff.nodes.hand_over import hand_over as hand_over_node
from signoff.nodes.inject import Injector
from signoff.nodes.kit import Kit
from signoff.nodes.node import Node, Work
from signoff.nodes.nudge import nudge
from signoff.nodes.review import review
from signoff.nodes.route_tools import route_tools
from signoff.tools.approvals import Policy
from signoff.tools.control import ControlTool, standard_controls
from signoff.tools.output import LIMIT
from signoff.tools.toolbox import Toolbox, make_toolbox

Graph = DurableGraph

NODES: dict[State, Work] = {
    State.COMPRESS: compress,
    State.DECIDE: decide,
    State.CALL_LLM: call_llm,
    State.ROUTE_TOOLS: route_tools,
    State.APPROVE: approve,
    State.EXECUTE: execute,
    State.HAND_OVER: hand_over_node,
    State.NUDGE: nudge,
    State.ASK_USER: ask_user,
    State.REVIEW: review,
    State.FINISH: finish,
}

# LangGraph counts super-steps per invocation and raises when they are used up. The machine has limits of its
# own, in turns, and ends every run by them; this one must never be reached first.
_NO_STEP_LIMIT = 2**31 - 1
_VIEW_PART = 0.8
_VIEW_TOKENS = 100_000


class Storage(Protocol):
    """A checkpointer and a store of one database."""

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]: ...

    @property
    def store(self) -> BaseStore: ...


def build_graph(
    model: BaseChatModel,
    tools: Sequence[BaseTool | Callable[..., Any]] = (),
    *,
    system_prompt: str = "",
    limits: Limits | None = None,
    storage: Storage | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    control_tools: Sequence[ControlTool] | None = None,
    approvals: Policy | None = None,
    hand_over: Collection[str] = (),
    unknown_outcomes: Literal["tell", "ask"] = "tell",
    texts: Texts = DEFAULT_TEXTS,
    view_tokens: int | None = None,
    tool_seconds: float | None = 120.0,
    result_chars: int = LIMIT,
) -> Graph:
    """The agent loop as a compiled LangGraph graph.

    model: a LangChain chat model with tool calling.
    tools: LangChain tools, or functions with docstrings; `metadata={"kind": "read"}` says that a tool changes
        nothing, so that its calls may run in parallel.
    system_prompt: stands before the rules of the loop, which are always told.
    storage: `sqlite_storage(path)`; or give a `checkpointer` and a `store` of your own. Without either, the
        graph runs but cannot pause: a question ends the task with the reason `needs_person`. With it, every
        step is saved before the next begins (`durability="sync"`), always so when tools have effects.
    control_tools: in place of `finish_task`, `ask_user` and `think`.
    approvals: which calls a person must approve, by tool or kind (`{"run_shell": True, "write": ["approve",
        "reject"]}`), or a function of (tool name, arguments). One `interrupt` asks for all calls.
    hand_over: tools or kinds whose calls the graph does not run but yields to its driver, by an `interrupt`.
    unknown_outcomes: what to do about a call that had started when its process was killed: "tell" the model
        that its outcome is unknown, or "ask" a person whether to run it again.
    view_tokens: the budget of what the model is shown; above it old turns are folded. Default: 80 % of the
        context that the model's profile names, else 100,000.
    tool_seconds: how long one call may take before its result is "timed out"; None for no limit.
    result_chars: a longer result loses its middle; the full text is kept in a file that the result names.

    Raises SetupError for tools with one name, a tool that shadows a control tool, a model without tool
    calling, storage given twice, and a policy that names what does not exist. Warns (JournalWarning) when
    tools with effects are used with a checkpointer but no store: a crash could then run an effect twice.
    """
    box = make_toolbox(tools, control_tools or standard_controls(texts), approvals, hand_over)
    if storage is not None and (checkpointer is not None or store is not None):
        raise SetupError("Give storage=, or checkpointer= and store=, not both.")
    _warn_without_journal(box, checkpointer, store)
    kit = Kit(
        model=_bound(model, box.every),
        toolbox=box,
        limits=limits or Limits(),
        texts=texts,
        system_prompt=system_prompt,
        view_tokens=_view_budget(model) if view_tokens is None else view_tokens,
        tool_seconds=tool_seconds,
        result_chars=result_chars,
        ask_unknown=unknown_outcomes == "ask",
        injector=Injector(list(box.tools.values())),
        outputs=Path(platformdirs.user_cache_dir("signoff")) / "outputs",
    )
    graph = declare(kit).compile(
        checkpointer=storage.checkpointer if storage else checkpointer,
        store=storage.store if storage else store,
        name="signoff",
    )
    # LangGraph's `compile` makes its own class; ours differs in its durability and in holding the thread.
    effects = any(box.is_effect(name) for name in box.tools)
    graph.__class__ = JournalledGraph if effects else DurableGraph
    assert isinstance(graph, DurableGraph), "the class was set in the line above"
    return graph.with_config(recursion_limit=_NO_STEP_LIMIT)


def declare(kit: Kit) -> StateGraph[AgentState, Any, Any, Output]:
    """The table of the machine as a StateGraph: one node a state, one labelled edge for each of its ways."""
    graph: StateGraph[AgentState, Any, Any, Output] = StateGraph(
        AgentState, context_schema=Context, input_schema=Input, output_schema=Output
    )
    for state, work in NODES.items():
        node = Node(state, kit, work)
        graph.add_node(str(state), node, metadata={"description": WHAT_IT_DOES[state]})
    graph.add_edge(START, str(FIRST))
    for state, targets in edges().items():
        if len(targets) == 1:
            graph.add_edge(str(state), str(next(iter(targets))))
        elif targets:
            labels: dict[Hashable, str] = {label: str(target) for target, label in targets.items()}
            graph.add_conditional_edges(str(state), Branch(state), labels)
        else:
            graph.add_edge(str(state), END)
    return graph


class Branch(Runnable[AgentState, str]):
    """Looks the reported event up in the table and names the edge to take."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.name = f"after {state}"
        self.labels = {event: edges()[state][next_state(state, event)] for event in TRANSITIONS[state]}

    def invoke(self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        return self.labels[Event(input["event"])]

    async def ainvoke(self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        return self.invoke(input)


def _warn_without_journal(
    box: Toolbox, checkpointer: BaseCheckpointSaver[Any] | None, store: BaseStore | None
) -> None:
    effects = [name for name in box.tools if box.is_effect(name) and not box.is_driven(name)]
    if checkpointer is not None and store is None and effects:
        warnings.warn(
            f"{', '.join(effects)} may change something, and without a store there is no journal: a call "
            "that is cut short by a crash may run twice. Give store=, or storage=sqlite_storage(…).",
            JournalWarning,
            stacklevel=3,
        )


def _bound(model: BaseChatModel, tools: Sequence[BaseTool]) -> Runnable[Any, Any]:
    if not hasattr(model, "bind_tools"):
        raise SetupError(f"{model!r} is no chat model; give a LangChain chat model, such as ChatOpenAI(…).")
    try:
        return model.bind_tools(tools)
    except NotImplementedError:
        raise SetupError(
            f"{type(model).__name__} cannot call tools (it has no bind_tools); use a model with tool calling."
        ) from None


def _view_budget(model: BaseChatModel) -> int:
    size = (getattr(model, "profile", None) or {}).get("max_input_tokens")
    return int(size * _VIEW_PART) if size else _VIEW_TOKENS
