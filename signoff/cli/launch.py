"""Runs a thread for `signoff run` and `signoff resume`: from the options to the report."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from signoff.cli import report
from signoff.cli.display import Display
from signoff.cli.drive import Follower, Moved, Streamed, drive
from signoff.cli.report import Exit, Report
from signoff.cli.settings import Given, Settings, recall, remember, settle
from signoff.cli.signals import Stopped, Stopper, stopping
from signoff.cli.standing import Condition, Standing, look, reading_graph
from signoff.cli.waits import Approval, Waiting
from signoff.cli.working import for_waiting, policy_of, working_tools
from signoff.graph.build import Graph, build_graph
from signoff.graph.errors import ThreadError
from signoff.graph.machine import State
from signoff.locks import thread_lock
from signoff.models.choose import check_model, choose_model
from signoff.storage import SqliteStorage, sqlite_storage


@dataclass(frozen=True)
class Start:
    """What a run begins with: the input for the graph, or what a person has to decide first."""

    given: Any = None
    waiting: Waiting | None = None
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
    if found.waiting:
        return report.of_waiting(found.waiting, thread_id, database)
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
        if self.options.approve is not None and isinstance(standing.waiting, Approval):
            raise ThreadError("Calls wait for approval: decide on them first, then change --approve.")
        with working_tools(settings, self.display.output) as tools:
            return self._with(tools, settings, standing, start)

    def _with(self, found: list[BaseTool], settings: Settings, standing: Standing, start: Start) -> Report:
        tools, handed_over = for_waiting(found, standing.waiting)
        policy = policy_of(settings, self.options, tools, standing.waiting)
        given = start.given
        if start.waiting:
            answer = self.display.ask(start.waiting)
            if answer is None:
                return report.of_waiting(start.waiting, self.thread_id, self.database)
            given = start.waiting.answered(answer)
        check_model(settings.model, settings.base_url, os.environ)
        with self.display.loading() as on_progress:
            chosen = choose_model(settings.model, settings.base_url, os.environ, on_progress)
        with chosen.resource:
            graph = build_graph(
                chosen.model,
                tools,
                system_prompt="\n\n".join(part for part in (settings.system_prompt, chosen.prompt) if part),
                limits=settings.limits,
                storage=self.storage,
                approvals=policy,
                hand_over=handed_over,
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
            if standing.waiting is None:
                idle = 0 if happened else idle + 1
                if idle > _IDLE:
                    raise ThreadError(f"Thread {self.thread_id!r} does not go on; begin another one.")
                given = standing.go_on
                continue
            answer = self.display.ask(standing.waiting)
            if answer is None:
                return report.of_waiting(standing.waiting, self.thread_id, self.database)
            given = standing.waiting.answered(answer)

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
