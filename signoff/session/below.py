"""Reads the machines of a thread's delegates, each below the call that started it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.build import Graph
from signoff.graph.inside.private import looking_into
from signoff.graph.messages import marks
from signoff.nodes.delegates.descent import namespace
from signoff.session.history import Chapter, chapters
from signoff.session.path import Step, steps
from signoff.session.status import ThreadStatus, deps_of, read_status


@dataclass(frozen=True)
class ChildThread:
    """The saved machine of one delegate call.

    path: the names of the delegates that lead to it, its own last. below: the machines that it has called in
    turn, by call id.
    """

    path: tuple[str, ...]
    namespace: str
    status: ThreadStatus
    chapters: Sequence[Chapter]
    steps: Sequence[Step]
    below: Mapping[str, "ChildThread"] = field(default_factory=dict)


def children(
    graph: Graph, thread_id: str, values: Mapping[str, Any], above: str = "", path: tuple[str, ...] = ()
) -> dict[str, ChildThread]:
    """The machines started by the delegate calls of a thread with this state, by call id. above, path: the
    position of the machine that made the calls. A graph that is not Signoff's has no such machine."""
    found: dict[str, ChildThread] = {}
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a thread is saved"
    for reply_id, name, call_id in _calls(values.get("messages", ())):
        ns = namespace(above, name, reply_id, call_id)
        place = looking_into(thread_id, ns, saver)
        saved = saver.get_tuple(place)
        if saved is None or "machine" not in saved.checkpoint["channel_values"]:
            continue
        state = graph.get_state(place)
        way = (*path, name)
        known = steps(saver, thread_id, within=ns)
        found[call_id] = ChildThread(
            path=way,
            namespace=ns,
            status=read_status(graph, thread_id, state),
            chapters=chapters(state.values, deps_of(graph).toolbox, known),
            steps=known,
            below=children(graph, thread_id, state.values, ns, way),
        )
    return found


def _calls(messages: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """The calls that may have started a machine: reply, name and id of each. These are calls whose result
    says so, and calls that are still open."""
    settled = {found.tool_call_id: found for found in messages if isinstance(found, ToolMessage)}
    for message in messages:
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            found = settled.get(call["id"] or "")
            begun = "delegate" in marks(found) if found else call["args"].keys() == {"task"}
            if begun:
                yield message.id or "", call["name"], call["id"] or ""
