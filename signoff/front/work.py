"""Drives one thread, without a screen. Its methods block."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from langchain_core.tools import BaseTool, ToolException

from signoff import Action, Answer, Decision, Graph, Message, Session, ThreadStatus, TooLate
from signoff.events import Decided, Entered, SessionEvent
from signoff.front.choices import SHELL
from signoff.front.database import OpenStorage
from signoff.front.programs import check_tools
from signoff.front.settings import Given, Settings, recall, remember, settle
from signoff.front.working import for_waiting, graph_of, policy_of, working_tools
from signoff.graph.compiled.holds import busy
from signoff.models.choose import Chosen, check_model, choose_model
from signoff.session import Choose, ThreadCommand
from signoff.session.status import look, reading_graph
from signoff.session.tracing import tracing
from signoff.text import quote_id
from signoff.tools import ShellResult, Workspace
from signoff.tools.terminal import RunShell, observed

RunCommand = Callable[[Settings, str, float], ShellResult]


@dataclass(frozen=True)
class Loading:
    """The embedded model is loading; `done` of `total`, which is 0 when unknown."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Ready:
    """The model is ready, and the thread is about to run."""


News = SessionEvent | Loading | Ready


@dataclass
class Models:
    """The models of this program, each made ready once, whichever threads ask for it; `close` ends the
    servers that were started."""

    _made: dict[tuple[str, str | None], Chosen] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    def get(self, settings: Settings, tell: Callable[[News], None]) -> Chosen:
        """Returns the model. Raises SetupError when it is not available."""
        key = settings.model, settings.base_url
        with self._making:
            if key not in self._made:
                check_model(*key, os.environ)
                chosen = choose_model(*key, os.environ, lambda *how: tell(Loading(*how)))
                _enter(chosen.resource)
                self._made[key] = chosen
            return self._made[key]

    def close(self) -> None:
        while self._made:
            self._made.popitem()[1].resource.__exit__(None, None, None)


def _enter(resource: AbstractContextManager[object]) -> None:
    resource.__enter__()


@dataclass
class Work:
    """Drives one run of a thread by its session; the next run is another one's work.

    tell: called with events, in the worker's thread. run_command: runs a command where a person sees it; None
    where the shell is a tool like any other. own: a graph of the user's own, with the storage, in place of
    the one that the settings make. more_tools: beside those of the settings.
    """

    storage: OpenStorage
    thread_id: str
    given: Given
    models: Models
    tell: Callable[[News], None]
    run_command: RunCommand | None = None
    own: Graph | None = None
    more_tools: Sequence[BaseTool] = ()
    _session: Session | None = None
    _asked: str = ""

    def settings(self) -> Settings:
        """Returns the settings of the thread. Raises SetupError for options that do not fit together."""
        return settle(self.given, recall(self.storage.store, self.thread_id), os.environ)

    def go(self, command: ThreadCommand) -> Decision:
        """Runs until a person is needed or the task has ended.

        Raises ThreadBusy, ThreadError, SetupError or StorageError; nothing is lost in any of these cases.
        """
        if self.storage.checkpointer.is_running(self.thread_id):
            raise busy(self.thread_id)
        if self.own is not None:
            return self._drive_graph(self.own, command, None)
        status, settings = look(reading_graph(self.storage), self.thread_id), self.settings()
        check_tools(self.storage, status)
        chosen = self.models.get(settings, self.tell)
        with working_tools(settings, lambda _: None) as working:
            found = [*working, *self.more_tools]
            policy = policy_of(settings, found, status.wait())
            tools, handed_over = for_waiting(found, status.wait())
            shell = [SHELL] if self.run_command and any(tool.name == SHELL for tool in tools) else []
            graph = graph_of(settings, chosen, tools, self.storage, policy, [*handed_over, *shell])
            remember(self.storage.store, self.thread_id, settings)
            return self._drive_graph(graph, command, settings)

    def _drive_graph(self, graph: Graph, command: ThreadCommand, settings: Settings | None) -> Decision:
        traced = tracing(graph)
        self._session = Session(graph, self.thread_id, config={"callbacks": traced} if traced else None)
        try:
            if settings is not None:
                self.tell(Ready())
            return self._until_needed(command, settings)
        finally:
            self._session = None

    def _until_needed(self, command: ThreadCommand, settings: Settings | None) -> Decision:
        while True:
            decision = self._drive(command)
            match decision:
                case Message():
                    command = None
                case Action(tool="run_shell", unknown=False) if self.run_command and settings:
                    command = Answer(self.act(decision, settings), decision.interrupt_id)
                case _:
                    return decision

    def _drive(self, command: ThreadCommand) -> Decision:
        assert self._session is not None, "`go` has made it"
        for event in self._session.events(command, delegates=False):
            # A request made while a command ran takes effect at the first state after it.
            if isinstance(event, Entered) and self._asked:
                asked, self._asked = self._asked, ""
                self._session.pause(asked)
            self.tell(event)
        assert isinstance(event, Decided), "the last event of a session is its decision"
        return event.decision

    def again(self, action: Action) -> Decision:
        """Runs an action whose outcome is unknown once more, then goes on.

        It runs when the thread is held, so that of two who ask for it at once only one runs it.
        """

        def run(status: ThreadStatus) -> Answer:
            if (waiting := status.wait()) is None or waiting.interrupt_id != action.interrupt_id:
                raise TooLate(
                    f"Thread {quote_id(status.thread_id)} no longer waits for this action. Nothing was run."
                )
            return Answer(self.act(action, self.settings()), action.interrupt_id)

        return self.go(Choose(run))

    def act(self, action: Action, settings: Settings) -> object:
        """Runs the command of a terminal action where a person sees it; returns the result for the model."""
        assert self.run_command is not None, "the shell is handed over only to one"
        try:
            asked = RunShell.model_validate(dict(action.args))
            result = self.run_command(settings, asked.command, asked.timeout)
        except (ToolException, ValueError) as error:
            return {"output": str(error), "status": "error"}
        output = observed(result, asked.timeout, Workspace(settings.workspace))
        return {"output": output, "seconds": result.seconds}

    def ask(self, word: str) -> None:
        """Asks the run to pause (`pause`) or to end the task (`stop`) at the next state, also before it has
        begun."""
        session = self._session
        if session is None or not session.pause(word):
            self._asked = word
