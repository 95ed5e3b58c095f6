"""Runs a thread: decides from its status how the run begins, and stops it on a signal."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool

from signoff import (
    Action,
    Answer,
    Approval,
    Decision,
    Ended,
    Graph,
    Message,
    Paused,
    Session,
    SetupError,
    StorageError,
    ThreadError,
    ThreadStatus,
    Waiting,
    go_on,
    undo,
)
from signoff.cli.display import Display, Streamed
from signoff.events import Decided, Wrote
from signoff.front import report
from signoff.front.choices import waits_for
from signoff.front.database import Database, OpenStorage, unknown
from signoff.front.programs import check_tools
from signoff.front.report import CommandReport, Exit, command, next_command
from signoff.front.settings import Given, Settings, recall, remember, settle
from signoff.front.working import for_waiting, graph_of, policy_of, working_tools
from signoff.graph.compiled.holds import busy
from signoff.graph.compiled.inputs import is_repeated
from signoff.load import load_graph
from signoff.models.choose import check_model, choose_model
from signoff.session import Condition, ThreadCommand
from signoff.session.status import look, reading_graph
from signoff.session.tracing import tracing
from signoff.text import count_noun, quote_id

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Begin:
    """How a run begins: with a command, or with something that a person has to answer first."""

    move: ThreadCommand = None
    waiting: Waiting | None = None
    note: str = ""


Plan = Callable[[ThreadStatus], Begin]
"""Decides from a thread's status how the run begins. Raises ThreadError when it cannot."""


def with_task(task: str) -> Plan:
    """Plans a new task for a new or an existing thread, or the answer if the thread waits for one."""

    def plan(thread: ThreadStatus) -> Begin:
        if waiting := thread.wait():
            return Begin(task, note=f"The thread waits: your message {_role_of_answer(waiting)}.")
        if not thread.condition.has_work_left:
            return Begin(task)
        if is_repeated([HumanMessage(task)], thread.values):
            return Begin(task, note="The thread already has this message and continues with it.")
        return Begin(task, note="The thread's unfinished task ends here; your message begins the next one.")

    return plan


def _role_of_answer(waiting: Waiting) -> str:
    match waiting:
        case Approval():
            return "sends the result back" if waits_for(waiting) == "confirmation" else "rejects the calls"
        case Action():
            return "takes the action back"
    return "is the answer"


def to_resume(
    answer: str | None, database: Database, to: str | None = None, turns: int | None = None
) -> Plan:
    """Plans to continue an existing thread, with or without an answer.

    to: the beginning of the id of what it answers, if several delegates wait. turns: how many more after a
    limit."""

    def plan(thread: ThreadStatus) -> Begin:
        _known(thread, database)
        if thread.outcome is not None:
            if answer is not None:
                raise _nothing_waits(thread.thread_id, "ended", database)
            if thread.outcome.status == "success":
                raise _has_ended(thread, database)
            return Begin(go_on(turns))
        if waiting := thread.wait() if answer is None else _answered(answer, to, thread):
            if answer is None:
                # The session hands out an action and records that.
                return Begin() if isinstance(waiting, Action) else Begin(waiting=waiting)
            decisions = waiting.read(answer)
            says_which = to is not None or _names(waiting, answer) or _rejects(decisions)
            if waits_for(waiting) == "approval" and not says_which:
                raise _for_which(thread, database)
            return Begin(Answer(answer, waiting.interrupt_id))
        if answer is not None:
            raise _nothing_waits(thread.thread_id, "stopped in the middle", database)
        return Begin()

    return plan


def _answered(answer: str, to: str | None, thread: ThreadStatus) -> Waiting | None:
    """The pending request that an answer is for. Raises ThreadError if that is ambiguous."""
    if to:
        found = [one for one in thread.waits if one.interrupt_id.startswith(to)]
    else:
        found = [one for one in thread.waits if _names(one, answer)] or list(thread.waits)
    if len(thread.waits) < 2 and not to:
        return thread.wait()
    if len(found) == 1:
        return found[0]
    waits = ", ".join(
        f"{'/'.join(one.path) or 'itself'}: --to {one.interrupt_id[: report.ID_SHOWN]}"
        for one in thread.waits
    )
    raise ThreadError(
        f"Thread {quote_id(thread.thread_id)} waits for {count_noun(len(thread.waits), 'answer')}; "
        f"use --to to say which one is meant ({waits}). Nothing was changed."
    )


def _names(waiting: Waiting, answer: str) -> bool:
    """Whether the answer holds the short id of what is shown; `waiting.read` refuses the id of anything
    else."""
    shown = waiting.document().get("shown", "")
    return shown != "" and shown in answer


def _rejects(decisions: Any) -> bool:
    """Whether all of these decisions reject: nothing runs then, whatever else may wait by now."""
    listed = decisions.get("decisions", decisions) if isinstance(decisions, Mapping) else decisions
    listed = listed if isinstance(listed, list) else [listed]
    return all(isinstance(one, Mapping) and one.get("type") in ("reject", "ignore") for one in listed)


def _for_which(thread: ThreadStatus, database: Database) -> ThreadError:
    how = command("resume", thread.thread_id, database)
    return ThreadError(
        "The answer does not say which calls it is for, and others may be waiting by now. List the "
        f"waiting calls, and the commands that decide on them, with: {how}"
    )


def to_undo(database: Database) -> Plan:
    """Plans to undo a task that has ended."""

    def plan(thread: ThreadStatus) -> Begin:
        _known(thread, database)
        if thread.outcome is None:
            raise ThreadError(
                f"Thread {quote_id(thread.thread_id)} has not ended, and only an ended task can be undone; "
                f"end it first: {command('resume', thread.thread_id, database)}"
            )
        return Begin(undo())

    return plan


def _known(thread: ThreadStatus, database: Database) -> None:
    if thread.condition is Condition.UNKNOWN:
        raise unknown(thread.thread_id, database)


def _has_ended(thread: ThreadStatus, database: Database) -> ThreadError:
    assert thread.outcome is not None, "so it has"
    how = next_command(thread.thread_id, database)
    return ThreadError(
        f"Thread {quote_id(thread.thread_id)} has ended (success, {thread.outcome.claim}); give it another "
        f"task: {how}"
    )


def _nothing_waits(thread_id: str, state: str, database: Database) -> ThreadError:
    how = command("resume", thread_id, database) if state != "ended" else next_command(thread_id, database)
    return ThreadError(
        f"Thread {thread_id!r} has {state}, and nothing waits for an answer; go on with: {how}"
    )


class Stopped(KeyboardInterrupt):
    """The user, or the system, asked this process to stop."""


class Stopper:
    """Handles signals.

    soon: set while the thread runs; requests a stop after the current step. begun: the thread has run. done:
    signals are ignored, because the run has stopped and only has to report it.
    """

    def __init__(self) -> None:
        self.soon: Callable[[], None] | None = None
        self.begun = False
        self.done = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.done:
            return
        if self.soon is None:
            raise Stopped
        soon, self.soon = self.soon, None
        soon()


@contextmanager
def stopping() -> Iterator[Stopper]:
    """Inside the block a signal raises Stopped, or requests a stop; a second one always raises.

    A signal that the parent process ignores stays ignored.
    """
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():
        yield stopper
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stopper)
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(thread_id: str, database: Database, options: Given, plan: Plan, display: Display) -> CommandReport:
    """Runs the thread until it ends, waits for a person, or is stopped; returns the report.

    Raises SetupError, StorageError, ThreadError or ThreadBusy before anything has run.
    """
    with stopping() as stopper:
        try:
            with database.open() as storage:
                return _Launch(thread_id, database, storage, options, display, stopper).run(plan)
        except KeyboardInterrupt:
            stopper.done = True
            return _stopped(thread_id, database, stopper.begun)


def _stopped(thread_id: str, database: Database, begun: bool) -> CommandReport:
    """Returns the report of a stopped run, with the command that continues it."""
    with database.open() as storage:
        found = look(reading_graph(storage), thread_id)
    if found.wait():
        return report.of_waits(found.waits, thread_id, database)[0]
    if found.outcome is not None:
        ended = report.of_outcome(found.outcome.model_dump(mode="json"), thread_id, database)
        # Not started: the same command must still be repeated.
        return ended if begun else replace(report.of_stop(None, database), resume=ended.resume)
    return report.of_stop(None if found.condition is Condition.UNKNOWN else thread_id, database)


@dataclass
class _Launch:
    thread_id: str
    database: Database
    storage: OpenStorage
    options: Given
    display: Display
    stopper: Stopper

    def run(self, plan: Plan) -> CommandReport:
        if self.storage.checkpointer.is_running(self.thread_id):
            raise busy(self.thread_id)
        if self.database.graph is not None:
            return self._run_graph(self.database.graph, plan)
        thread_status = look(reading_graph(self.storage), self.thread_id)
        check_tools(self.storage, thread_status)
        begin = plan(thread_status)
        settings = settle(self.options, recall(self.storage.store, self.thread_id), os.environ)
        waiting = thread_status.wait()
        if self.options.approve is not None and waits_for(waiting) == "approval":
            raise ThreadError("Calls wait for approval: decide on them first, then change --approve.")
        move = begin.move
        with working_tools(settings, self.display.output) as tools:
            checked = for_waiting(tools, thread_status.wait())
            if begin.waiting:
                answer = self.display.ask(begin.waiting)
                if answer is None:
                    return self._waiting(begin.waiting, thread_status)
                move = Answer(answer, begin.waiting.interrupt_id)
            return self._with(*checked, settings, thread_status, move, begin.note)

    def _run_graph(self, named: str, plan: Plan) -> CommandReport:
        """Runs the graph of a program, which has everything that settings say."""
        if recall(self.storage.store, self.thread_id) is not None:
            raise SetupError(
                f"Thread {self.thread_id!r} was begun with the tools of the command line; leave out --graph."
            )
        saved = {"checkpointer": self.storage.checkpointer, "store": self.storage.store}
        graph = load_graph(named).copy(saved)
        thread_status = look(graph, self.thread_id)
        begin = plan(thread_status)
        move = begin.move
        if begin.waiting:
            answer = self.display.ask(begin.waiting)
            if answer is None:
                return self._waiting(begin.waiting, thread_status)
            move = Answer(answer, begin.waiting.interrupt_id)
        return self._until_needed(graph, move, begin.note, None)

    def _with(
        self,
        tools: list[BaseTool],
        handed_over: list[str],
        settings: Settings,
        thread_status: ThreadStatus,
        move: ThreadCommand,
        note: str,
    ) -> CommandReport:
        policy = policy_of(settings, tools, thread_status.wait())
        check_model(settings.model, settings.base_url, os.environ)
        with self.display.loading() as on_progress:
            chosen = choose_model(settings.model, settings.base_url, os.environ, on_progress)
        with chosen.resource:
            graph = graph_of(settings, chosen, tools, self.storage, policy, handed_over)
            remember(self.storage.store, self.thread_id, settings)
            return self._until_needed(graph, move, note, settings)

    def _until_needed(
        self, graph: Graph, move: ThreadCommand, note: str, settings: Settings | None
    ) -> CommandReport:
        streamed = Streamed(self.display.show)
        session = Session(graph, self.thread_id, config={"callbacks": [streamed, *tracing(graph)]})
        self.display.begin(self.thread_id, settings, note)
        try:
            return self._until_done(session, move, streamed)
        except StorageError as error:
            how = report.command("resume", self.thread_id, self.database)
            return CommandReport(self.thread_id, "error", Exit.ERROR, resume=how, error=str(error))

    def _until_done(self, session: Session, move: ThreadCommand, streamed: Streamed) -> CommandReport:
        while True:
            decision = self._drive(session, move, streamed)
            if isinstance(decision, Ended):
                outcome = decision.outcome.model_dump()
                return report.of_outcome(outcome, self.thread_id, self.database)
            if isinstance(decision, Paused):
                return report.of_stop(self.thread_id, self.database)
            if isinstance(decision, Message):
                move = None
                continue
            answer = self.display.ask(decision)
            if answer is None:
                return self._waiting(decision, session.status())
            move = Answer(answer, decision.interrupt_id)

    def _waiting(self, waiting: Waiting, thread_status: ThreadStatus) -> CommandReport:
        beside = len(thread_status.waits) > 1
        return report.of_waiting(waiting, self.thread_id, self.database, beside=beside)

    def _drive(self, session: Session, move: ThreadCommand, streamed: Streamed) -> Decision:
        """Runs to the next decision. A signal pauses at the next step, a second one stops at once."""

        def soon() -> None:
            if not session.pause("signal"):
                # The run has not begun yet, or is over.
                raise Stopped
            self.display.note("Stopping after this step; Ctrl-C again stops at once.")

        self.stopper.soon = soon
        try:
            with self.display.running(streamed):
                # Tools and models run in this thread, where the second signal ends them.
                for event in session.events(move, tokens=False):
                    self.stopper.begun = True
                    streamed.note_event(event)
                    if not isinstance(event, Wrote):
                        # The person who wrote it has just seen it.
                        self.display.show(event)
        finally:
            self.stopper.soon = None
        assert isinstance(event, Decided), "the last event of a session is its decision"
        return event.decision
