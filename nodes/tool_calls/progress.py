"""What a tool writes with LangGraph's `get_stream_writer()`, together with its call.

`stream_mode="custom"` yields the bare values, as with any graph. A session needs the call, too, and passes a
`ListeningControl` to its runs.
"""

from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import RunControl

from signoff.graph.history.replies import Call
from signoff.graph.inside.private import with_runtime
from signoff.nodes.node import NodeContext


class ListeningControl(RunControl):
    """The control of a run whose caller needs to know which call wrote what."""

    __slots__ = ()


@dataclass(frozen=True)
class ToolWrote:
    """A value that the tool of this call wrote."""

    call_id: str
    data: Any


def telling(call: Call, run: NodeContext) -> RunnableConfig:
    """The configuration for the tool of this call; that of the node itself if nothing listens."""
    if not isinstance(run.control, ListeningControl):
        return run.config
    writer = run.runtime.stream_writer

    def write(data: Any) -> None:
        writer(ToolWrote(call.id, data))

    return with_runtime(run.config, run.runtime.override(stream_writer=write))
