"""The inbox of a thread: one store entry per thread of the workers, and one per delivered order.

The latter serve to recognise an order that comes again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

from langgraph.store.base import BaseStore
from langgraph.types import Command
from pydantic import Field, TypeAdapter

from signoff import Answer, SetupError, ThreadError, go_on
from signoff.graph.compiled.going_on import GoOn, instruction_of
from signoff.graph.foreign import checked_thread_id
from signoff.graph.inside.installing import install_hint
from signoff.nodes.requests import Swap
from signoff.text import label, quote_id, valid_text

INBOX = "inbox"
_LONGEST_ID = 500
DEFAULT_QUEUE = "signoff"

Request = str | Answer | Command[Any]
"""A request that can be put into an inbox."""


@dataclass(frozen=True)
class Order:
    """A request with its own id, by which the thread's history shows that it was delivered.

    task: the id of the task that `go_on()` continues.
    """

    id: str
    request: Request
    task: str = ""


_Count = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True)
class Inbox:
    """The requests of one thread, in the order in which they came.

    queue: the queue whose workers run the thread. paused: it does not run until a request to continue.
    problem: why the workers have given up on it; failures: how many in a row. deaths: of workers that ran it,
    since one finished it.
    """

    queue: str = DEFAULT_QUEUE
    orders: tuple[Order, ...] = ()
    paused: bool = False
    problem: str = ""
    failures: _Count = 0
    deaths: _Count = 0

    def with_order(self, order: Order) -> "Inbox":
        """Returns the inbox with `order` at its end."""
        return replace(self.going(), orders=(*self.orders, order))

    def holds(self, order_id: str) -> bool:
        """Whether the order with this id is in it."""
        return any(order.id == order_id for order in self.orders)

    def answers(self, interrupt_id: str) -> bool:
        """Whether it contains the answer to the interrupt with this id."""
        given = (order.request for order in self.orders)
        return any(isinstance(one, Answer) and one.interrupt_id == interrupt_id for one in given)

    def without(self, ids: set[str]) -> "Inbox":
        return replace(self, orders=tuple(order for order in self.orders if order.id not in ids))

    def going(self) -> "Inbox":
        """Returns the inbox with nothing that keeps the thread from running.

        The count of deaths stays, until the thread was given up for them: a new task does not make it
        harmless.
        """
        deaths = 0 if self.deaths >= MOST_DEATHS else self.deaths
        return replace(self, paused=False, problem="", failures=0, deaths=deaths)

    def done(self, *, survived: bool) -> "Inbox":
        """Returns the inbox after a run without an error. survived: it finished, and was not only drained."""
        return replace(self, problem="", failures=0, deaths=0 if survived else self.deaths)


Swapping = Callable[[Swap], bool]
Edit = Callable[[Inbox], Inbox | None]
"""A change of an inbox; None leaves it unchanged."""


def read_inbox(store: BaseStore, thread_id: str) -> Inbox | None:
    """Returns the inbox of a thread; None when the thread does not belong to workers.

    Raises ThreadError when it cannot be read.
    """
    return _read(store, thread_id)[1]


def edit_inbox(
    store: BaseStore, thread_id: str, edit: Edit, *, make: bool = False, swap: Swapping | None = None
) -> Inbox | None:
    """Changes the inbox of a thread atomically; returns the new one.

    make: create it if there is none yet. swap: how the change is written, by default `Swap.on(store)`.
    """
    write = swap or (lambda change: change.on(store))
    while True:
        before, now = _read(store, thread_id)
        if now is None and not make:
            return None
        now = now or Inbox()
        inbox = edit(now)
        if inbox is None:
            return now
        after = _plain(inbox)
        if after == before and swap is None:
            return inbox
        if write(Swap(_place(thread_id), INBOX, before, after)):
            return inbox


def post(store: BaseStore, thread_id: str, order: Order) -> None:
    """Puts an order into the inbox of a thread; the next `drive` delivers it.

    Posting it again under the same id changes nothing, even after it was delivered.

    Raises SetupError for an id that cannot be stored, and for an answer that does not say what it answers:
    the thread may wait for something else by the time it is delivered.
    """
    usable_id(order.id)
    if isinstance(order.request, Answer) and order.request.interrupt_id is None:
        raise SetupError("The answer does not say what it answers; pass Answer(value, interrupt_id).")
    edit_inbox(store, thread_id, unless_known(store, thread_id, order), make=True)


def unless_known(store: BaseStore, thread_id: str, order: Order) -> Edit:
    """Returns a change that adds the order to an inbox, unless its id is there or was delivered.

    Delivered orders are looked up after the inbox was read: they are recorded before they are removed from
    the inbox, so that each is found in one of the two.
    """

    def edit(inbox: Inbox) -> Inbox | None:
        known = inbox.holds(order.id) or was_delivered(store, thread_id, order.id)
        return None if known else inbox.with_order(order)

    return edit


def take_out(store: BaseStore, thread_id: str, ids: set[str]) -> None:
    """Removes orders that were delivered, or are no longer waited for; their ids stay with the thread."""
    for order_id in sorted(ids):
        note = delivered(thread_id, order_id)
        store.put(note.namespace, note.key, note.after, index=False)
    edit_inbox(store, thread_id, lambda inbox: inbox.without(ids))


def was_delivered(store: BaseStore, thread_id: str, order_id: str) -> bool:
    """Whether an order with this id was delivered to the thread."""
    note = delivered(thread_id, order_id)
    return store.get(note.namespace, note.key) is not None


def usable_id(order_id: Any) -> str:
    """Returns the id of an order. Raises SetupError for an id that a database would change."""
    fits = isinstance(order_id, str) and 0 < len(order_id) <= _LONGEST_ID
    if not fits or valid_text(order_id) != order_id:
        raise SetupError(
            f"The id {order_id!r:.80} cannot be used; pass text of 1 to {_LONGEST_ID} characters without NUL."
        )
    return str(order_id)


def delivered(thread_id: str, order_id: str) -> Swap:
    """Returns the entry that records the delivery, for its first write."""
    # As a hash, because PostgreSQL's indexes limit the length of a key.
    key = f"delivered {hashlib.sha256(order_id.encode()).hexdigest()}"
    return Swap(_place(thread_id), key, None, {"id": order_id})


def _place(thread_id: str) -> tuple[str, ...]:
    return ("signoff", INBOX, label(checked_thread_id(thread_id)))


_FORM = TypeAdapter(Inbox)


def _read(store: BaseStore, thread_id: str) -> tuple[dict[str, Any] | None, Inbox | None]:
    """Returns the inbox of a thread as it is stored, and as an object."""
    try:
        item = store.get(_place(thread_id), INBOX)
        if item is None:
            return None, None
        orders = tuple(_order(stored) for stored in item.value["orders"])
        return item.value, _FORM.validate_python(vars(Inbox(**{**item.value, "orders": orders})))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ThreadError(
            f"The inbox of thread {quote_id(thread_id)} cannot be read ({type(error).__name__}): it is "
            "damaged, or of a newer Signoff. Nothing was changed."
        ) from error


def _order(found: Mapping[str, Any]) -> Order:
    name, task, given = found["id"], found["task"], found["given"]
    match found["kind"]:
        case "answer":
            return Order(name, Answer(given["value"], given["interrupt_id"], given.get("by")), task)
        case "go_on":
            return Order(name, go_on(given, name), task)
    return Order(name, given, task)


def _plain(inbox: Inbox) -> dict[str, Any]:
    return {**vars(inbox), "orders": [_plain_order(order) for order in inbox.orders]}


def _plain_order(order: Order) -> dict[str, Any]:
    kind, given = _kind_of(order.request)
    return {"id": order.id, "task": order.task, "kind": kind, "given": given}


def _kind_of(request: Request) -> tuple[str, Any]:
    match request:
        case Answer(value=value, interrupt_id=interrupt_id, by=by):
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise SetupError(f"The answer {value!r:.80} cannot be stored; pass text or JSON.") from error
            return "answer", {"value": value, "interrupt_id": interrupt_id} | ({"by": by} if by else {})
        case Command():
            instruction = instruction_of(request)
            return "go_on", instruction.turns if isinstance(instruction, GoOn) else None
    return "task", request


TASK = "signoff.drive"
"""The name of the job that drives a thread."""

THREAD = "CASE jsonb_typeof(args->'thread_id') WHEN 'string' THEN NULLIF(args->>'thread_id', '') END"
"""In SQL, the id of the thread that a row of the queue names; NULL for none."""

HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeats of a worker."""

DEAD_AFTER = 3
"""After this many missed heartbeats of a worker, its threads are taken over."""

MOST_DEATHS = 5
"""After this many workers have died while running a thread, it is given up."""


@contextmanager
def packages() -> Iterator[None]:
    """Wraps the imports of optional packages; raises SetupError, which says how to install them."""
    try:
        yield
    except ImportError as error:
        raise SetupError(
            f"Workers need packages that are missing ({error}): {install_hint('workers')}"
        ) from error
