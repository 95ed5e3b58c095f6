"""The events of a thread's delegates during a run: the same as those of the thread's own machine, with the
path to the delegate."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.build import Graph
from signoff.graph.history.task import Task, read
from signoff.graph.inside.private import looking_into
from signoff.graph.machine import State
from signoff.nodes.delegates.descent import namespace
from signoff.nodes.delegates.graphs import deps_of, graph_of
from signoff.nodes.node import Dependencies
from signoff.nodes.requests import Operation, Part
from signoff.session.events import SessionEvent
from signoff.session.following import Follower
from signoff.session.status import state_of

_OURS = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*):[0-9a-f]{32}")


@dataclass(frozen=True)
class Stood:
    """The position of a machine before a run: its task and its history."""

    task: Task
    messages: Sequence[BaseMessage]


def stood_below(
    graph: Graph, thread_id: str, deps: Dependencies, task: Task, above: str = ""
) -> Part[dict[str, Stood]]:
    """A part of a driver: the positions of the delegates of the last reply and those below them, by
    namespace. deps, above: those of the machine with this task."""
    found, saver, reply = dict[str, Stood](), graph.checkpointer, task.last
    assert isinstance(saver, BaseCheckpointSaver), "a session has one"
    for call in reply.calls if reply else ():
        below = _deps_below(deps, call.name)
        if reply is None or below is None:
            continue
        ns = namespace(above, call.name, reply.message.id or "", call.id)
        place = looking_into(thread_id, ns, saver)
        state = yield Operation(partial(graph.get_state, place), partial(graph.aget_state, place))
        if state.created_at is None or "machine" not in state.values:
            continue
        values: Any = state.values
        own = read(values, below.toolbox)
        found[ns] = Stood(own, values["messages"])
        found |= yield from stood_below(graph, thread_id, below, own, ns)
    return found


def _deps_below(deps: Dependencies, name: str) -> Dependencies | None:
    """The dependencies of this delegate's graph; None for an unknown delegate."""
    made = deps.toolbox.delegates.get(name)
    return None if made is None else deps_of(graph_of(made))


@dataclass(frozen=True)
class _Machine:
    """One machine below. follower: turns its messages and updates into events."""

    graph: Any
    deps: Dependencies
    follower: Follower
    path: tuple[str, ...]


class Nested:
    """Turns the stream of a graph's delegates into events. stood: their positions before the run. extended:
    the turns by which it extends the graph's task, and with it the delegates that had ended."""

    def __init__(self, deps: Dependencies, stood: Mapping[str, Stood], extended: int = 0) -> None:
        self._deps = deps
        self._stood = stood
        self._extended = extended
        self._known: dict[tuple[str, ...], _Machine | None] = {}

    def events(self, ns: tuple[str, ...], mode: str, data: Any) -> Iterator[SessionEvent]:
        """The events for an item of the stream; none for one of a graph in a tool. ns: its namespace, split
        into parts."""
        machine = self._machine(ns)
        if machine is None:
            return
        for event in _told(machine, mode, data):
            yield replace(event, path=machine.path)

    def _machine(self, ns: tuple[str, ...]) -> _Machine | None:
        if ns not in self._known:
            self._known[ns] = self._made(ns)
        return self._known[ns]

    def _made(self, ns: tuple[str, ...]) -> _Machine | None:
        *way, own = ns
        above = self._machine(tuple(way)) if way else None
        deps = above.deps if above else None if way else self._deps
        part = _OURS.fullmatch(own)
        made = deps.toolbox.delegates.get(part["name"]) if deps and part else None
        if made is None or part is None:
            return None
        graph = graph_of(made)
        below = deps_of(graph)
        stood = self._stood.get("|".join(ns), Stood(Task(), ()))
        extended = self._extended if stood.task.ended else 0
        follower = Follower(stood.task, below.toolbox, below.limits.turns, extended, stood.messages)
        return _Machine(graph, below, follower, (*(above.path if above else ()), part["name"]))


def _told(machine: _Machine, mode: str, data: Any) -> Iterator[SessionEvent]:
    if mode == "messages":
        chunk, metadata = data
        if (
            isinstance(chunk, AIMessageChunk)
            and metadata.get("langgraph_node") == State.CALL_LLM
            and chunk.text
        ):
            yield machine.follower.token(chunk.text, chunk.id)
    elif mode == "custom":
        yield from machine.follower.wrote(data)
    else:
        for node, written in data.items():
            if (state := state_of(machine.graph, node)) is not None:
                yield from machine.follower.update(state, written)
