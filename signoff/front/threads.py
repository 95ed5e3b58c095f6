"""Lists threads for a person: their ids and statuses, and since when and for what they wait."""

from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice

from rich.text import Text

from signoff import Action, Approval, Question, StorageError, ThreadError, ThreadStatus, Waiting
from signoff.front.cards import COLOURS
from signoff.front.choices import waits_for
from signoff.front.database import Database, OpenStorage
from signoff.front.text import one_line
from signoff.session import Condition
from signoff.session.status import look, reading_graph
from signoff.text import stands
from signoff.workers.figures import QueueFigures, backlog, job_states
from signoff.workers.inbox import Inbox, read_inbox


@dataclass(frozen=True)
class Row:
    """One thread.

    status: running, waiting, paused, stopped, success, limit, error, or damaged (it cannot be read). A thread
    of the workers may also be queued (a worker will continue it), or failed (they have given up on it).
    condition: as in `storage.threads()`. claim, verified: for a success. turns: of the current task. changed:
    ISO 8601. task: the text that began it. waits_for: answer, approval or action; since `changed`. what: the
    question, the waiting calls, the summary to confirm, or why workers have given up.
    """

    thread_id: str
    status: str
    claim: str | None
    reason: str | None
    turns: int
    changed: str
    task: str
    waits_for: str | None
    what: str | None
    verified: str | None = None
    condition: str = str(Condition.UNKNOWN)


@dataclass(frozen=True)
class Found:
    """The threads of a database, and the figures of its workers; None without workers."""

    rows: list[Row]
    workers: QueueFigures | None = None


def find_threads(database: Database, limit: int, condition: Condition | None = None) -> Found:
    """Returns at most `limit` of the most recently changed threads, those that have not begun yet first.
    condition: only those that stand so.

    A database that does not exist has none.
    """
    if not database.exists():
        return Found([])
    with database.open() as storage:
        jobs, begun = job_states(storage), storage.checkpointer.threads()
        known = set(begun)
        names = [*(name for name in jobs if name not in known), *begun]
        rows = (row(storage, name, jobs.get(name)) for name in names)
        chosen = (each for each in rows if condition in (None, each.condition))
        return Found([*islice(chosen, limit)], backlog(storage))


def row(storage: OpenStorage, thread_id: str, job: str | None = None) -> Row:
    """Returns the row of one thread. job: its entry in the workers' queue."""
    # Read first: otherwise a run that ends in between would look as if it had been stopped.
    running = storage.checkpointer.is_running(thread_id)
    try:
        thread_status = look(reading_graph(storage), thread_id)
        inbox = read_inbox(storage.store, thread_id)
    except (StorageError, ThreadError):
        return Row(thread_id, "damaged", None, None, 0, "", "", None, None)
    outcome = thread_status.outcome
    waiting = None if running else thread_status.wait()
    status = "running" if running else _status(thread_status, inbox, job)
    problem = inbox.problem if inbox and status == "failed" else None
    first = thread_status.task.messages[0].text if thread_status.task.messages else ""
    return Row(
        thread_id=thread_id,
        status=status,
        claim=outcome.claim if outcome else None,
        reason=outcome.reason if outcome else None,
        turns=thread_status.task.turns,
        changed=thread_status.changed,
        task=first or _next_task(inbox),
        waits_for=waits_for(waiting),
        what=_what(waiting) if waiting else problem,
        verified=outcome.verified if outcome else None,
        condition=status if status in ("running", "paused") else str(thread_status.condition),
    )


def _status(thread_status: ThreadStatus, inbox: Inbox | None, job: str | None) -> str:
    """Returns the status of a thread that is not running now."""
    if inbox is None:
        return status_of(thread_status)
    goes_on = bool(inbox.orders) or thread_status.condition.has_work_left
    if inbox.paused and goes_on:
        return "paused"
    if job not in (None, "done") and goes_on:
        return "failed" if job == "failed" else "queued"
    return status_of(thread_status)


def _next_task(inbox: Inbox | None) -> str:
    """Returns the text of the first queued task."""
    orders = inbox.orders if inbox else ()
    return next((order.request for order in orders if isinstance(order.request, str)), "")


def _what(waiting: Waiting) -> str:
    match waiting:
        case Question(text=text):
            return text
        case Approval(calls=calls):
            return str(waiting.document().get("summary", ", ".join(call.name for call in calls)))
        case Action(tool=tool):
            return tool
    raise AssertionError(waiting)


def status_of(thread_status: ThreadStatus) -> str:
    """Returns `waiting`, `paused`, `stopped`, or how the current task ended."""
    return thread_status.outcome.status if thread_status.outcome else str(thread_status.condition)


def in_words(item: Row) -> Text:
    """Returns the status of a thread for a person: the title of its card, if its task has ended."""
    found = stands(item.status, item.waits_for, asdict(item))
    return Text(one_line(found.title), style=COLOURS[found.tone])


def ago(moment: str, now: datetime) -> str:
    """Returns how long before `now` the ISO 8601 `moment` was, in the largest fitting unit; empty for
    none.
    """
    if not moment:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
