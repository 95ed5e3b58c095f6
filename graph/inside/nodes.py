"""Makes the nodes of a compiled graph skip LangGraph work that this graph does not need.

Before each condition, LangGraph copies every channel, so that the condition sees the state as the node left
it; here a condition needs only the event that the node has just reported. LangGraph also creates callbacks
for each node and each of its writes; here there are none unless something listens. Together this saves a
quarter of the cost of a super-step.

Imported only if LangGraph has the private names used here; runs give the same results without it.
"""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.constants import END
from langgraph.graph.state import CompiledStateGraph

from signoff.graph.inside.private import SEND, ChannelRead, ChannelWrite, ChannelWriteTupleEntry, PregelNode
from signoff.graph.inside.speed import listened

_INTO = "branch:to:{}"


class Leave(ChannelWrite):
    """Writes a node's update, and follows the edge that its branch names for the reported event."""

    def __init__(self, given: ChannelWrite, branch: Any) -> None:
        ends = branch.ends or {}
        drawn = [
            (target if target == END else _INTO.format(target), None, str(label))
            for label, target in ends.items()
        ]
        super().__init__([*given.writes, ChannelWriteTupleEntry(_nothing, static=drawn)])
        self.way = branch.path
        self.ways: dict[Any, Any] = {
            label: [] if target == END else [(_INTO.format(target), None)] for label, target in ends.items()
        }

    def report(self, reported: dict[str, Any], config: RunnableConfig) -> None:
        """Writes a node's report: channels by name, including the event."""
        config["configurable"][SEND]([*reported.items(), *self.ways[self.way.invoke(reported)]])

    def _write(self, input: Any, config: RunnableConfig) -> Any:
        super()._write(input, config)
        # Without an event, this is an edit of the state, not a node's report, and the last event stands. When
        # the graph is only drawn, there is none.
        of_a_node = isinstance(input, dict) and "event" in input
        event = input["event"] if of_a_node else ChannelRead.do_read(config, select="event", fresh=True)
        if event is not None:
            config["configurable"][SEND](self.ways[self.way.invoke({"event": event})])
        return input

    async def _awrite(self, input: Any, config: RunnableConfig) -> Any:
        return self._write(input, config)


def _nothing(_: Any) -> None:
    """Does nothing: `Leave` itself writes the update."""


class Lean(PregelNode):
    """A LangGraph node that runs without callbacks unless something listens."""

    @cached_property
    def node(self) -> Runnable[Any, Any]:
        (write,) = self.flat_writers
        assert isinstance(write, ChannelWrite), "writes and one edge are joined to one writer"
        whole = super().node
        assert whole is not None, "there is a node"
        return _Step(self.bound, write, whole)


class _Step(Runnable[Any, Any]):
    """A node and its writes; `whole` is LangGraph's own combination of them."""

    def __init__(self, bound: Runnable[Any, Any], write: ChannelWrite, whole: Runnable[Any, Any]) -> None:
        self.bound = bound
        self.leave = write.report if isinstance(write, Leave) else write._write
        self.whole = whole

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if config is None or listened(config):
            return self.whole.invoke(input, config, **kwargs)
        # The name is for the node alone, and the runnables in it would inherit it. LangGraph makes this
        # configuration for one attempt of one node.
        config.pop("run_name", None)
        # The configuration that `interrupt` and LangGraph's other helpers look up.
        token = var_child_runnable_config.set(config)
        try:
            given = self.bound.invoke(input, config, **kwargs)
        finally:
            var_child_runnable_config.reset(token)
        self.leave(given, config)
        return given

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if config is None or listened(config):
            return await self.whole.ainvoke(input, config, **kwargs)
        config.pop("run_name", None)
        token = var_child_runnable_config.set(config)
        try:
            given = await self.bound.ainvoke(input, config, **kwargs)
        finally:
            var_child_runnable_config.reset(token)
        self.leave(given, config)
        return given

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        # Only called for an event stream, which counts as listening.
        async for part in self.whole.astream(input, config, **kwargs):
            yield part


def lean(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
    """Replaces every node of `graph` by the form above, or none: a LangGraph version may use the same names
    with another meaning, and the graph also runs unchanged."""
    try:
        made = {name: _make(graph, name) for name in graph.builder.nodes}
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
        return
    graph.nodes.update(made)


def _make(graph: CompiledStateGraph[Any, Any, Any, Any], name: str) -> Lean:
    node = graph.nodes[name].copy({})
    if branches := graph.builder.branches.get(name):
        (branch,) = branches.values()
        (given, _) = node.writers
        assert isinstance(given, ChannelWrite), "LangGraph attaches a node before its branches"
        node.writers = [Leave(given, branch)]
    made = Lean(**vars(node))
    assert made.node is not None, "what it runs is made now, while there is a way back"
    return made
