"""What wraps a model call: each middleware gets a request and a handler, the first in the list outermost.

Its changes to the request are sent, but do not change the history. The control tools are not part of a
request: they are offered with whatever tools it names. The innermost handler calls the model in the graph's
usual way, with guard, bounds and retries; so it does with a model that a middleware puts in its place.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain.agents.middleware import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage, convert_to_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.tools import BaseTool
from langgraph.types import Command

from signoff.graph.foreign import gets_past
from signoff.graph.history.replies import normal
from signoff.graph.limits import Prices
from signoff.graph.messages import append_messages
from signoff.graph.prompt.prompt import system_message
from signoff.graph.state import AgentState
from signoff.graph.values import sound_reply
from signoff.nodes.middleware.changes import CannotWrite, Changes, provider_words
from signoff.nodes.middleware.given import Given
from signoff.nodes.model.advice import refuses
from signoff.nodes.model.heard import Heard
from signoff.nodes.model.models import AskedModel
from signoff.nodes.model.prices import prices_of
from signoff.nodes.model.stream import EarlyEnd
from signoff.nodes.model.summary import spent_more
from signoff.nodes.node import NodeContext, Report
from signoff.nodes.requests import Part, acarry_out, carry_out
from signoff.tools.toolbox import Toolbox, provider_name

_NOTHING = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
Request = ModelRequest[Any]


class CallStopped(BaseException):
    """The run was asked to stop. Not an Exception, so that a middleware does not treat it as a failure and
    retry."""


@dataclass
class Composed:
    """The result of a wrapped call; commands: innermost first."""

    response: ModelResponse[Any]
    commands: list[Command[Any]] = field(default_factory=list)


def composed(given: Any, before: Sequence[Command[Any]], whose: str) -> Composed:
    """A middleware's return value. before: the commands of the middleware inside it, from their last call."""
    commands = list(before)
    if isinstance(given, ExtendedModelResponse):
        commands += [given.command] if given.command is not None else []
        given = given.model_response
    if isinstance(given, AIMessage):
        given = ModelResponse(result=[given])
    if not isinstance(given, ModelResponse):
        raise CannotWrite(
            f"wrap_model_call of the middleware {whose} returned a {type(given).__name__}; it must return a "
            "ModelResponse, an AIMessage or an ExtendedModelResponse"
        )
    return Composed(given, commands)


@dataclass
class Failures:
    """The errors that middleware of one call raised of its own accord, each with the name of the middleware.

    They pass through the middleware around it as they are: one that retries or falls back chooses by class.
    """

    own: list[tuple[Exception, str]] = field(default_factory=list)

    def note(self, error: Exception, passed: Sequence[Exception], whose: str) -> None:
        """passed: the errors that the middleware's handler has raised."""
        known = error, error.__cause__, error.__context__
        if not any(one is each for one in known for each in passed):
            self.own.append((error, whose))

    def raise_from(self, error: Exception) -> None:
        """Raises CannotWrite when a middleware's own code has failed: the advice for a model error would be
        misleading. But that the model refused is said of the model."""
        whose = next((name for one, name in self.own if one is error), None)
        if whose is None or gets_past(error) or isinstance(error, CannotWrite) or refuses(error):
            return
        raise CannotWrite(
            f"wrap_model_call of the middleware {whose} failed ({type(error).__name__}: {error})"
        ) from error


Handler = Callable[[Request], Composed]
AsyncHandler = Callable[[Request], Awaitable[Composed]]


def layer(one: Given, inner: Handler, failures: Failures) -> Handler:
    """`inner` with this middleware around it."""

    def called(request: Request) -> Composed:
        last, passed = list[Command[Any]](), list[Exception]()

        def handler(request: Request) -> ModelResponse[Any]:
            last.clear()
            try:
                found = inner(request)
            except Exception as error:
                passed.append(error)
                raise
            last.extend(found.commands)
            return found.response

        try:
            given = one.wrap_model_call(request, handler)
        except Exception as error:
            failures.note(error, passed, one.name)
            raise
        return composed(given, last, one.name)

    return called


def alayer(one: Given, inner: AsyncHandler, failures: Failures) -> AsyncHandler:
    """`layer`, for an event loop."""

    async def called(request: Request) -> Composed:
        last, passed = list[Command[Any]](), list[Exception]()

        async def handler(request: Request) -> ModelResponse[Any]:
            last.clear()
            try:
                found = await inner(request)
            except Exception as error:
                passed.append(error)
                raise
            last.extend(found.commands)
            return found.response

        try:
            given = await one.awrap_model_call(request, handler)
        except Exception as error:
            failures.note(error, passed, one.name)
            raise
        return composed(given, last, one.name)

    return called


@dataclass(frozen=True)
class Through:
    """Calls the model through all wrappers; returns the result, None if it was stopped.

    heard: hears the models that a wrapper calls itself."""

    around: Sequence[Given]
    request: Request
    ask: Callable[[Request], Part[AIMessage]]
    heard: Heard

    def do(self, run: NodeContext) -> Composed | None:
        def ask(request: Request) -> Composed:
            return Composed(ModelResponse(result=[carry_out(self.ask(request), run)]))

        handler: Handler = ask
        failures = Failures()
        for one in reversed(self.around):
            handler = layer(one, handler, failures)
        try:
            with self.heard.listening():
                return handler(self.request)
        except CallStopped:
            return None
        except Exception as error:
            failures.raise_from(error)
            raise

    async def ado(self, run: NodeContext) -> Composed | None:
        async def ask(request: Request) -> Composed:
            return Composed(ModelResponse(result=[await acarry_out(self.ask(request), run)]))

        handler: AsyncHandler = ask
        failures = Failures()
        for one in reversed(self.around):
            handler = alayer(one, handler, failures)
        try:
            with self.heard.listening():
                return await handler(self.request)
        except CallStopped:
            return None
        except Exception as error:
            failures.raise_from(error)
            raise


@dataclass
class WrappedCall:
    """The reply, None if it was stopped; and what to write beside it."""

    message: AIMessage | None
    state: AgentState
    run: NodeContext
    results: Sequence[BaseMessage] = ()
    commands: Sequence[Command[Any]] = ()
    dropped: Sequence[tuple[AIMessage, int]] = ()

    def beside(self, report: Report) -> Report:
        """The report of the reply, with everything to write beside it. Raises CannotWrite."""
        messages = report.update.get("messages", [])
        before: AgentState = {**self.state, "messages": append_messages(self.state["messages"], [messages])}
        changes = Changes(before, self.run)
        if self.results:
            changes.say(list(self.results))
        for command in self.commands:
            if command.update and "jump_to" in command.update:
                raise CannotWrite(
                    "it jumps in a Command of wrap_model_call; jump in before_model or after_model"
                )
            changes.take(command)
        update: dict[str, Any] = {**report.update, **changes.update()}
        if changes.messages:
            update["messages"] = [*messages, *changes.messages.values()]
        if self.dropped:
            update["spent"] = spent_on(self.dropped, self.state)
        return replace(report, update=update)


def spent_on(dropped: Sequence[tuple[AIMessage, int]], state: AgentState) -> Any:
    """The usage beside the kept replies, with these discarded ones added."""
    spent, task = state.get("spent"), state.get("task", "")
    for message, shown in dropped:
        usage = message.usage_metadata
        read, wrote = (usage["input_tokens"], usage["output_tokens"]) if usage else (shown, tokens([message]))
        spent = spent_more(spent, task, read, wrote, estimated=usage is None)
    return spent


def wrapped_call(
    around: Sequence[Given], call: Any, state: AgentState, run: NodeContext
) -> Part[WrappedCall]:
    """A part of `call_llm`: calls the models of `call` through all wrappers."""
    asking = _Asking(call, state, run)
    found = yield Through(around, asking.request, asking.ask, asking.heard)
    if found is None:
        return WrappedCall(None, state, run, dropped=asking.came)
    message, results = _reply(found.response.result)
    kept, dropped = asking.sorted(message)
    return WrappedCall(kept, state, run, results, found.commands, dropped)


def _reply(result: Sequence[Any]) -> tuple[AIMessage, list[BaseMessage]]:
    """The reply, and the results that a middleware gave with it."""
    replies = [one for one in result if isinstance(one, AIMessage)]
    results = [one for one in result if isinstance(one, ToolMessage)]
    if len(replies) != 1 or len(results) + 1 != len(result):
        kinds = ", ".join(type(one).__name__ for one in result) or "nothing"
        raise CannotWrite(
            f"wrap_model_call returned {kinds}; it must return one AIMessage, with its ToolMessages, if any"
        )
    return replies[0], list(results)


def _name_of(tool: Any) -> str:
    return str(getattr(tool, "name", "")) if isinstance(tool, BaseTool) else provider_name(tool)


def _offered(box: Toolbox) -> list[Any]:
    """The working tools, and the provider's own tools."""
    return [*box.tools.values(), *box.provided.values()]


class _Asking:
    """One call, which may be requested several times."""

    def __init__(self, call: Any, state: AgentState, run: NodeContext) -> None:
        self.call, self.state, self.run = call, state, run
        self.heard = Heard()
        self.came: list[tuple[AIMessage, int]] = call.came
        self.handed: list[AIMessage] = []
        own = call.shown.own
        self._prompt = (SystemMessage(own) if own else None) if isinstance(own, str) else own
        self._shown = call.shown
        self.request: Request = ModelRequest(
            model=call.model.model,
            messages=call.shown.messages[1:],
            system_message=self._prompt,
            tools=_offered(run.deps.toolbox),
            state=cast(Any, {**state, "messages": list(state["messages"])}),
            runtime=run.users_runtime,
        )
        self._tools = list(self.request.tools)
        self._messages = list(self.request.messages)

    def ask(self, request: Request) -> Part[AIMessage]:
        """A part of a node: the reply to this request. Raises CallStopped if the run is asked to stop."""
        if self.run.draining and self.came:
            raise CallStopped
        prompt = self._new_prompt(request)
        message = yield from self.call.reply(self._model(request), prompt)
        if message is None:
            raise CallStopped
        # The middleware may change its message in place.
        self.handed.append(message)
        kept = message.model_copy(update={"response_metadata": dict(message.response_metadata)})
        self.came.append((kept, self.call.shown.size))
        self._spend(message)
        return message  # type: ignore[no-any-return]  # of `ModelCall`

    def _new_prompt(self, request: Request) -> list[BaseMessage]:
        before: list[BaseMessage] = self._shown.messages
        system = before[0]
        if request.system_message is not self._prompt:
            told = self.run.deps.prompt_with(request.system_message or "")
            system = system_message(self.run.reader(self.state), told)
        messages = convert_to_messages(request.messages)
        same = len(messages) == len(self._messages) and all(
            one is other for one, other in zip(messages, self._messages, strict=True)
        )
        if same and system is before[0]:
            self.call.shown = self._shown
            return before
        prompt = [system, *messages]
        more = tokens(prompt) - tokens(before)
        self.call.shown = replace(self._shown, messages=prompt, size=max(0, self._shown.size + more))
        return prompt

    def _model(self, request: Request) -> AskedModel:
        if request.response_format is not None:
            raise CannotWrite(
                "A middleware sets request.response_format; pass response_format= to build_graph instead, so "
                "that the finish carries the result."
            )
        box, options = self.run.deps.toolbox, dict(request.model_settings)
        if request.tool_choice is not None:
            options["tool_choice"] = request.tool_choice
        for tool in request.tools:
            if isinstance(tool, BaseTool) and tool.name not in box.tools:
                raise CannotWrite(
                    f"A middleware offers the tool {tool.name!r}, which the graph does not have; add it to "
                    "tools= of the graph, or to `tools` of the middleware."
                )
        model: AskedModel = self.call.model
        self.call.prices = None
        if request.model is not model.model:
            model = model.replaced(request.model, box)
            self.call.prices = self._prices_of(request.model)
        offered = list(request.tools)
        same = len(offered) == len(self._tools) and all(
            one is other for one, other in zip(offered, self._tools, strict=True)
        )
        names = None if same else tuple(name for name in map(_name_of, offered) if name)
        self.call.names = names
        return model if same and not options else model.offering(offered, options)

    def _prices_of(self, model: Any) -> Prices | None:
        """The prices of a model in place of the graph's, if the cost is limited by those of the graph's
        model. Raises SetupError where they are not known: the limit would not hold."""
        limits = self.run.limits
        by_model = self.run.deps.priced is not None and limits.cost is not None
        return prices_of(model) if by_model else None

    def _spend(self, message: AIMessage) -> None:
        """Subtracts the usage of the reply from the bound for a further one."""
        if (bound := self.call.watch.tokens) is not None:
            usage: Mapping[str, Any] = message.usage_metadata or {}
            wrote = usage.get("output_tokens") or tokens([message])
            read = usage.get("input_tokens") or self.call.shown.size
            # A bound of cost is counted in output tokens.
            spent = wrote + read if bound[1] is EarlyEnd.TOKENS else wrote
            self.call.watch.tokens = (max(0, bound[0] - spent), bound[1])

    def _with_metadata(self, message: AIMessage, own: int | None) -> AIMessage:
        """The message with the provider's metadata of the reply that it copies, or whose calls it has."""
        last = self.came[-1][0] if self.came else None
        copies = last is not None and message.tool_calls and message.tool_calls == last.tool_calls
        old = self.came[own][0] if own is not None else last if copies else None
        if old is None:
            return message
        return message.model_copy(update={"response_metadata": provider_words(message, old)})

    def sorted(self, message: AIMessage) -> tuple[AIMessage, list[tuple[AIMessage, int]]]:
        """The reply to keep, and the replies that are discarded."""
        own = next((at for at, one in enumerate(self.handed) if one is message), None)
        message = self.heard.as_received(message) if own is None else normal(sound_reply(message))
        if own is None:
            own = next((at for at, (one, _) in enumerate(self.came) if one.id and one.id == message.id), None)
        message = self._with_metadata(message, own)
        if own is None and message.usage_metadata is None:
            # The middleware's own text: it replaces the last reply, or cost nothing.
            own = len(self.came) - 1 if self.came else None
            usage = self.came[own][0].usage_metadata if own is not None else _NOTHING
            message = message.model_copy(update={"usage_metadata": usage})
        elif message.usage_metadata is None and own is not None:
            message = message.model_copy(update={"usage_metadata": self.came[own][0].usage_metadata})
        return message, [one for at, one in enumerate(self.came) if at != own]
