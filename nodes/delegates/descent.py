"""Where a machine stands that another one has called: what the machines above it hand down.

It is handed down in the configuration of the run, which LangGraph passes on and never saves.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from signoff.graph.limits import Limits
from signoff.tools.approvals import Approvals

DESCENT = "__signoff_descent"
"""The key under which it stands among what LangGraph calls configurable."""

LISTENS = "__signoff_listens"
"""The key that says that whoever runs the thread can be asked to pause by another process."""


@dataclass(frozen=True)
class TreeBound:
    """Limits of one machine that bound all below it, by their names: how much all of them together may use
    since its task began. ns: its namespace among the checkpoints of the thread."""

    ns: str
    limits: Mapping[str, float]


@dataclass(frozen=True)
class Descent:
    """What stands above a machine.

    ns: its own namespace among the checkpoints of the thread. deeper: how many levels of delegates may stand
    below it. policies: of approvals, of all machines above it. bounds: the limits above it that bound the
    whole tree. root: the task at the top. ledger: of the tree, where it is kept in the process. listens:
    whoever runs the thread can be asked to pause by another process. made, limits_of: what its nodes have
    made of it, to save time.
    """

    ns: str
    deeper: int
    policies: Sequence[Approvals] = ()
    bounds: tuple[TreeBound, ...] = ()
    root: str = ""
    ledger: Any = None
    listens: bool = False
    made: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)
    limits_of: dict[int, Limits] = field(default_factory=dict, compare=False, repr=False)

    def within(self, own: Limits) -> Limits:
        """The machine's own limits, no deeper than it may be."""
        return own if own.depth <= self.deeper else own.model_copy(update={"depth": self.deeper})

    @property
    def costs(self) -> bool:
        """Whether a limit of cost stands above it."""
        return any("cost" in bound.limits for bound in self.bounds)

    @property
    def config(self) -> dict[str, Any]:
        """How it is handed down."""
        return {DESCENT: self}


def place_of(configurable: Mapping[str, Any]) -> str:
    """The namespace of the machine whose node runs with this configuration."""
    here: str = configurable.get("checkpoint_ns", "")
    return here.rpartition("|")[0]


def is_within(ns: str, above: str) -> bool:
    """Whether a namespace is that of `above`, or of a machine below it."""
    return not above or ns == above or ns.startswith(f"{above}|")


def namespace(above: str, name: str, reply_id: str, call_id: str) -> str:
    """Where the machine of a call is kept among the checkpoints of the thread. above: the namespace of the
    one that makes the call. Ids of a provider may hold anything; here `|` and `:` mean something."""
    mark = hashlib.sha256(f"{len(reply_id)}:{reply_id}{call_id}".encode(errors="replace")).hexdigest()[:32]
    return f"{above}|{name}:{mark}" if above else f"{name}:{mark}"
