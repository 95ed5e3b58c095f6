"""Sessions with MCP servers, and calls in them, in the event loop of one dedicated thread."""

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from signoff.graph.foreign import valid_text

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

_GARBAGE = 100
"""The number of lines that are not MCP messages after which a server is abandoned."""

_PING_SECONDS = 5.0
# Ending a stdio server waits two seconds after closing its input, and two after SIGTERM.
END_SECONDS = 8.0
_SHOWN = 120
# The environment of a server, as the adapters read it.
_VARIABLE = re.compile(r"\$\{([^}]+)\}")

_T = TypeVar("_T")


class Unusable(Exception):
    """A server cannot be used; the message is a sentence."""


class SessionEnded(Unusable):
    """The server has ended. sent: whether it may have received the request before."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class LiveSession:
    """A session with a server, kept open by a task until it is ended, or ends by itself."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = connection
        self._stop = asyncio.Event()
        self._session: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_session())
        self._task.add_done_callback(_retrieve_error)
        self._lines = 0
        self._first = ""
        self.calls: list[OpenCall] = []

    @property
    def over(self) -> bool:
        return self._task.done() or self._stop.is_set()

    @property
    def garbage(self) -> str:
        """A sentence on its output that is not an MCP message; empty if there is none."""
        return f" It printed something that is not an MCP message: {self._first!r}." if self._lines else ""

    async def start(self) -> None:
        """Returns when the server is ready."""
        await self.ask(lambda session: session.initialize())

    async def ask(self, question: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        """The server's answer. Raises SessionEnded if the server has ended, or ends before it answers."""
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
        """Whether it responds within a few seconds."""
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self.ask(lambda session: session.send_ping())
        except Exception:  # noqa: BLE001  whatever it says instead, it is of no use
            return False
        return True

    async def end(self) -> None:
        """Ends the server; returns when its process is gone."""
        self._stop.set()
        if not self._session.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=END_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=1)

    async def _ask(self, question: "Callable[[ClientSession], Awaitable[_T]]") -> _T:
        return await question(await asyncio.shield(self._session))

    async def _hold_session(self) -> None:
        given = dict(self._connection.get("session_kwargs") or {})
        given.setdefault("message_handler", self._on_message)
        given.setdefault("elicitation_callback", self._on_elicitation)
        connection: Any = {**self._connection, "session_kwargs": given}
        async with _open(connection) as session:
            self._session.set_result(session)
            await self._stop.wait()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self._lines += 1
            self._first = self._first or _line(message)
            if self._lines >= _GARBAGE:
                self._stop.set()

    async def _on_elicitation(self, _: Any, params: "ElicitRequestParams") -> "ElicitResult | ErrorData":
        """Handles the server's question to a person. While this waits, the session reads nothing else."""
        from mcp.types import INVALID_REQUEST, ErrorData

        if len(self.calls) != 1 or not self.calls[0].may_ask:
            why = _NOBODY if len(self.calls) == 1 else _WHICH
            return ErrorData(code=INVALID_REQUEST, message=why)
        return await self.calls[0].ask(params)

    def _why(self, *, sent: bool) -> "SessionEnded":
        failed = self._task.exception() if self._task.done() and not self._task.cancelled() else None
        if failed is not None and not self._session.done():
            return SessionEnded(f"{_first(failed)}. Check its command or address.", sent=False)
        return SessionEnded(f"it ended, or was ended.{self.garbage}", sent=sent)


class OpenCall:
    """A tool call in progress on the server. It may ask a person, and continues with the answer.

    may_ask: whether there is a thread that can wait for an answer.
    """

    def __init__(self, running: LiveSession, name: str, arguments: dict[str, Any], *, may_ask: bool) -> None:
        from mcp.types import CallToolRequest, CallToolRequestParams, ClientRequest, Result

        def call(session: "ClientSession") -> Awaitable[Any]:
            # Not by `call_tool`, which raises for a result that is not as it expects: the call has run.
            params = CallToolRequestParams(name=name, arguments=arguments)
            return session.send_request(ClientRequest(CallToolRequest(params=params)), Result)

        self.running, self.may_ask = running, may_ask
        self.question: ElicitRequestParams | None = None
        self.said: list[dict[str, Any]] = []
        """The questions that a person has answered so far."""
        self._answer: asyncio.Future[ElicitResult] | None = None
        self._moved = asyncio.Event()
        self._task = asyncio.ensure_future(running.ask(call))
        self._task.add_done_callback(self._done)
        running.calls.append(self)

    async def wait(self) -> Any:
        """Its result; None if it asks (`question`). Raises as `LiveSession.ask`."""
        while not self._task.done():
            if self.question is not None:
                return None
            self._moved.clear()
            await self._moved.wait()
        return self._task.result()

    async def ask(self, params: "ElicitRequestParams") -> "ElicitResult":
        self._answer = asyncio.get_running_loop().create_future()
        self.question = params
        self._moved.set()
        return await self._answer

    def answer(self, found: "ElicitResult") -> None:
        """Answers its question, if it still waits."""
        if self.question is not None and self._answer is not None and not self._answer.done():
            self.question = None
            self._answer.set_result(found)

    def give_up(self) -> None:
        self._task.cancel()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        _retrieve_error(task)
        if self in self.running.calls:
            self.running.calls.remove(self)
        self._moved.set()


_NOBODY = "Nobody can be asked: the run of this call keeps nothing, so it cannot wait for an answer."
_WHICH = "Several calls of this server are open, so it is not known which one asks; ask in a call of its own."
_CONNECTION_CLOSED = -32000
_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


@asynccontextmanager
async def _open(connection: dict[str, Any]) -> "AsyncIterator[ClientSession]":
    """A session over this connection, as the adapters make it.

    A stdio session is made here: the adapters pass the stderr from the time when the package was first
    imported, which the program may have replaced and closed since.
    """
    if connection.get("transport") != "stdio":
        from langchain_mcp_adapters.sessions import create_session

        async with create_session(connection) as session:  # type: ignore[arg-type]  # one of its dicts
            yield session
        return
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    for name in ("command", "args"):
        if connection.get(name) is None:
            raise Unusable(f"a connection over stdio needs {name!r}, and it has none")
    parts = ("command", "args", "cwd", "encoding", "encoding_error_handler")
    given = {name: connection[name] for name in parts if connection.get(name) is not None}
    if connection.get("env") is not None:
        given["env"] = {
            name: _VARIABLE.sub(_of_environment, text) for name, text in connection["env"].items()
        }
    with open(os.dup(2) if _has_stderr() else os.devnull, "w") as errors:
        program = StdioServerParameters(**given)
        async with (
            stdio_client(program, errlog=errors) as (reading, writing),
            ClientSession(reading, writing, **connection["session_kwargs"]) as session,
        ):
            yield session


def _of_environment(found: "re.Match[str]") -> str:
    return os.environ.get(found[1], found[0])


def _has_stderr() -> bool:
    try:
        os.fstat(2)
    except OSError:
        return False
    return True


def sessions_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the sessions, in a thread that runs as long as the process."""
    with _starting:
        if (found := _loops.get(os.getpid())) is not None:
            return found
        # After a fork, the child does not have the thread.
        loop = _loops[os.getpid()] = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="signoff-mcp", daemon=True)
        thread.start()
        _quiet(thread)
        return loop


async def run_in_loop(work: "Coroutine[Any, Any, _T]") -> _T:
    """Runs `work` in the loop of the sessions, and returns its result."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, sessions_loop()))


def _retrieve_error(task: "asyncio.Future[Any]") -> None:
    """Retrieves a task's exception; asyncio prints those that are never retrieved."""
    if not task.cancelled():
        task.exception()


def _quiet(thread: threading.Thread) -> None:
    """Silences the package, which logs each invalid line with a traceback; our error mentions it once."""

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread.ident

    for name in ("", "mcp.client.stdio"):
        logging.getLogger(name).addFilter(others)


def _line(error: Exception) -> str:
    details = getattr(error, "errors", None)
    first = details()[0] if callable(details) else {}
    return valid_text(str(first.get("input", error)))[:_SHOWN]


def describe_error(error: BaseException) -> str:
    if isinstance(error, Unusable):
        return str(error)
    return f"{_first(error)}. Check its command or address."


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
