"""Who opens connections and asks for nothing keeps nobody out; who asks is served as long as it takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from signoff.web.connection import Connection

SECONDS = 0.3
MANY = 50_000_000


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(3 * SECONDS if scope["path"] == "/slow" else 0)
        body = b"ok" + b" " * (MANY if scope["path"] == "/much" else 0)
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, http=Connection, ws="none", log_config=None, timeout_keep_alive=60)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
SENT: dict[str, tuple[bytes, bool]] = {
    "nothing": (b"", False),
    "half a head": (HEAD, False),
    "half a second head": (HEAD + b"\r\n" + HEAD, False),
    "a body that has been answered already": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n" + b" " * 70_000,
        False,
    ),
    "a request that takes long": (b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", True),
}


@pytest.mark.parametrize("name", SENT)
async def test_a_connection_that_asks_for_nothing_is_closed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signoff.web.connection.HEAD_SECONDS", SECONDS)
    data, kept = SENT[name]
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in (data[:20], data[20:]):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        if kept:
            async with asyncio.timeout(10 * SECONDS):
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        else:
            async with asyncio.timeout(10 * SECONDS):
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("reads", [False, True])
async def test_a_connection_that_takes_nothing_of_its_answer_is_closed(
    reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signoff.web.connection.TAKE_SECONDS", SECONDS)
    async with listening() as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /much HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = 0
        with suppress(ConnectionError):
            if not reads:
                await asyncio.sleep(4 * SECONDS)
            while part := await reader.read(1_000_000):
                got += len(part)
                await asyncio.sleep(SECONDS / 100)
        assert (got > MANY) is reads
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
