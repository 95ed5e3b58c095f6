"""`signoff threads`: prints the threads of a database, as a table or as JSON."""

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from signoff.cli.cards import COLOURS
from signoff.cli.database import Database, OpenStorage
from signoff.cli.report import command
from signoff.cli.safe import cut, one_line, plain
from signoff.cli.thread_rows import Row, found_in
from signoff.graph.errors import StorageError, ThreadBusy
from signoff.graph.foreign import counted
from signoff.graph.vocabulary import stands
from signoff.session.expiry import Expired, expire
from signoff.session.standing import reading_graph
from signoff.storage.postgres import PostgresStorage
from signoff.workers.figures import QueueFigures
from signoff.workers.submitting import of_workers, submit


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


def _in_figures(workers: QueueFigures) -> str:
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
            in_words(item),
            Text(str(item.turns)),
            Text(ago(item.changed, datetime.now(UTC)), style="dim"),
            Text(cut(one_line(item.what or item.task), max(20, width - 60))),
        )
    return table


def in_words(item: Row) -> Text:
    """How a thread stands, as a person reads it: the title of its card, when its task has ended."""
    found = stands(item.status, item.waits_for, asdict(item))
    return Text(one_line(found.title), style=COLOURS[found.tone])


def ago(moment: str, now: datetime) -> str:
    """How long before `now` the ISO 8601 `moment` was, in the largest unit that fits; empty for none."""
    if not moment:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
