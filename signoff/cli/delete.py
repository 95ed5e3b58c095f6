"""`signoff delete`: removes a thread for good, or all that ended long ago."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import typer
from langgraph.store.base import BaseStore
from rich.console import Console
from rich.text import Text

from signoff import SetupError, ThreadBusy
from signoff.cli.console import stdout_console
from signoff.cli.display import read_line
from signoff.cli.threads import thread_table
from signoff.front.database import Database, OpenStorage, unknown
from signoff.front.options import DryRun, Json, Yes, moment, takes
from signoff.front.text import one_line
from signoff.front.thread_ids import checked_thread_id
from signoff.front.threads import Row, find_threads, row
from signoff.graph.compiled.holds import busy
from signoff.text import count_noun, label

_ENDED = ("success", "limit", "error")
_NEVER = ("running", "damaged")
_PIPE = 160
_PAGE = 1_000


@takes()
def delete(
    file: Database,
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="The thread's ID.", show_default=False)
    ] = None,
    older: Annotated[
        str | None,
        typer.Option(
            "--older",
            metavar="TIME",
            help="Instead of one thread, all that ended and have not changed for this long: 30d, 12w; or "
            "since a date like 2026-01-31.",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="With --older: also threads that wait for you or were stopped."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a thread, or all that ended long ago; your files stay as they are."""
    if thread is not None and older is None and not every:
        _delete_one(file, checked_thread_id(thread), yes=yes, dry_run=dry_run, as_json=as_json)
    elif thread is None and older is not None:
        before = moment(older, time.time(), "--older")
        _delete_older(file, before, every, yes=yes, dry_run=dry_run, as_json=as_json)
    else:
        raise SetupError("Name a thread, or --older TIME, as in --older 30d; --all goes with --older.")


def _delete_one(file: Database, thread_id: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    if not file.exists():
        raise unknown(thread_id, file)
    with file.open() as storage:
        if thread_id not in storage.checkpointer.threads() and not _has_entries(storage.store, thread_id):
            raise unknown(thread_id, file)
        if storage.checkpointer.is_running(thread_id):
            raise busy(thread_id)
        chosen = [row(storage, thread_id)]
        if not _agreed(chosen, "Delete this thread", yes=yes, dry_run=dry_run, as_json=as_json):
            return
        storage.checkpointer.delete_thread(thread_id)
    _tell(Deleted([thread_id]), as_json)


def _has_entries(store: BaseStore, thread_id: str) -> bool:
    """Whether the store holds something of the thread: one that waits in the queue has no checkpoint yet."""
    own = label(thread_id)
    names = {
        namespace[1] for namespace in store.list_namespaces(prefix=("signoff",), max_depth=2, limit=_PAGE)
    }
    return any(
        ("signoff", name, own)
        in store.list_namespaces(prefix=("signoff", name, own), max_depth=3, limit=_PAGE)
        for name in names
    )


def _delete_older(
    file: Database, before: float, every: bool, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Deletes the threads that ended before this time. every: also those that wait or were stopped."""
    file.check_named()
    found = [one for one in find_threads(file, sys.maxsize).rows if _is_older(one, before)]
    ended = [one for one in found if one.status in _ENDED]
    others = [one for one in found if one.status not in (*_ENDED, *_NEVER)]
    chosen = [*ended, *others] if every else ended
    if not chosen:
        left = f" {count_noun(len(others), 'thread')} of that age have not ended: --all deletes them, too."
        _nothing(f"No thread ended that long ago.{left if others else ''}", as_json)
        return
    question = f"Delete {'this' if len(chosen) == 1 else 'these'} {count_noun(len(chosen), 'thread')}"
    if not _agreed(chosen, question, yes=yes, dry_run=dry_run, as_json=as_json):
        return
    done = Deleted([])
    with file.open() as storage:
        for one in chosen:
            _delete_unchanged(storage, one, done)
    _tell(done, as_json)


@dataclass
class Deleted:
    """What a command has deleted, and what it has kept, with the reason for each."""

    threads: list[str]
    kept: dict[str, str] = field(default_factory=dict)


def _is_older(one: Row, before: float) -> bool:
    return bool(one.changed) and datetime.fromisoformat(one.changed).timestamp() < before


def _delete_unchanged(storage: OpenStorage, one: Row, done: Deleted) -> None:
    """Deletes a thread if it is unchanged since it was listed: the person may have taken time."""
    if row(storage, one.thread_id).changed != one.changed:
        done.kept[one.thread_id] = "it has changed"
        return
    try:
        storage.checkpointer.delete_thread(one.thread_id)
    except ThreadBusy:
        done.kept[one.thread_id] = "it is running"
    else:
        done.threads.append(one.thread_id)


def _agreed(chosen: Sequence[Row], question: str, *, yes: bool, dry_run: bool, as_json: bool) -> bool:
    """Shows these threads and asks, in a terminal, whether to delete them.

    Raises SetupError where nobody can be asked, and Exit when the person does not agree.
    """
    if dry_run:
        if as_json:
            _print_json([], {}, [one.thread_id for one in chosen])
        else:
            _show(chosen)
            _say(f"{count_noun(len(chosen), 'thread')} would be deleted; nothing was.")
        return False
    if yes:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SetupError(
            "Deleting cannot be undone, and there is no terminal to confirm it: add --yes, or --dry-run "
            "to list what would be deleted."
        )
    _show(chosen)
    try:
        typed = read_line(f"{question}? It cannot be undone. [y/N] ")
    except EOFError:
        typed = ""
    if typed.strip().lower() not in ("y", "yes"):
        _say("Nothing was deleted.")
        raise typer.Exit(1)
    return True


def _show(chosen: Sequence[Row]) -> None:
    console = stdout_console()
    table = thread_table(chosen, console.width if console.is_terminal else _PIPE)
    console.print(table, soft_wrap=not console.is_terminal)


def _tell(done: Deleted, as_json: bool) -> None:
    if as_json:
        _print_json(done.threads, done.kept)
        return
    many = len(done.threads) != 1
    _say(f"Deleted {count_noun(len(done.threads), 'thread') if many else done.threads[0]}.")
    for thread_id, why in done.kept.items():
        _say(f"Kept {thread_id}: {why}.")


def _nothing(message: str, as_json: bool) -> None:
    if as_json:
        _print_json([], {})
    else:
        _say(message)


def _print_json(deleted: Sequence[str], kept: dict[str, str], would: Sequence[str] | None = None) -> None:
    document: dict[str, Any] = {"deleted": list(deleted), "kept": kept}
    if would is not None:
        document["would_delete"] = list(would)
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _say(text: str) -> None:
    console: Console = stdout_console()
    console.print(Text(one_line(text)), soft_wrap=True)
