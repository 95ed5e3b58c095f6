"""The nodes of a compiled graph without work of LangGraph's that this graph does not need.

Before each condition LangGraph copies every channel, so that it can be shown the state as the node left it:
here a condition looks at nothing but the reported event, which the node has just given. And each node and
each of its writes gets callbacks of its own: where nothing listens, there are none. Together they are a
quarter of what a super-step costs.

Imported only where LangGraph has the names that this is made of; a run is the same without it.
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
    """Writes what a node gave, and takes the edge that its branch names for the reported event."""

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
        """Writes what one of our nodes reported: channels by their names, the event among them."""
        config["configurable"][SEND]([*reported.items(), *self.ways[self.way.invoke(reported)]])

    def _write(self, input: Any, config: RunnableConfig) -> Any:
        super()._write(input, config)
        # Without an event it is not from a node but from an edit of the state: the last event stands. When
        # the graph is only drawn there is none.
        of_a_node = isinstance(input, dict) and "event" in input
        event = input["event"] if of_a_node else ChannelRead.do_read(config, select="event", fresh=True)
        if event is not None:
            config["configurable"][SEND](self.ways[self.way.invoke({"event": event})])
        return input

    async def _awrite(self, input: Any, config: RunnableConfig) -> Any:
        return self._write(input, config)


def _nothing(_: Any) -> None:
    """What is drawn is written by `Leave` itself."""


class Lean(PregelNode):
    """A node of LangGraph's that is run without callbacks where nothing listens."""

    @cached_property
    def node(self) -> Runnable[Any, Any]:
        (write,) = self.flat_writers
        assert isinstance(write, ChannelWrite), "writes and one edge are joined to one writer"
        whole = super().node
        assert whole is not None, "there is a node"
        return _Step(self.bound, write, whole)


class _Step(Runnable[Any, Any]):
    """A node and its writes; `whole` is what LangGraph makes of them."""

    def __init__(self, bound: Runnable[Any, Any], write: ChannelWrite, whole: Runnable[Any, Any]) -> None:
        self.bound = bound
        self.leave = write.report if isinstance(write, Leave) else write._write
        self.whole = whole

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if config is None or listened(config):
            return self.whole.invoke(input, config, **kwargs)
        # The name is for the node alone, and what runs within would inherit it. LangGraph makes this
        # configuration for one try of one node.
        config.pop("run_name", None)
        # The one that `interrupt` and LangGraph's other helpers look up.
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
        # Asked for by a stream of events alone, which listens.
        async for part in self.whole.astream(input, config, **kwargs):
            yield part


def lean(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
    """Gives every node of `graph` the form above, or none of them: a version of LangGraph may have the names
    and mean something else by them, and the graph runs as it is, too."""
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
