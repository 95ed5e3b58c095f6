"""Tools of MCP servers, through langchain-mcp-adapters. A server on this host is started once."""

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.tools import BaseTool, ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import valid_text
from signoff.graph.inside.installing import install_hint
from signoff.graph.kinds import Kind
from signoff.tools.processes.held import Holding, hold, together
from signoff.tools.pty.environment import MARK
from signoff.tools.pty.processes import end_marked

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult, Tool

__all__ = ["mcp_tools"]

SECONDS = 30.0
"""How long a server may take to start and to list its tools."""

MOST_TOOLS = 128
"""How many tools one server may offer; more than that most models do not take."""

_GARBAGE = 100
"""Lines that are not MCP messages, after which a server is given up."""

_PING_SECONDS = 5.0
# What ends a server over stdio waits two seconds after the end of its input, and two after SIGTERM.
_END_SECONDS = 8.0
_SHOWN = 120

_T = TypeVar("_T")


async def mcp_tools(
    servers: Mapping[str, Mapping[str, Any]],
    *,
    trust_hints: bool = False,
    seconds: float = SECONDS,
    most_tools: int = MOST_TOOLS,
) -> list[BaseTool]:
    """The tools of `servers`, as `MultiServerMCPClient` takes them.

    `{"files": {"transport": "stdio", "command": "python", "args": ["server.py"]}}`. Every tool is of kind
    `write`: approvals and the journal guard against what a server does, so they cannot depend on what it
    says. The tools are asynchronous, and run in sync graphs too.

    A server over stdio is started once, here. It serves every call, and ends with the graph that its tools
    are given to: by `graph.close()`, with the graph's storage, or when nothing refers to the graph and the
    tools any more. One that has ended is started again by the next call.

    trust_hints: believe what a server says of its tools. One with `readOnlyHint` is then of kind `read`, so
        nobody is asked about it as a write and it may run twice; one with `idempotentHint` may run again
        after a crash.
    seconds: how long a server may take to start and to list its tools. most_tools: how many each may offer.

    Raises SetupError when the extra is not installed, or for the first server that cannot be used; then
    those that were started have been ended.
    """
    try:
        import langchain_mcp_adapters.client  # noqa: F401  only whether it is there
    except ImportError:
        raise SetupError(f"MCP servers need an extra: {install_hint('mcp')}") from None
    if not seconds > 0:
        raise SetupError(f"seconds is {seconds!r}; pass how many seconds a server may take to start.")
    every = [_Server(name, connection, seconds, most_tools) for name, connection in servers.items()]
    try:
        listed = await asyncio.gather(*(server.tools() for server in every), return_exceptions=True)
    except BaseException:
        await asyncio.to_thread(together, [server.end for server in every])
        raise
    for server, found in zip(every, listed, strict=True):
        if isinstance(found, BaseException):
            await asyncio.to_thread(together, [each.end for each in every])
            raise SetupError(
                f"The MCP server {server.name!r} cannot be used: {_describe_error(found)}"
            ) from found
    return [
        made
        for server, found in zip(every, listed, strict=True)
        if not isinstance(found, BaseException)
        for made in server.converted(found, trust_hints=trust_hints)
    ]


class _Unusable(Exception):
    """Why a server cannot be used, in a sentence."""


class _Ended(_Unusable):
    """The server has ended. sent: whether it may have read the request before."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class _Server:
    """One server. Everything that touches its session happens in the event loop of one thread of ours: a
    session belongs to a loop, and the runs that use it come with loops of their own."""

    def __init__(self, name: str, connection: Mapping[str, Any], seconds: float, most_tools: int) -> None:
        self.name = name
        self._given = dict(connection)
        self._stays = connection.get("transport") == "stdio"
        self._seconds = seconds
        self._most = most_tools
        self._mark = secrets.token_hex(16)
        self._owner = os.getpid()
        self._opening = asyncio.Lock()
        self._running: _Running | None = None
        # A call was given up: the next one first sees whether the server still answers.
        self._doubtful = False

    async def tools(self) -> "list[Tool]":
        """The tools that it offers. Starts a server over stdio."""
        return await _elsewhere(self._listed())

    def converted(self, listed: "Sequence[Tool]", *, trust_hints: bool) -> list[BaseTool]:
        """Its tools for LangChain."""
        from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool

        connection: Any = self._given
        interceptors: Any = [self._intercepted] if self._stays else []
        # The tools hold it open, and not the server: its own tasks refer to that.
        holding = Holding(self.end)
        found = []
        for tool in listed:
            made = convert_mcp_tool_to_langchain_tool(
                None, tool, connection=connection, server_name=self.name, tool_interceptors=interceptors
            )
            made.metadata = _metadata(tool, trust_hints=trust_hints)
            found.append(hold(made, holding) if self._stays else made)
        return found

    def end(self) -> None:
        """Ends its process and what that started, and waits for it. May be repeated."""
        if not self._stays or os.getpid() != self._owner or self._running is None:
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._closed(), _loop()).result(_END_SECONDS + 2)
        end_marked(f"{MARK}={self._mark}", after=0)

    async def _intercepted(self, request: Any, _: Any) -> "CallToolResult":
        """A call, in place of the adapters' own way, which starts a server for each."""
        try:
            return await _elsewhere(self._call(request.name, request.args))
        except asyncio.CancelledError:
            self._doubtful = True
            raise
        except _Unusable as error:
            raise ToolException(f"The MCP server {self.name!r} cannot be used: {error}") from error

    async def _call(self, name: str, arguments: dict[str, Any]) -> "CallToolResult":
        def asked(session: "ClientSession") -> "Awaitable[CallToolResult]":
            return session.call_tool(name, arguments)

        try:
            return await (await self._opened()).ask(asked)
        except _Ended as error:
            if error.sent:
                raise _Unusable(
                    f"{error} Whether the call took effect is not known: check before you repeat it. The "
                    "next call starts the server again."
                ) from error
        # It had ended before the call, so nothing was asked of it.
        return await (await self._opened()).ask(asked)

    async def _listed(self) -> "list[Tool]":
        try:
            async with asyncio.timeout(self._seconds):
                return await (await self._opened()).ask(self._pages)
        except TimeoutError:
            garbage = self._running.garbage if self._running else ""
            raise _Unusable(
                f"it had not listed its tools after {self._seconds:g} seconds.{garbage} Allow more time "
                "with seconds=, or check its command or address."
            ) from None
        finally:
            if not self._stays:
                await self._closed()

    async def _pages(self, session: "ClientSession") -> "list[Tool]":
        from mcp.types import PaginatedRequestParams

        found: list[Tool] = []
        params = None
        while True:
            page = await session.list_tools(params=params)
            found += page.tools
            if len(found) > self._most:
                raise _Unusable(
                    f"it offers more than {self._most} tools, and most models take no more. Have it offer "
                    "fewer, or pass most_tools=."
                )
            if not page.nextCursor:
                return found
            params = PaginatedRequestParams(cursor=page.nextCursor)

    async def _opened(self) -> "_Running":
        """It, running: as it was, or started."""
        if self._owner != os.getpid():
            # Forked off: the process and the loop are the parent's.
            self._owner, self._running, self._opening = os.getpid(), None, asyncio.Lock()
        async with self._opening:
            if self._running and self._doubtful and not await self._running.answers():
                await self._running.end()
            self._doubtful = False
            if self._running is None or self._running.over:
                self._running = await self._started()
            return self._running

    async def _started(self) -> "_Running":
        # Known before it has started, so that what ends the server ends this one, too.
        running = self._running = _Running(self._connection())
        try:
            async with asyncio.timeout(self._seconds):
                await running.start()
        except TimeoutError:
            await running.end()
            raise _Unusable(f"it did not start within {self._seconds:g} seconds.{running.garbage}") from None
        except BaseException:
            await running.end()
            raise
        return running

    async def _closed(self) -> None:
        if self._running is not None:
            await self._running.end()

    def _connection(self) -> dict[str, Any]:
        if not self._stays:
            return dict(self._given)
        # By the mark it is found again, and so is everything it starts.
        return {**self._given, "env": {**(self._given.get("env") or {}), MARK: self._mark}}


class _Running:
    """A session with a server, held open by a task until it is told to end, or ends by itself."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = connection
        self._stop = asyncio.Event()
        self._session: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_session())
        self._task.add_done_callback(_retrieve_error)
        self._lines = 0
        self._first = ""

    @property
    def over(self) -> bool:
        return self._task.done() or self._stop.is_set()

    @property
    def garbage(self) -> str:
        """What it printed that is not a message, as the end of a sentence; empty for nothing."""
        return f" It printed something that is not an MCP message: {self._first!r}." if self._lines else ""

    async def start(self) -> None:
        """Returns when the server can be asked."""
        await self.ask(lambda session: session.initialize())

    async def ask(self, question: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        """What the server answers. Raises _Ended when it has ended, or ends before it has answered."""
        from anyio import BrokenResourceError, ClosedResourceError
        from mcp.shared.exceptions import McpError

        asking = asyncio.ensure_future(self._ask(question))
        asking.add_done_callback(_retrieve_error)
        sent = self._session.done() and not self.over
        try:
            await asyncio.wait({asking, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise self._why(sent=sent)
        except (ClosedResourceError, BrokenResourceError):
            self._stop.set()
            raise self._why(sent=False) from None
        except McpError as error:
            if error.error.code != _CONNECTION_CLOSED:
                raise
            self._stop.set()
            raise self._why(sent=True) from error
        finally:
            asking.cancel()

    async def answers(self) -> bool:
        """Whether it answers at all, within some seconds."""
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self.ask(lambda session: session.send_ping())
        except Exception:  # noqa: BLE001  whatever it says instead, it is of no use
            return False
        return True

    async def end(self) -> None:
        """Ends the server; returns when its process has gone."""
        self._stop.set()
        if not self._session.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_END_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=1)

    async def _ask(self, question: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        return await question(await asyncio.shield(self._session))

    async def _hold_session(self) -> None:
        from langchain_mcp_adapters.sessions import create_session

        given = dict(self._connection.get("session_kwargs") or {})
        given.setdefault("message_handler", self._on_message)
        connection: Any = {**self._connection, "session_kwargs": given}
        async with create_session(connection) as session:
            self._session.set_result(session)
            await self._stop.wait()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self._lines += 1
            self._first = self._first or _line(message)
            if self._lines >= _GARBAGE:
                self._stop.set()

    def _why(self, *, sent: bool) -> "_Ended":
        failed = self._task.exception() if self._task.done() and not self._task.cancelled() else None
        if failed is not None and not self._session.done():
            return _Ended(f"{_first(failed)}. Check its command or address.", sent=False)
        return _Ended(f"it ended, or was ended.{self.garbage}", sent=sent)


_CONNECTION_CLOSED = -32000
_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of the sessions, in a thread that lives as long as the process."""
    with _starting:
        if (found := _loops.get(os.getpid())) is not None:
            return found
        # After a fork the thread is missing in the child.
        loop = _loops[os.getpid()] = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="signoff-mcp", daemon=True)
        thread.start()
        _quiet(thread)
        return loop


async def _elsewhere(work: "Coroutine[Any, Any, _T]") -> _T:
    """What `work` returns in the loop of the sessions."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def _retrieve_error(task: "asyncio.Future[Any]") -> None:
    """Looks at how a task ended; asyncio prints the errors of those that nobody looked at."""
    if not task.cancelled():
        task.exception()


def _quiet(thread: threading.Thread) -> None:
    """Garbage is told once, in our error; the package logs each line of it with a traceback."""

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread.ident

    for name in ("", "mcp.client.stdio"):
        logging.getLogger(name).addFilter(others)


def _metadata(tool: "Tool", *, trust_hints: bool) -> dict[str, Any]:
    """What a tool says of itself, as far as it counts. A server can put any key beside its hints."""
    hints = tool.annotations if trust_hints else None
    read = hints is not None and hints.readOnlyHint is True
    found: dict[str, Any] = {"kind": str(Kind.READ if read else Kind.WRITE)}
    if hints is not None and hints.idempotentHint is True:
        found["idempotent"] = True
    return found


def _line(error: Exception) -> str:
    details = getattr(error, "errors", None)
    first = details()[0] if callable(details) else {}
    return valid_text(str(first.get("input", error)))[:_SHOWN]


def _describe_error(error: BaseException) -> str:
    if isinstance(error, _Unusable):
        return str(error)
    return f"{_first(error)}. Check its command or address."


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
