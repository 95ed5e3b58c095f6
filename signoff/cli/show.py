"""`signoff show`: what happened in a thread, from its first message to where it stands."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from signoff.cli.database import Database, OpenStorage
from signoff.cli.display import Plain, Terminal
from signoff.cli.plans import unknown
from signoff.cli.report import Exit, Report, documents, of_outcome, of_stop, of_waiting
from signoff.cli.safe import cut, one_line
from signoff.cli.settings import recall
from signoff.cli.thread_rows import status_of
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.foreign import counted
from signoff.graph.machine import State
from signoff.graph.vocabulary import stands
from signoff.nodes.journal import recorded
from signoff.session.events import Answered, CallFinished, Event, Nudged, Said, Thought, Wrote
from signoff.session.history import Chapter, Turn, chapters
from signoff.session.path import Step, steps
from signoff.session.standing import Condition, Standing, kit_of, look, readable, reading_graph
from signoff.workers.inbox import read_inbox

_KINDS: Mapping[type, str] = {
    Wrote: "user",
    CallFinished: "call",
    Thought: "thought",
    Answered: "question",
    Nudged: "nudge",
}
_WHY = 160
_SHOWN_SECONDS = 0.05
_EVERY_TURN = ("think", "calls_open")


def show_thread(
    console: Console, database: Database, thread_id: str, as_json: bool, html: str | None = None
) -> None:
    """Prints the thread, or writes it as a page into the file `html`.

    Raises ThreadError when there is no such thread, SetupError for a page that cannot be written.
    """
    if as_json and html is not None:
        raise SetupError("--html writes a page and --json prints a document; give one of them.")
    if not database.exists():
        raise unknown(thread_id, database)
    with database.open() as storage:
        standing, told, outcomes, running, path = _read(storage, thread_id)
        if standing.condition is Condition.UNKNOWN:
            if read_inbox(storage.store, thread_id):
                raise ThreadError(f"Thread {thread_id!r} is in the queue and has not begun; look later.")
            raise unknown(thread_id, database)
        settings = recall(storage.store, thread_id)
    if html is not None:
        _write_page(console, html, standing, told, outcomes, path, running, settings)
        return
    status = "running" if running else status_of(standing)
    now = Report(thread_id, "stopped", Exit.PAUSED) if running else _now(standing, database)
    if as_json:
        document = {
            "thread_id": thread_id,
            "status": status,
            "changed": standing.changed,
            "settings": settings and settings.model_dump(),
            "tasks": [_task(chapter, outcomes.get(chapter.task)) for chapter in told],
            "outcome": now.outcome,
            **documents(now.waiting),
            "resume": now.resume,
        }
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")
        return
    where = (settings.workspace, settings.model) if settings else ()
    waits_for = standing.waiting.waits_for if standing.waiting else None
    state = stands(status, waits_for, standing.outcome).title
    console.print(Text(" · ".join(map(one_line, (thread_id, state, *where))), style="dim"), soft_wrap=True)
    console.print()
    _print(console, told, outcomes, None if running else now, database)


def _write_page(console: Console, file: str, standing: Standing, *rest: Any) -> None:
    # It builds on this package, so that it cannot be imported with it; and most commands need none of it.
    from signoff.page import STDOUT, Run, page, save

    save(page(Run(standing, *rest)), file)
    if file != STDOUT:
        told = f"Written to {one_line(file)}. It shows all that the thread holds: look before you share it."
        console.print(Text(told), soft_wrap=True)


def _read(
    storage: OpenStorage, thread_id: str
) -> tuple[Standing, list[Chapter], dict[str, Mapping[str, Any]], bool, list[Step]]:
    # Asked first: else a run that ends in between would look as if it had been stopped.
    running = storage.checkpointer.is_running(thread_id)
    graph = reading_graph(storage)
    standing = look(graph, thread_id)
    with readable(thread_id):
        path = steps(storage.checkpointer, thread_id)
        told = chapters(standing.values, kit_of(graph).toolbox, path)
        ends = [end for end in recorded(storage.store, thread_id) if end.thread_id == thread_id]
    outcomes: dict[str, Mapping[str, Any]] = {end.task: end.model_dump() for end in ends}
    if standing.outcome is not None:
        outcomes[standing.outcome["task"]] = dict(standing.outcome)
    return standing, told, outcomes, running, path


def _task(chapter: Chapter, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "task": chapter.task,
        "words": list(chapter.words),
        "turns": [_turn(turn) for turn in chapter.turns],
        "outcome": outcome,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "text": turn.text,
        "status": turn.status,
        "events": [{"kind": _KINDS[type(event)], **asdict(event)} for event in turn.events],
        "tokens": turn.tokens,
        "seconds": turn.seconds,
        "steps": [asdict(step) for step in turn.steps],
    }


def _now(standing: Standing, database: Database) -> Report:
    if standing.outcome is not None:
        return of_outcome(standing.outcome, standing.thread_id, database)
    if standing.waiting:
        return of_waiting(standing.waiting, standing.thread_id, database)
    return of_stop(standing.thread_id, database)


def _print(
    console: Console,
    told: list[Chapter],
    outcomes: Mapping[str, Mapping[str, Any]],
    now: Report | None,
    database: Database,
) -> None:
    display = (Terminal if console.is_terminal else Plain)(console)
    for chapter in told:
        for words in chapter.words:
            display.show(Wrote(words))
        for turn in chapter.turns:
            _print_turn(display, turn)
        outcome = outcomes.get(chapter.task)
        if outcome and (now is None or outcome != now.outcome):
            display.end(replace(of_outcome(outcome, outcome["thread_id"], database), resume=None))
            display.gap()
    if now is None:
        display.note("It is running in another process.")
    else:
        display.end(now)


def _print_turn(display: Plain, turn: Turn) -> None:
    events: list[Event] = [Said(turn.number, turn.text, beside=turn.beside), *turn.events]
    for event in events:
        display.show(event)
    if turn.status:
        display.print(display.lines.remark(turn.number, f"status: {cut(one_line(turn.status), _WHY)}"))
    for line in _way(turn):
        display.print(display.lines.remark(turn.number, line))


def _way(turn: Turn) -> list[str]:
    """The states of a turn with its figures, and the rules that fired in it beside those of every turn."""
    states = " → ".join(str(step.state) for step in turn.steps if step.state)
    figures = [counted(turn.tokens, "token")] if turn.tokens else []
    figures += [f"{turn.seconds:.1f} s"] if turn.seconds >= _SHOWN_SECONDS else []
    rules = [
        f"  {step.rule}: {cut(one_line(step.why), _WHY)}"
        for step in turn.steps
        if step.state is State.DECIDE and step.rule not in _EVERY_TURN
    ]
    return [*filter(None, [" · ".join(filter(None, (states, *figures)))]), *rules]
