"""Runs a thread for `signoff run` and `signoff resume`: from the options to the report."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from signoff.cli import report
from signoff.cli.display import Display
from signoff.cli.drive import Follower, Moved, Streamed, drive
from signoff.cli.report import Exit, Report
from signoff.cli.settings import Given, Settings, recall, remember, settle
from signoff.cli.signals import Stopped, Stopper, stopping
from signoff.cli.standing import Condition, Question, Standing, look, reading_graph
from signoff.graph.build import Graph, build_graph
from signoff.graph.errors import ThreadError
from signoff.graph.machine import State
from signoff.locks import thread_lock
from signoff.models.choose import check_model, choose_model
from signoff.storage import SqliteStorage, sqlite_storage
from signoff.tools.files import workspace_tools


@dataclass(frozen=True)
class Start:
    """What a run begins with: the input for the graph, or a question that has to be answered first."""

    given: Any = None
    question: Question | None = None
    extra_turns: int = 0
    note: str = ""


# What was written but not yet applied when a process was killed takes one pass in which nothing happens.
_IDLE = 2

Plan = Callable[[Standing], Start]
"""Decides from where a thread stands how the run begins. Raises ThreadError when it cannot."""


def launch(thread_id: str, database: Path, options: Given, plan: Plan, display: Display) -> Report:
    """Runs the thread until it ends, waits for a person, or is stopped; says which.

    Raises SetupError, StorageError, ThreadError or ThreadBusy before anything has run.
    """
    with stopping() as stopper:
        try:
            with thread_lock(database, thread_id), sqlite_storage(database) as storage:
                return _Launch(thread_id, database, storage, options, display, stopper).run(plan)
        except KeyboardInterrupt:
            stopper.done = True
            return _stopped(thread_id, database)


def _stopped(thread_id: str, database: Path) -> Report:
    """What is saved of a run that was stopped, and how it goes on."""
    with sqlite_storage(database) as storage:
        found = look(reading_graph(storage), thread_id)
    if found.question:
        return report.of_question(found.question, thread_id, database)
    return report.of_stop(None if found.condition is Condition.UNKNOWN else thread_id, database)


@dataclass
class _Launch:
    thread_id: str
    database: Path
    storage: SqliteStorage
    options: Given
    display: Display
    stopper: Stopper

    def run(self, plan: Plan) -> Report:
        standing = look(reading_graph(self.storage), self.thread_id)
        start = plan(standing)
        settings = settle(self.options, recall(self.storage.store, self.thread_id), os.environ)
        tools = workspace_tools(settings.workspace)
        given = start.given
        if start.question:
            answer = self.display.ask(start.question)
            if answer is None:
                return report.of_question(start.question, self.thread_id, self.database)
            given = start.question.answered(answer)
        check_model(settings.model, settings.base_url, os.environ)
        with self.display.loading() as on_progress:
            chosen = choose_model(settings.model, settings.base_url, os.environ, on_progress)
        with chosen.resource:
            prompt = "\n\n".join(part for part in (settings.system_prompt, chosen.prompt) if part)
            graph = build_graph(
                chosen.model,
                tools,
                system_prompt=prompt,
                limits=settings.limits,
                storage=self.storage,
            )
            remember(self.storage.store, self.thread_id, settings)
            self.display.begin(self.thread_id, settings, start.note)
            return self._until_done(graph, given, settings, standing, start.extra_turns)

    def _until_done(
        self, graph: Graph, given: Any, settings: Settings, standing: Standing, extra: int
    ) -> Report:
        idle = 0
        while True:
            try:
                happened = self._drive(graph, given, settings, standing, extra)
            except GraphDrained:
                raise Stopped from None
            except sqlite3.Error as error:
                return self._broken(error)
            standing, extra = look(graph, self.thread_id), 0
            if standing.outcome is not None:
                return report.of_outcome(standing.outcome, self.thread_id, self.database)
            if standing.question is None:
                idle = 0 if happened else idle + 1
                if idle > _IDLE:
                    raise ThreadError(f"Thread {self.thread_id!r} does not go on; begin another one.")
                given = standing.go_on
                continue
            answer = self.display.ask(standing.question)
            if answer is None:
                return report.of_question(standing.question, self.thread_id, self.database)
            given = standing.question.answered(answer)

    def _drive(self, graph: Graph, given: Any, settings: Settings, standing: Standing, extra: int) -> int:
        """Runs until the graph comes back; the number of things that happened."""
        count = 0
        control, streamed = RunControl(), Streamed()
        follower = Follower(standing.task, settings.turns, standing.task.extra_turns + extra)
        with self.display.running(streamed), self._soft_stop(control) as moved:
            for happening in drive(graph, self.thread_id, given, follower, streamed, control):
                if isinstance(happening, Moved):
                    moved(happening)
                self.display.show(happening)
                count += 1
        return count

    @contextmanager
    def _soft_stop(self, control: RunControl) -> Iterator[Callable[[Moved], None]]:
        """While a tool runs, a signal waits for its result; it would have to run again otherwise."""

        def soon() -> None:
            control.request_drain()
            self.display.note("Stopping after this call; Ctrl-C again stops at once.")

        def moved(to: Moved) -> None:
            self.stopper.soon = soon if to.state is State.EXECUTE else None

        try:
            yield moved
        finally:
            self.stopper.soon = None

    def _broken(self, error: sqlite3.Error) -> Report:
        how = report.resume_command(self.thread_id, self.database)
        told = f"The database {self.database} failed ({error}); what was saved before is kept."
        return Report(self.thread_id, "error", Exit.ERROR, resume=how, error=told)
