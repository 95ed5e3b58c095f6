"""Runs tool calls and turns whatever happens into tool results.

Reads run in parallel; a call that may change something runs at most once. Each runs within its time limit, in
a separate thread where needed. A result contains only what the history and the journal can store: valid text
of bounded length and plain values, with a note on what a person changed.
"""

import asyncio
import contextvars
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import unwrap
from traceback import walk_tb
from typing import Any, Protocol, Self

from langchain_core.messages import BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command
from pydantic import ValidationError

from signoff.graph import clock
from signoff.graph.blocks import as_json, block_text, text_block
from signoff.graph.errors import ApprovalWarning
from signoff.graph.foreign import (
    NobodyToAsk,
    being_ended,
    capped,
    explain,
    gets_past,
    pauses,
    unanswered,
    valid_text,
    words,
)
from signoff.graph.history.replies import Call, fingerprint
from signoff.graph.inside.speed import acall as acall_plain
from signoff.graph.inside.speed import call as call_plain
from signoff.graph.inside.speed import lazy, listened, started
from signoff.graph.messages import marks, not_run, nudge
from signoff.graph.messages import result as tool_result
from signoff.graph.schemas.state import Refused, checked_update
from signoff.graph.state import AgentState
from signoff.graph.values import as_words, saves, sound, sound_content
from signoff.nodes.journal import (
    DONE,
    STARTED,
    WAITING,
    JournalEntry,
    Written,
    claim_start,
    look,
    note,
    outcome_known,
    take_back,
    unknown,
)
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part, Request, Store
from signoff.nodes.tool_calls.output import PLACE, Stops, aread, read, reading
from signoff.nodes.tool_calls.progress import telling
from signoff.nodes.tool_calls.returned import from_command, joined, why_not


def savable(content: Any) -> str | list[Any]:
    """`content` as text if it has nothing else (a string, or text blocks, as MCP tools return), else as JSON
    blocks of valid text; as `str(content)` if that cannot be saved."""
    if isinstance(content, str):
        return valid_text(content)
    if content and all(is_text(part) for part in content):
        return valid_text("\n".join(map(block_text, content)))
    try:
        found = sound(content)
    except ValueError:
        return as_words(content)
    blocks = isinstance(found, list) and all(isinstance(part, str | dict) for part in found)
    if not blocks:
        return as_words(content)
    return sound_content([_with_text(part) if is_text(part) else part for part in found])


def _with_text(part: str | dict[str, Any]) -> dict[str, Any]:
    """The block of text, whose text may be no string."""
    return {**({} if isinstance(part, str) else part), **text_block(block_text(part))}


def is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")


FROM_TOOL = "tool"
"""The mark of a human-role message that a tool wrote: it never counts as the user's message."""


@dataclass(frozen=True)
class ToolResult:
    """The outcome of a call: its result, messages that the tool adds to the history, and its update of the
    user's channels."""

    result: ToolMessage
    more: tuple[BaseMessage, ...] = ()
    update: Mapping[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[BaseMessage]:
        return [self.result, *self.more]

    @property
    def written(self) -> Written:
        return Written(self.messages, [self.update] if self.update else [])


@dataclass
class ResultWriter:
    """Writes the result of `call`. edited: arguments that a person substituted for the model's. begun: the
    start time, by the monotonic clock."""

    call: Call
    state: AgentState
    run: NodeContext
    edited: Mapping[str, Any] | None
    begun: float

    def finished(self, output: Any) -> ToolResult:
        """The result for `output`: a message, or its text."""
        try:
            return self._read(output)
        except BaseException as error:
            # Custom values may raise in any method.
            if gets_past(error):
                raise
            return self.broken(error)

    def _read(self, output: Any) -> ToolResult:
        if isinstance(output, str):
            return self._answer(output, ok=True)
        more: tuple[HumanMessage, ...] = ()
        update: Mapping[str, Any] = {}
        if isinstance(output, list):
            output = joined(output)
        if isinstance(output, Command):
            found = self._update(output)
            if isinstance(found, Refused):
                return self._answer(self._refused(found), ok=False)
            if found and set(found) == set(output.update or ()) and not output.goto:
                text = self.run.deps.texts.results["written"].format(channels=", ".join(found))
                return replace(self._answer(text, ok=True), update=found)
            update = found
            output, more = from_command(output, self.call, update)
        if not isinstance(output, ToolMessage):
            text, kind = self.run.deps.texts.results["unsupported"], type(output).__name__
            why = why_not(output, self.run.deps.channels)
            return self._answer(text.format(name=self.call.name, type=kind, why=why), ok=False)
        said = tuple(nudge(FROM_TOOL, "").model_copy(update={"content": self._fit(m.content)}) for m in more)
        answer = self._answer(
            output.content, ok=output.status != "error", artifact=output.artifact, more=said
        )
        return replace(answer, update=update) if update else answer

    def _update(self, command: Command[Any]) -> Mapping[str, Any] | Refused:
        """A command's update of the user's channels, if the graph has any."""
        channels = self.run.deps.channels
        if not channels or not isinstance(command.update, Mapping) or command.graph is not None:
            return {}
        given = {key: value for key, value in command.update.items() if key != "messages"}
        saved = self.run.can_ask or self.run.store is not None
        return checked_update(given, channels, self.state, saved=saved) if given else {}

    def _refused(self, found: Refused) -> str:
        text = self.run.deps.texts.results[found.kind]
        return text.format(name=self.call.name, channel=found.channel, why=found.why)

    def broken(self, error: BaseException) -> ToolResult:
        """The result for an `error` that was raised."""
        if isinstance(error, NobodyToAsk):
            warnings.warn(f"The tool {self.call.name}: {error}.", ApprovalWarning, stacklevel=2)
            return self._answer(
                self.run.deps.texts.results["nobody_asked"].format(name=self.call.name), ok=False
            )
        if isinstance(error, ValidationError) and self._has_not_begun(error):
            problem = misfit(self.call, error, self.run)
            # A person's changes are mentioned as well.
            return (
                self._answer(problem.text, ok=False, **marks(problem))
                if self.edited is not None
                else ToolResult(problem)
            )
        text = words(error) if isinstance(error, ToolException) else f"{type(error).__name__}: {words(error)}"
        return self._answer(text, ok=False)

    def _has_not_begun(self, error: ValidationError) -> bool:
        """Whether LangChain raised it for the arguments, before the tool's own code ran."""
        tool = self.run.deps.toolbox.run_tool(self.call.name)
        bodies = [getattr(tool, name, None) for name in ("func", "coroutine", "_run", "_arun")]
        own = type(tool).__module__.partition(".")[0] not in ("langchain_core", "langchain")
        codes = [getattr(unwrap(body), "__code__", None) for body in (bodies if own else bodies[:2]) if body]
        return not any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))

    def late(self, seconds: float | None) -> ToolResult:
        """The result of a call that did not return in time."""
        text = self.run.deps.texts.results["timeout"]
        return self._answer(text.format(name=self.call.name, seconds=seconds), ok=False, unknown=True)

    def _answer(
        self,
        content: Any,
        *,
        ok: bool,
        artifact: Any = None,
        more: tuple[BaseMessage, ...] = (),
        **notes: Any,
    ) -> ToolResult:
        content = "[]" if content == [] else savable(content)
        kept = artifact if artifact is not None and saves(artifact) else None
        if artifact is not None and kept is None:
            lost = self.run.deps.texts.results["no_artifact"].format()
            content = f"{content}\n{lost}" if isinstance(content, str) else [*content, text_block(lost)]
        if self.edited is not None:
            notes |= {"edited": True, "ran": dict(self.edited)}
            note, args = self.run.deps.texts.results["edited"], as_json(dict(self.edited))
            if isinstance(content, str):
                content = note.format(args=args, result=content)
            else:
                content = [text_block(note.format(args=args, result="").rstrip()), *content]
        seconds = clock.monotonic() - self.begun
        fitted = self._fit(content)
        text = fitted if isinstance(fitted, str) else ""
        answer = tool_result(self.call.id, self.call.name, text, ok=ok, seconds=seconds, **notes)
        if fitted is not text or kept is not None:
            answer = answer.model_copy(update={"content": fitted, "artifact": kept})
        return ToolResult(answer, more)

    def _fit(self, content: Any) -> str | list[Any]:
        """`content` with every string in it valid and of bounded length."""
        if isinstance(found := savable(content), str):
            return self._capped(found)
        return [
            {**({} if isinstance(part, str) else part), **text_block(self._capped(block_text(part)))}
            if is_text(part)
            else part
            for part in found
        ]

    def _capped(self, text: str) -> str:
        return capped(text, limit=self.run.deps.result_chars, keep=self._keep)

    def _keep(self, text: str) -> str:
        return self.run.outputs.keep(self.call.id)(text)


def misfit(call: Call, error: ValidationError, run: NodeContext) -> ToolMessage:
    """The answer to a call with invalid arguments: it does not run, and counts like a call of an unknown
    tool.

    A tool with its own handler for such errors decides what the model reads.
    """
    tool = run.deps.toolbox.run_tool(call.name)
    handler = tool.handle_validation_error if tool else None
    if isinstance(handler, str):
        text = handler
    elif callable(handler):
        try:
            text = words(handler(error))
        except Exception as raised:  # noqa: BLE001  a function of the user's own may raise anything
            text = f"{type(raised).__name__}: {words(raised)}"
    else:
        text = run.deps.texts.results["invalid"].format(name=call.name, error=explain(error))
    return not_run(call.id, call.name, valid_text(text), "invalid")


class ToolRun:
    """Runs `call` and turns every possible outcome into a tool result.

    A sync tool runs in a daemon thread: one that hangs is abandoned after its time limit, and cannot keep the
    process alive. A call without a time limit and without others beside it needs no thread, which saves the
    switch. `edited` are arguments that a person substituted for the model's; `tool` is the tool to run, if
    not the one named in the call.
    """

    def __init__(
        self,
        call: Call,
        state: AgentState,
        run: NodeContext,
        edited: Mapping[str, Any] | None = None,
        tool: BaseTool | None = None,
    ) -> None:
        self.call = call
        self.state = state
        self.run = run
        self.edited = edited
        found = run.deps.toolbox.run_tool(call.name) if tool is None else tool
        assert found is not None, "only calls of tools that are run get here"
        self.tool = found
        self.seconds = (found.metadata or {}).get("seconds", run.deps.tool_seconds)
        around = run.deps.middleware
        # No middleware wraps a call that ends or pauses the run, or one that undoes another call.
        wraps = around is not None and around.wraps_tools and call.effect is None and tool is None
        self.around = around if wraps else None
        # A middleware around it may ask a person before the tool starts.
        self.reached = self.around is None
        self.told = ResultWriter(call, state, run, edited, clock.monotonic())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stops: Stops = []
        self.future = Future[ToolResult]()

    @lazy
    def config(self) -> RunnableConfig:
        """The configuration for the tool."""
        return telling(self.call, self.run)

    def start(self) -> Self:
        self.told.begun = clock.monotonic()
        self.future = started(self._run)
        return self

    def alone(self) -> ToolResult:
        """What came of the job, which runs beside no other."""
        self.told.begun = clock.monotonic()
        if self.seconds is None and not _only_async(self.tool):
            return contextvars.copy_context().run(self._run)
        return self.start().result()

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds; None for no limit."""
        return None if self.seconds is None else max(self.told.begun + self.seconds - clock.monotonic(), 0)

    @property
    def over(self) -> bool:
        """Whether it has ended, or its time is up."""
        return self.future.done() or self.seconds_left == 0

    def result(self) -> ToolResult:
        """The result of the job, available at the latest when its time, counted from its start, is up."""
        try:
            return self.future.result(self.seconds_left)
        except OutOfTime:
            return self._late()

    def _late(self) -> ToolResult:
        for stop in self._stops:
            # A thread cannot be stopped, but a coroutine can; its loop may have ended in the meantime.
            with suppress(RuntimeError):
                stop()
        return self.told.late(self.seconds)

    async def aalone(self) -> ToolResult:
        """What came of the job, which runs beside no other."""
        self.told.begun = clock.monotonic()
        if self.seconds is None and self._in_loop:
            return await self._arun()
        return await self.aresult()

    async def aresult(self) -> ToolResult:
        self.told.begun = clock.monotonic()
        self._loop = asyncio.get_running_loop()
        waiting: asyncio.Future[ToolResult]
        if self._in_loop:
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
            return self._late()
        return waiting.result()

    def _run(self) -> ToolResult:
        try:
            if self.around is None:
                output = self.output(self.tool, self._request())
            else:
                output = self.around.tool_call(self)
        except BaseException as raised:
            error = unanswered(raised, can_ask=self.run.can_ask)
            if gets_past(error):
                raise
            return self.told.broken(error)
        return self.told.finished(output)

    def output(self, tool: BaseTool, request: ToolCall) -> Any:
        """The return value of `tool`: the call's own, or one substituted by a middleware."""
        PLACE.set((self._loop, self._stops))
        if _only_async(tool):
            return read(reading(tool).ainvoke(request, self.config))
        if isinstance(tool, StructuredTool) and self._unheard(tool):
            return call_plain(tool, request, read, self.run.deps.plain[tool.name])
        return reading(tool).invoke(request, self.config)

    async def aoutput(self, tool: BaseTool, request: ToolCall) -> Any:
        """`output`, for an event loop."""
        self._loop = asyncio.get_running_loop()
        PLACE.set((self._loop, self._stops))
        if not _has_coroutine(tool):
            # In a thread that blocks nothing if it hangs, as without a middleware.
            return await asyncio.wrap_future(started(lambda: self.output(tool, request)))
        if isinstance(tool, StructuredTool) and self._unheard(tool):
            return await acall_plain(tool, request, aread, self.run.deps.plain[tool.name])
        return await reading(tool).ainvoke(request, self.config)

    @property
    def _in_loop(self) -> bool:
        """Whether the call has an async implementation."""
        return self.around is not None or _has_coroutine(self.tool)

    def _unheard(self, tool: BaseTool) -> bool:
        """Whether it is enough to call the tool's own function."""
        if tool is not self.tool or tool.name not in self.run.deps.plain or listened(self.run.config):
            return False
        return self.config is self.run.config

    async def _arun(self) -> ToolResult:
        try:
            if self.around is None:
                output = await self.aoutput(self.tool, self._request())
            else:
                output = await self.around.atool_call(self)
        except BaseException as raised:
            error = unanswered(raised, can_ask=self.run.can_ask)
            if gets_past(error) or being_ended(error):
                raise
            return await asyncio.to_thread(self.told.broken, error)
        if self._is_short(output):
            return self.told.finished(output)
        # A long result is written to a file, and a server forbids such blocking in its event loop.
        return await asyncio.to_thread(self.told.finished, output)

    def _is_short(self, output: Any) -> bool:
        """Whether this becomes a result without truncation or a long traversal."""
        text = output
        if isinstance(output, ToolMessage):
            text = output.content if output.artifact is None else None
        return isinstance(text, str) and len(text) <= self.run.deps.result_chars

    def request(self) -> ToolCall:
        """The call with the arguments that run, without injected ones."""
        args = dict(self.call.args if self.edited is None else self.edited)
        return ToolCall(name=self.call.name, args=args, id=self.call.id, type="tool_call")

    def _request(self) -> ToolCall:
        call = self.request()
        return self.run.deps.injector.filled(call, self.state, self.config, lambda: self.run.users_context)


def _has_coroutine(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None


MOST_STARTS = 2
"""After this many aborted attempts, a call that may run again after a crash is reported as unknown."""


THREADS = 8
"""The default limit of sync tool calls that run in parallel."""


class Job(Request, Protocol):
    """Runs a tool call with its wrappers. reached: whether the tool itself has started."""

    @property
    def reached(self) -> bool: ...


@dataclass(frozen=True)
class ToolRuns:
    """Calls that run in parallel, or `one_by_one`; returns their results, in order.

    most: the maximum number at a time; None for `THREADS` calls that need a thread, and no limit for
    coroutines. The next one starts as soon as one has ended.
    """

    jobs: Sequence[ToolRun]
    one_by_one: bool = False
    most: int | None = None

    @property
    def reached(self) -> bool:
        return any(job.reached for job in self.jobs)

    def do(self, run: NodeContext) -> list[ToolResult]:
        if self.one_by_one or len(self.jobs) == 1:
            return [job.alone() for job in self.jobs]
        waiting, running, ended = deque(self.jobs), list[ToolRun](), dict[ToolRun, ToolResult]()
        while waiting or running:
            while waiting and len(running) < (self.most or THREADS):
                running.append(waiting.popleft().start())
            if not waiting:
                break
            wait([job.future for job in running], _soonest(running), FIRST_COMPLETED)
            over = [job for job in running if job.over]
            if any(job.future.done() and job.future.exception() for job in over):
                break
            ended |= {job: job.result() for job in over}
            running = [job for job in running if job not in ended]
        # A call that raised (an interrupt) is handled before those that have not started.
        return [ended[job] if job in ended else job.result() for job in self.jobs]

    async def ado(self, run: NodeContext) -> list[ToolResult]:
        if self.one_by_one or len(self.jobs) == 1:
            return [await job.aalone() for job in self.jobs]
        if len(self.jobs) <= (self.most or THREADS):
            return list(await asyncio.gather(*(job.aresult() for job in self.jobs)))
        return await self._agathered()

    async def _agathered(self) -> list[ToolResult]:
        room = asyncio.Semaphore(self.most or THREADS)
        begun = set[ToolRun]()

        async def ended(job: ToolRun) -> ToolResult:
            if self.most is None and _has_coroutine(job.tool):
                return await job.aresult()
            async with room:
                begun.add(job)
                return await job.aresult()

        tasks = {job: asyncio.ensure_future(ended(job)) for job in self.jobs}
        try:
            return list(await asyncio.gather(*tasks.values()))
        except BaseException:
            # One or all were interrupted: no further calls are started.
            for job, task in tasks.items():
                if job not in begun and (self.most is not None or not _has_coroutine(job.tool)):
                    task.cancel()
            raise


def _soonest(running: Sequence[ToolRun]) -> float | None:
    """The seconds until the first of these runs out of time; None if none does."""
    left = [job.seconds_left for job in running if job.seconds_left is not None]
    return min(left, default=None)


def once(
    call: Call,
    reply_id: str,
    state: AgentState,
    run: NodeContext,
    *,
    again: Callable[[JournalEntry], bool],
    edited: Mapping[str, Any] | None = None,
    ask_unknown: bool = False,
    job: Job | None = None,
) -> Part[Written]:
    """A part of a node: a call that may change something. `started` is durable before it runs, `done` after.

    again: whether a call with a journal entry runs once more. edited: arguments that replace the model's.
    ask_unknown: return nothing for a call whose outcome is unknown, since a person will be asked. job: runs
    the call in another way than the graph's own; its result is a list of one `ToolResult`.

    A run without a thread has no journal: it never resumes, and all such runs would share one journal, in
    which the same ids may mean other calls.
    """
    if run.thread_id is None:
        alone: list[ToolResult] = yield job or ToolRuns([ToolRun(call, state, run, edited)])
        return alone[0].written
    runs = fingerprint(call.name, call.args if edited is None else edited)
    entry: JournalEntry | None = (yield from look(run, reply_id, [call])).get(call.id)
    if entry is not None and entry.hash == runs and not again(entry):
        ask = ask_unknown and entry.status == STARTED
        return Written() if ask else outcome_known(call, entry, run)
    begun = JournalEntry(STARTED, entry.attempt + 1 if entry else 1, runs, edited)
    if not (yield claim_start(run, reply_id, call, entry, begun)):
        # Another runner of this thread has just started the same call.
        return Written([unknown(call, run, edited)])
    job = job or ToolRuns([ToolRun(call, state, run, edited)])
    try:
        results: list[ToolResult] = yield job
    except Exception as error:
        if pauses(error):
            # If the middleware waits for a person before the tool starts, nothing of the call has started.
            waits = note(run, reply_id, call, replace(begun, status=WAITING))
            yield Store([waits if job.reached else take_back(run, reply_id, call, entry)])
        raise
    written, update = results[0].written, results[0].update
    done = replace(begun, status=DONE, messages=tuple(written.messages), update=update, at=clock.now())
    yield Store([note(run, reply_id, call, done)])
    return written
