"""Drives threads from an event loop, for programs at the end of a protocol."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

from langchain_core.tools import BaseTool

from signoff import Decision, Graph, ThreadBusy, ThreadStatus
from signoff.front.answering import make_too_late_error
from signoff.front.database import OpenStorage
from signoff.front.settings import Given
from signoff.front.work import Models, News, Work
from signoff.graph.compiled.holds import busy
from signoff.session import ThreadCommand
from signoff.session.status import look, reading_graph
from signoff.tools.processes.held import OpenResources

MOST_WAITING = 10_000
"""How many events may wait for a client that does not read; then the run pauses."""
_END_SECONDS = 4.0
_LOOK_SECONDS = 0.02

Hear = Callable[[News], Awaitable[None]]


class Driver:
    """Drives one thread, one run at a time, each in a thread of this process: the loop is never blocked.

    own: the user's own graph instead of the one from the settings. tools: additional tools.
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
        # Their open resources serve all runs: each run has its own graph, and would close them at its end.
        self._resources = OpenResources(tools)
        self._work: Work | None = None
        self._ended: asyncio.Future[Decision] | None = None

    @property
    def running(self) -> bool:
        return self._ended is not None and not self._ended.done()

    async def status(self) -> ThreadStatus:
        """Returns the saved thread."""
        return await asyncio.to_thread(lambda: look(reading_graph(self.storage), self.thread_id))

    async def stand(self) -> tuple[bool, ThreadStatus]:
        """Returns whether another process runs the thread, and the saved thread."""
        # Checked first: otherwise a run that ends in between would look stopped.
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
        an answer, which is too late (TooLate) if the thread already runs. If the caller is cancelled or no
        longer reads, the run pauses. Raises the errors of `Work.go`.
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
        """Closes what the tools hold open, such as MCP servers."""
        self._resources.end()

    def pause(self) -> None:
        """Asks the run to pause at the next step."""
        if self.running and self._work:
            self._work.ask("pause")


async def pause_all(drivers: Sequence[Driver]) -> bool:
    """Pauses the runs; returns whether all came to rest in time."""
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
        # Retrieved here: the caller that began the run may be gone.
        ended.exception()
    else:
        ended.set_result(found)
