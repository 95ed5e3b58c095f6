"""What a tool writes by LangGraph's `get_stream_writer()` while it runs, with the call that it belongs to.

Whoever streams `custom` of a graph gets the bare values, as from any graph. A session asks for more: it gives
its runs a `ListeningControl`.
"""

from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import RunControl

from signoff.graph.history.replies import Call
from signoff.graph.inside.private import with_runtime
from signoff.nodes.node import NodeContext


class ListeningControl(RunControl):
    """The control of a run whose caller wants to know which call wrote what."""

    __slots__ = ()


@dataclass(frozen=True)
class ToolWrote:
    """What the tool of this call wrote."""

    call_id: str
    data: Any


def telling(call: Call, run: NodeContext) -> RunnableConfig:
    """The configuration for the tool of this call; that of the node itself where nobody listens."""
    if not isinstance(run.control, ListeningControl):
        return run.config
    writer = run.runtime.stream_writer

    def write(data: Any) -> None:
        writer(ToolWrote(call.id, data))

    return with_runtime(run.config, run.runtime.override(stream_writer=write))
