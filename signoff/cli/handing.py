"""Commands on a thread that belongs to the workers: they tell the workers, and run nothing themselves."""

import os

from signoff.cli import report
from signoff.cli.database import Database
from signoff.cli.display import Display
from signoff.cli.plans import Begin, Plan
from signoff.cli.report import Report
from signoff.cli.safe import shell_command
from signoff.cli.settings import Given, recall, remember, settle
from signoff.graph.compiled.graph import busy
from signoff.graph.errors import SetupError, ThreadError
from signoff.session.moves import Answer, Extend, Retry
from signoff.session.standing import Condition, Standing, look, reading_graph
from signoff.storage.postgres import PostgresStorage
from signoff.workers.inbox import DEFAULT_QUEUE, Inbox, read_inbox
from signoff.workers.submitting import check, of_workers, submit


def is_handed_over(thread_id: str, file: Database) -> bool:
    """Whether the thread belongs to the workers of this database."""
    if not file.is_postgres:
        return False
    with file.open() as storage:
        return of_workers(storage, thread_id)


def refuse_handed_over(thread_id: str, file: Database) -> None:
    """Raises ThreadError for a thread of the workers."""
    if is_handed_over(thread_id, file):
        raise ThreadError(
            f"Thread {thread_id!r} belongs to the workers; give it to them: {_next_task(thread_id, file)}"
        )


def _next_task(thread_id: str, file: Database) -> str:
    return shell_command(["signoff", "submit", "--thread", thread_id, *file.options, "the next task"])


def _just_goes_on(standing: Standing, inbox: Inbox) -> bool:
    """Whether nobody has to say more: what was said is to be delivered, or the thread was only paused."""
    if waiting := standing.waiting:
        return inbox.answers(waiting.interrupt_id)
    return inbox.paused or bool(inbox.orders)


def _begin(standing: Standing, file: Database, plan: Plan) -> Begin:
    """What is to be said to the thread. Raises ThreadError where nothing can be said."""
    thread_id = standing.thread_id
    if standing.condition is Condition.UNKNOWN:
        raise ThreadError(
            f"Thread {thread_id!r} is in the queue and has not begun; there is nothing to answer."
        )
    if standing.outcome and standing.outcome["status"] == "success":
        raise ThreadError(
            f"Thread {thread_id!r} has ended; give it another task: {_next_task(thread_id, file)}"
        )
    return plan(standing)


def hand_over(
    thread_id: str, file: Database, options: Given, plan: Plan, display: Display, *, bare: bool
) -> Report:
    """Tells the workers how the thread goes on. bare: just on, with whatever is left to do.

    Raises ThreadError, and changes nothing, when that does not fit where the thread stands.
    """
    with file.open() as storage:
        if storage.checkpointer.is_running(thread_id):
            raise busy(thread_id)
        standing = look(reading_graph(storage), thread_id)
        inbox = read_inbox(storage.store, thread_id)
        just_on = bare and inbox is not None and _just_goes_on(standing, inbox)
        begin = Begin() if just_on else _begin(standing, file, plan)
        move = begin.move
        if begin.waiting:
            answer = display.ask(begin.waiting)
            if answer is None:
                return report.of_waiting(begin.waiting, thread_id, file)
            move = Answer(answer, begin.waiting.interrupt_id)
        assert isinstance(storage, PostgresStorage), "only such a database has threads of workers"
        assert move is None or isinstance(move, Answer | Extend | Retry), "plans of going on make no others"
        check(storage, move, thread_id)
        if options != Given():
            if inbox is not None and inbox.queue != DEFAULT_QUEUE:
                raise SetupError(
                    f"The graph of the queue {inbox.queue!r} has options of its own; leave these out."
                )
            remember(storage.store, thread_id, settle(options, recall(storage.store, thread_id), os.environ))
        submit(storage, move, thread_id)
    return report.of_queued(thread_id, file)
