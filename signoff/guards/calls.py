"""Calls LangChain's handlers from the hooks of `Guards`, and reads the results of tool calls."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool
from langchain_core.tracers.context import register_configure_hook
from langgraph.types import Command

from signoff.graph.foreign import being_ended, gets_past, unanswered
from signoff.graph.values import is_sound, saves, sound_extras, sound_message
from signoff.guards.persons import as_reminder
from signoff.guards.state import OWN
from signoff.guards.steps import GuardedRun
from signoff.nodes.model.heard import Setting
from signoff.nodes.tool_calls.output import PLACE
from signoff.nodes.tool_calls.returned import joined
from signoff.nodes.tool_calls.run import FROM_TOOL, ResultWriter, ToolResult

_NOTHING = nullcontext()


@dataclass(init=False)
class GuardedRequest(ModelRequest[Any]):
    """A request for a reply that guards its model, whichever other middleware chooses: LangChain makes each
    changed copy of it by this constructor."""

    guard: Callable[[BaseChatModel], BaseChatModel] = field(kw_only=True)

    def __init__(
        self, *, guard: Callable[[BaseChatModel], BaseChatModel], model: BaseChatModel, **others: Any
    ) -> None:
        # The request warns of an attribute that is set, and LangChain 1.4 sets its own by `__setattr__`.
        object.__setattr__(self, "guard", guard)
        super().__init__(model=guard(model), **others)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, self.guard(value) if name == "model" else value)

    @classmethod
    def of(
        cls, request: ModelRequest[Any], guard: Callable[[BaseChatModel], BaseChatModel], **changed: Any
    ) -> "GuardedRequest":
        """The same request, with what has changed."""
        same = {each.name: getattr(request, each.name) for each in fields(ModelRequest)}
        return cls(guard=guard, **{**same, **changed})


@dataclass(frozen=True)
class HandlerCall:
    """Calls the handler that the hook wraps, sync or async as given. within: entered for the call."""

    handler: Callable[[Any], Any]
    given: Any
    within: AbstractContextManager[object] = _NOTHING

    def do(self, scope: object) -> Any:
        with self.within:
            return self.handler(self.given)

    async def ado(self, scope: object) -> Any:
        with self.within:
            return await self.handler(self.given)


class Start(BaseCallbackHandler):
    """Records that a tool starts, whichever it is: a middleware after `Guards` may have substituted another
    one."""

    # In the context of the call, before the tool starts.
    run_inline = True

    def __init__(self) -> None:
        self.noted = False

    def on_tool_start(self, *args: Any, **kwargs: Any) -> None:
        self.noted = True
        # Runs inside the tool need no callback.
        _start.set(None)


_start = ContextVar[Start | None]("_start", default=None)
register_configure_hook(_start, inheritable=False)


_RUNS = ("invoke", "ainvoke", "run", "arun")


def _tells_its_start(tool: BaseTool) -> bool:
    """Whether it runs through LangChain's own code, which notifies callbacks of its start."""
    return all(getattr(type(tool), way).__module__.startswith("langchain_core.") for way in _RUNS)


@dataclass(frozen=True)
class Running:
    """Runs a call through LangChain's own tool node; the result is a list of one, as `once` expects.

    start: records whether the tool has started; None where there is no journal that depends on it, which
    spares LangChain's callbacks.
    """

    asking: HandlerCall
    writer: ResultWriter
    start: Start | None

    @property
    def reached(self) -> bool:
        """Whether the tool has started, or may have: a middleware between it and `Guards` may ask a person
        first."""
        tool = self.asking.given.tool
        noted = self.start is None or self.start.noted
        return noted or (tool is not None and not _tells_its_start(tool))

    def do(self, run: GuardedRun) -> list[ToolResult]:
        PLACE.set((None, []))
        try:
            with Setting(_start, self.start):
                return [self._read(self.asking.do(run))]
        except BaseException as raised:  # noqa: BLE001  a tool may raise anything, which is its result
            return [self._broken(raised, run)]

    async def ado(self, run: GuardedRun) -> list[ToolResult]:
        PLACE.set((asyncio.get_running_loop(), []))
        try:
            with Setting(_start, self.start):
                return [self._read(await self.asking.ado(run))]
        except BaseException as raised:
            if being_ended(raised):
                raise
            return [self._broken(raised, run)]

    def _broken(self, raised: BaseException, run: GuardedRun) -> ToolResult:
        error = unanswered(raised, can_ask=run.can_ask)
        # `Goes`, and exceptions that pause or end the run.
        if gets_past(error) or isinstance(raised, Goes):
            raise raised
        return self.writer.broken(error)

    def _read(self, output: Any) -> ToolResult:
        if isinstance(output, ToolMessage):
            return self._marked(output)
        if isinstance(output, list):
            output = joined(output)
        commands = [
            one for one in (output if isinstance(output, list) else [output]) if isinstance(one, Command)
        ]
        if any(one.goto or one.graph or one.resume for one in commands):
            raise Goes(output)
        if not isinstance(output, Command) or not isinstance(output.update, Mapping):
            return self.writer.finished(output)
        update, given = output.update, output.update.get("messages", [])
        messages = convert_to_messages(given if isinstance(given, list | tuple) else [given])
        call_id = self.writer.call.id
        own = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id]
        more = tuple(self._beside(m) for m in messages if own != [m])
        if len(own) != 1:
            raise Goes(replace(output, update={**update, "messages": list(more)} if more else update))
        # A guarded child has channels with the same names. Its last message reports its outcome.
        rest = {key: value for key, value in update.items() if key != "messages" and key not in OWN}
        if self.writer.run.store is not None and not all(
            is_sound(one) or saves(one) for one in rest.values()
        ):
            raise TypeError("it writes a value that cannot be stored")
        result = own[0].model_copy(update={"status": "error"}) if _failed(update.get("outcome")) else own[0]
        return replace(self._marked(result), more=more, update=rest)

    def _beside(self, message: BaseMessage) -> BaseMessage:
        """A message that the tool adds. One in the user's role is marked so that it does not count as the
        user's; one of the history keeps its marks."""
        if isinstance(message, RemoveMessage) or message in self.writer.state["messages"]:
            return message
        message = sound_message(message)
        return as_reminder(message, FROM_TOOL) if isinstance(message, HumanMessage) else message

    def _marked(self, message: ToolMessage) -> ToolResult:
        found = self.writer.finished(message)
        # Just written, so nobody else holds it, and it need not be copied.
        written = found.result
        fields = vars(message)
        written.response_metadata = sound_extras(fields.get("response_metadata"))
        extras = sound_extras(fields.get("additional_kwargs"))
        written.additional_kwargs = {**extras, **written.additional_kwargs}
        return found


def _failed(outcome: Any) -> bool:
    """Whether this is the outcome of a guarded child that failed, judged as for a delegate."""
    if not isinstance(outcome, Mapping) or not {"status", "claim", "reason"} <= outcome.keys():
        return False
    return (outcome["status"], outcome["claim"]) != ("success", "done")


class Goes(BaseException):
    """A tool returned something that only LangGraph can handle, such as a `Command` with a goto."""

    def __init__(self, output: Any) -> None:
        super().__init__("not for the history")
        self.output = output
