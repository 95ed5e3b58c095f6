"""Calls the user's functions for the prompt and the tools before each model call.

They run within the bounds of that call: a function that hangs, or delays a stop, is ended like a model call.
"""

import asyncio
import reprlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

from signoff.graph.foreign import gets_past, unanswered, words
from signoff.graph.state import AgentState
from signoff.nodes.model.stream import CallBounds, EarlyEnd, acall, acall_in_thread, call, watch_of
from signoff.nodes.model.trying import WaitEnded
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.tools.toolbox import Toolbox, provider_name

_T = TypeVar("_T")


class FunctionFailed(Exception):
    """A user's function has failed or returned something invalid; the message names it and says why."""


@dataclass(frozen=True)
class AskFunction:
    """Calls a function of (state, context), sync or async, and returns its value.

    option: the argument of `build_graph` that named it. Raises FunctionFailed if it raises or takes too long,
    and WaitEnded if the run is asked to stop.
    """

    option: str
    function: Callable[[Any, Any], Any]
    state: Mapping[str, Any]
    context: Any
    bounds: CallBounds
    can_ask: bool

    def do(self, run: NodeContext) -> Any:
        return self._checked(*call(self.bounds, self._call_in_thread))

    async def ado(self, run: NodeContext) -> Any:
        if iscoroutinefunction(self.function):
            found: Any = self.function(self.state, self.context)
        else:
            # It may do I/O, and a server forbids such blocking in its event loop.
            found = self._checked(*await acall_in_thread(self.bounds, self._returned))
        if not isawaitable(found):
            return found
        try:
            given, error = await acall(self.bounds, partial(_awaited, found))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as raised:  # noqa: BLE001  a function may raise anything, as one in a thread may
            given, error = [], raised
        return self._checked(given, error)

    def _returned(self) -> Iterator[Any]:
        yield self.function(self.state, self.context)

    def _call_in_thread(self) -> Iterator[Any]:
        """What it comes to in a thread without an event loop."""
        found = self.function(self.state, self.context)
        if isawaitable(found):
            found = self._checked(*asyncio.run(acall(self.bounds, partial(_awaited, found))))
        yield found

    def _checked(self, given: list[_T], error: BaseException | None) -> _T:
        if given:
            return given[0]
        if self.bounds.end is EarlyEnd.STOPPED:
            raise WaitEnded from error
        if self.bounds.end is not None:
            raise self.failed(f"did not return in time ({_LIMIT[self.bounds.end]})") from error
        assert error is not None, "it has given nothing"
        error = unanswered(error, can_ask=self.can_ask)
        if gets_past(error) or isinstance(error, FunctionFailed | WaitEnded):
            raise error
        raise self.failed(f"raised {type(error).__name__}: {words(error)}") from error

    def failed(self, why: str) -> FunctionFailed:
        name = name_of(self.function)
        return FunctionFailed(f"The function passed as {self.option}= ({name}) {why.rstrip('.')}")


_LIMIT = {EarlyEnd.SILENT: "model_seconds", EarlyEnd.SECONDS: "the task's limit of seconds"}


async def _awaited(found: Awaitable[_T]) -> AsyncIterator[_T]:
    yield await found


def name_of(function: object) -> str:
    """The name of a function, for error messages."""
    found = getattr(function, "__name__", None) or getattr(function, "func", None) or type(function)
    return found if isinstance(found, str) else name_of(found)


def asking(
    option: str, function: Callable[[Any, Any], Any], context: Any, state: AgentState, run: NodeContext
) -> AskFunction:
    """The request by which `function` is asked, in the bounds of the model call that it is asked for."""
    control = run.control
    bounds = watch_of(run.task(state), run.limits, silence=run.model_seconds, chars=None, control=control)
    return AskFunction(option, function, dict(state), context, bounds, run.can_ask)


def picked_names(asked: AskFunction, box: Toolbox) -> Part[tuple[str, ...] | None]:
    """A part of a node: the names of the tools that the function picks, in the order of the graph; None for
    all. Raises as the request, and when it picks what the graph does not have."""
    found = yield asked
    if found is None:
        return None
    try:
        if isinstance(found, str | Mapping):
            raise TypeError("pass a list of them")
        names = {_tool_name(one) for one in found}
    except Exception as error:
        raise asked.failed(
            f"returned {reprlib.repr(found)}, and not the tools to offer ({type(error).__name__}: "
            f"{words(error)})"
        ) from error
    known = (*box.tools, *box.provided)
    if unknown := sorted(names - {*known, *box.controls}):
        raise asked.failed(
            f"picked {', '.join(unknown)}, which this graph does not have; its tools are: {', '.join(known)}"
        )
    return tuple(name for name in known if name in names)


def _tool_name(picked: Any) -> str:
    if isinstance(picked, Mapping):
        return provider_name(picked)
    return picked if isinstance(picked, str) else getattr(picked, "name", None) or picked.__name__
