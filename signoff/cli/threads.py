"""`signoff threads` and `signoff show`: the threads of a database, and what happened in one of them."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from signoff import SetupError, StorageError, ThreadError, ThreadStatus, Turn
from signoff.cli.console import stdout_console
from signoff.cli.display import Plain, Terminal
from signoff.events import (
    Answered,
    CallFinished,
    Confirmed,
    Nudged,
    PhaseAccepted,
    Said,
    SessionEvent,
    Thought,
    Wrote,
)
from signoff.front.choices import waits_for
from signoff.front.database import Database, OpenStorage, unknown
from signoff.front.options import Json, Thread, takes
from signoff.front.programs import THEIR_GRAPH, naming_graph
from signoff.front.record.reading import read_run
from signoff.front.record.run import Run
from signoff.front.report import CommandReport, Exit, command, documents, of_outcome, of_stop, of_waits
from signoff.front.text import cut, one_line, plain
from signoff.front.thread_ids import checked_thread_id
from signoff.front.threads import Row, ago, find_threads, in_words, status_of
from signoff.machine import State
from signoff.session import Condition, Expired
from signoff.session.expiring import expire_all
from signoff.session.history import Chapter
from signoff.session.status import reading_graph
from signoff.storage import PostgresStorage
from signoff.text import count_noun, stands
from signoff.workers import submit
from signoff.workers.figures import QueueFigures
from signoff.workers.inbox import read_inbox
from signoff.workers.submitting import of_workers

_KINDS: Mapping[type, str] = {
    Wrote: "user",
    CallFinished: "call",
    Thought: "thought",
    Answered: "question",
    PhaseAccepted: "phase",
    Confirmed: "confirmation",
    Nudged: "nudge",
}
_WHY = 160
_SHOWN_SECONDS = 0.05
_ALL = 99
_INDENT = 4
_EVERY_TURN = ("think", "calls_open")


@takes()
def threads(
    file: Database,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Show at most this many, the most recently changed first.")
    ] = 20,
    condition: Annotated[
        Condition | None, typer.Option(help="Show only the threads that stand so.", show_choices=True)
    ] = None,
    expire: Annotated[
        bool,
        typer.Option("--expire", help="Answer the questions whose deadline has passed by their default."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the threads: where each stands, and what it waits for."""
    file.check_named()
    if expire:
        _print_expired(stdout_console(), file, as_json)
    else:
        _print_threads(stdout_console(), file, limit, condition, as_json)


@takes()
def show(
    thread: Thread,
    file: Database,
    as_json: Json = False,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write the thread as one HTML page, for sharing; - prints the page.",
        ),
    ] = None,
    depth: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="How deep to unfold the delegates of a thread; a folded one is one line. 0 folds all.",
        ),
    ] = _ALL,
) -> None:
    """Show a thread turn by turn: replies, calls, results, and the rules that fired.

    What a delegate did stands indented after the turn that called it.
    """
    thread_id, console = checked_thread_id(thread), stdout_console()
    if as_json and html is not None:
        raise SetupError("--html writes a page and --json prints a document; use only one of them.")
    if not file.exists():
        raise unknown(thread_id, file)
    with file.open() as storage:
        found = read_run(storage, thread_id)
        thread_status, history, outcomes = found.status, found.chapters, found.outcomes
        if thread_status.condition is Condition.UNKNOWN:
            if read_inbox(storage.store, thread_id):
                raise ThreadError(f"Thread {thread_id!r} is in the queue and has not begun; try again later.")
            raise unknown(thread_id, file)
        settings, running = found.settings, found.running
        file = naming_graph(file, storage, thread_id)
    if html is not None:
        _write_page(console, html, found)
        return
    status = _status(found)
    now = CommandReport(thread_id, "stopped", Exit.PAUSED) if running else _now(thread_status, file)
    if settings is None and now.outcome is not None:
        # Only the program that began it knows what goes on with it.
        now = replace(now, resume=None)
    if as_json:
        document = {
            "thread_id": thread_id,
            "status": status,
            "changed": thread_status.changed,
            "settings": settings and settings.model_dump(),
            "tasks": [_task(chapter, outcomes.get(chapter.task), found.below, depth) for chapter in history],
            "outcome": now.outcome,
            **documents(now.waiting),
            "waits": [_wait(one) for one in _waits(thread_status, now, file)],
            "resume": now.resume,
        }
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")
        return
    place = (settings.workspace, settings.model) if settings else ()
    waiting, outcome = thread_status.wait(), _outcome(found)
    state = stands(status, waits_for(waiting), outcome).title
    console.print(Text(" · ".join(map(one_line, (thread_id, state, *place))), style="dim"), soft_wrap=True)
    console.print()
    _print(console, found, None if running else now, file, depth)
    if file.graph is not None and now.status in ("limit", "error"):
        console.print(Text(f"A program began it: go on there, or with its graph, by --graph {THEIR_GRAPH}."))


def _print_threads(
    console: Console, database: Database, limit: int, condition: Condition | None, as_json: bool
) -> None:
    found = find_threads(database, limit, condition)
    listed = [asdict(item) for item in found.rows]
    if as_json:
        document = {"threads": listed, "workers": asdict(found.workers)} if found.workers else listed
        print(json.dumps(document, indent=2))
        return
    if condition and not found.rows:
        console.print(Text(plain(f"No thread in {database} is {condition}.")), soft_wrap=True)
    elif not found.rows:
        console.print(
            Text(plain(f"No threads in {database} yet; `signoff run TASK` begins one.")), soft_wrap=True
        )
    else:
        table = thread_table(found.rows, console.width if console.is_terminal else 160)
        console.print(table, soft_wrap=not console.is_terminal)
    if found.workers:
        console.print(Text(_in_figures(found.workers), style="dim"), soft_wrap=True)


def _in_figures(workers: QueueFigures) -> str:
    """Returns the workers' line below the list."""
    oldest = f" (the oldest for {workers.oldest:.0f} s)" if workers.waiting else ""
    return (
        f"{count_noun(workers.workers, 'worker')}: {workers.waiting} waiting{oldest}, "
        f"{workers.running} running, {workers.stalled} stalled, {workers.failed} failed; "
        f"{workers.per_minute:g} a minute ended, {workers.ended} in the last hour"
    )


def _print_expired(console: Console, database: Database, as_json: bool) -> None:
    """Answers every question whose deadline has passed, and prints which."""
    found: list[tuple[Expired, str]] = []
    if database.exists():
        with database.open() as storage:
            for thread_id in storage.checkpointer.threads():
                with suppress(ThreadError, StorageError):
                    # A running thread is not waiting, and one that cannot be read is listed as damaged.
                    if expired := expire_all(reading_graph(storage, thread_id), thread_id):
                        how = command("resume", thread_id, naming_graph(database, storage, thread_id))
                        found += [(item, how) for item in expired]
                        _go_on(storage, thread_id)
    if as_json:
        print(json.dumps([asdict(item) for item, _ in found], indent=2))
        return
    for item, how in found:
        said = f"{one_line(item.thread_id)}: {one_line(item.question)} → {one_line(item.answer)}"
        console.print(Text(f"{said}  (go on: {how})"), soft_wrap=True)
    if not found:
        console.print(Text("No question has expired."))


def _go_on(storage: OpenStorage, thread_id: str) -> None:
    """Lets the workers continue a thread."""
    if isinstance(storage, PostgresStorage) and of_workers(storage, thread_id):
        submit(storage, None, thread_id)


def thread_table(found: Sequence[Row], width: int) -> Table:
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


def _write_page(console: Console, file: str, run: Run) -> None:
    # Imported here, since it depends on this package, and most commands do not need it.
    from signoff.page import STDOUT, page, save

    save(page(run), file)
    if file != STDOUT:
        message = f"Written to {one_line(file)}. It shows everything in the thread: check it first."
        console.print(Text(message), soft_wrap=True)


def _task(
    chapter: Chapter, outcome: Mapping[str, Any] | None, below: Mapping[str, Run], depth: int
) -> dict[str, Any]:
    return {
        "task": chapter.task,
        "words": list(chapter.words),
        "turns": [_turn(turn, below, depth) for turn in chapter.turns],
        "outcome": outcome,
    }


def _turn(turn: Turn, below: Mapping[str, Run], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "turn": turn.number,
        "text": turn.text,
        "status": turn.status,
        "events": [{"kind": _KINDS[type(event)], **asdict(event)} for event in turn.events],
        "tokens": turn.tokens,
        "seconds": turn.seconds,
        "steps": [asdict(step) for step in turn.steps],
    }
    called = [
        _child(call.call_id, below[call.call_id], depth) for call in turn.calls if call.call_id in below
    ]
    return {**found, "delegates": called} if called else found


def _child(call_id: str, child: Run, depth: int) -> dict[str, Any]:
    """Returns the machine of a delegate, nested; without its turns if it is folded."""
    found: dict[str, Any] = {
        "call_id": call_id,
        "path": list(child.path),
        "status": _status(child),
        "outcome": _outcome(child),
        "totals": {"turns": child.totals.turns, "tokens": child.totals.tokens},
    }
    if depth > 0:
        tasks = [
            _task(chapter, child.outcomes.get(chapter.task), child.below, depth - 1)
            for chapter in child.chapters
        ]
        found["tasks"] = tasks
    return found


def _status(run: Run) -> str:
    return "running" if run.running else status_of(run.status)


def _outcome(run: Run) -> dict[str, Any] | None:
    outcome = run.status.outcome
    return None if outcome is None else outcome.model_dump(mode="json")


def _now(thread_status: ThreadStatus, database: Database) -> CommandReport:
    if thread_status.outcome is not None:
        return of_outcome(thread_status.outcome.model_dump(mode="json"), thread_status.thread_id, database)
    if thread_status.wait():
        return of_waits(thread_status.waits, thread_status.thread_id, database)[0]
    return of_stop(thread_status.thread_id, database)


def _waits(status: ThreadStatus, now: CommandReport, database: Database) -> list[CommandReport]:
    """Returns a report for each thing that the thread waits for; none if it does not wait."""
    return of_waits(status.waits, status.thread_id, database) if now.waiting else []


def _wait(report: CommandReport) -> dict[str, Any]:
    waiting = report.waiting
    assert waiting is not None, "it is the report of what waits"
    document = waiting.document()
    own = {name: document[name] for name in ("type", "interrupt_id", "path")}
    return own | {document["type"]: document, "resume": report.resume}


def _print(console: Console, found: Run, now: CommandReport | None, database: Database, depth: int) -> None:
    display = (Terminal if console.is_terminal else Plain)(console)
    for chapter in found.chapters:
        for words in chapter.words:
            display.show(Wrote(words))
        for turn in chapter.turns:
            _print_turn(display, turn)
            _print_below(display, turn, found.below, depth)
        outcome = found.outcomes.get(chapter.task)
        if outcome and (now is None or outcome != now.outcome):
            display.end(replace(of_outcome(outcome, outcome["thread_id"], database), resume=None))
            display.gap()
    if now is None:
        display.note("It is running in another process.")
    else:
        for at, report in enumerate(_waits(found.status, now, database) or [now]):
            if at:
                display.gap()
            display.end(report)


class _Indented(Plain):
    """Prints what a delegate did, further to the right than the turn that called it."""

    def __init__(self, above: Plain) -> None:
        super().__init__(above.console)
        self.boxed, self._above = above.boxed, above

    def print(self, content: RenderableType) -> None:
        self.gapped = False
        if self.boxed:
            self._above.print(Padding(content, (0, 0, 0, _INDENT)))
            return
        # A line of plain text is not wrapped, however long; padded it would be.
        with self.console.capture() as printed:
            self.console.print(content, soft_wrap=True)
        for line in printed.get().splitlines():
            self._above.print(Text(" " * _INDENT).append_text(Text.from_ansi(line)))


def _print_below(display: Plain, turn: Turn, below: Mapping[str, Run], depth: int) -> None:
    """Prints the delegates that a turn called, each with its turns, or folded into one line."""
    for call in turn.calls:
        if (child := below.get(call.call_id)) is None:
            continue
        inner = _Indented(display)
        inner.print(_heading(child, folded=depth < 1))
        if child.status.outcome and (error := child.status.outcome.error):
            inner.print(Text(f"  {one_line(error)}", style="red"))
        if depth < 1:
            continue
        for one in (turn for chapter in child.chapters for turn in chapter.turns):
            _print_turn(inner, one)
            _print_below(inner, one, child.below, depth - 1)


def _heading(child: Run, *, folded: bool) -> Text:
    """Returns the line of a delegate: its path, status and usage."""
    totals, heading = child.totals, child.heading
    parts = ["/".join(map(one_line, child.path)), heading.title, count_noun(totals.turns, "turn")]
    parts += [count_noun(totals.tokens, "token")] if totals.tokens else []
    sign = "▸" if folded and totals.turns else "▾"
    return Text.assemble((f"{sign} ", "dim"), (" · ".join(parts), "bold"))


def _print_turn(display: Plain, turn: Turn) -> None:
    events: list[SessionEvent] = [Said(turn.number, turn.text, beside=turn.beside), *turn.events]
    for event in events:
        display.show(event)
    if turn.status:
        display.print(display.lines.remark(turn.number, f"status: {cut(one_line(turn.status), _WHY)}"))
    for line in _way(turn):
        display.print(display.lines.remark(turn.number, line))


def _way(turn: Turn) -> list[str]:
    """Returns the states of a turn with its figures, and the rules that fired except those of every turn."""
    states = " → ".join(str(step.state) for step in turn.steps if step.state)
    figures = [count_noun(turn.tokens, "token")] if turn.tokens else []
    figures += [f"{turn.seconds:.1f} s"] if turn.seconds >= _SHOWN_SECONDS else []
    rules = [
        f"  {step.rule}: {cut(one_line(step.why), _WHY)}"
        for step in turn.steps
        if step.state is State.DECIDE and step.rule not in _EVERY_TURN
    ]
    return [*filter(None, [" · ".join(filter(None, (states, *figures)))]), *rules]
