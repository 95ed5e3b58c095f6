"""`signoff threads`: the threads of a database, as a table or as JSON."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from signoff.cli.cards import AMBER
from signoff.cli.database import Database, OpenStorage
from signoff.cli.report import command
from signoff.cli.safe import cut, one_line, plain
from signoff.graph.errors import StorageError, ThreadBusy
from signoff.postgres import PostgresStorage
from signoff.session.decisions import Action, Approval, Confirmation, Question, Waiting
from signoff.session.expiry import Expired, expire
from signoff.session.standing import Condition, Standing, look, reading_graph
from signoff.tools.output import counted
from signoff.workers.figures import Backlog, backlog, job_states
from signoff.workers.inbox import Inbox, read_inbox
from signoff.workers.submitting import of_workers, submit

_STYLES = {"running": "cyan", "queued": "cyan", "waiting": "magenta", "stopped": AMBER, "success": "green"}
_WAITS = {
    "answer": "waiting for an answer",
    "approval": "waiting for approval",
    "action": "waiting for an action",
    "confirmation": "waiting for confirmation",
}


@dataclass(frozen=True)
class Row:
    """One thread.

    status: running, waiting, stopped, success, limit, error, or damaged (it cannot be read). Of a thread of
    the workers also queued (a worker will go on with it), paused, or failed (they have given up on it).
    claim: of a success. turns: of the current task. changed: ISO 8601. task: the words that began it.
    waits_for: answer, approval, action or confirmation; since `changed`. what: the question, the calls that
    wait, the summary to confirm, or why workers have given up.
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


@dataclass(frozen=True)
class Found:
    """The threads of a database, and the figures of its workers; None where there are none."""

    rows: list[Row]
    workers: Backlog | None = None


def found_in(database: Database, limit: int) -> Found:
    """The threads changed last, at most `limit`, those that have not begun yet first. A database that does
    not exist has none."""
    if not database.exists():
        return Found([])
    with database.open() as storage:
        jobs, begun = job_states(storage), storage.threads()
        known = set(begun)
        names = [*(name for name in jobs if name not in known), *begun][:limit]
        return Found([row(storage, name, jobs.get(name)) for name in names], backlog(storage))


def rows(database: Database, limit: int) -> list[Row]:
    """The threads of `found_in`."""
    return found_in(database, limit).rows


def row(storage: OpenStorage, thread_id: str, job: str | None = None) -> Row:
    """One thread. job: what the queue of the workers says of it."""
    # Asked first: else a run that ends in between would look as if it had been stopped.
    running = storage.checkpointer.is_running(thread_id)
    try:
        standing = look(reading_graph(storage), thread_id)
    except StorageError:
        return Row(thread_id, "damaged", None, None, 0, "", "", None, None)
    outcome = standing.outcome or {}
    waiting = None if running else standing.waiting
    inbox = read_inbox(storage.store, thread_id)
    status = "running" if running else _status(standing, inbox, job)
    told = inbox.problem if inbox and status == "failed" else None
    first = standing.task.messages[0].text if standing.task.messages else ""
    return Row(
        thread_id=thread_id,
        status=status,
        claim=outcome.get("claim"),
        reason=outcome.get("reason"),
        turns=standing.task.turns,
        changed=standing.changed,
        task=first or _next_task(inbox),
        waits_for=waiting.waits_for if waiting else None,
        what=_what(waiting) if waiting else told,
    )


def _status(standing: Standing, inbox: Inbox | None, job: str | None) -> str:
    """The status of a thread that does not run at this moment."""
    if inbox is None:
        return status_of(standing)
    goes_on = bool(inbox.orders) or standing.condition is Condition.STOPPED
    if inbox.paused and goes_on:
        return "paused"
    if job not in (None, "done") and goes_on:
        return "failed" if job == "failed" else "queued"
    return status_of(standing)


def _next_task(inbox: Inbox | None) -> str:
    """The words of the first task that waits to be begun."""
    orders = inbox.orders if inbox else ()
    return next((order.request for order in orders if isinstance(order.request, str)), "")


def _what(waiting: Waiting) -> str:
    match waiting:
        case Question(text=text):
            return text
        case Approval(calls=calls):
            return ", ".join(call.name for call in calls)
        case Action(tool=tool):
            return tool
        case Confirmation(summary=summary):
            return summary


def status_of(standing: Standing) -> str:
    """`waiting`, `stopped`, or how the current task ended."""
    if standing.condition is Condition.ENDED and standing.outcome:
        return str(standing.outcome["status"])
    return str(standing.condition)


def in_words(status: str, waits_for: str | None) -> str:
    """The status as a person reads it."""
    if status == "waiting" and waits_for:
        return _WAITS[waits_for]
    return "stopped (resumable)" if status == "stopped" else status


def print_threads(console: Console, database: Database, limit: int, as_json: bool) -> None:
    found = found_in(database, limit)
    listed = [asdict(item) for item in found.rows]
    if as_json:
        document = {"threads": listed, "workers": asdict(found.workers)} if found.workers else listed
        print(json.dumps(document, indent=2))
        return
    if not found.rows:
        console.print(
            Text(plain(f"No threads in {database} yet; `signoff run TASK` begins one.")), soft_wrap=True
        )
    else:
        table = _table(found.rows, console.width if console.is_terminal else 160)
        console.print(table, soft_wrap=not console.is_terminal)
    if found.workers:
        console.print(Text(_in_figures(found.workers), style="dim"), soft_wrap=True)


def _in_figures(workers: Backlog) -> str:
    """The workers' line below the list."""
    oldest = f" (the oldest for {workers.oldest:.0f} s)" if workers.waiting else ""
    return (
        f"{counted(workers.workers, 'worker')}: {workers.waiting} waiting{oldest}, "
        f"{workers.running} running, {workers.stalled} stalled, {workers.failed} failed; "
        f"{workers.per_minute:g} a minute ended, {workers.ended} in the last hour"
    )


def print_expired(console: Console, database: Database, as_json: bool) -> None:
    """Answers every question whose deadline has passed, and says which."""
    found: list[Expired] = []
    if database.exists():
        with database.open() as storage:
            graph = reading_graph(storage)
            for thread_id in storage.threads():
                with suppress(ThreadBusy, StorageError):
                    # What runs is not waiting, and what cannot be read shows in the list as damaged.
                    if told := expire(graph, thread_id):
                        found.append(told)
                        _go_on(storage, thread_id)
    if as_json:
        print(json.dumps([asdict(item) for item in found], indent=2))
        return
    for item in found:
        said = f"{one_line(item.thread_id)}: {one_line(item.question)} → {one_line(item.answer)}"
        console.print(Text(f"{said}  (go on: {command('resume', item.thread_id, database)})"), soft_wrap=True)
    if not found:
        console.print(Text("No question has expired."))


def _go_on(storage: OpenStorage, thread_id: str) -> None:
    """Has a thread of the workers go on."""
    if isinstance(storage, PostgresStorage) and of_workers(storage, thread_id):
        submit(storage, None, thread_id)


def _table(found: list[Row], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("thread", no_wrap=True, overflow="ellipsis", max_width=40)
    table.add_column("status", no_wrap=True)
    table.add_column("turns", justify="right")
    table.add_column("changed", no_wrap=True)
    table.add_column("about", no_wrap=True, overflow="ellipsis")
    for item in found:
        table.add_row(
            Text(one_line(item.thread_id), style="bold"),
            Text(_in_words(item), style=_style(item)),
            Text(str(item.turns)),
            Text(ago(item.changed, datetime.now(UTC)), style="dim"),
            Text(cut(one_line(item.what or item.task), max(20, width - 60))),
        )
    return table


def _in_words(item: Row) -> str:
    if item.status == "success" and item.claim != "done":
        return f"success ({one_line(str(item.claim))})"
    if item.status in ("limit", "error"):
        return f"{item.status} ({one_line(str(item.reason))})"
    return in_words(item.status, item.waits_for)


def _style(item: Row) -> str:
    return (
        AMBER
        if item.claim not in (None, "done")
        else "red"
        if item.status in ("error", "damaged", "failed")
        else _STYLES.get(item.status, AMBER)
    )


def ago(moment: str, now: datetime) -> str:
    """How long before `now` the ISO 8601 `moment` was, in the largest unit that fits; empty for none."""
    if not moment:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
