"""`signoff show`: what happened in a thread, from its first message to where it stands."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from rich.console import Console
from rich.text import Text

from signoff.cli.display import Plain, Terminal
from signoff.cli.drive import Answered, Called, Ended, Follower, Happening, Reminded, Said, Thought, Wrote
from signoff.cli.report import Exit, Report, documents, of_outcome, of_stop, of_waiting
from signoff.cli.safe import one_line
from signoff.cli.settings import recall
from signoff.cli.standing import TOOLS, Condition, Standing, look, readable, reading_graph
from signoff.cli.threads import in_words, status_of
from signoff.graph.errors import ThreadError
from signoff.graph.history import read_messages
from signoff.graph.limits import Limits
from signoff.graph.marks import is_genuine
from signoff.graph.outcome import Outcome
from signoff.graph.task import Task
from signoff.locks import is_locked
from signoff.nodes.record import recorded
from signoff.storage import sqlite_storage

_KINDS = {
    Wrote: "user",
    Said: "said",
    Called: "call",
    Thought: "thought",
    Answered: "question",
    Reminded: "reminder",
    Ended: "outcome",
}


def show_thread(console: Console, database: Path, thread_id: str, as_json: bool) -> None:
    """Prints the thread. Raises ThreadError when there is no such thread."""
    unknown = ThreadError(f"There is no thread {thread_id!r} in {database}; `signoff threads` lists them.")
    if not database.expanduser().exists():
        raise unknown
    with sqlite_storage(database) as storage:
        standing = look(reading_graph(storage), thread_id)
        if standing.condition is Condition.UNKNOWN:
            raise unknown
        settings = recall(storage.store, thread_id)
        with readable(thread_id):
            outcomes = [found for found in recorded(storage.store, thread_id) if found.thread_id == thread_id]
    running = is_locked(database, thread_id)
    status = "running" if running else status_of(standing)
    happened = list(timeline(standing, outcomes))
    now = Report(thread_id, "stopped", Exit.PAUSED) if running else _now(standing, database)
    if as_json:
        document = {
            "thread_id": thread_id,
            "status": status,
            "changed": standing.changed,
            "settings": settings and settings.model_dump(),
            "timeline": [_entry(happening) for happening in happened],
            "outcome": now.outcome,
            **documents(now.waiting),
            "resume": now.resume,
        }
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")
        return
    where = (settings.workspace, settings.model) if settings else ()
    told = in_words(status, standing.waiting.waits_for if standing.waiting else None)
    console.print(Text(" · ".join(map(one_line, (thread_id, told, *where))), style="dim"), soft_wrap=True)
    console.print()
    _print(console, happened, None if running else now, database)


def timeline(standing: Standing, outcomes: list[Outcome]) -> Iterator[Happening]:
    """All that happened in the thread, in order; the outcome of each task stands at its end."""
    values: Any = standing.values
    spoken = read_messages(values, TOOLS).spoken
    by_task = {outcome.task: outcome.model_dump() for outcome in outcomes}
    if standing.outcome is not None:
        by_task[standing.outcome["task"]] = dict(standing.outcome)
    follower = Follower(Task(), Limits().turns)
    current = ""
    for message in values.get("messages", ()):
        if isinstance(message, HumanMessage) and is_genuine(message):
            answers = message.id in spoken
            if not answers and follower.turn:
                if current in by_task:
                    yield Ended(by_task.pop(current))
                follower.begin()
            current = current if answers else current if not follower.turn and current else message.id or ""
            yield Wrote(message.text, answers)
        else:
            yield from follower.message(message)
    if standing.outcome is not None:
        yield Ended(standing.outcome)


def _entry(happening: Happening) -> dict[str, Any]:
    return {"kind": _KINDS[type(happening)], **asdict(happening)}


def _now(standing: Standing, database: Path) -> Report:
    if standing.outcome is not None:
        return of_outcome(standing.outcome, standing.thread_id, database)
    if standing.waiting:
        return of_waiting(standing.waiting, standing.thread_id, database)
    return of_stop(standing.thread_id, database)


def _print(console: Console, happened: list[Happening], now: Report | None, database: Path) -> None:
    display = (Terminal if console.is_terminal else Plain)(console)
    for happening in happened:
        if not isinstance(happening, Ended):
            display.show(happening)
        elif now is None or happening.outcome != now.outcome:
            before = of_outcome(happening.outcome, happening.outcome["thread_id"], database)
            display.end(replace(before, resume=None))
            display.gap()
    if now is None:
        display.note("It is running in another process.")
    else:
        display.end(now)
