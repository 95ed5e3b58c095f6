"""The machines of a stored thread, with their graphs: its own, and those of its delegates at every level."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.build import Graph
from signoff.graph.inside.private import looking_into
from signoff.nodes.delegates.descent import Descent, TreeBound, namespace
from signoff.nodes.delegates.graphs import deps_of, graph_of
from signoff.nodes.node import Dependencies
from signoff.session.below import calls_of_delegates, is_machine


@dataclass(frozen=True)
class ThreadMachine:
    """A machine of the thread: that of the thread itself, or of a delegate. descent: what stands above it."""

    graph: Any
    deps: Dependencies
    path: tuple[str, ...] = ()
    descent: Descent | None = None

    @property
    def ns(self) -> str:
        return "" if self.descent is None else self.descent.ns

    def below(self, name: str, ns: str) -> "ThreadMachine | None":
        """The machine of a delegate's call; None where the graph has no such delegate."""
        tool = self.deps.toolbox.delegates.get(name)
        if tool is None:
            return None
        graph = graph_of(tool)
        deps = deps_of(graph)
        above, limits = self.descent, self.deps.limits
        own = limits if above is None else above.within(limits)
        # Of the limits above, the state has what was read of them; a price is only asked for where one is
        # of cost.
        costs = own.cost is not None or (above is not None and above.costs)
        descent = Descent(
            ns=ns,
            deeper=own.depth - 1,
            policies=(*(above.policies if above else ()), self.deps.toolbox.approvals),
            bounds=(TreeBound(self.ns, {"cost": own.cost or 0.0}),) if costs else (),
        )
        return ThreadMachine(graph, deps, (*self.path, name), descent)

    def context(self, given: Any) -> Any:
        """What its runs had as context, where those of the thread had this."""
        form = self.deps.context_form
        return given if form is not None and given is not None and form.takes(given) else None


@dataclass(frozen=True)
class CallBelow:
    """A call that has begun a delegate. is_machine: whether its namespace holds a machine. machine: its
    machine; None where the graph has no such delegate."""

    name: str
    reply_id: str
    call_id: str
    ns: str
    is_machine: bool
    machine: ThreadMachine | None


def calls_below(machine: ThreadMachine, root: Graph, thread_id: str) -> Iterator[CallBelow]:
    """The calls of this machine that have begun a delegate, in order. root: the graph of the thread, which
    has its storage."""
    saver = root.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a thread is saved"
    # A fork that has run no step has delegates all the same.
    values = root.get_state(looking_into(thread_id, machine.ns, saver)).values
    for reply_id, name, call_id in calls_of_delegates(values.get("messages", ())):
        ns = namespace(machine.ns, name, reply_id, call_id)
        ours = is_machine(saver, thread_id, ns)
        yield CallBelow(name, reply_id, call_id, ns, ours, machine.below(name, ns) if ours else None)
