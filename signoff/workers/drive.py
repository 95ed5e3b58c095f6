"""One idempotent call that runs a thread as far as possible; an engine only has to make it at least once."""

from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import HumanMessage

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError, ThreadBusy, ThreadLost
from signoff.session.commands import Answer, Choose, Extend, Retry, ThreadCommand
from signoff.session.decisions import Decision, Paused
from signoff.session.session import Session
from signoff.session.status import Condition, ThreadStatus, deps_of
from signoff.workers.inbox import Inbox, Order, read_inbox, take_out

DrivenState = Literal["ended", "waiting", "paused", "drained", "busy", "lost", "unknown"]


@dataclass(frozen=True)
class Driven:
    """The state in which a call of `drive` left a thread.

    state: `ended`: its task has an outcome. `waiting`: for a person. `paused`: somebody asked for it.
        `drained`: this process is to end, call `drive` in another one. `busy`: another process runs it, and
        goes on with all that is in its inbox. `lost`: another process took it over. `unknown`: there is no
        such thread, and nothing that begins it.
    decision: what the last run came to; None when nothing had to be run.
    """

    thread_id: str
    state: DrivenState
    decision: Decision | None = None


class Rests(Exception):
    """There is nothing to do. Ends a run before it has begun."""

    def __init__(self, state: DrivenState, left: tuple[str, ...]) -> None:
        super().__init__(state)
        self.state = state
        self.left = left


class Driving:
    """One call of `drive`; `drain` ends it at the next step boundary, from another thread or a signal.

    Raises SetupError for a graph without a store: nothing can be put into the inbox of its threads.
    """

    def __init__(self, graph: Graph, thread_id: str) -> None:
        deps_of(graph)
        if graph.store is None:
            raise SetupError("Workers need a graph with a store; pass storage= to build_graph.")
        self.thread_id = thread_id
        self._store = graph.store
        self._session = Session(graph, thread_id)
        self._draining = False

    def drain(self) -> None:
        """Asks the run to stop at the next step boundary; `run` then returns `drained`."""
        self._draining = True
        self._session.pause("signal")

    def run(self) -> Driven:
        """Runs until nothing is left to do here. Raises the errors of `Session.run`, except ThreadBusy."""
        decision: Decision | None = None
        while True:
            try:
                decision = self._session.run(Choose(self._choose))
            except Rests as rests:
                if not self._has_more(rests):
                    return Driven(self.thread_id, rests.state, decision)
            except ThreadBusy:
                return Driven(self.thread_id, "busy", decision)
            except ThreadLost:
                return Driven(self.thread_id, "lost")
            if isinstance(decision, Paused) and decision.by == "request":
                return Driven(self.thread_id, "paused", decision)

    def _has_more(self, rests: Rests) -> bool:
        """Whether something has come while the thread was still held: whoever brought it was told "busy"."""
        if rests.state == "drained":
            return False
        inbox = read_inbox(self._store, self.thread_id) or Inbox()
        return rests.left != _ids(inbox) or (rests.state == "paused" and not inbox.paused)

    def _choose(self, thread_status: ThreadStatus) -> ThreadCommand:
        """The command to run the thread with. Raises Rests when it should not run."""
        inbox = read_inbox(self._store, self.thread_id) or Inbox()
        seen = {message.id for message in thread_status.values.get("messages", ())}
        if done := {order.id for order in inbox.orders if order.id in seen or _is_past(order, thread_status)}:
            take_out(self._store, self.thread_id, done)
            inbox = inbox.without(done)
        if self._draining:
            raise Rests("drained", _ids(inbox))
        if inbox.paused:
            raise Rests("paused", _ids(inbox))
        if thread_status.condition is Condition.STOPPED:
            return None
        due = next((order for order in inbox.orders if _fits(order, thread_status)), None)
        if due is None:
            raise Rests(_STATES[thread_status.condition], _ids(inbox))
        return _move(due)


_STATES: dict[Condition, DrivenState] = {
    Condition.UNKNOWN: "unknown",
    Condition.WAITING: "waiting",
    Condition.ENDED: "ended",
}


def drive(graph: Graph, thread_id: str) -> Driven:
    """Takes the thread's lock, looks at its checkpoint, and starts it or goes on, until nothing is left.

    What is in the thread's inbox (`submit`, `post`) is delivered exactly once. When the thread waits for a
    person, has ended, is paused, or somebody else runs it, this says so and does nothing. Calling it again,
    after a crash or beside another call, does no harm.

    graph: with the storage in which the thread is kept. Raises StorageError when that cannot be used, and
    ThreadError for a thread of another machine version; nothing is lost by either.
    """
    return Driving(graph, thread_id).run()


def _fits(order: Order, thread_status: ThreadStatus) -> bool:
    """Whether the order can be delivered in the thread's current status; a task waits until the one before
    has ended."""
    match order.request:
        case Answer(interrupt_id=interrupt_id):
            return thread_status.wait(interrupt_id) is not None
        case Extend():
            return _ended_by(order, thread_status, "limit")
        case Retry():
            return _ended_by(order, thread_status, "error")
    return thread_status.condition in (Condition.UNKNOWN, Condition.ENDED)


def _is_past(order: Order, thread_status: ThreadStatus) -> bool:
    """Whether the thread no longer waits for what the order answers: it was delivered, or somebody else was
    faster."""
    return not isinstance(order.request, str) and not _fits(order, thread_status)


def _ended_by(order: Order, thread_status: ThreadStatus, status: str) -> bool:
    outcome = thread_status.outcome or {}
    return (outcome.get("status"), outcome.get("task")) == (status, order.task)


def _move(order: Order) -> ThreadCommand:
    return [HumanMessage(order.request, id=order.id)] if isinstance(order.request, str) else order.request


def _ids(inbox: Inbox) -> tuple[str, ...]:
    return tuple(order.id for order in inbox.orders)
