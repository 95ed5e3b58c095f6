"""Reads and writes the database off the event loop, and finishes before the database is closed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_THREADS = 8

P = ParamSpec("P")
T = TypeVar("T")


class Beside:
    """Its own thread pool: asyncio's threads might still read when the database is closed."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "signoff-web")

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns or raises what `work` does, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    async def end(self) -> None:
        """Waits for work in progress; drops work that has not begun."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
