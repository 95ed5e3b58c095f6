"""One call of a tool: in a thread of its own, within its time, and whatever happens it has a result."""

import asyncio
import contextvars
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import dataclass
from typing import Any, Self

from langchain_core.messages import BaseMessage, HumanMessage, ToolCall, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import ValidationError

from signoff.graph.marks import nudge
from signoff.graph.marks import result as tool_result
from signoff.graph.replies import Call
from signoff.graph.state import AgentState
from signoff.nodes.direct import acall as acall_plain
from signoff.nodes.direct import call as call_plain
from signoff.nodes.direct import listened
from signoff.nodes.kit import Run
from signoff.nodes.results import as_block, as_json, block, is_text, savable, saves, text
from signoff.nodes.threads import in_thread
from signoff.tools.control import explain
from signoff.tools.output import capped, kept_in, words

FROM_TOOL = "tool"
"""The mark of a human-role message that a tool wrote: it is never the user's word."""


@dataclass(frozen=True)
class Done:
    """What came of a call: its result, and messages that the tool adds to the history."""

    result: ToolMessage
    more: tuple[BaseMessage, ...] = ()

    @property
    def messages(self) -> list[BaseMessage]:
        return [self.result, *self.more]


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
        self.begun = time.monotonic()
        self.future: Future[Done] = Future()

    def start(self) -> Self:
        self.begun = time.monotonic()
        self.future.set_running_or_notify_cancel()
        context = contextvars.copy_context()
        in_thread(lambda: context.run(self._in_thread))
        return self

    def alone(self) -> Done:
        """What came of the job, which runs beside no other."""
        if self.seconds is None and not _only_async(self.tool):
            return contextvars.copy_context().run(self._run)
        return self.start().result()

    def result(self) -> Done:
        """What came of the job, at the latest when its own time, counted from its start, is over."""
        left = None if self.seconds is None else max(self.begun + self.seconds - time.monotonic(), 0)
        try:
            return self.future.result(left)
        except OutOfTime:
            return self._late()

    async def aalone(self) -> Done:
        """What came of the job, which runs beside no other."""
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
            return self._late()
        return waiting.result()

    def _in_thread(self) -> None:
        try:
            self.future.set_result(self._run())
        except BaseException as error:  # noqa: BLE001  it is handed to the waiting node
            self.future.set_exception(error)

    def _run(self) -> Done:
        try:
            if _only_async(self.tool):
                output = asyncio.run(self.tool.ainvoke(self._request(), self.run.config))
            elif isinstance(self.tool, StructuredTool) and self._unheard():
                output = call_plain(self.tool, self._request())
            else:
                output = self.tool.invoke(self._request(), self.run.config)
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  a tool may raise anything
            return self._broken(error)
        return self._finished(output)

    def _unheard(self) -> bool:
        """Whether nothing but the tool's own function has to be called."""
        return self.tool.name in self.run.kit.plain and not listened(self.run.config)

    async def _arun(self) -> Done:
        try:
            if isinstance(self.tool, StructuredTool) and self._unheard():
                output = await acall_plain(self.tool, self._request())
            else:
                output = await self.tool.ainvoke(self._request(), self.run.config)
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if _being_cancelled():
                raise
            return await asyncio.to_thread(self._broken, error)
        if self._is_short(output):
            return self._finished(output)
        # A long result is kept in a file, and a server allows no such waiting in its event loop.
        return await asyncio.to_thread(self._finished, output)

    def _is_short(self, output: Any) -> bool:
        """Whether this becomes a result without being cut, or read at length."""
        text = output.content if isinstance(output, ToolMessage) and output.artifact is None else None
        return isinstance(text, str) and len(text) <= self.run.kit.result_chars

    def _request(self) -> ToolCall:
        args = dict(self.call.args if self.edited is None else self.edited)
        call = ToolCall(name=self.call.name, args=args, id=self.call.id, type="tool_call")
        return self.run.kit.injector.filled(call, self.state, self.run.config)

    def _finished(self, output: Any) -> Done:
        try:
            return self._read(output)
        except Exception as error:  # noqa: BLE001  values of a tool's own making may raise in any method
            return self._broken(error)

    def _read(self, output: Any) -> Done:
        more: tuple[HumanMessage, ...] = ()
        if isinstance(output, Command):
            output, more = _from_command(output, self.call)
        if not isinstance(output, ToolMessage):
            text = self.run.kit.texts.results["unsupported"]
            return self._answer(text.format(name=self.call.name, type=type(output).__name__), ok=False)
        said = tuple(nudge(FROM_TOOL, "").model_copy(update={"content": self._fit(m.content)}) for m in more)
        return self._answer(output.content, ok=output.status != "error", artifact=output.artifact, more=said)

    def _broken(self, error: BaseException) -> Done:
        if isinstance(error, ValidationError):
            text = self.run.kit.texts.results["invalid"].format(name=self.call.name, error=explain(error))
        elif isinstance(error, ToolException):
            text = words(error)
        else:
            text = f"{type(error).__name__}: {words(error)}"
        return self._answer(text, ok=False)

    def _late(self) -> Done:
        text = self.run.kit.texts.results["timeout"]
        return self._answer(text.format(name=self.call.name, seconds=self.seconds), ok=False, unknown=True)

    def _answer(
        self,
        content: Any,
        *,
        ok: bool,
        artifact: Any = None,
        more: tuple[BaseMessage, ...] = (),
        **notes: Any,
    ) -> Done:
        content = savable(content)
        kept = artifact if artifact is not None and saves(artifact) else None
        if artifact is not None and kept is None:
            lost = self.run.kit.texts.results["no_artifact"]
            content = f"{content}\n{lost}" if isinstance(content, str) else [*content, block(lost)]
        if self.edited is not None:
            note, args = self.run.kit.texts.results["edited"], as_json(dict(self.edited))
            if isinstance(content, str):
                content = note.format(args=args, result=content)
            else:
                content = [block(note.format(args=args, result="").rstrip()), *content]
        seconds = time.monotonic() - self.begun
        fitted = self._fit(content)
        text = fitted if isinstance(fitted, str) else ""
        answer = tool_result(self.call.id, self.call.name, text, ok=ok, seconds=seconds, **notes)
        if fitted is not text or kept is not None:
            answer = answer.model_copy(update={"content": fitted, "artifact": kept})
        return Done(answer, more)

    def _fit(self, content: Any) -> str | list[Any]:
        """`content` with every text in it valid and of bounded length."""
        kit = self.run.kit
        keep = kept_in(kit.outputs, self.call.id)
        found = savable(content)
        if isinstance(found, str):
            return capped(found, limit=kit.result_chars, keep=keep)
        return [
            {**as_block(part), "text": capped(text(part), limit=kit.result_chars, keep=keep)}
            if is_text(part)
            else part
            for part in found
        ]


def _from_command(
    command: Command[Any], call: Call
) -> tuple[ToolMessage | Command[Any], tuple[HumanMessage, ...]]:
    """The result of a `Command` that only updates the history, and what the tool shows beside it.

    One that goes somewhere, writes what belongs to the machine, removes messages, or speaks for the model or
    for another tool is given back as it is.
    """
    update = command.update if isinstance(command.update, Mapping) else {}
    if command.goto or command.resume is not None or set(update) != {"messages"}:
        return command, ()
    given = update["messages"]
    messages = convert_to_messages(given if isinstance(given, list | tuple) else [given])
    own = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call.id]
    shown = tuple(m for m in messages if isinstance(m, HumanMessage))
    if len(own) != 1 or len(messages) != 1 + len(shown):
        return command, ()
    return own[0], shown


def _being_cancelled() -> bool:
    """Whether somebody cancels this very task, as against an error that only has the same name."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _has_coroutine(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None
