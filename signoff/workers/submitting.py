"""Submits tasks and answers to the workers."""

import uuid
from dataclasses import replace
from typing import Any

from langgraph.types import Command

from signoff import Answer, SetupError, ThreadError, ThreadStatus, go_on
from signoff.graph.arguments import describe
from signoff.graph.compiled.going_on import GoOn, Undo, instruction_of
from signoff.graph.errors import unknown_thread
from signoff.nodes.requests import Swap
from signoff.session import Condition, request_pause
from signoff.session.commands import meant
from signoff.session.status import look, reading_graph
from signoff.storage import PostgresStorage
from signoff.text import quote_id
from signoff.workers.inbox import (
    DEFAULT_QUEUE,
    Edit,
    Inbox,
    Order,
    Request,
    delivered,
    edit_inbox,
    packages,
    read_inbox,
    unless_known,
    usable_id,
    was_delivered,
)

NO_POSTGRES = (
    "Workers need a PostgreSQL database, which several machines can share; name one as "
    "postgresql://user@host:5432/database (--database, SIGNOFF_DATABASE, or postgres_storage in Python)."
)


def submit(
    storage: PostgresStorage,
    request: str | Answer | Command[Any] | None,
    thread_id: str | None = None,
    *,
    queue: str | None = None,
    id: str | None = None,
) -> str:
    """Submits work on a thread to the workers; returns the thread's id once the request is stored durably.

    request: the text of a task (tasks run one after another), an `Answer` to what the thread waits for,
    `go_on()` after a limit or an error, or None to continue after a pause or a failure. All but a task is
    checked against the thread's current status: what does not fit raises ThreadError or SetupError and
    changes nothing.
    thread_id: by default a new one. queue: which workers; a thread stays with the queue in which it was
    begun. Default: "signoff". id: of this request, in this thread. Submitting it again, for example after a
    lost connection, changes nothing, whatever the thread's status is by then. It is looked up first. An
    answer is bound to the current interrupt: it is never delivered to another one.

    Raises StorageError when the database cannot be used, SetupError without the extra `signoff[workers]`.
    """
    if not isinstance(storage, PostgresStorage):
        raise SetupError(NO_POSTGRES)
    thread_id = uuid.uuid4().hex if thread_id is None else thread_id
    if id is not None and _is_known(storage, thread_id, usable_id(id)):
        return thread_id
    whose, order = check(storage, request, thread_id, queue=queue, id=id)

    def edit(inbox: Inbox) -> Inbox | None:
        inbox = replace(inbox, queue=whose)
        return inbox.going() if order is None else unless_known(storage.store, thread_id, order)(inbox)

    # A request to continue is not an order that waits: it is delivered with this.
    note = delivered(thread_id, id) if order is None and id is not None else None
    _hand_over(storage, thread_id, whose, edit, note)
    return thread_id


def check(
    storage: PostgresStorage,
    request: str | Answer | Command[Any] | None,
    thread_id: str,
    *,
    queue: str | None = None,
    id: str | None = None,
) -> tuple[str, Order | None]:
    """Returns the order that `submit` would store, and its queue; raises the same errors."""
    known = read_inbox(storage.store, thread_id)
    whose = _queue(queue, known, thread_id)
    status = look(reading_graph(storage), thread_id)
    return whose, _order(request, status, known or Inbox(), id or uuid.uuid4().hex)


def _is_over(status: ThreadStatus) -> bool:
    return status.outcome is not None and status.outcome.status != "success"


def _is_known(storage: PostgresStorage, thread_id: str, order_id: str) -> bool:
    """Whether a request with this id was submitted to the thread before."""
    inbox = read_inbox(storage.store, thread_id)
    return bool(inbox and inbox.holds(order_id)) or was_delivered(storage.store, thread_id, order_id)


def pause(storage: Any, thread_id: str) -> None:
    """Pauses a thread of the workers, at the next step boundary if it runs.

    `submit(storage, None, thread_id)` continues it. Raises ThreadError when it is not a thread of the
    workers.
    """
    if not isinstance(storage, PostgresStorage):
        raise SetupError(NO_POSTGRES)
    if edit_inbox(storage.store, thread_id, lambda inbox: replace(inbox, paused=True)) is None:
        raise ThreadError(f"Thread {thread_id!r:.80} does not belong to workers; nothing was changed.")
    request_pause(storage.store, thread_id)


def of_workers(storage: Any, thread_id: str) -> bool:
    """Whether the thread was submitted to workers."""
    return isinstance(storage, PostgresStorage) and read_inbox(storage.store, thread_id) is not None


def no_undo(thread_id: str) -> ThreadError:
    """Returns the error for an undo of a thread that belongs to workers."""
    return ThreadError(
        f"Workers do not undo what thread {thread_id!r:.80} has done: call Session(graph, thread_id).undo() "
        "in a program with its tools. Nothing was changed."
    )


def _queue(given: str | None, known: Inbox | None, thread_id: str) -> str:
    with packages():
        from signoff.workers.tables import usable_queue
    default = known.queue if known else DEFAULT_QUEUE
    name = usable_queue(default if given is None else given)
    if known is not None and name != known.queue:
        raise ThreadError(
            f"Thread {thread_id!r:.80} belongs to the queue {known.queue!r}, not to {name!r}; begin another "
            "thread there. Nothing was changed."
        )
    return name


def _order(
    request: str | Answer | Command[Any] | None, status: ThreadStatus, inbox: Inbox, name: str
) -> Order | None:
    """Returns the request as it is stored; None for one that only has the thread go on. Raises ThreadError
    when it does not fit the thread's status."""
    instruction = instruction_of(request)
    if request is None or (isinstance(instruction, GoOn) and not _is_over(status)):
        if status.condition is Condition.UNKNOWN and not inbox.orders:
            raise unknown_thread(status.thread_id)
        return None
    if isinstance(request, str):
        if waiting := status.wait():
            raise ThreadError(
                f"Thread {quote_id(status.thread_id)} waits for {waiting.document()['waits_for']}; answer "
                "that first. Nothing was changed."
            )
        if inbox.paused:
            raise ThreadError(
                f"Thread {quote_id(status.thread_id)} is paused; continue it first. Nothing was changed."
            )
        if not request.strip():
            raise SetupError("The task is empty; say what to do.")
        return Order(name, request)
    if isinstance(instruction, Undo):
        raise no_undo(status.thread_id)
    if isinstance(instruction, GoOn):
        _refuse_second(inbox, status, go_on(instruction.turns))
        return Order(name, go_on(instruction.turns, name), status.task.id)
    if not isinstance(request, Answer):
        raise SetupError(
            f"Workers take the text of a task, an Answer, go_on() or None, not {describe(request)}."
        )
    _refuse_second(inbox, status, request)
    waiting = meant(request, status)
    waiting.read(request.value)
    return Order(name, replace(request, interrupt_id=waiting.interrupt_id))


def _refuse_second(inbox: Inbox, status: ThreadStatus, request: Request) -> None:
    waits, task = status.wait(), status.task.id
    if isinstance(request, Answer) and request.interrupt_id is not None:
        waits = status.wait(request.interrupt_id)
    again = any(isinstance(one.request, Command) and one.task == task for one in inbox.orders)
    if again or (waits is not None and inbox.answers(waits.interrupt_id)):
        still = inbox.paused or inbox.problem
        then = "does not run; continue it without a new request" if still else "a worker is about to"
        raise ThreadError(
            f"Thread {quote_id(status.thread_id)} has already been told how to go on, and {then}. Nothing "
            "was changed."
        )


def _hand_over(storage: PostgresStorage, thread_id: str, queue: str, edit: Edit, note: Swap | None) -> None:
    """Changes the inbox, writes `note` and wakes a worker, in one transaction."""
    with packages():
        from signoff.workers.tables import prepare, wake
    database = storage.checkpointer.database
    prepare(database)

    def write(change: Swap) -> bool:
        with database.connection() as connection, connection.transaction():
            changed = _swapped(connection, change)
            if changed and note:
                _swapped(connection, note)
            if changed:
                wake(connection, database.address, thread_id, queue)
            return changed

    edit_inbox(storage.store, thread_id, edit, make=True, swap=write)


def _swapped(connection: Any, change: Swap) -> bool:
    from signoff.storage.postgres_database import swap_in

    return swap_in(connection, ".".join(change.namespace), change.key, change.before, change.after)
