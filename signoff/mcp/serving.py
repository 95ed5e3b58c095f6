"""Serves one client over stdin and stdout, until it disconnects or the process is asked to end."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage

from signoff.front.database import Database
from signoff.front.driving import pause_all
from signoff.front.settings import Given
from signoff.front.stdio import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    BadLine,
    StdioLines,
    dump_message,
    read_message,
)
from signoff.load import load_graph
from signoff.mcp.server import TaskServer

_CLOSING_SECONDS = 2.0


def serve(database: Database, given: Given, named: str | None, reading: BinaryIO, writing: BinaryIO) -> None:
    """Serves, then pauses all runs, which can continue later. named: the user's own graph."""
    with database.open() as storage:
        saved = {"checkpointer": storage.checkpointer, "store": storage.store}
        own = None if named is None else load_graph(named).copy(saved)
        server = TaskServer(database, storage, given, own)
        rested = asyncio.run(_serve(server, reading, writing))
        server.models.close()
    if not rested:
        # A model call cannot be cancelled from here, and everything finished is saved.
        os._exit(0)


async def _serve(server: TaskServer, reading: BinaryIO, writing: BinaryIO) -> bool:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    lines = StdioLines(reading, writing)
    serving = asyncio.ensure_future(over_lines(server, lines))
    ending = asyncio.ensure_future(ends.wait())
    await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    # First, so that everything that waits to read from or write to the client learns that it has gone.
    lines.close()
    rested = await pause_all(list(server.drivers.values()))
    await asyncio.wait({serving}, timeout=_CLOSING_SECONDS)
    for task in (serving, ending):
        task.cancel()
    return rested


async def over_lines(server: TaskServer, lines: StdioLines) -> None:
    """Serves one client, line by line; returns when it has disconnected."""
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with into:
            while (line := await lines.read()) is not None:
                found = read_message(line)
                if found is None:
                    continue
                made = found if isinstance(found, BadLine) else _convert_message(found)
                if isinstance(made, BadLine):
                    await write(made.document())
                else:
                    await into.send(SessionMessage(made))

    async def write(message: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            await lines.write(dump_message(message))

    async def send() -> None:
        async with out_of:
            async for sent in out_of:
                await write(sent.message.model_dump(mode="json", by_alias=True, exclude_none=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(send)
        await server.run(incoming, outgoing)
        tasks.cancel_scope.cancel()


def _convert_message(found: Mapping[str, Any]) -> JSONRPCMessage | BadLine:
    """Returns the message in the package's form. An invalid response becomes an error for its waiter."""
    try:
        return JSONRPCMessage.model_validate(found)
    except ValueError:
        if "method" in found:
            return BadLine(INVALID_REQUEST, "This is not a message of MCP.", found.get("id"))
    told = ErrorData(code=INTERNAL_ERROR, message="The answer does not fit the protocol.")
    return JSONRPCMessage(JSONRPCError(jsonrpc="2.0", id=found["id"], error=told))
