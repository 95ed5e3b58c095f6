"""Where a machine stands that another one has called: what the machines above it hand down.

It is handed down in the configuration of the run, which LangGraph passes on and never saves.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from signoff.graph.limits import Limits
from signoff.tools.approvals import Approvals

DESCENT = "__signoff_descent"
"""The key under which it stands among what LangGraph calls configurable."""

_SHARED = ("tool_calls", "tokens", "seconds", "cost")


@dataclass(frozen=True)
class Descent:
    """What stands above a machine.

    ns: its own namespace among the checkpoints of the thread. deeper: how many levels of delegates may stand
    below it. policies: of approvals, of all machines above it. left: of the limits that bound the whole tree
    what was left when it was called, by their names.
    """

    ns: str
    deeper: int
    policies: Sequence[Approvals] = ()
    left: Mapping[str, float] = field(default_factory=dict)

    def within(self, own: Limits) -> Limits:
        """The machine's own limits, or what is left above it, whichever is less."""
        update: dict[str, Any] = {"depth": min(own.depth, self.deeper)}
        for name, left in self.left.items():
            most = getattr(own, name)
            update[name] = min(inf if most is None else most, left)
        return own.model_copy(update=update)

    @property
    def config(self) -> dict[str, Any]:
        """How it is handed down."""
        return {DESCENT: self}


def shared(limits: Limits) -> tuple[str, ...]:
    """The limits that bound all machines below, of those that are set."""
    return tuple(name for name in _SHARED if getattr(limits, name) is not None)


def namespace(above: str, name: str, reply_id: str, call_id: str) -> str:
    """Where the machine of a call is kept among the checkpoints of the thread. above: the namespace of the
    one that makes the call. Ids of a provider may hold anything; here `|` and `:` mean something."""
    mark = hashlib.sha256(f"{len(reply_id)}:{reply_id}{call_id}".encode(errors="replace")).hexdigest()[:32]
    return f"{above}|{name}:{mark}" if above else f"{name}:{mark}"
