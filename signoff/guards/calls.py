"""What `Guards` asks LangChain's loop for within a hook, and how it reads what a tool call gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from signoff.graph.foreign import being_ended, gets_past, unanswered
from signoff.graph.history.replies import Call
from signoff.guards.state import OWN
from signoff.guards.steps import GuardedRun
from signoff.nodes.tool_calls.run import ResultWriter, ToolResult


@dataclass(frozen=True)
class HandlerCall:
    """Asks what the hook stands around, in the sync or the async way that it was given."""

    handler: Callable[[Any], Any]
    given: Any

    def do(self, scope: object) -> Any:
        return self.handler(self.given)

    async def ado(self, scope: object) -> Any:
        return await self.handler(self.given)


@dataclass(frozen=True)
class Running:
    """Runs a call by LangChain's own node for tools; the result is a list of one, as `once` takes it."""

    asking: HandlerCall
    writer: ResultWriter

    def do(self, run: GuardedRun) -> list[ToolResult]:
        try:
            return [self._read(self.asking.do(run))]
        except BaseException as raised:  # noqa: BLE001  a tool may raise anything, which is its result
            return [self._broken(raised, run)]

    async def ado(self, run: GuardedRun) -> list[ToolResult]:
        try:
            return [self._read(await self.asking.ado(run))]
        except BaseException as raised:
            if being_ended(raised):
                raise
            return [self._broken(raised, run)]

    def _broken(self, raised: BaseException, run: GuardedRun) -> ToolResult:
        error = unanswered(raised, can_ask=run.can_ask)
        # `Goes` and what pauses or ends the run.
        if gets_past(error) or isinstance(raised, Goes):
            raise raised
        return self.writer.broken(error)

    def _read(self, output: Any) -> ToolResult:
        if isinstance(output, ToolMessage):
            return self._marked(output)
        update = getattr(output, "update", None)
        plain = isinstance(output, Command) and not (output.goto or output.graph or output.resume)
        if not plain or not isinstance(update, Mapping):
            raise Goes(output)
        messages = update.get("messages", [])
        messages = list(messages) if isinstance(messages, list | tuple) else [messages]
        own = [m for m in messages if _answers(m, self.writer.call)]
        if len(own) != 1:
            raise Goes(output)
        more = tuple(m for m in messages if m is not own[0])
        # A guarded child has channels of the same names. What it came to is told in its last message.
        rest = {key: value for key, value in update.items() if key != "messages" and key not in OWN}
        result = own[0].model_copy(update={"status": "error"}) if _failed(update.get("outcome")) else own[0]
        return replace(self._marked(result), more=more, update=rest)

    def _marked(self, message: ToolMessage) -> ToolResult:
        found = self.writer.finished(message)
        kept = {**message.additional_kwargs, **found.result.additional_kwargs}
        own = {"id": message.id, "additional_kwargs": kept, "response_metadata": message.response_metadata}
        return replace(found, result=found.result.model_copy(update=own))


def _answers(message: Any, call: Call) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == call.id


def _failed(outcome: Any) -> bool:
    """Whether this is the outcome of a guarded child that has not done its work, as for a delegate."""
    return isinstance(outcome, Mapping) and not (
        outcome.get("status") == "success" and outcome.get("claim") == "done"
    )


class Goes(BaseException):
    """A tool gave something that only LangGraph can read, such as a `Command` that goes somewhere."""

    def __init__(self, output: Any) -> None:
        super().__init__("not for the history")
        self.output = output
