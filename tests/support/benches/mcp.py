"""The command `signoff mcp` on a bench, driven by the client of the package `mcp`."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, ElicitResult, ErrorData

from signoff.front.driving import pause_all
from signoff.front.settings import Given
from signoff.graph.build import Graph
from signoff.mcp.server import TaskServer
from tests.support.benches.project import ProjectBench

SECONDS = 60.0
NEVER = "never"
"""A person who never answers."""
FAILS = "fails"
"""A client whose dialog fails."""


class Client:
    """A session with a server. decisions: what its person fills in, one form after the other; None for a form
    that they put away. asked: the forms. progress: what it was told of the task."""

    def __init__(self, decisions: Sequence[Any]) -> None:
        self.decisions = list(decisions)
        self.asked: list[Any] = []
        self.progress: list[tuple[float, float | None, str | None]] = []
        self.session: ClientSession
        self.server: TaskServer | None = None

    async def fill_in(self, _: Any, params: Any) -> ElicitResult | ErrorData:
        self.asked.append(params)
        filled = self.decisions.pop(0)
        if filled == FAILS:
            return ErrorData(code=-32000, message="There is no window.")
        if filled == NEVER:
            await asyncio.Event().wait()
        if filled is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=filled)

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append((progress, total, message))

        async with asyncio.timeout(SECONDS):
            return await self.session.call_tool(name, arguments, progress_callback=heard)

    async def told(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a call."""
        return dict((await self.call(name, **arguments)).structuredContent or {})

    async def refused(self, name: str, **arguments: Any) -> str:
        """Why a call was refused."""
        found: Any = await self.call(name, **arguments)
        assert found.isError
        return str(found.content[0].text)


class McpBench(ProjectBench):
    """A workspace, a database, scripted models, and servers on them."""

    def command(self, steps: str, *options: str, delay: float = 0.0) -> list[str]:
        return [
            *(sys.executable, "-m", "signoff.cli", "mcp", "--model", self.model(steps, delay)),
            *("--config", "none", "--database", str(self.database.where), "--tools", "files,shell", *options),
        ]

    @asynccontextmanager
    async def inside(
        self,
        steps: str,
        *decisions: Any,
        forms: bool = False,
        own: Graph | None = None,
        delay: float = 0.0,
        **given: Any,
    ) -> AsyncIterator[Client]:
        """A server in the event loop of the test."""
        options = {"workspace": self.workspace, "tools": "files,shell", "model": self.model(steps, delay)}
        client = Client(decisions)
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with self.database.open() as storage:
            saved = {"checkpointer": storage.checkpointer, "store": storage.store}
            graph = own.copy(saved) if own else None
            server = TaskServer(self.database, storage, Given(**({} if own else {**options, **given})), graph)
            client.server = server
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run, from_client, to_client)
                writing: Any = to_server
                callback: Any = client.fill_in if forms else None
                async with ClientSession(from_server, writing, elicitation_callback=callback) as session:
                    client.session = session
                    await session.initialize()
                    yield client
                tasks.cancel_scope.cancel()
            await pause_all(list(server.drivers.values()))
            server.models.close()

    @asynccontextmanager
    async def started(
        self, command: Sequence[str], *decisions: Any, forms: bool = False
    ) -> AsyncIterator[Client]:
        """A server in a process of its own."""
        client = Client(decisions)
        program = StdioServerParameters(
            command=command[0],
            args=[*command[1:]],
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            cwd=self.workspace,
        )
        callback: Any = client.fill_in if forms else None
        async with (
            stdio_client(program) as (reading, writing),
            ClientSession(reading, writing, elicitation_callback=callback) as session,
        ):
            client.session = session
            await session.initialize()
            yield client
