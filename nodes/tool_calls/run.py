"""Runs calls of tools: reads beside each other, a call that may change something at most once.

Each runs in a thread of its own, within its time, and whatever happens it has a result.

"""

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphBubbleUp

from signoff.graph.foreign import being_ended, gets_past
from signoff.graph.history.replies import Call
from signoff.graph.kinds import fingerprint
from signoff.graph.speed.lazy import lazy
from signoff.graph.speed.plain_tools import acall as acall_plain
from signoff.graph.speed.plain_tools import call as call_plain
from signoff.graph.speed.plain_tools import listened
from signoff.graph.speed.threads import in_thread
from signoff.graph.state import AgentState
from signoff.nodes.journal import DONE, STARTED, WAITING, Entry, claim, look, note, outcome_known, unknown
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Store
from signoff.nodes.tool_calls.results import Done, Told


class Job:
    """Runs `call` and turns everything that can come of it into a tool result.

    A sync tool runs in a daemon thread: one that hangs is given up on after its time, and cannot keep the
    process alive. Without a time limit, and alone, it needs no thread, and saves the way there and back.
    `edited` are arguments that a person put in place of the model's.
    """

    def __init__(
        self, call: Call, state: AgentState, run: Run, edited: Mapping[str, Any] | None = None
    ) -> None:
        self.call = call
        self.state = state
        self.run = run
        self.edited = edited
        tool = run.kit.toolbox.run_tool(call.name)
        assert tool is not None, "only calls of tools that are run get here"
        self.tool = tool
        self.seconds = run.kit.toolbox.seconds(call.name, run.kit.tool_seconds)
        self.told = Told(call, run, edited, time.monotonic())
        self._stop_asking: Callable[[], object] | None = None

    @lazy
    def future(self) -> Future[Done]:
        """What its thread gives."""
        return Future()

    def start(self) -> Self:
        self.told.begun = time.monotonic()
        self.future.set_running_or_notify_cancel()
        context = contextvars.copy_context()
        in_thread(lambda: context.run(self._in_thread))
        return self

    def alone(self) -> Done:
        """What came of the job, which runs beside no other."""
        self.told.begun = time.monotonic()
        if self.seconds is None and not _only_async(self.tool):
            return contextvars.copy_context().run(self._run)
        return self.start().result()

    def result(self) -> Done:
        """What came of the job, at the latest when its own time, counted from its start, is over."""
        left = None if self.seconds is None else max(self.told.begun + self.seconds - time.monotonic(), 0)
        try:
            return self.future.result(left)
        except OutOfTime:
            if self._stop_asking is not None:
                # A thread cannot be stopped, but what an async tool awaits in it can.
                self._stop_asking()
            return self.told.late(self.seconds)

    async def aalone(self) -> Done:
        """What came of the job, which runs beside no other."""
        self.told.begun = time.monotonic()
        if self.seconds is None and _has_coroutine(self.tool):
            return await self._arun()
        return await self.aresult()

    async def aresult(self) -> Done:
        waiting: asyncio.Future[Done]
        if _has_coroutine(self.tool):
            waiting = asyncio.ensure_future(self._arun())
        else:
            waiting = asyncio.wrap_future(self.start().future)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=self.seconds)
        except asyncio.CancelledError:
            waiting.cancel()
            raise
        if not done:
            waiting.cancel()
            return self.told.late(self.seconds)
        return waiting.result()

    def _in_thread(self) -> None:
        try:
            self.future.set_result(self._run())
        except BaseException as error:  # noqa: BLE001  it is handed to the waiting node
            self.future.set_exception(error)

    def _run(self) -> Done:
        try:
            if _only_async(self.tool):
                output = asyncio.run(self._asked())
            elif isinstance(self.tool, StructuredTool) and self._unheard():
                output = call_plain(self.tool, self._request())
            else:
                output = self.tool.invoke(self._request(), self.run.config)
        except BaseException as error:
            if gets_past(error):
                raise
            return self.told.broken(error)
        return self.told.finished(output)

    async def _asked(self) -> Any:
        """What an async tool gives in an event loop of its own, that of a sync run."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "this is a coroutine"

        def stop() -> None:
            # A loop that has ended in the meantime has nothing to stop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

        self._stop_asking = stop
        return await self.tool.ainvoke(self._request(), self.run.config)

    def _unheard(self) -> bool:
        """Whether nothing but the tool's own function has to be called."""
        return self.tool.name in self.run.kit.plain and not listened(self.run.config)

    async def _arun(self) -> Done:
        try:
            if isinstance(self.tool, StructuredTool) and self._unheard():
                output = await acall_plain(self.tool, self._request())
            else:
                output = await self.tool.ainvoke(self._request(), self.run.config)
        except BaseException as error:
            if gets_past(error) or being_ended(error):
                raise
            return await asyncio.to_thread(self.told.broken, error)
        if self._is_short(output):
            return self.told.finished(output)
        # A long result is kept in a file, and a server allows no such waiting in its event loop.
        return await asyncio.to_thread(self.told.finished, output)

    def _is_short(self, output: Any) -> bool:
        """Whether this becomes a result without being cut, or read at length."""
        text = output
        if isinstance(output, ToolMessage):
            text = output.content if output.artifact is None else None
        return isinstance(text, str) and len(text) <= self.run.kit.result_chars

    def _request(self) -> ToolCall:
        args = dict(self.call.args if self.edited is None else self.edited)
        call = ToolCall(name=self.call.name, args=args, id=self.call.id, type="tool_call")
        return self.run.kit.injector.filled(call, self.state, self.run.config)


def _has_coroutine(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None


MOST_STARTS = 2
"""A call that may run again after a crash is told as unknown when it was cut short so often."""


@dataclass(frozen=True)
class Jobs:
    """Calls that run beside each other, or `one_by_one`; gives what came of them, in order."""

    jobs: Sequence[Job]
    one_by_one: bool = False

    def do(self, run: Run) -> list[Done]:
        if self.one_by_one or len(self.jobs) == 1:
            return [job.alone() for job in self.jobs]
        for job in self.jobs:
            job.start()
        return [job.result() for job in self.jobs]

    async def ado(self, run: Run) -> list[Done]:
        if self.one_by_one or len(self.jobs) == 1:
            return [await job.aalone() for job in self.jobs]
        return list(await asyncio.gather(*(job.aresult() for job in self.jobs)))


def once(
    call: Call,
    reply_id: str,
    state: AgentState,
    run: Run,
    *,
    again: Callable[[Entry], bool],
    edited: Mapping[str, Any] | None = None,
    ask_unknown: bool = False,
) -> Part[list[BaseMessage]]:
    """A part of a node: a call that may change something. `started` is durable before it runs, `done` after.

    again: whether a call that the journal knows runs once more. edited: arguments in place of the model's.
    ask_unknown: nothing comes back for a call whose outcome is unknown, since a person will be asked.
    """
    runs = fingerprint(call.name, call.args if edited is None else edited)
    entry: Entry | None = (yield from look(run, reply_id, [call])).get(call.id)
    if entry is not None and entry.hash == runs and not again(entry):
        ask = ask_unknown and entry.status == STARTED
        return [] if ask else outcome_known(call, entry, run)
    begun = Entry(STARTED, entry.attempt + 1 if entry else 1, runs, edited)
    if not (yield claim(run.thread_id, reply_id, call, entry, begun)):
        # Another runner of this thread has just started the same call.
        return [unknown(call, run, edited)]
    try:
        results: list[Done] = yield Jobs([Job(call, state, run, edited)])
    except GraphBubbleUp:
        yield Store([note(run, reply_id, call, replace(begun, status=WAITING))])
        raise
    messages = results[0].messages
    yield Store([note(run, reply_id, call, replace(begun, status=DONE, messages=tuple(messages)))])
    return messages
