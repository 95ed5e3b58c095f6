"""Opens one thread at a time, drives it in a worker, and watches it while another process runs it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from textual import message
from textual.worker import Worker, WorkerState

from signoff.front.cards import Card
from signoff.front.choices import SHELL
from signoff.front.database import Database, OpenStorage
from signoff.front.report import MORE_TURNS
from signoff.front.settings import Given, Settings
from signoff.front.text import plain
from signoff.front.thread_ids import new_thread_id
from signoff.front.work import Models, News, Story, Work, read_story
from signoff.graph.errors import SignoffError, ThreadBusy
from signoff.session.commands import Answer, Extend, Retry, Stop, ThreadCommand, request_pause
from signoff.session.decisions import Action, Decision, Failed, Finished, Message, Paused
from signoff.session.events import Wrote
from signoff.session.status import Condition
from signoff.tools.pty.shell import ShellResult
from signoff.ui.asking import Asking
from signoff.ui.board import Board, status_word

_WATCH_SECONDS = 1.0


class Desk(Board):
    """The board of a thread that can be run. One worker at a time drives its session."""

    def __init__(self, database: Database, storage: OpenStorage, given: Given, thread_id: str | None) -> None:
        super().__init__(database)
        self.storage, self.given = storage, given
        self.models = Models()
        self.thread_id = thread_id or new_thread_id(storage.threads())
        self.story: Story | None = None
        self.driving = False
        self.work = self._work()

    async def on_mount(self) -> None:
        self.set_interval(_WATCH_SECONDS, self._watch)
        await self.open(self.thread_id)

    def _work(self) -> Work:
        return Work(self.storage, self.thread_id, self.given, self.models, self._tell, self._run_command)

    async def open(self, thread_id: str) -> None:
        """Shows this thread as it is saved, without running it. An empty id begins a new one."""
        self.thread_id = thread_id or new_thread_id(self.storage.threads())
        self.work = self._work()
        try:
            settings, self.story = self.work.settings(), read_story(self.storage, self.thread_id)
        except SignoffError as error:
            self._refused(error)
            return
        await self.show(self.story, settings, self.thread_id)
        self._stand(self.story)

    def _stand(self, story: Story) -> None:
        """Shows what a person can do with the thread as it is saved."""
        self.prompt.focus()
        waiting = story.status.waiting
        if story.running:
            return
        if waiting and not (isinstance(waiting, Action) and waiting.tool == SHELL):
            self.ask(waiting)
        elif outcome := story.status.outcome:
            self._say_how(outcome["status"])
        elif story.status.condition in (Condition.STOPPED, Condition.WAITING):
            self.remark("It was stopped in the middle. F5 continues it; a new task replaces it.")

    @property
    def watching(self) -> bool:
        """Whether another process runs the thread."""
        return bool(self.story and self.story.running and not self.driving)

    def _watch(self) -> None:
        if not self.watching or self.story is None:
            return
        before, self.story = self.story, read_story(self.storage, self.thread_id)
        self.catch_up(self.story, len(before.events))
        if not self.story.running:
            self._stand(self.story)

    def typed(self, text: str) -> None:
        """Takes what was sent from the prompt: an answer or a task. Raises ThreadError if it is not valid."""
        if self.asking.waiting:
            self.asking.typed(text)
        else:
            self.conversation.add(Wrote(text))
            self.drive(text)

    def pause(self) -> None:
        """Pauses at the next state, or continues."""
        if self.driving:
            self.work.ask("pause")
            self.status.tell("pausing after this step", "bold yellow")
        elif self.watching:
            request_pause(self.storage.store, self.thread_id)
            self.remark("Asked the process that runs it to pause.")
        elif self.asking.waiting:
            self.notify("It waits for you.", severity="warning")
        elif self.story and self.story.status.condition in (Condition.STOPPED, Condition.WAITING):
            self.drive(None)
        else:
            self.notify("There is nothing to continue; send a task.", severity="warning")

    def stop(self) -> None:
        """Ends the task as cancelled; interrupts a running command."""
        if self.driving:
            self.work.ask("stop")
            self.status.tell("stopping", "bold yellow")
            if self.pane and self.pane.running:
                self.pane.interrupt()
        elif self.story and self.story.status.condition in (Condition.STOPPED, Condition.WAITING):
            self.drive(Stop())
        else:
            self.notify("There is no task to stop.", severity="warning")

    def more(self) -> None:
        """Gives more turns after a limit; tries again after an error."""
        outcome = (self.story and self.story.status.outcome) or {}
        moves: dict[str, ThreadCommand] = {"limit": Extend(MORE_TURNS), "error": Retry()}
        if self.driving or outcome.get("status") not in moves:
            self.notify(
                "More turns are for a task that ended at a limit or with an error.", severity="warning"
            )
        else:
            self.drive(moves[outcome["status"]])

    def drive(self, command: ThreadCommand) -> None:
        """Runs the thread until a person is needed or the task has ended."""
        self._begin(lambda work: work.go(command))

    def on_asking_answered(self, event: Asking.Answered) -> None:
        self.drive(Answer(event.value, event.waiting.interrupt_id))

    def on_asking_again(self, event: Asking.Again) -> None:
        self._begin(lambda work: work.again(event.action))

    def _begin(self, goes: Callable[[Work], Decision]) -> None:
        if self.driving or self.watching:
            self.notify("It is running. F5 pauses it.", severity="warning")
            return
        self.driving, self.work = True, self._work()
        self.ask(None)
        self.status.begin(self.status.facts.seconds)
        self.run_worker(partial(goes, self.work), thread=True, name="drive", exit_on_error=False)

    def _tell(self, news: News) -> None:
        self.app.call_from_thread(self.happened, news)

    def _run_command(self, settings: Settings, command: str, timeout: float) -> ShellResult:
        assert self.pane is not None, "a thread that runs was opened"
        # A small screen shows the terminal only while it is used.
        self.app.call_from_thread(self.add_class, "-busy")
        try:
            return self.pane.run(command, timeout)
        finally:
            self.app.call_from_thread(self.remove_class, "-busy")

    class Rested(message.Message):
        """The thread no longer runs."""

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.worker.name != "drive" or event.state not in (WorkerState.SUCCESS, WorkerState.ERROR):
            return
        self.driving = False
        self.story = read_story(self.storage, self.thread_id)
        error = event.worker.error
        if isinstance(error, ThreadBusy):
            self.catch_up(self.story, len(self.story.events))
        elif error is not None:
            self._refused(error)
        else:
            decision: Any = event.worker.result
            self._decided(decision, self.story)
        self.post_message(self.Rested())

    def _say_how(self, status: str) -> None:
        """Shows how to continue a task that ended without success."""
        if way := {"limit": f"F4 gives it {MORE_TURNS} more turns.", "error": "F4 tries it again."}.get(
            status
        ):
            self.remark(way)

    def _refused(self, error: BaseException) -> None:
        message = str(error) if isinstance(error, SignoffError) else f"{type(error).__name__}: {error}"
        self.conversation.say(Card("It cannot continue", "red", plain(message)))
        self.status.end("error", "bold red")

    def _decided(self, decision: Decision, story: Story) -> None:
        self.catch_up(story, len(story.events))
        match decision:
            case Finished(outcome=outcome) | Failed(outcome=outcome):
                self.status.end(*status_word(story))
                self._say_how(outcome.status)
            case Paused():
                self.status.end("paused", "bold yellow")
                self.remark("Paused; everything is saved. F5 continues.")
            case Message():
                raise AssertionError("a message does not end a run")
            case waiting:
                self.app.bell()
                self.ask(waiting)
