"""The steps of a stored thread, each with the state of the thread before and after it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple

from signoff.graph.build import Graph
from signoff.graph.machine import NO_TASK, Event, State
from signoff.graph.state import MIDDLEWARE, AgentState
from signoff.session.path import Step, all_between, node_between, step_of, unsaved


@dataclass(frozen=True)
class ReplayStep:
    """One step of a state, with the state of the thread before and after it.

    whole: there was no other step in between. state: None for one that this version does not know.
    """

    step: Step
    before: AgentState
    after: AgentState
    whole: bool = True

    @property
    def state(self) -> State | None:
        return self.step.state

    @property
    def written(self) -> Sequence[BaseMessage]:
        """The messages that the step appended."""
        return self.after["messages"][len(self.before["messages"]) :]

    @property
    def event(self) -> Event | None:
        """The event that the state reported; None for one that this version does not know."""
        name = self.step.event
        return Event(name) if name in set(Event) else None


def moments_of(graph: Graph, saved: Sequence[CheckpointTuple]) -> Iterator[ReplayStep]:
    """Every step of a state between two of these checkpoints, and the one after the last of them."""
    kinds = {name: kind for name, kind in graph.channels.items() if isinstance(kind, DeltaChannel)}
    live = {name: kind.from_checkpoint(kind.typ()) for name, kind in kinds.items()}
    parent: CheckpointTuple | None = None
    before = _values({}, live)
    for one in saved:
        stored = one.checkpoint["channel_values"]
        _take_up(live, parent, by_tasks=True)
        # A branch begins with a full copy: any other writes of its parent belong to another branch.
        live |= {name: kind.from_checkpoint(stored[name]) for name, kind in kinds.items() if name in stored}
        after = _values(stored, live)
        step = step_of(one, node_between(one, parent), stored)
        if step.name:
            whole = len(all_between(one, parent)) == 1
            yield ReplayStep(step, cast(AgentState, before), cast(AgentState, after), whole)
        _take_up(live, one, by_tasks=False)
        given = {name: value for task, name, value in one.pending_writes or () if task == NO_TASK}
        before, parent = _values({**stored, **given}, live), one
    if parent is not None and (found := unsaved(parent)):
        step = step_of(parent, *found)
        _take_up(live, parent, by_tasks=True)
        if step.name:
            yield ReplayStep(step, cast(AgentState, before), cast(AgentState, _values(found[1], live)))


def _take_up(
    live: Mapping[str, "DeltaChannel[Any]"], saved: CheckpointTuple | None, *, by_tasks: bool
) -> None:
    """Adds the writes after this checkpoint: by the states that ran, or from outside."""
    for task, name, value in (saved.pending_writes or ()) if saved else ():
        if name in live and (task != NO_TASK) is by_tasks:
            live[name].update([value])


def _values(stored: Mapping[str, Any], live: Mapping[str, "DeltaChannel[Any]"]) -> dict[str, Any]:
    """The state of a thread, from the channels stored whole and those of which only writes are stored."""
    names = {*AgentState.__annotations__, MIDDLEWARE} - live.keys()
    plain = {name: stored[name] for name in names if name in stored}
    return {**plain, **{name: channel.get() for name, channel in live.items()}}
