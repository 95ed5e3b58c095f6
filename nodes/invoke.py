"""One call of a tool: in a thread of its own, within its time, and whatever happens it has a result."""

import asyncio
import contextvars
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from typing import Any, Self

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp
from pydantic import ValidationError

from signoff.graph.marks import result as tool_result
from signoff.graph.replies import Call
from signoff.nodes.kit import Run
from signoff.tools.control import explain
from signoff.tools.output import capped, kept_in


class Job:
    """Runs `call` and turns everything that can come of it into a tool result.

    A sync tool runs in a daemon thread: one that hangs is given up on after `tool_seconds`, and cannot keep
    the process alive.
    """

    def __init__(self, call: Call, run: Run) -> None:
        self.call = call
        self.run = run
        self.tool = run.kit.tools[call.name]
        self.begun = time.monotonic()
        self.future: Future[ToolMessage] = Future()

    def start(self) -> Self:
        context = contextvars.copy_context()
        name = f"signoff-tool-{self.call.name}"
        threading.Thread(target=context.run, args=(self._in_thread,), name=name, daemon=True).start()
        return self

    def _in_thread(self) -> None:
        try:
            self.future.set_result(self._run())
        except BaseException as error:  # noqa: BLE001  it is handed to the waiting node
            self.future.set_exception(error)

    def _run(self) -> ToolMessage:
        request, config = self._request(), self.run.config
        try:
            if _only_async(self.tool):
                return self._finished(asyncio.run(self.tool.ainvoke(request, config)))
            return self._finished(self.tool.invoke(request, config))
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a tool may raise anything
            return self._broken(error)

    async def _arun(self) -> ToolMessage:
        # A long result is kept in a file, and a server allows no such waiting in its event loop.
        try:
            output = await self.tool.ainvoke(self._request(), self.run.config)
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a tool may raise anything
            return await asyncio.to_thread(self._broken, error)
        return await asyncio.to_thread(self._finished, output)

    def result(self) -> ToolMessage:
        try:
            return self.future.result(self.run.kit.tool_seconds)
        except OutOfTime:
            return self._late()

    async def aresult(self) -> ToolMessage:
        waiting: asyncio.Future[ToolMessage]
        if _has_coroutine(self.tool):
            waiting = asyncio.ensure_future(self._arun())
        else:
            waiting = asyncio.wrap_future(self.start().future)
        done, _ = await asyncio.wait({waiting}, timeout=self.run.kit.tool_seconds)
        if not done:
            waiting.cancel()
            return self._late()
        return waiting.result()

    def _request(self) -> ToolCall:
        return ToolCall(name=self.call.name, args=dict(self.call.args), id=self.call.id, type="tool_call")

    def _finished(self, output: Any) -> ToolMessage:
        if not isinstance(output, ToolMessage):
            text = self.run.kit.texts.results["unsupported"]
            return self._answer(text.format(name=self.call.name, type=type(output).__name__), ok=False)
        if not isinstance(output.content, str):
            return output
        return self._answer(output.content, ok=output.status != "error", artifact=output.artifact)

    def _broken(self, error: BaseException | None) -> ToolMessage:
        if isinstance(error, ValidationError):
            text = self.run.kit.texts.results["invalid"].format(name=self.call.name, error=explain(error))
        elif isinstance(error, ToolException):
            text = str(error)
        else:
            text = f"{type(error).__name__}: {error}"
        return self._answer(text, ok=False)

    def _late(self) -> ToolMessage:
        text = self.run.kit.texts.results["timeout"]
        return self._answer(text.format(name=self.call.name, seconds=self.run.kit.tool_seconds), ok=False)

    def _answer(self, text: str, *, ok: bool, artifact: Any = None) -> ToolMessage:
        kit = self.run.kit
        text = capped(text, limit=kit.result_chars, keep=kept_in(kit.outputs, self.call.id))
        seconds = time.monotonic() - self.begun
        answer = tool_result(self.call.id, self.call.name, text, ok=ok, seconds=seconds)
        return answer if artifact is None else answer.model_copy(update={"artifact": artifact})


def _has_coroutine(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None
