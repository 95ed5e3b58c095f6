"""Reads and writes the database beside the event loop, and ends before the database is closed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_THREADS = 8

P = ParamSpec("P")
T = TypeVar("T")


class Beside:
    """Threads of the server's own: those of asyncio might still read when the database is closed."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "signoff-web")

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` gives or raises, without holding up the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    async def end(self) -> None:
        """Waits for what is being done; what has not begun is left out."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
