"""What the machines above a delegate pass down to it.

It is passed down in the configuration of the run, which LangGraph forwards and never saves.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from signoff.graph.limits import Limits
from signoff.tools.approvals import Approvals

DESCENT = "__signoff_descent"
"""Its key in LangGraph's `configurable`."""

LISTENS = "__signoff_listens"
"""The key that says that another process can ask this run of the thread to pause."""


@dataclass(frozen=True)
class TreeBound:
    """Limits of one machine that bound all below it, by their names: how much all of them together may use
    since its task began. ns: its namespace among the checkpoints of the thread."""

    ns: str
    limits: Mapping[str, float]


@dataclass(frozen=True)
class Descent:
    """The machines above a delegate, as it needs to know them.

    ns: its own namespace among the checkpoints of the thread. deeper: how many levels of delegates may stand
    below it. policies: of approvals, of all machines above it. bounds: the limits above it that bound the
    whole tree. root: the task at the top. ledger: of the tree, where it is kept in the process. alone: no
    other delegate of the tree runs while it does, except those below it. listens: whoever runs the thread can
    be asked to pause by another process. made, limits_of: what its nodes have made of it, to save time.
    """

    ns: str
    deeper: int
    policies: Sequence[Approvals] = ()
    bounds: tuple[TreeBound, ...] = ()
    root: str = ""
    ledger: Any = None
    alone: bool = False
    listens: bool = False
    made: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)
    limits_of: dict[int, Limits] = field(default_factory=dict, compare=False, repr=False)

    def within(self, own: Limits) -> Limits:
        """The machine's own limits, with at most the depth that is left."""
        return own if own.depth <= self.deeper else own.model_copy(update={"depth": self.deeper})

    def leaves_alone(self, ns: str) -> bool:
        """Whether no other delegate runs beside the machine in this namespace. A graph in a tool may run
        several machines side by side, and hands the same down to each."""
        return self.alone and self.ns == ns

    @property
    def costs(self) -> bool:
        """Whether a machine above it has a limit of cost."""
        return any("cost" in bound.limits for bound in self.bounds)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that passes it down."""
        return {DESCENT: self}


def place_of(configurable: Mapping[str, Any]) -> str:
    """The namespace of the machine whose node runs with this configuration."""
    here: str = configurable.get("checkpoint_ns", "")
    return here.rpartition("|")[0]


def is_machine(configurable: Mapping[str, Any]) -> bool:
    """Whether a graph with this configuration is a machine of Signoff's, which runs one state at a time: the
    thread's own, or that of a delegate. Any other graph in the thread has a namespace of its own."""
    ns, descent = configurable.get("checkpoint_ns"), configurable.get(DESCENT)
    return not ns or (descent is not None and descent.ns == ns)


def is_within(ns: str, above: str) -> bool:
    """Whether a namespace is that of `above`, or of a machine below it."""
    return not above or ns == above or ns.startswith(f"{above}|")


def namespace(above: str, name: str, reply_id: str, call_id: str) -> str:
    """The checkpoint namespace for the machine of a call. above: the namespace of the machine that makes the
    call. A provider's ids may contain anything, but `|` and `:` have a meaning here."""
    mark = hashlib.sha256(f"{len(reply_id)}:{reply_id}{call_id}".encode(errors="replace")).hexdigest()[:32]
    return f"{above}|{name}:{mark}" if above else f"{name}:{mark}"
