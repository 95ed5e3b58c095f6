"""The driver of a thread: runs it, steps through it, pauses it, and resumes it by its id.

`pause_on_signals` is for a program that drives a session: at the first SIGTERM or Ctrl-C it pauses.
"""

import asyncio
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.build import Graph
from signoff.graph.compiled.going_on import go_on, stop, undo
from signoff.graph.compiled.graph import is_running, storage_errors
from signoff.graph.compiled.inputs import check_config, check_context
from signoff.graph.errors import SetupError
from signoff.graph.foreign import checked_thread_id
from signoff.graph.outcome import ResultT
from signoff.nodes.requests import acarry_out, carry_out
from signoff.session.commands import Answer, OnPending, ThreadCommand, request_pause
from signoff.session.decisions import Decision
from signoff.session.drive import SIGNAL, DrivenThread, PauseRequest, Wanted, aevents_of, events_of
from signoff.session.events import Decided, SessionEvent
from signoff.session.forking import fork
from signoff.session.history import Turn, chapters
from signoff.session.path import steps
from signoff.session.status import ThreadStatus, config_of, deps_of, readable

_ON_PENDING = ("answer", "supersede", "refuse")


class Session(Generic[ResultT]):
    """Drives one thread of a graph, in this process.

    graph: a graph from `build_graph`, with a checkpointer or storage. thread_id: any text. context: as
    described by the graph's context schema; it is not stored, so pass it again in another process.
    on_pending: how to treat a new task while the thread waits. `answer`: it is the answer, the reason of a
    rejection, or the feedback, as for `graph.invoke`; `supersede`: it ends the open task and begins the next;
    `refuse`: ThreadError. config: callbacks, tags and the like for every run.

    Every method that runs the thread holds it meanwhile (ThreadBusy for a second runner, even in another
    process) and saves every step. It raises ThreadError for a command that is impossible in the thread's
    status, and StorageError if the database fails; in both cases nothing is lost. A failing model, a limit or
    a stop is a decision, never an exception.

    A command is a task's text, messages, an `Answer`, `go_on()`, `undo()`, `stop()` or LangGraph's
    `Command(resume=…)`. Without one the thread goes on where work was left, and else says where it stands: it
    grants no limit and tries nothing again.
    """

    def __init__(
        self,
        graph: Graph[ResultT],
        thread_id: str,
        *,
        context: Any = None,
        on_pending: OnPending = "answer",
        config: RunnableConfig | None = None,
    ) -> None:
        deps = deps_of(graph)
        if not isinstance(graph.checkpointer, BaseCheckpointSaver):
            raise SetupError(
                "A session needs a checkpointer to pause and resume with; build the graph with storage=."
            )
        checked_thread_id(thread_id)
        if on_pending not in _ON_PENDING:
            raise SetupError(f"on_pending is {on_pending!r}; use one of: {', '.join(_ON_PENDING)}.")
        check_context(context, graph.context_schema)
        check_config(config)
        self.graph = graph
        self.thread_id = thread_id
        self._saver: BaseCheckpointSaver[Any] = graph.checkpointer
        self._given = config
        self._thread = DrivenThread(
            graph,
            deps,
            thread_id,
            merge_configs(config, config_of(thread_id)),
            context,
            on_pending,
            PauseRequest(),
        )

    def run(self, command: ThreadCommand = None) -> Decision[ResultT]:
        """Runs until the task ends or a person is needed. Text of the model in between does not stop it.

        `run("the task")` starts a task, `run()` continues after a pause or a kill.
        """
        return _last(self._events(command, Wanted()))

    def step(self, command: ThreadCommand = None) -> Decision[ResultT]:
        """Runs to the next decision: text of the model, an action or a question, or the end.

        Answer one with `step(Answer(value))`.
        """
        return _last(self._events(command, Wanted(by_step=True)))

    def resume(
        self, answer: Any, interrupt_id: str | None = None, by: str | None = None
    ) -> Decision[ResultT]:
        """Answers what the thread waits for, and continues. by: who answers; it is stored with the answer.

        The answer is checked against what was asked before anything is delivered. Raises ThreadError, and
        changes nothing, if it is invalid, or if nothing waits (it was already answered).
        """
        return self.run(Answer(answer, interrupt_id, by))

    def go_on(self, turns: int | None = None, id: str | None = None) -> Decision[ResultT]:
        """Goes on, whatever stopped the thread. After a limit with `turns` more turns, by default as many as
        the run's limit; after an error or a stop it tries again. A thread that waits or has ended in success
        only says so. The same `id` goes on once."""
        return self.run(go_on(turns, id))

    def undo(self, *, ask: bool = False) -> Decision[ResultT]:
        """Undoes the effects of a task that has ended, newest first; the outcome lists them (`outcome.undo`).

        A person must approve an undo that the approval policy names; with `ask`, every undo. Raises
        ThreadError if the task has not ended.
        """
        return self.run(undo(ask))

    def events(
        self,
        command: ThreadCommand = None,
        *,
        by_step: bool = False,
        tokens: bool = True,
        delegates: bool = True,
    ) -> Iterator[SessionEvent]:
        """Runs the thread and yields its events as they happen; the last one is `Decided`.

        tokens: also yield partial results: every chunk of a reply as it arrives, what a tool writes while it
        runs, and every wait for a provider (`Retrying`) as it begins. LangGraph then runs the nodes in other
        threads, which Ctrl-C does not reach. Without it they run in this thread, and `Said.retries` reports
        waits afterwards; a callback's `on_custom_event` gets them at once in any case. delegates: with
        `tokens`, also yield what happens in delegates, each event with its `path`. Leaving the iteration
        stops the run immediately; what was saved stays.
        """
        return self._events(command, Wanted(by_step, True, tokens, tokens and delegates))

    def status(self) -> ThreadStatus[ResultT]:
        """Where the thread stands: whether it runs, what it waits for, how it ended, or that work is left."""
        with storage_errors():
            return carry_out(self._thread.status(), self.graph)

    def history(self) -> list[Turn]:
        """Every turn of the thread: messages, calls, and the rule that applied with its reason."""
        values = self.status().values
        path = steps(self._saver, self.thread_id)
        with readable(self.thread_id):
            history = chapters(values, self._thread.deps.toolbox, path)
        return [turn for chapter in history for turn in chapter.turns]

    def fork(self, at: int | str | None = None, thread_id: str | None = None) -> "Session[ResultT]":
        """A session on a copy of the thread, as it was after `at` turns of its current task, at the
        checkpoint with this id, or as it is. The thread itself stays as it is.

        thread_id: the id of the copy; derived from this one's by default. Raises ThreadError if there is no
        such point, or if the copy's id is taken.
        """
        target = f"{self.thread_id}-fork-{uuid.uuid4().hex[:8]}" if thread_id is None else thread_id
        forked = Session(
            self.graph,
            target,
            context=self._thread.context,
            on_pending=self._thread.on_pending,
            config=self._given,
        )
        fork(self.graph, self.thread_id, at, target)
        return forked

    def pause(self, by: str = "pause") -> bool:
        """Asks the run of the thread, wherever it is, to stop at the next step boundary.

        For a run of this session (from another thread or a signal handler) the running method then returns
        `Paused(by)`; a run of another session or process is asked through the storage, and returns
        `Paused("request")`; one by `graph.invoke` or `stream` returns what there is. Returns False if nothing
        runs the thread.
        """
        if self._thread.asked.ask(by):
            return True
        # A signal came to this process, and means its own run.
        return by != SIGNAL and self._ask_elsewhere("stop" if by == "stop" else "request")

    def stop(self) -> Decision[ResultT] | None:
        """Ends the task as an error with the reason `cancelled`; open calls are answered as not run.

        If the thread is running, here in another thread or elsewhere, that run returns the end, and this
        method returns None at once. Raises ThreadError if the task has ended.
        """
        return None if self._asked_to_stop() else self.run(stop())

    def _asked_to_stop(self) -> bool:
        """Whether a run of the thread was asked to end its task."""
        return self._thread.asked.ask("stop") or self._ask_elsewhere("stop")

    def _ask_elsewhere(self, by: str) -> bool:
        """Whether another session or process runs the thread; then it is asked."""
        if self.graph.store is None or not is_running(self._saver, self.thread_id):
            return False
        request_pause(self.graph.store, self.thread_id, by)
        return True

    async def arun(self, command: ThreadCommand = None) -> Decision[ResultT]:
        """`run` for an event loop."""
        return await _alast(self._aevents(command, Wanted()))

    async def astep(self, command: ThreadCommand = None) -> Decision[ResultT]:
        """`step` for an event loop."""
        return await _alast(self._aevents(command, Wanted(by_step=True)))

    async def aresume(
        self, answer: Any, interrupt_id: str | None = None, by: str | None = None
    ) -> Decision[ResultT]:
        """`resume` for an event loop."""
        return await self.arun(Answer(answer, interrupt_id, by))

    async def ago_on(self, turns: int | None = None, id: str | None = None) -> Decision[ResultT]:
        """`go_on` for an event loop."""
        return await self.arun(go_on(turns, id))

    async def aundo(self, *, ask: bool = False) -> Decision[ResultT]:
        """`undo` for an event loop."""
        return await self.arun(undo(ask))

    def aevents(
        self,
        command: ThreadCommand = None,
        *,
        by_step: bool = False,
        tokens: bool = True,
        delegates: bool = True,
    ) -> AsyncIterator[SessionEvent]:
        """`events` for an event loop. `tokens` starts no threads here; waits are always reported."""
        return self._aevents(command, Wanted(by_step, True, tokens, tokens and delegates))

    async def astatus(self) -> ThreadStatus[ResultT]:
        """`status` for an event loop."""
        with storage_errors():
            return await acarry_out(self._thread.status(), self.graph)

    async def ahistory(self) -> list[Turn]:
        """`history` for an event loop."""
        return await asyncio.to_thread(self.history)

    async def afork(self, at: int | str | None = None, thread_id: str | None = None) -> "Session[ResultT]":
        """`fork` for an event loop."""
        return await asyncio.to_thread(self.fork, at, thread_id)

    async def astop(self) -> Decision[ResultT] | None:
        """`stop` for an event loop."""
        asked = await asyncio.to_thread(self._asked_to_stop)
        return None if asked else await self.arun(stop())

    async def apause(self, by: str = "pause") -> bool:
        """`pause` for an event loop."""
        return await asyncio.to_thread(self.pause, by)

    def _events(self, command: ThreadCommand, wanted: Wanted) -> Iterator[SessionEvent]:
        return events_of(self._thread, command, wanted)

    def _aevents(self, command: ThreadCommand, wanted: Wanted) -> AsyncIterator[SessionEvent]:
        return aevents_of(self._thread, command, wanted)


def _last(events: Iterator[SessionEvent]) -> Decision[Any]:
    found = [event for event in events if isinstance(event, Decided)]
    return found[-1].decision


async def _alast(events: AsyncIterator[SessionEvent]) -> Decision[Any]:
    found = [event async for event in events if isinstance(event, Decided)]
    return found[-1].decision


@contextmanager
def pause_on_signals(session: Session) -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM pause the session's run at the next step boundary.

    Its method then returns `Paused("signal")`. A second signal, or one while nothing runs, raises
    KeyboardInterrupt. A signal that the parent process ignores stays ignored. Raises SetupError outside the
    main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SetupError("pause_on_signals works in the main thread only; call session.pause() elsewhere.")
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not session.pause(SIGNAL):
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
