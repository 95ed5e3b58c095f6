"""Runs the server: its database, its hub and its shutdown."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import uvicorn

from signoff import SetupError
from signoff.front.database import Database
from signoff.front.settings import Given
from signoff.web.app import Application
from signoff.web.connection import Connection
from signoff.web.gate import Gate, check_opening
from signoff.web.hub import Hub

_MOST_CONNECTIONS = 600
_BACKLOG = 256


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket bound to this address. Raises SetupError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise SetupError(f"Port {port} of {host} cannot be used ({why}); try --port 0.") from error
    return listening


def serve(
    database: Database,
    given: Given,
    thread_id: str | None,
    listening: socket.socket,
    gate: Gate,
    say: Callable[[str], None],
) -> None:
    """Serves until SIGINT or SIGTERM, then pauses all runs, which can continue later."""
    check_opening(gate.host, gate.password, gate.proxy_header, gate.public)
    with database.open() as storage:
        hub: list[Hub] = []
        rested: list[bool] = []

        @asynccontextmanager
        async def lifetime() -> AsyncIterator[None]:
            hub.append(Hub(database, storage, given))
            watching = asyncio.create_task(hub[0].watch())
            say(address(gate, thread_id))
            try:
                yield
            finally:
                rested.append(await hub[0].end())
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

        app = Application(lambda: hub[0], gate, lifetime)
        config = uvicorn.Config(
            app.asgi,
            http=Connection,
            ws="none",
            access_log=False,
            # Malformed requests from strangers are not worth a log entry.
            log_level="error",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        server = WebServer(config, hub)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
        if hub:
            hub[0].models.close()
        if rested == [False]:
            # A model call cannot be cancelled from here, and everything finished is saved.
            os._exit(0)


class WebServer(uvicorn.Server):
    """Ends the streams at once; otherwise the server would wait for them."""

    def __init__(self, config: uvicorn.Config, hub: list[Hub]) -> None:
        super().__init__(config)
        self._hub = hub

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does not raise the signals again, as Uvicorn would before models and terminals have ended."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for hub in self._hub:
            hub.closing.set()
        await super().shutdown(sockets)


def address(gate: Gate, thread_id: str | None) -> str:
    """Returns the address to open. The token is in the fragment, which a browser never sends to a server."""
    from urllib.parse import quote

    words = []
    if gate.password is None and gate.proxy_header is None:
        words.append(f"token={gate.token}")
    if thread_id is not None:
        words.append(f"thread={quote(thread_id, safe='')}")
    return f"{gate.origin}/{'#' if words else ''}{'&'.join(words)}"
