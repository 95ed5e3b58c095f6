"""What wraps a tool call: each middleware gets a request and a handler, the first in the list outermost.

To the machine it is one call, with one time limit, and with one journal entry if it may change something.
Such a tool runs only once, whatever a middleware does: even a call that ended in an error may have taken
effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from signoff.graph.foreign import gets_past, words
from signoff.nodes.middleware.given import Given
from signoff.nodes.tool_calls.inject import Injector


class RunsOnce(BaseException):
    """A tool that may change something was about to run a second time. Not an Exception, so that a middleware
    does not treat it as a failure and retry."""


def tool_call(around: Sequence[Given], job: Any) -> Any:
    """The result of the call of `job`, a `ToolRun`."""
    running = _Running(job)
    handler: Callable[[ToolCallRequest], Any] = running.execute
    for one in reversed(around):
        handler = partial(_layer, one, handler)
    try:
        return handler(running.request)
    except RunsOnce:
        return running.once()


async def atool_call(around: Sequence[Given], job: Any) -> Any:
    """`tool_call`, for an event loop."""
    running = _Running(job)
    handler: Callable[[ToolCallRequest], Awaitable[Any]] = running.aexecute
    for one in reversed(around):
        handler = partial(_alayer, one, handler)
    try:
        return await handler(running.request)
    except RunsOnce:
        return running.once()


def _layer(one: Given, inner: Callable[[ToolCallRequest], Any], request: ToolCallRequest) -> Any:
    return one.wrap_tool_call(request, inner)


async def _alayer(
    one: Given, inner: Callable[[ToolCallRequest], Awaitable[Any]], request: ToolCallRequest
) -> Any:
    return await one.awrap_tool_call(request, inner)


class _Running:
    """The call of a job, which its middleware may request more than once."""

    def __init__(self, job: Any) -> None:
        self.job = job
        box = job.run.deps.toolbox
        self._again = not box.is_effect(job.call.name) or box.may_repeat(job.call.name)
        self._came = ""
        call, run = job.request(), job.run
        runtime = run.deps.injector.runtime(call, job.state, job.config, lambda: run.users_context)
        state = {**job.state, "messages": list(job.state["messages"])}
        self.request = ToolCallRequest(tool_call=call, tool=job.tool, state=state, runtime=runtime)

    def execute(self, request: ToolCallRequest) -> Any:
        tool, call = self._begin(request)
        try:
            return self._end(self.job.output(tool, call))
        except BaseException as error:
            self._failed(error)
            raise

    async def aexecute(self, request: ToolCallRequest) -> Any:
        tool, call = self._begin(request)
        try:
            return self._end(await self.job.aoutput(tool, call))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)
            raise

    def _begin(self, request: ToolCallRequest) -> tuple[BaseTool, ToolCall]:
        """The tool and its call, with injected arguments."""
        if self._came and not self._again:
            raise RunsOnce
        self._came = "nothing yet"
        self.job.reached = True
        run, tool = self.job.run, request.tool or self.job.tool
        injector = run.deps.injector if tool is self.job.tool else Injector([tool])
        args = dict(request.tool_call["args"])
        call = ToolCall(name=tool.name, args=args, id=self.job.call.id, type="tool_call")
        filled = injector.filled(call, self.job.state, self.job.config, lambda: run.users_context)
        return tool, filled

    def _end(self, output: Any) -> Any:
        if isinstance(output, str):
            output = ToolMessage(output, tool_call_id=self.job.call.id, name=self.job.call.name)
        self._came = words(output.text if isinstance(output, ToolMessage) else output)
        return output

    def _failed(self, error: BaseException) -> None:
        if not gets_past(error):
            self._came = f"{type(error).__name__}: {words(error)}"

    def once(self) -> ToolMessage:
        """The result of a call that was about to run again."""
        text = self.job.run.deps.texts.results["once"]
        name = self.job.call.name
        said = text.format(name=name, result=self._came)
        return ToolMessage(said, tool_call_id=self.job.call.id, name=name, status="error")
