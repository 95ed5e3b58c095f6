"""The requests that a generator may yield, and the drivers that carry them out in sync and async code.

A node, a session (`signoff/session/drive.py`) and the entry into a thread (`graph/compiled/inputs.py`) are
generators that yield requests (store operations, a model call, tool calls) and receive their results or
errors. `carry_out` runs a generator that returns a result, `tell` one that also yields events. Requests run
in a `scope`: the context of a node, or that of a session.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from langgraph.store.base import BaseStore, Op

_T = TypeVar("_T")

Part = Generator[Any, Any, _T]
"""A part of a node that yields requests and returns a value."""


@runtime_checkable
class Request(Protocol):
    """An operation that a generator waits for, in its sync and its async form."""

    def do(self, scope: Any) -> Any: ...

    async def ado(self, scope: Any) -> Any: ...


class HasStore(Protocol):
    """A scope with a store, or without one."""

    @property
    def store(self) -> BaseStore | None: ...


@dataclass(frozen=True)
class Store:
    """Operations on the store; without a store every result is None."""

    ops: Sequence[Op]

    def do(self, scope: HasStore) -> list[Any]:
        return scope.store.batch(self.ops) if scope.store and self.ops else [None] * len(self.ops)

    async def ado(self, scope: HasStore) -> list[Any]:
        return await scope.store.abatch(self.ops) if scope.store and self.ops else [None] * len(self.ops)


@dataclass(frozen=True)
class Swap:
    """Stores `after` if the value is still `before`; returns whether it did.

    Atomic if the store has a `swap` method (`sqlite_storage`). With any other store, two concurrent runners
    of a thread could both succeed.
    """

    namespace: tuple[str, ...]
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any]

    def do(self, scope: HasStore) -> bool:
        return scope.store is None or self.on(scope.store)

    def on(self, store: BaseStore) -> bool:
        """Performs the swap on `store`."""
        if swap := getattr(store, "swap", None):
            return bool(swap(self.namespace, self.key, self.before, self.after))
        item = store.get(self.namespace, self.key)
        if (item.value if item else None) != self.before:
            return False
        store.put(self.namespace, self.key, self.after)
        return True

    async def ado(self, scope: HasStore) -> bool:
        return await asyncio.to_thread(self.do, scope)


@dataclass(frozen=True)
class Files:
    """File operations, which must not block an event loop."""

    work: Callable[[], object]

    def do(self, scope: object) -> None:
        self.work()

    async def ado(self, scope: object) -> None:
        await asyncio.to_thread(self.work)


@dataclass(frozen=True)
class Operation:
    """An operation, given as a sync and an async function."""

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]

    def do(self, scope: object) -> Any:
        return self.call()

    async def ado(self, scope: object) -> Any:
        return await self.acall()


def carry_out(steps: Generator[Any, Any, _T], scope: object) -> _T:
    """Carries out the requests of `steps`; returns its result."""
    go_on: Callable[[], Any] = steps.__next__
    try:
        while True:
            go_on = _done(steps, go_on(), scope)
    except StopIteration as end:
        result: _T = end.value
        return result


async def acarry_out(steps: Generator[Any, Any, _T], scope: object) -> _T:
    """`carry_out`, for an event loop."""
    go_on: Callable[[], Any] = steps.__next__
    while True:
        try:
            request = go_on()
        except StopIteration as end:
            result: _T = end.value
            return result
        go_on = await _adone(steps, request, scope)


def tell(steps: Generator[Any, Any, None], scope: object) -> Generator[Any, None, None]:
    """Carries out the requests of `steps`; yields everything else."""
    go_on: Callable[[], Any] = steps.__next__
    while (item := _next(go_on)) is not _END:
        if isinstance(item, Request):
            go_on = _done(steps, item, scope)
        else:
            yield item
            go_on = steps.__next__


async def atell(steps: Generator[Any, Any, None], scope: object) -> AsyncGenerator[Any, None]:
    """`tell`, for an event loop."""
    go_on: Callable[[], Any] = steps.__next__
    while (item := _next(go_on)) is not _END:
        if isinstance(item, Request):
            go_on = await _adone(steps, item, scope)
        else:
            yield item
            go_on = steps.__next__


_END = object()


def _next(go_on: Callable[[], Any]) -> Any:
    try:
        return go_on()
    except StopIteration:
        return _END


def _done(steps: Generator[Any, Any, Any], request: Request, scope: object) -> Callable[[], Any]:
    """Carries out one request; returns how `steps` continues."""
    try:
        return partial(steps.send, request.do(scope))
    except BaseException as error:  # noqa: BLE001  whoever asked decides what an error means
        return partial(steps.throw, error)


async def _adone(steps: Generator[Any, Any, Any], request: Request, scope: object) -> Callable[[], Any]:
    try:
        return partial(steps.send, await request.ado(scope))
    except BaseException as error:  # noqa: BLE001  as above
        return partial(steps.throw, error)
