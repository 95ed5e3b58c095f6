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
from signoff.tools.delegates import GIVEN


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
    position of the machine that made the calls.

    Written tests (`signoff replay --to-test`) call this, and read `path`, `steps` and `below` of the result:
    these names stay."""
    found: dict[str, ChildThread] = {}
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a thread is saved"
    for reply_id, name, call_id in calls_of_delegates(values.get("messages", ())):
        ns = namespace(above, name, reply_id, call_id)
        if not is_machine(saver, thread_id, ns):
            continue
        state = graph.get_state(looking_into(thread_id, ns, saver))
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


def is_machine(saver: BaseCheckpointSaver[Any], thread_id: str, ns: str) -> bool:
    """Whether this namespace of a thread holds a machine."""
    saved = saver.get_tuple(looking_into(thread_id, ns, saver))
    return saved is not None and "machine" in saved.checkpoint["channel_values"]


def calls_of_delegates(messages: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """The calls that may have started a machine: reply, name and id of each. These are calls whose result
    says so, and calls that are still open."""
    settled = {found.tool_call_id: found for found in messages if isinstance(found, ToolMessage)}
    for message in messages:
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            found = settled.get(call["id"] or "")
            begun = "delegate" in marks(found) if found else call["args"].keys() >= GIVEN
            if begun:
                yield message.id or "", call["name"], call["id"] or ""
