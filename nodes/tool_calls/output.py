"""Reads what a tool's own code returns to its end: a coroutine is awaited, a generator is read out.

A tool often returns something that has not run yet: an async function behind a sync decorator, a function
that yields, a `map`. LangChain would take its name for the result, a success of a call that did nothing. Here
it is run, in the place and the time of the call; what it raises is the call's error.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from concurrent.futures import Future
from contextvars import ContextVar
from copy import copy
from functools import lru_cache, wraps
from inspect import isasyncgen, iscoroutine
from itertools import islice
from operator import is_
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from signoff.graph.blocks import block_text, media_of, text_block
from signoff.graph.inside.private import share_private
from signoff.graph.inside.speed import started

MOST_ITEMS = 10_000
"""How many items of a generator are read."""
_DEEPEST = 8
_CONTAINERS = (Mapping, list, tuple, set, frozenset, deque, KeysView, ValuesView, ItemsView)
# The blocks that LangChain takes for content in a list.
_CONTENT = ("text", "image_url", "image", "json", "search_result", "document", "file")


Stops = list[Callable[[], object]]
PLACE: ContextVar[tuple[asyncio.AbstractEventLoop | None, Stops]] = ContextVar("PLACE")
"""Where a call runs: the event loop that waits for it, and is free; and how to stop what it awaits there."""


def reading(tool: BaseTool) -> BaseTool:
    """The tool, reading what its own code returns. It shares all fields with `tool`, which is not changed."""
    twin = copy(tool)
    twin.__class__ = _reading_class(type(tool))
    object.__setattr__(twin, "__dict__", tool.__dict__)
    share_private(twin, tool)
    return twin


@lru_cache(maxsize=256)
def _reading_class(kind: type[BaseTool]) -> type[BaseTool]:
    # LangChain looks at the signatures of these two for what it passes to them.
    @wraps(kind._run)
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return read(kind._run(self, *args, **kwargs))

    @wraps(kind._arun)
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await aread(await kind._arun(self, *args, **kwargs))

    methods = {"_run": _run} if kind._arun is BaseTool._arun else {"_run": _run, "_arun": _arun}
    metaclass: Any = type(kind)
    made: type[BaseTool] = metaclass(
        kind.__name__, (_Unnoticed, kind), {"__module__": kind.__module__, **methods}
    )
    return made


class _Unnoticed:
    """Keeps the making of a subclass from the class itself, which may list its subclasses."""

    def __init_subclass__(cls, **_: Any) -> None: ...

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None: ...


async def aread(output: Any) -> Any:
    """What `output` comes to, in an event loop, which is not blocked."""
    if isinstance(output, str | bytes | int | float | None):
        return output
    # This loop is free while it waits here, and what a tool has made in it can only be awaited in it.
    place = asyncio.get_running_loop(), PLACE.get((None, []))[1]

    def read_here() -> Any:
        PLACE.set(place)
        return read(output)

    return await asyncio.wrap_future(started(read_here))


def read(output: Any, depth: int = _DEEPEST) -> Any:
    """What `output` comes to, with its parts down to this depth. In a thread that may be blocked.

    Raises TypeError where an awaitable would be left that nobody has awaited.
    """
    is_read = False
    while (is_awaited := _is_awaited(output)) or _is_lazy(output):
        is_read, output = True, _in_loop(output) if is_awaited else _items(output)
    if isinstance(output, _CONTAINERS):
        output = _with_parts(output, depth)
    elif not isinstance(output, BaseMessage | Command):
        _check_nothing_waits(getattr(output, "__dict__", {}).values())
    if isinstance(output, ToolMessage) and isinstance(output.content, list):
        return output.model_copy(update={"content": _content(output.content)})
    if is_read and type(output) is list and output and all(isinstance(part, str) for part in output):
        return "\n".join(output)
    if type(output) is list and any(_is_strange(part, with_data=True) for part in output):
        return _content(output)
    return output


def _with_parts(output: Any, depth: int) -> Any:
    """The container with what its parts come to; itself if they are that already."""
    names, parts = list(output), list(output.values() if isinstance(output, Mapping) else output)
    if not depth:
        _check_nothing_waits(parts)
        return output
    made = [read(part, depth - 1) for part in parts]
    if all(map(is_, made, parts)):
        return output
    if isinstance(output, Mapping):
        return dict(zip(names, made, strict=True))
    return tuple(made) if isinstance(output, tuple) else made


def _check_nothing_waits(parts: Iterable[Any]) -> None:
    """Raises TypeError for a coroutine where it is not looked for, and so would never run."""
    for part in parts:
        if iscoroutine(part):
            # Else Python complains about it, too.
            part.close()
        if iscoroutine(part) or isasyncgen(part):
            raise TypeError("the result holds a coroutine that was never awaited; await it in the tool")


def _is_awaited(value: Any) -> bool:
    return isinstance(value, Awaitable | AsyncIterable | Future)


def _is_lazy(value: Any) -> bool:
    """Whether it gives its items only when it is iterated: an iterator, or an object with nothing to show."""
    kind: Any = type(value)
    return isinstance(value, Iterator) or (kind.__repr__ is object.__repr__ and isinstance(value, Iterable))


def _items(values: Any) -> Any:
    """What it gives, and what a generator returns at its end; only that if it gives nothing."""
    returned: list[Any] = []

    def read_out() -> Iterator[Any]:
        if (end := (yield from values)) is not None:
            returned.append(end)

    items = [*islice(read_out(), MOST_ITEMS + 1)]
    return _bounded([*items, *returned]) if items or not returned else returned[0]


def _bounded(items: list[Any]) -> list[Any]:
    if len(items) > MOST_ITEMS:
        items[MOST_ITEMS] = f"[... there are more than {MOST_ITEMS:,} items; the rest was not read ...]"
    return [item.removesuffix("\n") if isinstance(item, str) else item for item in items]


def _in_loop(value: Any) -> Any:
    """What comes of it in the loop that waits for the tool; without one, in a new loop in another thread."""
    loop, stops = PLACE.get((None, []))

    async def awaited() -> Any:
        here, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "this is a coroutine"
        stops.append(lambda: here.call_soon_threadsafe(task.cancel))
        left = value
        # All of it in this loop, which what is awaited may have taken hold of.
        while _is_awaited(left):
            if isinstance(left, AsyncIterable):
                left = await _aitems(left)
            else:
                left = await (asyncio.wrap_future(left) if isinstance(left, Future) else left)
        return left

    if loop is not None:
        return asyncio.run_coroutine_threadsafe(awaited(), loop).result()
    return started(lambda: asyncio.run(awaited())).result()


async def _aitems(values: AsyncIterable[Any]) -> list[Any]:
    items = list[Any]()
    async for item in values:
        items.append(item)
        if len(items) > MOST_ITEMS:
            break
    return _bounded(items)


def _content(parts: list[Any]) -> list[Any]:
    """What LangChain's tool node takes for content; else it would be one text with all of the data."""
    strange = [isinstance(part, str) or _is_strange(part) for part in parts]
    return [text_block(block_text(part)) if odd else part for odd, part in zip(strange, parts, strict=True)]


def _is_strange(part: Any, *, with_data: bool = False) -> bool:
    media = media_of(part)
    return media is not None and part["type"] not in _CONTENT and bool(media.data or not with_data)
