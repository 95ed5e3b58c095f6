"""`signoff stats`: figures of the recorded outcomes, and people's ratings of them."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from signoff import SetupError
from signoff.cli.console import stdout_console
from signoff.front.database import Database, unknown
from signoff.front.options import Json, moment, takes
from signoff.front.text import one_line, plain, styled
from signoff.front.thread_ids import checked_thread_id
from signoff.records import TaskRecord, read_ended
from signoff.records import rate as store_rating
from signoff.records import stats as numbers
from signoff.stats.records import STARS

_MOST_KINDS = 8
_MOST_SECTIONS = 3
Line = tuple[str, str]


@takes()
def stats(
    file: Database,
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
    stars: Annotated[
        int | None,
        typer.Option(
            "--rate",
            min=STARS[0],
            max=STARS[-1],
            metavar="STARS",
            help="Instead, rate how well the last task of --thread was done, from 1 (useless) to 5 "
            "(excellent); a new rating replaces the old one.",
        ),
    ] = None,
    task: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --rate, the N-th task of the thread that ended."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how tasks ended, how many turns they took, and what to improve."""
    if stars is not None:
        _rate(file, thread, stars, task, as_json)
        return
    if task is not None:
        raise SetupError("--task is for --rate.")
    begin = 0.0 if since is None else moment(since, time.time(), "--since")
    document = numbers(_ended(file, thread), since=begin)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    console = stdout_console()
    if not document["tasks"]:
        console.print(Text(plain(f"No task has ended in {file} yet.")), soft_wrap=True)
    else:
        console.print(table(document), soft_wrap=not console.is_terminal)


def _rate(file: Database, thread: str | None, stars: int, task: int | None, as_json: bool) -> None:
    """Rates a task of a thread that ended; a new rating replaces the old one."""
    if thread is None:
        raise SetupError("--rate rates a task of one thread; name it with --thread.")
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


def _ended(file: Database, thread: str | None) -> list[TaskRecord]:
    if thread is not None:
        _known(file, checked_thread_id(thread))
    file.check_named()
    if not file.exists():
        return []
    with file.open() as found:
        return read_ended(found.store, thread)


def _known(file: Database, thread_id: str) -> None:
    """Raises ThreadError for a thread that is not in the database. Does not create a missing file."""
    if file.exists():
        with file.open() as found:
            if thread_id in found.checkpointer.threads() or read_ended(found.store, thread_id):
                return
    raise unknown(thread_id, file)


def table(document: Mapping[str, Any]) -> Table:
    """Returns the figures of `signoff.stats.stats`, one per line."""
    shown = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column()
    for name, said in lines(document):
        shown.add_row(styled(name), styled(one_line(said)))
    return shown


def lines(document: Mapping[str, Any]) -> Iterator[Line]:
    """Yields every line: its subject, and the figures."""
    yield "tasks", f"{document['tasks']:,} on {document['threads']:,} threads"
    yield from _exits(document)
    yield from _work(document)
    yield from _finish(document)
    yield from _people(document)
    yield "tokens", _tokens(document["tokens"])
    if document["models"]:
        yield "models", _counts(document["models"])
    for place, (name, one) in enumerate(list(document["delegates"].items())[:_MOST_KINDS]):
        told = f"{name} {one['calls']:,}, {one['done']:,} done{_percent(one['done'] / one['calls'])}"
        used = f"{one['turns']:,} turns · {one['tool_calls']:,} tool calls · {one['tokens']:,} tokens"
        yield "" if place else "delegates", f"{told}: {used}"
    yield from _advice(document)


def _exits(document: Mapping[str, Any]) -> Iterator[Line]:
    exits, tasks = document["exits"], document["tasks"]
    yield (
        "exits",
        " · ".join(f"{name} {count:,} ({count / tasks:.0%})" for name, count in exits["status"].items()),
    )
    yield "  reasons", _counts(exits["reason"])
    for name, key in (("  claims", "claim"), ("  verified", "verified")):
        if exits[key]:
            yield name, _counts(exits[key])
    turns = document["turns"]
    if turns["successes"]:
        yield (
            "turns to finish",
            f"mean {turns['mean']:g} · median {turns['median']:g} · p90 {turns['p90']}"
            f" · most {turns['most']}",
        )


def _work(document: Mapping[str, Any]) -> Iterator[Line]:
    talk, nudges = document["talk_only"], document["nudges"]
    yield (
        "talk-only replies",
        f"{talk['replies']:,} of {talk['turns']:,} turns{_percent(talk['rate'])}, in {talk['tasks']:,} tasks",
    )
    yield (
        "nudges",
        f"{nudges['given']:,}, {nudges['back_to_work']:,} led back to work{_percent(nudges['rate'])}",
    )
    for kind, found in list(nudges["kinds"].items())[:_MOST_KINDS]:
        yield f"  {kind}", f"{found['given']:,}, {found['back_to_work']:,} back{_percent(found['rate'])}"


def _finish(document: Mapping[str, Any]) -> Iterator[Line]:
    refused, limits = document["refused"], document["limits"]
    again, accuracy = document["reopened"], document["accuracy"]
    yield (
        "refused finishes",
        f"{refused['finishes']:,}, {refused['needless']:,} needless{_percent(refused['rate'])}:"
        " accepted later, without work between",
    )
    for kind, found in list(refused["kinds"].items())[:_MOST_KINDS]:
        yield f"  {kind}", f"{found['times']:,}, {found['needless']:,} needless"
    yield (
        "limits",
        f"{limits['reached']:,}, {limits['extended']:,} extended, {limits['cut_short']:,} of them then "
        "finished without a change",
    )
    early, late = document["false_positives"], document["false_negatives"]
    said = {"refused by a check": "check", "sent back by a person": "person", "rated low": "rating"}
    kinds = {name: early["too_early"][judge] for name, judge in said.items()}
    yield "false positives", _judged(early, "judged finishes came too early", kinds)
    kinds = {"hit a limit": late["hit_limit"], "went on": late["went_on"]}
    yield "false negatives", _judged(late, "runs known as done went on or hit a limit", kinds)
    yield (
        "reopened",
        f"{again['tasks']:,} (rated low {again['rated_low']:,}, next task soon after {again['next_task']:,})",
    )
    yield (
        "finish accuracy",
        f"{accuracy['not_reopened']:,} of {accuracy['accepted']:,} accepted as done and not reopened"
        f"{_percent(accuracy['rate'])}",
    )


def _judged(found: Mapping[str, Any], what: str, kinds: Mapping[str, int]) -> str:
    """Returns the rate among judged tasks, and how they were judged; no rate if none was judged."""
    left = f"; {found['not_judged']:,} not judged" if found["not_judged"] else ""
    if not found["judged"]:
        return f"not judged: no check decided, and no person has confirmed or rated{left}"
    judges = {f"{name}s": count for name, count in found["judged_by"].items() if count}
    why = {name: count for name, count in kinds.items() if count}
    reasons = f": {_counts(why)}" if why else ""
    return (
        f"{found['count']:,} of {found['judged']:,} {what}{_percent(found['rate'])}{reasons}"
        f"; judged by {_counts(judges)}{left}"
    )


def _people(document: Mapping[str, Any]) -> Iterator[Line]:
    ratings, waiting = document["ratings"], document["waiting"]
    if ratings["count"]:
        stars = " · ".join(f"{star}★ {count}" for star, count in ratings["stars"].items() if count)
        yield "ratings", f"{ratings['count']:,}, mean {ratings['mean']:g} ({stars})"
    if waiting["tasks"]:
        yield (
            "waiting for people",
            f"{waiting['seconds']:,.1f} s in {waiting['tasks']:,} tasks,"
            f" mean {waiting['mean_seconds']:,.1f} s",
        )


def _advice(document: Mapping[str, Any]) -> Iterator[Line]:
    for place, row in enumerate(document["sections"][:_MOST_SECTIONS]):
        signs = ", ".join(f"{name} {count:,}" for name, count in row["signs"].items())
        tasks = f"{row['tasks']:,} task{'s' * (row['tasks'] != 1)}"
        yield "strengthen first" if place == 0 else "  then", f"“{row['section']}”: {tasks} ({signs})"


def _tokens(tokens: Mapping[str, Any]) -> str:
    mean = "" if tokens["mean"] is None else f", {tokens['mean']:,.0f} a task"
    return f"{tokens['total']:,} ({tokens['input']:,} in, {tokens['output']:,} out{mean})"


def _counts(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {count:,}" for name, count in counts.items())


def _percent(rate: float | None) -> str:
    return "" if rate is None else f" ({rate:.0%})"
