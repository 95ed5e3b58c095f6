"""Drives threads from an event loop, for programs at the end of a protocol."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

from langchain_core.tools import BaseTool

from signoff.front.answering import make_too_late_error
from signoff.front.database import OpenStorage
from signoff.front.settings import Given
from signoff.front.work import Models, News, Work
from signoff.graph.build import Graph
from signoff.graph.compiled.graph import busy
from signoff.graph.errors import ThreadBusy
from signoff.session.commands import ThreadCommand
from signoff.session.decisions import Decision
from signoff.session.status import ThreadStatus, look, reading_graph
from signoff.tools.processes.held import OpenResources

MOST_WAITING = 10_000
"""Events that wait for a client that does not read; then the run pauses."""
_END_SECONDS = 4.0
_LOOK_SECONDS = 0.02

Hear = Callable[[News], Awaitable[None]]


class Driver:
    """Drives one thread, a run at a time, each in a thread of this process: the loop is never held up.

    own: a graph of the user's own, in place of the one that the settings make. tools: beside its own ones.
    """

    def __init__(
        self,
        storage: OpenStorage,
        thread_id: str,
        given: Given,
        models: Models,
        own: Graph | None = None,
        tools: Sequence[BaseTool] = (),
    ) -> None:
        self.storage, self.thread_id, self.given = storage, thread_id, given
        self._models, self._own, self._tools = models, own, tools
        # What they hold open serves all runs: each has a graph of its own, with which it would end.
        self._resources = OpenResources(tools)
        self._work: Work | None = None
        self._ended: asyncio.Future[Decision] | None = None

    @property
    def running(self) -> bool:
        return self._ended is not None and not self._ended.done()

    async def status(self) -> ThreadStatus:
        """The thread as it is saved."""
        return await asyncio.to_thread(lambda: look(reading_graph(self.storage), self.thread_id))

    async def stand(self) -> tuple[bool, ThreadStatus]:
        """Whether another process runs the thread, and the thread as it is saved."""
        # Asked first: otherwise a run that ends in between would look as if it had been stopped.
        elsewhere = await asyncio.to_thread(self.storage.checkpointer.is_running, self.thread_id)
        status = await self.status()
        return elsewhere and not self.running, status

    async def run(
        self,
        command: ThreadCommand,
        hear: Hear,
        *,
        answers: bool = False,
        at_once: Callable[[News], None] | None = None,
    ) -> Decision:
        """Runs until a person is needed or the task has ended; `hear` is awaited for each event, in order.

        at_once: called with each event in the thread of the run, which waits for it. answers: the command is
        an answer, which came too late (TooLate) where the thread runs already. A caller that is cancelled,
        and one that hears nothing any more, pauses the run. Raises what `Work.go` raises.
        """
        if self.running:
            raise make_too_late_error() if answers else busy(self.thread_id)
        news: asyncio.Queue[News | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()

        def tell(event: News) -> None:
            if at_once:
                at_once(event)
            if news.qsize() > MOST_WAITING:
                work.ask("pause")
            _call_in_loop(loop, news.put_nowait, event)

        def go() -> None:
            try:
                found: Decision | BaseException = work.go(command)
            except BaseException as error:  # noqa: BLE001  it is raised below
                found = error
            _call_in_loop(loop, _settle, ended, found)
            _call_in_loop(loop, news.put_nowait, None)

        self._work = work = Work(
            self.storage, self.thread_id, self.given, self._models, tell, None, self._own, self._tools
        )
        threading.Thread(target=go, name="signoff-run", daemon=True).start()
        try:
            while (event := await news.get()) is not None:
                await hear(event)
        except BaseException:
            work.ask("pause")
            raise
        try:
            decision: Decision = await ended
        except ThreadBusy as error:
            raise (make_too_late_error() if answers else error) from error
        return decision

    def close(self) -> None:
        """Ends what the tools hold open, such as servers of MCP."""
        self._resources.end()

    def pause(self) -> None:
        """Asks the run to pause at the next step."""
        if self.running and self._work:
            self._work.ask("pause")


async def pause_all(drivers: Sequence[Driver]) -> bool:
    """Pauses what runs; whether all of it has come to rest in time."""
    for driver in drivers:
        driver.pause()
    end = time.monotonic() + _END_SECONDS
    while any(driver.running for driver in drivers) and time.monotonic() < end:
        await asyncio.sleep(_LOOK_SECONDS)
    return not any(driver.running for driver in drivers)


def _call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, *args)


def _settle(ended: "asyncio.Future[Decision]", found: Decision | BaseException) -> None:
    if ended.done():
        return
    if isinstance(found, BaseException):
        ended.set_exception(found)
        # Looked at here: whoever began the run may have gone.
        ended.exception()
    else:
        ended.set_result(found)
