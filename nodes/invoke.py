"""One call of a tool: in a thread of its own, within its time, and whatever happens it has a result."""

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import dataclass
from typing import Any, Self

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import ValidationError

from signoff.graph.marks import result as tool_result
from signoff.graph.replies import Call
from signoff.graph.state import AgentState
from signoff.nodes.kit import Run
from signoff.tools.control import explain
from signoff.tools.output import capped, kept_in


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
    process alive. `edited` are arguments that a person put in place of the model's.
    """

    def __init__(
        self, call: Call, state: AgentState, run: Run, edited: Mapping[str, Any] | None = None
    ) -> None:
        self.call = call
        self.state = state
        self.run = run
        self.edited = edited
        self.tool = run.kit.toolbox.tools[call.name]
        self.seconds = run.kit.toolbox.seconds(call.name, run.kit.tool_seconds)
        self.begun = time.monotonic()
        self.future: Future[Done] = Future()

    def start(self) -> Self:
        context = contextvars.copy_context()
        name = f"signoff-tool-{self.call.name}"
        threading.Thread(target=context.run, args=(self._in_thread,), name=name, daemon=True).start()
        return self

    def result(self) -> Done:
        try:
            return self.future.result(self.seconds)
        except OutOfTime:
            return self._late()

    async def aresult(self) -> Done:
        waiting: asyncio.Future[Done]
        if _has_coroutine(self.tool):
            waiting = asyncio.ensure_future(self._arun())
        else:
            waiting = asyncio.wrap_future(self.start().future)
        done, _ = await asyncio.wait({waiting}, timeout=self.seconds)
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
                return self._finished(asyncio.run(self.tool.ainvoke(self._request(), self.run.config)))
            return self._finished(self.tool.invoke(self._request(), self.run.config))
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a tool may raise anything
            return self._broken(error)

    async def _arun(self) -> Done:
        # A long result is kept in a file, and a server allows no such waiting in its event loop.
        try:
            output = await self.tool.ainvoke(self._request(), self.run.config)
        except GraphBubbleUp:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a tool may raise anything
            return await asyncio.to_thread(self._broken, error)
        return await asyncio.to_thread(self._finished, output)

    def _request(self) -> ToolCall:
        args = dict(self.call.args if self.edited is None else self.edited)
        call = ToolCall(name=self.call.name, args=args, id=self.call.id, type="tool_call")
        return self.run.kit.injector.filled(call, self.state, self.run.config)

    def _finished(self, output: Any) -> Done:
        more: tuple[BaseMessage, ...] = ()
        if isinstance(output, Command):
            output, more = _from_command(output, self.call)
        if not isinstance(output, ToolMessage):
            text = self.run.kit.texts.results["unsupported"]
            return self._answer(text.format(name=self.call.name, type=type(output).__name__), ok=False)
        text_only = _only_text(output.content)
        if text_only is None:
            return Done(output.model_copy(update={"tool_call_id": self.call.id}), more)
        return self._answer(text_only, ok=output.status != "error", artifact=output.artifact, more=more)

    def _broken(self, error: BaseException) -> Done:
        if isinstance(error, ValidationError):
            text = self.run.kit.texts.results["invalid"].format(name=self.call.name, error=explain(error))
        elif isinstance(error, ToolException):
            text = str(error)
        else:
            text = f"{type(error).__name__}: {error}"
        return self._answer(text, ok=False)

    def _late(self) -> Done:
        text = self.run.kit.texts.results["timeout"]
        return self._answer(text.format(name=self.call.name, seconds=self.seconds), ok=False)

    def _answer(
        self, text: str, *, ok: bool, artifact: Any = None, more: tuple[BaseMessage, ...] = ()
    ) -> Done:
        kit = self.run.kit
        if self.edited is not None:
            args = json.dumps(dict(self.edited), ensure_ascii=False, default=str)
            text = kit.texts.results["edited"].format(args=args, result=text)
        text = capped(text, limit=kit.result_chars, keep=kept_in(kit.outputs, self.call.id))
        seconds = time.monotonic() - self.begun
        answer = tool_result(self.call.id, self.call.name, text, ok=ok, seconds=seconds)
        return Done(answer if artifact is None else answer.model_copy(update={"artifact": artifact}), more)


def _from_command(
    command: Command[Any], call: Call
) -> tuple[ToolMessage | Command[Any], tuple[BaseMessage, ...]]:
    """The result and the other messages of a `Command` that only updates the history.

    One that goes somewhere, or that writes what belongs to the machine, is given back as it is.
    """
    update = command.update if isinstance(command.update, Mapping) else {}
    if command.goto or command.resume is not None or set(update) != {"messages"}:
        return command, ()
    messages = convert_to_messages(update["messages"])
    own = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call.id]
    if len(own) != 1:
        return command, ()
    return own[0], tuple(message for message in messages if message is not own[0])


def _only_text(content: Any) -> str | None:
    """The text of a content that holds nothing else: a string, or text blocks (as MCP's tools give them)."""
    if isinstance(content, str):
        return content
    if content and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return None


def _has_coroutine(tool: BaseTool) -> bool:
    if isinstance(tool, StructuredTool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None
