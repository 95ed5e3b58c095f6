"""`signoff stats` and `signoff rate`: what the recorded outcomes say, and what people say of them."""

import json
import os
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from signoff.cli.database import Database, database
from signoff.cli.display import stdout_console
from signoff.cli.names import checked_thread_id
from signoff.cli.options import DatabaseOption, Json, Thread
from signoff.cli.plans import unknown
from signoff.cli.safe import one_line, plain
from signoff.cli.stats_table import table
from signoff.graph.errors import SetupError
from signoff.stats.numbers import CAPS
from signoff.stats.numbers import stats as numbers
from signoff.stats.plot import check_suffix, plot
from signoff.stats.records import STARS, TaskRecord, read_ended
from signoff.stats.records import rate as store_rating

_SPAN = re.compile(r"(?P<count>\d{1,6})(?P<unit>min|[mhdw])")
_SECONDS = {"m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def stats(
    thread: Annotated[
        str | None, typer.Option("--thread", "-t", metavar="ID", help="Only the tasks of this thread.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only tasks that ended since then: 7d, 24h, 30min, or a date like 2026-01-31.",
        ),
    ] = None,
    cap: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="What if at most N turns had been allowed? May be repeated."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw turns to finish and exits into a .png or .svg file."
        ),
    ] = None,
    where: DatabaseOption = None,
    as_json: Json = False,
) -> None:
    """Show how tasks ended, how many turns they took, which reminders helped, and what to improve."""
    begin = 0.0 if since is None else moment(since, time.time())
    if picture is not None:
        check_suffix(picture)
    file = database(where, os.environ)
    ended = _ended(file, thread)
    document = numbers(ended, since=begin, caps=cap or CAPS)
    if picture is not None:
        plot([task for task in ended if task.at >= begin], document, picture)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    console = stdout_console()
    if not document["tasks"]:
        console.print(Text(plain(f"No task has ended in {file} yet.")), soft_wrap=True)
    else:
        console.print(table(document), soft_wrap=not console.is_terminal)
    if picture is not None:
        console.print(Text(plain(f"Drawn into {picture}.")), soft_wrap=True)


def rate(
    thread: Thread,
    stars: Annotated[
        int,
        typer.Argument(min=STARS[0], max=STARS[-1], metavar="STARS", help="1 (useless) to 5 (just right)."),
    ],
    task: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The N-th task of the thread that ended (default: the last)."),
    ] = None,
    where: DatabaseOption = None,
    as_json: Json = False,
) -> None:
    """Say how well a task was done; a new rating takes the place of the old one."""
    file = database(where, os.environ)
    thread_id = checked_thread_id(thread)
    _known(file, thread_id)
    with file.open() as storage:
        rated = store_rating(storage.store, thread_id, stars, task)
    if as_json:
        found = {"thread_id": thread_id, "task": rated.task, "rating": stars}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    said = (
        f"Rated {stars} of {STARS[-1]}: thread {one_line(thread_id)}, a task that ended with {rated.status}."
    )
    stdout_console().print(Text(said), soft_wrap=True)


def moment(text: str, now: float) -> float:
    """The time that `--since` means, in seconds since 1970: a span before `now`, or a date in ISO 8601.

    Raises SetupError for anything else.
    """
    if span := _SPAN.fullmatch(text.strip()):
        return now - int(span["count"]) * _SECONDS[span["unit"]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise SetupError(
            f"--since {text!r} is no time; write a span like 7d, 24h or 30min, or a date like 2026-01-31."
        ) from error


def _ended(file: Database, thread: str | None) -> list[TaskRecord]:
    if thread is not None:
        _known(file, checked_thread_id(thread))
    if not file.exists():
        return []
    with file.open() as storage:
        return read_ended(storage.store, thread)


def _known(file: Database, thread_id: str) -> None:
    """Raises ThreadError for a thread that is not in the database; a missing file is not created."""
    if file.exists():
        with file.open() as storage:
            if thread_id in storage.threads() or read_ended(storage.store, thread_id):
                return
    raise unknown(thread_id, file)
