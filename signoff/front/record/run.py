"""The data of a page, read from the database, and the totals over it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage

from signoff import ThreadStatus, Turn
from signoff.events import Answered, CallFinished
from signoff.front.choices import waits_for
from signoff.front.database import Database
from signoff.front.report import CommandReport, Exit, of_outcome, of_stop, of_waits
from signoff.front.settings import Settings
from signoff.graph.history.task import phases_of
from signoff.graph.messages import marks
from signoff.machine import Event, State
from signoff.nodes.model.providers import SCRIPTED
from signoff.session import Condition, Step
from signoff.session.history import Chapter
from signoff.text import Heading, heading, stands, valid_text

# The reader of a page has another database, so its commands name none.
DATABASE = Database("", named=False)
_INPUT = "input"


@dataclass(frozen=True)
class Totals:
    """The totals of all tasks of a thread; the seconds of work, and those of waiting for people."""

    turns: int = 0
    tokens: int = 0
    estimated: bool = False
    active: float = 0.0
    waiting: float = 0.0


@dataclass(frozen=True)
class Run:
    """A thread as it is saved, or the machine of a delegate in it.

    outcomes: of the tasks that have ended, by task. steps: those of `path.steps`. running: a process runs it
    now. below: what its delegates have run, by the ids of their calls. path: the names of the delegates that
    lead to it; empty for the thread itself. database: as the commands that go on name it.
    """

    status: ThreadStatus
    chapters: Sequence[Chapter]
    outcomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    running: bool = False
    settings: Settings | None = None
    below: Mapping[str, "Run"] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    database: Database = DATABASE

    @property
    def all_below(self) -> Sequence["Run"]:
        """Returns all machines below, each before those that it has called."""
        return [one for child in self.below.values() for one in (child, *child.all_below)]

    @property
    def thread_id(self) -> str:
        return self.status.thread_id

    @cached_property
    def heading(self) -> Heading:
        """Returns the status of the thread: words, a colour, a sign."""
        if self.running:
            return Heading("Running", "blue", "▶")
        if self.now.outcome is not None:
            return heading(self.now.outcome)
        if self.now.waiting is None:
            return Heading("Stopped", "amber", "‖")
        word = stands("waiting", waits_for(self.now.waiting))
        return Heading(word.title[:1].upper() + word.title[1:], word.tone, word.sign)

    @property
    def question(self) -> str:
        """Returns the first message of the user."""
        return next((words for chapter in self.chapters for words in chapter.words), "")

    @property
    def model(self) -> str:
        """Returns the model; for a script, the name of its file without the folder."""
        name = self.settings.model if self.settings else ""
        return f"{SCRIPTED}{Path(name.removeprefix(SCRIPTED)).name}" if name.startswith(SCRIPTED) else name

    @property
    def workspace(self) -> str:
        """Returns the workspace, without the user's name."""
        folder, home = self.settings.workspace if self.settings else "", os.path.expanduser("~")
        return (
            f"~{folder.removeprefix(home)}" if Path(folder).is_relative_to(home) and home != "/" else folder
        )

    @cached_property
    def now(self) -> CommandReport:
        """Returns the status of the thread, with the commands that continue it."""
        if self.running:
            return CommandReport(self.thread_id, "stopped", Exit.PAUSED)
        if self.status.outcome is not None:
            return self.ending(self.status.outcome.model_dump(mode="json"))
        if self.status.wait():
            return self.waits[0]
        return of_stop(valid_text(self.thread_id), self.database)

    @cached_property
    def waits(self) -> Sequence[CommandReport]:
        """Returns each of all that the thread waits for, with the commands that answer it."""
        return of_waits(self.status.waits, valid_text(self.thread_id), self.database)

    def ending(self, outcome: Mapping[str, Any]) -> CommandReport:
        """Returns how a task ended."""
        return of_outcome(outcome, valid_text(self.thread_id), self.database)

    @cached_property
    def totals(self) -> Totals:
        found = [self._totals(chapter) for chapter in self.chapters]
        return Totals(
            sum(part.turns for part in found),
            sum(part.tokens for part in found),
            any(part.estimated for part in found),
            sum(part.active for part in found),
            sum(part.waiting for part in found),
        )

    def _totals(self, chapter: Chapter) -> Totals:
        turns, task = chapter.turns, self.status.task
        waited = sum(e.waited for turn in turns for e in turn.events if isinstance(e, Answered))
        if outcome := self.outcomes.get(chapter.task):
            usage, active = outcome["usage"], outcome["seconds_active"]
            waited = outcome["seconds_waiting"]
            return Totals(len(turns), usage["total_tokens"], usage["estimated"], active, waited)
        if chapter.task == task.id:
            used = task.total
            return Totals(len(turns), used.total_tokens, used.estimated > 0, used.seconds, waited)
        tokens, active = sum(turn.tokens for turn in turns), sum(turn.seconds for turn in turns)
        active += sum(e.seconds for turn in turns for e in turn.events if isinstance(e, CallFinished))
        return Totals(len(turns), tokens, False, active, waited)

    @cached_property
    def entries(self) -> Mapping[str, Sequence[Step]]:
        """Returns the steps of each task before its first reply."""
        # By identity: two steps can have the same checkpoint.
        own = {id(step) for chapter in self.chapters for turn in chapter.turns for step in self.way(turn)}
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            if id(step) not in own:
                found.setdefault(step.task, []).append(step)
        return found

    def way(self, turn: Turn) -> Sequence[Step]:
        """Returns the steps of a turn that belong to its own task."""
        for at, step in enumerate(turn.steps):
            if step.task != turn.task:
                return turn.steps[:at]
        return turn.steps

    @cached_property
    def fork(self) -> Step | None:
        """Returns the step at which the thread was forked from another one; None when it was not."""
        first = self.steps[0] if self.steps else None
        return first if first and first.state is None and first.event != _INPUT else None

    def phases(self, task: str) -> Sequence[Mapping[str, Any]]:
        """Returns the phases reported during the task."""
        if outcome := self.outcomes.get(task):
            phases: Sequence[Mapping[str, Any]] = outcome["phases"]
            return phases
        return phases_of(self.status.values.get("phases"), task)

    @cached_property
    def notes(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the marks that Signoff put on the result of each call, by call id."""
        messages = self.status.values.get("messages", ())
        return {found.tool_call_id: marks(found) for found in messages if isinstance(found, ToolMessage)}

    @cached_property
    def decisions(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns a person's decisions on calls, by call id; stored for the last task that had such calls."""
        calls: Mapping[str, Mapping[str, Any]] = (self.status.values.get("approvals") or {}).get("calls", {})
        return calls

    @cached_property
    def stands_in(self) -> State | None:
        """Returns the current state of the thread: the last one, or the one that it waits or stopped in."""
        if self.status.condition is Condition.ENDED:
            return State.FINISH
        if not self.steps:
            return None
        last = self.steps[-1]
        named = [State(name) for name in last.next if name in set(State)]
        return named[0] if named else last.state

    def confirmation(self, chapter: Chapter) -> str | None:
        """Returns what a person said when confirming the finish of a task; None when nobody did."""
        way = self.way(chapter.turns[-1]) if chapter.turns else ()
        if not any(step.state is State.CONFIRM and step.event == Event.CONFIRMED for step in way):
            return None
        return self._confirmed.get(chapter.task, "")

    @cached_property
    def _confirmed(self) -> Mapping[str, str]:
        tasks, current = {chapter.task for chapter in self.chapters}, ""
        found: dict[str, str] = {}
        for message in self.status.values.get("messages", ()):
            current = message.id if message.id in tasks else current
            if isinstance(message, ToolMessage) and (notes := marks(message)).get("confirmed"):
                found[current] = notes["said"].strip()
        return found
