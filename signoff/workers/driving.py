"""One idempotent call that runs a thread as far as possible; an engine only has to make it once or more."""

from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from signoff import Answer, Decision, Graph, Paused, Session, SetupError, ThreadBusy, ThreadLost, ThreadStatus
from signoff.session import Choose, Condition, ThreadCommand
from signoff.session.status import deps_of
from signoff.session.tracing import tracing
from signoff.workers.inbox import Inbox, Order, read_inbox, take_out

DrivenState = Literal["ended", "waiting", "paused", "drained", "busy", "lost", "unknown"]


@dataclass(frozen=True)
class Driven:
    """The state in which a call of `drive` left a thread.

    state: `ended`: its task has an outcome. `waiting`: for a person. `paused`: on request. `drained`: this
    process is about to end, call `drive` in another one. `busy`: another process runs it, and continues with
    everything in its inbox. `lost`: another process took it over. `unknown`: the thread does not exist, and
    no order begins it. decision: the result of the last run; None when nothing had to be run.
    """

    thread_id: str
    state: DrivenState
    decision: Decision | None = None


class Rests(Exception):
    """Ends a run before it has begun, because there is nothing to do."""

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
        traced = tracing(graph)
        self._session = Session(graph, thread_id, config={"callbacks": traced} if traced else None)
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
        """Whether an order has come while the thread was still held: its sender got "busy"."""
        if rests.state == "drained":
            return False
        inbox = read_inbox(self._store, self.thread_id) or Inbox()
        return rests.left != _ids(inbox) or (rests.state == "paused" and not inbox.paused)

    def _choose(self, thread_status: ThreadStatus) -> ThreadCommand:
        """Returns the command to run the thread with. Raises Rests when it should not run."""
        inbox = read_inbox(self._store, self.thread_id) or Inbox()
        seen = {message.id for message in thread_status.values.get("messages", ())}
        if done := {order.id for order in inbox.orders if order.id in seen or _is_past(order, thread_status)}:
            take_out(self._store, self.thread_id, done)
            inbox = inbox.without(done)
        if self._draining:
            raise Rests("drained", _ids(inbox))
        if inbox.paused:
            raise Rests("paused", _ids(inbox))
        if thread_status.condition.has_work_left:
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
    """Takes the thread's lock, reads its checkpoint, and starts or continues it, until nothing is left to do.

    What is in the thread's inbox (`submit`, `post`) is delivered exactly once. When the thread waits for a
    person, has ended, is paused, or runs elsewhere, this returns that state and does nothing. Calling it
    again, after a crash or during another call, is safe. graph: with the storage of the thread. Raises
    StorageError when that cannot be used, and ThreadError for a thread of another machine version; nothing is
    lost in either case.
    """
    return Driving(graph, thread_id).run()


def _fits(order: Order, thread_status: ThreadStatus) -> bool:
    """Whether the order can be delivered now; a task waits until the previous one has ended."""
    match order.request:
        case Answer(interrupt_id=interrupt_id):
            return thread_status.wait(interrupt_id) is not None
        case Command():
            outcome = thread_status.outcome
            return outcome is not None and outcome.status != "success" and outcome.task == order.task
    return thread_status.condition in (Condition.UNKNOWN, Condition.ENDED)


def _is_past(order: Order, thread_status: ThreadStatus) -> bool:
    """Whether the thread no longer waits for the order: it was delivered, or another answer came first."""
    if isinstance(order.request, Answer) and thread_status.condition.has_work_left:
        # What waits in a delegate is seen again once the thread has run.
        return False
    return not isinstance(order.request, str) and not _fits(order, thread_status)


def _move(order: Order) -> ThreadCommand:
    match order.request:
        case str() as task:
            return [HumanMessage(task, id=order.id)]
    return order.request


def _ids(inbox: Inbox) -> tuple[str, ...]:
    return tuple(order.id for order in inbox.orders)
