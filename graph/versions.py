"""The version of the machine that a thread was run with, and what became of the states of older ones.

LangGraph ends a run silently when the thread stands in a node that the graph does not have. So whoever goes
on with a saved thread looks first where it stands.
"""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

from langgraph.checkpoint.base import CheckpointTuple

from signoff.graph.errors import ThreadError
from signoff.graph.machine import Event, State

MACHINE = 1
"""Raised by one whenever a state is renamed or removed. A thread carries it under `machine`."""

ALIASES: Mapping[str, State] = MappingProxyType({})
"""Names that states had in older versions: a thread that stands in one goes on in the state of today."""

EVENT_ALIASES: Mapping[str, Event] = MappingProxyType({})
"""Names that events had in older versions: what is stored is read as the event of today."""

RULE_ALIASES: Mapping[str, str] = MappingProxyType({})
"""Names that rules of `decide` had in older versions, with those of today."""

_BRANCH = "branch:to:"


def next_states(channels: Iterable[str]) -> tuple[str, ...]:
    """The states that run next when these channels are set, by the names that they had when they were."""
    return tuple(name.removeprefix(_BRANCH) for name in channels if name.startswith(_BRANCH))


def check_states(saved: CheckpointTuple | None, known: Container[str], *, newest: bool = True) -> None:
    """Raises ThreadError when the thread stands in a state that is not among the `known` ones.

    newest: whether `saved` is where the thread has come to, and not an older checkpoint to go back to.
    """
    if saved is None:
        return
    # A state that finished just before its process was killed has left its way on among the pending writes.
    # From an older checkpoint LangGraph runs that state again instead.
    writes = saved.pending_writes if newest else None
    ways = next_states(channel for _, channel, _ in writes or ())
    for name in (*next_states(saved.checkpoint["channel_values"]), *ways):
        if name not in known:
            version = saved.checkpoint["channel_values"].get("machine")
            of = f"machine version {version}" if version else "an unknown machine version"
            raise ThreadError(
                f"The thread stands in the state {name!r} of {of}, which this Signoff (version {MACHINE}) "
                "does not know: finish it with the Signoff it was begun with, or send a new message, which "
                "answers what the thread waits for or begins a new task."
            )
