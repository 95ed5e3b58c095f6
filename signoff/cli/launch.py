"""Runs a thread for the command line: from the options to the report."""

import os
from dataclasses import dataclass, replace

from langchain_core.tools import BaseTool

from signoff.cli import report
from signoff.cli.database import Database, OpenStorage
from signoff.cli.display import Display
from signoff.cli.plans import Plan
from signoff.cli.report import Exit, Report
from signoff.cli.settings import Given, Settings, recall, remember, settle
from signoff.cli.signals import Stopped, Stopper, stopping
from signoff.cli.streamed import Streamed
from signoff.cli.working import for_waiting, graph_of, policy_of, working_tools
from signoff.graph.compiled.graph import busy
from signoff.graph.errors import StorageError, ThreadError
from signoff.models.choose import check_model, choose_model
from signoff.session.decisions import Approval, Decision, Failed, Finished, Message, Paused
from signoff.session.events import Decided, Wrote
from signoff.session.moves import Answer, Move
from signoff.session.session import Session
from signoff.session.standing import Condition, Standing, look, reading_graph


def launch(thread_id: str, database: Database, options: Given, plan: Plan, display: Display) -> Report:
    """Runs the thread until it ends, waits for a person, or is stopped; says which.

    Raises SetupError, StorageError, ThreadError or ThreadBusy before anything has run.
    """
    with stopping() as stopper:
        try:
            with database.open() as storage:
                return _Launch(thread_id, database, storage, options, display, stopper).run(plan)
        except KeyboardInterrupt:
            stopper.done = True
            return _stopped(thread_id, database, stopper.begun)


def _stopped(thread_id: str, database: Database, begun: bool) -> Report:
    """What is saved of a run that was stopped, and how it goes on."""
    with database.open() as storage:
        found = look(reading_graph(storage), thread_id)
    if found.waiting:
        return report.of_waiting(found.waiting, thread_id, database)
    if found.outcome is not None:
        ended = report.of_outcome(found.outcome, thread_id, database)
        # Not begun: what was to come after that end is still to do, by the same command.
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

    def run(self, plan: Plan) -> Report:
        if self.storage.checkpointer.is_running(self.thread_id):
            raise busy(self.thread_id)
        standing = look(reading_graph(self.storage), self.thread_id)
        begin = plan(standing)
        settings = settle(self.options, recall(self.storage.store, self.thread_id), os.environ)
        if self.options.approve is not None and isinstance(standing.waiting, Approval):
            raise ThreadError("Calls wait for approval: decide on them first, then change --approve.")
        move = begin.move
        with working_tools(settings, self.display.output) as tools:
            checked = for_waiting(tools, standing.waiting)
            if begin.waiting:
                answer = self.display.ask(begin.waiting)
                if answer is None:
                    return report.of_waiting(begin.waiting, self.thread_id, self.database)
                move = Answer(answer, begin.waiting.interrupt_id)
            return self._with(*checked, settings, standing, move, begin.note)

    def _with(
        self,
        tools: list[BaseTool],
        handed_over: list[str],
        settings: Settings,
        standing: Standing,
        move: Move,
        note: str,
    ) -> Report:
        policy = policy_of(settings, self.options, tools, standing.waiting)
        check_model(settings.model, settings.base_url, os.environ)
        with self.display.loading() as on_progress:
            chosen = choose_model(settings.model, settings.base_url, os.environ, on_progress)
        with chosen.resource:
            graph = graph_of(settings, chosen, tools, self.storage, policy, handed_over)
            streamed = Streamed()
            session = Session(graph, self.thread_id, config={"callbacks": [streamed]})
            remember(self.storage.store, self.thread_id, settings)
            self.display.begin(self.thread_id, settings, note)
            try:
                return self._until_done(session, move, streamed)
            except StorageError as error:
                how = report.command("resume", self.thread_id, self.database)
                return Report(self.thread_id, "error", Exit.ERROR, resume=how, error=str(error))

    def _until_done(self, session: Session, move: Move, streamed: Streamed) -> Report:
        while True:
            decision = self._drive(session, move, streamed)
            if isinstance(decision, Finished | Failed):
                outcome = decision.outcome.model_dump()
                return report.of_outcome(outcome, self.thread_id, self.database)
            if isinstance(decision, Paused):
                return report.of_stop(self.thread_id, self.database)
            if isinstance(decision, Message):
                move = None
                continue
            answer = self.display.ask(decision)
            if answer is None:
                return report.of_waiting(decision, self.thread_id, self.database)
            move = Answer(answer, decision.interrupt_id)

    def _drive(self, session: Session, move: Move, streamed: Streamed) -> Decision:
        """Runs to the next decision. A signal pauses at the next step boundary, a second one at once."""

        def soon() -> None:
            if not session.pause("signal"):
                # It has not begun yet, or is over.
                raise Stopped
            self.display.note("Stopping after this step; Ctrl-C again stops at once.")

        self.stopper.soon = soon
        try:
            with self.display.running(streamed):
                for event in session.events(move):
                    self.stopper.begun = True
                    streamed.seen(event)
                    if not isinstance(event, Wrote):
                        # Whoever wrote it has just seen it.
                        self.display.show(event)
        finally:
            self.stopper.soon = None
        assert isinstance(event, Decided), "the last event of a session is its decision"
        return event.decision
