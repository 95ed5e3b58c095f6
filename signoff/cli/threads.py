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
from signoff.session.decisions import Action, Approval, Confirmation, Question, Waiting
from signoff.session.expiry import Expired, expire
from signoff.session.standing import Condition, Standing, look, reading_graph

_STYLES = {"running": "cyan", "waiting": "magenta", "stopped": AMBER, "success": "green"}
_WAITS = {
    "answer": "waiting for an answer",
    "approval": "waiting for approval",
    "action": "waiting for an action",
    "confirmation": "waiting for confirmation",
}


@dataclass(frozen=True)
class Row:
    """One thread.

    status: running, waiting, stopped, success, limit, error, or damaged (it cannot be read).
    claim: of a success. turns: of the current task. changed: ISO 8601. task: the words that began it.
    waits_for: answer, approval, action or confirmation; since `changed`. what: the question, the calls that
    wait, or the summary to confirm.
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


def rows(database: Database, limit: int) -> list[Row]:
    """The threads changed last, at most `limit`. A database that does not exist has none."""
    if not database.exists():
        return []
    with database.open() as storage:
        return [row(storage, thread_id) for thread_id in storage.threads()[:limit]]


def row(storage: OpenStorage, thread_id: str) -> Row:
    try:
        standing = look(reading_graph(storage), thread_id)
    except StorageError:
        return Row(thread_id, "damaged", None, None, 0, "", "", None, None)
    outcome = standing.outcome or {}
    running = storage.checkpointer.is_running(thread_id)
    waiting = None if running else standing.waiting
    return Row(
        thread_id=thread_id,
        status="running" if running else status_of(standing),
        claim=outcome.get("claim"),
        reason=outcome.get("reason"),
        turns=standing.task.turns,
        changed=standing.changed,
        task=standing.task.messages[0].text if standing.task.messages else "",
        waits_for=waiting.waits_for if waiting else None,
        what=_what(waiting) if waiting else None,
    )


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
    found = rows(database, limit)
    if as_json:
        print(json.dumps([asdict(item) for item in found], indent=2))
    elif not found:
        console.print(
            Text(plain(f"No threads in {database} yet; `signoff run TASK` begins one.")), soft_wrap=True
        )
    else:
        console.print(
            _table(found, console.width if console.is_terminal else 160), soft_wrap=not console.is_terminal
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
                    found += [told] if (told := expire(graph, thread_id)) else []
    if as_json:
        print(json.dumps([asdict(item) for item in found], indent=2))
        return
    for item in found:
        said = f"{one_line(item.thread_id)}: {one_line(item.question)} → {one_line(item.answer)}"
        console.print(Text(f"{said}  (go on: {command('resume', item.thread_id, database)})"), soft_wrap=True)
    if not found:
        console.print(Text("No question has expired."))


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
        if item.status in ("error", "damaged")
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
