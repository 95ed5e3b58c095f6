"""Tools of MCP servers, through langchain-mcp-adapters. A stdio server is started only once."""

import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables import ensure_config
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.graph.inside.private import has_saver, is_answered
from signoff.graph.kinds import Kind
from signoff.tools.mcp_asking import make_question, read_answer
from signoff.tools.mcp_reading import OfferedToRead, list_readable, make_reading_tools
from signoff.tools.mcp_sessions import (
    END_SECONDS,
    LiveSession,
    OpenCall,
    SessionEnded,
    Unusable,
    describe_error,
    run_in_loop,
    sessions_loop,
)
from signoff.tools.mcp_tool import make_mcp_tool
from signoff.tools.processes.held import Holding, hold, together
from signoff.tools.pty.environment import MARK
from signoff.tools.pty.processes import end_marked

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import Tool

__all__ = ["mcp_tools"]

SECONDS = 30.0
"""How long a server may take to start and to list its tools."""

MOST_TOOLS = 128
"""How many tools one server may offer; most models do not accept more."""

_MOST_HELD = 16
"""The maximum number of calls per server that wait for an answer; the oldest is abandoned for a new one."""
_SHOWN = 120

_Key = tuple[str, str, str]
_T = TypeVar("_T")


async def mcp_tools(
    servers: Mapping[str, Mapping[str, Any]],
    *,
    trust_hints: bool = False,
    seconds: float = SECONDS,
    most_tools: int = MOST_TOOLS,
    resources: bool = True,
) -> list[BaseTool]:
    """The tools of `servers`, as `MultiServerMCPClient` takes them.

    `{"files": {"transport": "stdio", "command": "python", "args": ["server.py"]}}`. Every tool has the kind
    `write`: approvals and the journal protect against what a server does, so they cannot depend on what it
    claims. The tools are asynchronous, and also run in sync graphs.

    A stdio server is started here, once. It serves every call, and ends with the graph that has its tools: by
    `graph.close()`, with the graph's storage, or when the graph and the tools are garbage-collected. If it
    has ended, the next call starts it again.

    A server may ask a person during a call: this becomes a question of the thread, and the server waits for
    the answer. Its resources and prompts are offered by two further tools of kind `read`.

    trust_hints: trust the server's hints about its tools. A tool with `readOnlyHint` then has the kind
        `read`, so it needs no approval as a write and may run twice; one with `idempotentHint` may run again
        after a crash.
    seconds: how long a server may take to start and to list its tools. most_tools: how many each may offer.
    resources: also offer the servers' resources and prompts.

    Raises SetupError if the extra is not installed, or for the first server that cannot be used; all started
    servers have been ended by then.
    """
    try:
        import langchain_mcp_adapters.client  # noqa: F401  only whether it is there
    except ImportError:
        raise SetupError(f"MCP servers need an extra: {install_hint('mcp')}") from None
    if not seconds > 0:
        raise SetupError(f"seconds is {seconds!r}; pass how many seconds a server may take to start.")
    every = [_Server(name, connection, seconds, most_tools) for name, connection in servers.items()]
    try:
        listed = await asyncio.gather(*(server.tools(resources) for server in every), return_exceptions=True)
    except BaseException:
        await asyncio.to_thread(together, [server.end for server in every])
        raise
    for server, found in zip(every, listed, strict=True):
        if isinstance(found, BaseException):
            await asyncio.to_thread(together, [each.end for each in every])
            raise SetupError(
                f"The MCP server {server.name!r} cannot be used: {describe_error(found)}"
            ) from found
    return [
        made
        for server, found in zip(every, listed, strict=True)
        if not isinstance(found, BaseException)
        for made in server.converted(*found, trust_hints=trust_hints)
    ]


class _Server:
    """One server. All use of its session happens in the event loop of one dedicated thread, since a session
    belongs to a loop, and each run has its own loop."""

    def __init__(self, name: str, connection: Mapping[str, Any], seconds: float, most_tools: int) -> None:
        self.name = name
        self._given = dict(connection)
        self._stays = connection.get("transport") == "stdio"
        self._seconds = seconds
        self._most = most_tools
        self._mark = secrets.token_hex(16)
        self._owner = os.getpid()
        self._opening = asyncio.Lock()
        self._running: LiveSession | None = None
        self._held: dict[_Key, OpenCall] = {}
        """Calls whose question is unanswered, by thread, tool and arguments."""
        self._repeatable: set[str] = set()
        # A call was abandoned: the next one first checks whether the server still responds.
        self._doubtful = False

    async def tools(self, resources: bool) -> "tuple[list[Tool], OfferedToRead]":
        """Its tools, and its resources and prompts. Starts a stdio server."""
        return await run_in_loop(self._list(resources))

    def converted(
        self, listed: "Sequence[Tool]", found_to_read: OfferedToRead, *, trust_hints: bool
    ) -> list[BaseTool]:
        """Its tools for LangChain."""
        # The tools keep it open, not the server object: its own tasks refer to that.
        holding = Holding(self.end)
        found = []
        for tool in listed:
            made = make_mcp_tool(tool, self._call)
            made.metadata = _metadata(tool, trust_hints=trust_hints)
            if made.metadata["kind"] == Kind.READ or made.metadata.get("idempotent"):
                self._repeatable.add(tool.name)
            found.append(hold(made, holding))
        reading = make_reading_tools(self.name, found_to_read, self._read)
        return [*found, *(hold(made, holding) for made in reading)]

    def end(self) -> None:
        """Ends its process and all that it started, and waits for that. May be called again."""
        nothing = self._running is None and not self._held
        if os.getpid() != self._owner or nothing or not (self._stays or self._held):
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), sessions_loop()).result(END_SECONDS + 2)
        end_marked(f"{MARK}={self._mark}", after=0)

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        configurable = ensure_config().get("configurable", {})
        may_ask = has_saver(configurable)
        key = str(configurable.get("thread_id", "")), name, json.dumps(arguments, default=str)
        call = self._held.pop(key, None) if may_ask else None
        try:
            if call is not None:
                for said in call.said:
                    # LangGraph returns the answers in the order of the interrupts.
                    interrupt(said)
            else:
                # Without the private name, any invocation may carry an answer, so it does not ask.
                if may_ask and is_answered(configurable) and not is_answered({}):
                    self._check_was_not_asked(name)
                call = await run_in_loop(self._begin_call(name, arguments, may_ask))
            return await self._run_until_done(call, key, arguments)
        except asyncio.CancelledError:
            self._doubtful = True
            if call is not None:
                sessions_loop().call_soon_threadsafe(call.give_up)
            raise
        except Unusable as error:
            raise ToolException(f"The MCP server {self.name!r} cannot be used: {error}") from error

    def _check_was_not_asked(self, name: str) -> None:
        """Raises ToolException for a call whose server ended while a person was asked, unless the call is
        known to be repeatable."""
        if name in self._repeatable:
            return
        try:
            answer = interrupt({})
        except GraphInterrupt:
            # Other code has asked, such as a middleware; the call did not run.
            return
        raise ToolException(
            f"The MCP server {self.name!r} had asked a person, and has ended since. They have answered "
            f"{str(answer)[:_SHOWN]!r}. Whether the call took effect is not known: check before you repeat "
            "it."
        )

    async def _run_until_done(self, call: OpenCall, key: _Key, arguments: dict[str, Any]) -> Any:
        problem, anew = "", False
        while True:
            try:
                found = await run_in_loop(call.wait())
            except SessionEnded as error:
                if error.sent or call.said or anew:
                    raise Unusable(
                        f"{error} Whether the call took effect is not known: check before you repeat it. The "
                        "next call starts the server again."
                    ) from error
                # It had ended before the call, so it received nothing.
                anew, may_ask = True, call.may_ask
                call = await run_in_loop(self._begin_call(key[1], arguments, may_ask))
                continue
            if found is not None:
                await run_in_loop(self._finish_call(call))
                return found
            asked = call.question
            assert asked is not None, "else it has a result"
            said = make_question(self.name, asked, problem)
            try:
                answer = interrupt(said)
            except GraphInterrupt:
                self._hold(call, key)
                raise
            call.said.append(said)
            try:
                told = read_answer(asked, answer)
            except ValueError as error:
                problem = f"The answer does not fit: {error}."
                continue
            problem = ""
            sessions_loop().call_soon_threadsafe(call.answer, told)

    def _hold(self, call: OpenCall, key: _Key) -> None:
        """Keeps a call open until its question is answered, in its own session, which reads nothing else
        meanwhile."""
        self._held[key] = call
        left = [self._held.pop(next(iter(self._held)))] if len(self._held) > _MOST_HELD else []

        async def set_apart() -> None:
            if self._running is call.running:
                self._running = None
            for other in left:
                await other.running.end()

        asyncio.run_coroutine_threadsafe(set_apart(), sessions_loop())

    async def _begin_call(self, name: str, arguments: dict[str, Any], may_ask: bool) -> OpenCall:
        try:
            running = await self._start_for_call()
        except SessionEnded:
            # Another graph ended it while it started; it received nothing.
            running = await self._start_for_call()
        return OpenCall(running, name, arguments, may_ask=may_ask)

    async def _start_for_call(self) -> LiveSession:
        return await self._open() if self._stays else await self._start(LiveSession(self._given))

    async def _finish_call(self, call: OpenCall) -> None:
        """Finishes a call that has its result. Its session serves later calls, unless another one does by
        now."""
        if call.running is self._running:
            return
        if self._stays and not call.running.over and (self._running is None or self._running.over):
            self._running = call.running
        else:
            await call.running.end()

    async def _read(self, read: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        """Reads from the server. Raises ToolException if it refuses."""
        from mcp.shared.exceptions import McpError

        try:
            return await run_in_loop(self._read_there(read))
        except McpError as error:
            raise ToolException(f"The MCP server {self.name!r} refused it: {error}") from error
        except Unusable as error:
            raise ToolException(f"The MCP server {self.name!r} cannot be used: {error}") from error

    async def _read_there(self, read: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        if self._stays:
            try:
                return await (await self._open()).ask(read)
            except SessionEnded:
                # Reading again changes nothing.
                return await (await self._open()).ask(read)
        running = LiveSession(self._given)
        try:
            return await (await self._start(running)).ask(read)
        finally:
            await running.end()

    async def _list(self, resources: bool) -> "tuple[list[Tool], OfferedToRead]":
        try:
            async with asyncio.timeout(self._seconds):
                running = await self._open()
                tools = await running.ask(self._pages)
                return tools, await running.ask(list_readable) if resources else OfferedToRead()
        except TimeoutError:
            garbage = self._running.garbage if self._running else ""
            raise Unusable(
                f"it had not listed its tools after {self._seconds:g} seconds.{garbage} Allow more time "
                "with seconds=, or check its command or address."
            ) from None
        finally:
            if not self._stays:
                await self._close()

    async def _pages(self, session: "ClientSession") -> "list[Tool]":
        from mcp.types import PaginatedRequestParams

        found: list[Tool] = []
        params = None
        while True:
            page = await session.list_tools(params=params)
            found += page.tools
            if len(found) > self._most:
                raise Unusable(
                    f"it offers more than {self._most} tools, and most models take no more. Have it offer "
                    "fewer, or pass most_tools=."
                )
            if not page.nextCursor:
                return found
            params = PaginatedRequestParams(cursor=page.nextCursor)

    async def _open(self) -> "LiveSession":
        """Its running session, started if necessary."""
        if self._owner != os.getpid():
            # In a fork, the process and the loop belong to the parent.
            self._owner, self._running, self._opening = os.getpid(), None, asyncio.Lock()
            self._held.clear()
        async with self._opening:
            if self._running and self._doubtful and not await self._running.answers():
                await self._running.end()
            self._doubtful = False
            if self._running is None or self._running.over:
                # Registered before it has started, so that ending the server ends this one, too.
                self._running = LiveSession(self._connection())
                await self._start(self._running)
            return self._running

    async def _start(self, running: LiveSession) -> LiveSession:
        try:
            async with asyncio.timeout(self._seconds):
                await running.start()
        except TimeoutError:
            await running.end()
            raise Unusable(f"it did not start within {self._seconds:g} seconds.{running.garbage}") from None
        except BaseException:
            await running.end()
            raise
        return running

    async def _close(self) -> None:
        held = [call.running for call in self._held.values()]
        self._held.clear()
        for running in (self._running, *held):
            if running is not None:
                await running.end()

    def _connection(self) -> dict[str, Any]:
        if not self._stays:
            return dict(self._given)
        # The mark identifies it, and everything it starts.
        return {**self._given, "env": {**(self._given.get("env") or {}), MARK: self._mark}}


def _metadata(tool: "Tool", *, trust_hints: bool) -> dict[str, Any]:
    """The part of a tool's own metadata that counts. A server can add any keys beside its hints."""
    hints = tool.annotations if trust_hints else None
    read = hints is not None and hints.readOnlyHint is True
    found: dict[str, Any] = {"kind": str(Kind.READ if read else Kind.WRITE)}
    if hints is not None and hints.idempotentHint is True:
        found["idempotent"] = True
    return found
