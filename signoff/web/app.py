"""The routes of the application. A request reads, or asks the hub for something; it never owns a run."""

import asyncio
import importlib.util
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff import SetupError, SignoffError, StorageError, ThreadBusy, ThreadError, TooLate
from signoff.front.thread_ids import checked_thread_id
from signoff.front.work import Work
from signoff.graph.inside.installing import install_hint
from signoff.text import explain, valid_text
from signoff.web.gate import Gate, NotLetIn, policy
from signoff.web.hub import MOST_READERS, Hub
from signoff.web.render import STATIC, shell

MOST_BYTES = 1_000_000
"""Largest request body."""
_UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Headers of a stream: a proxy that buffers responses would delay the events."""
_MOST_PASSWORD_BYTES = 4_000
"""Largest request body before the client is let in."""
_BODY_SECONDS = 30.0
_MOST_TYPED = 65_536
_MOST_ID = 500
_FILES: Mapping[str, str] = {
    "app.js": "text/javascript",
    "terminal.js": "text/javascript",
    "xterm.mjs": "text/javascript",
    "xterm.css": "text/css",
    "web.css": "text/css",
    "record.css": "text/css",
}


def _read_turns(given: Any, read: ValidatorFunctionWrapHandler) -> int:
    """Returns a number of turns as it was typed. Raises PydanticCustomError for anything else."""
    try:
        return int(read(given))
    except ValidationError as error:
        told = "{given} is not a valid number of turns; type a whole number, from 1 to 100,000"
        raise PydanticCustomError("turns", told, {"given": repr(given)[:80]}) from error


Text = Annotated[str, Field(max_length=400_000)]
Short = Annotated[str, Field(max_length=_MOST_ID)]
Turns = Annotated[int, Field(ge=1, le=100_000), WrapValidator(_read_turns)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    thread: Short = ""


class OwnSettings(BaseModel):
    """The settings that a new thread can be given."""

    model_config = ConfigDict(extra="forbid")

    workspace: Short | None = None
    model: Short | None = None
    tools: Short | None = None
    approve: Short | None = None
    turns: Turns | None = None


class WriteBody(_Body):
    text: Text
    request: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_-]*$")] = ""
    """The id of the message: a client that got no response sends it again with the same id."""
    settings: OwnSettings = OwnSettings()


class AnswerBody(_Body):
    interrupt_id: Short
    shown: Short = ""
    texts: Annotated[list[Text], Field(min_length=1, max_length=200)]


class AgainBody(_Body):
    interrupt_id: Short


class MoveBody(_Body):
    move: Short
    turns: Turns | None = None


class ForkBody(_Body):
    at: Short | None = None


class TerminalBody(_Body):
    data: Annotated[str, Field(max_length=_MOST_TYPED)] = ""
    rows: Annotated[int, Field(ge=2, le=200)] | None = None
    cols: Annotated[int, Field(ge=20, le=400)] | None = None


class PasswordBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    password: Short


class Application:
    """The application: one hub behind one gate."""

    def __init__(self, hub: Callable[[], Hub], gate: Gate, begin: Callable[[], Any]) -> None:
        self._hub, self.gate = hub, gate
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._file),
            Route("/api/enter", self._enter, methods=["POST"]),
            Route("/agui", self._guarded(self._agui), methods=["POST"]),
            *(
                Route(f"/api/{name}", self._guarded(answer), methods=methods)
                for name, answer, methods in (
                    ("new", self._new, ["GET"]),
                    ("events", self._events, ["GET"]),
                    ("write", self._write, ["POST"]),
                    ("answer", self._answer, ["POST"]),
                    ("again", self._again, ["POST"]),
                    ("move", self._move, ["POST"]),
                    ("fork", self._fork, ["POST"]),
                    ("delete", self._delete, ["POST"]),
                    ("terminal", self._terminal, ["POST"]),
                )
            ),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with begin():
                yield

        self.asgi: ASGIApp = Headed(Starlette(routes=routes, lifespan=lifespan), gate)

    @property
    def hub(self) -> Hub:
        return self._hub()

    def _guarded(
        self, answer: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                who = self.gate.who(request.headers)
                return await answer(request, who)
            except NotLetIn as refused:
                return _problem(refused.status, refused.why)
            except SignoffError as error:
                return _problem(_status(error), str(error), late=isinstance(error, TooLate))

        return guarded

    async def _page(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        page = shell(nonce, password=self.gate.password is not None, proxy=self.gate.proxy_header is not None)
        return HTMLResponse(page, headers={"Content-Security-Policy": policy(nonce)})

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return _problem(404, "File not found.")
        folder = STATIC if name != "record.css" else STATIC.parents[1] / "front" / "record"
        return Response((folder / name).read_bytes(), media_type=_FILES[name])

    async def _enter(self, request: Request) -> Response:
        try:
            self.gate.check_password()
            body = await _body(request, PasswordBody, _MOST_PASSWORD_BYTES)
            client = request.client.host if request.client else ""
            return JSONResponse({"token": await self.gate.enter(body.password, client)})
        except NotLetIn as refused:
            return _problem(refused.status, refused.why)

    async def _new(self, request: Request, who: str) -> Response:
        return JSONResponse({"thread": await self.hub.new_id()})

    async def _events(self, request: Request, who: str) -> Response:
        if self.hub.readers >= MOST_READERS:
            raise NotLetIn(503, "Too many pages are open on this server.")
        thread = valid_text(request.query_params.get("thread", ""))
        if len(thread) > _MOST_ID:
            raise NotLetIn(422, f"A thread ID has at most {_MOST_ID} characters here.")
        # What is wrong with the id is told before the stream begins.
        checked_thread_id(thread)
        # A proxy that collects an answer before it passes it on would hold back what happens.
        return StreamingResponse(self.hub.stream(thread), media_type="text/event-stream", headers=_UNBUFFERED)

    async def _agui(self, request: Request, who: str) -> Response:
        if importlib.util.find_spec("ag_ui") is None:
            raise NotLetIn(501, f"AG-UI needs an extra package: {install_hint('ag-ui')}")
        # The package is an extra.
        from signoff.web.agui import MOST_BYTES, AguiRun, RunInput

        given = await _body(request, RunInput, MOST_BYTES)
        if self.hub.readers >= MOST_READERS:
            raise NotLetIn(503, "Too many pages are open on this server.")
        # What is wrong with the id is told before the stream begins.
        checked_thread_id(given.thread_id)
        run = AguiRun(self.hub, given, who)
        return StreamingResponse(run.stream(), media_type="text/event-stream", headers=_UNBUFFERED)

    async def _write(self, request: Request, who: str) -> Response:
        body = await _body(request, WriteBody)
        text = valid_text(body.text).strip()
        if not text:
            raise SetupError("The task is empty; say what to do.")
        own = {name: value for name, value in body.settings.model_dump().items() if value not in (None, "")}
        with self.hub.asked(body.thread) as room:
            await room.write(text, body.request, own)
        return _done()

    async def _answer(self, request: Request, who: str) -> Response:
        body = await _body(request, AnswerBody)
        texts = [valid_text(text) for text in body.texts]
        with self.hub.asked(body.thread) as room:
            await room.answer(body.interrupt_id, body.shown, texts, who)
        return _done()

    async def _again(self, request: Request, who: str) -> Response:
        body = await _body(request, AgainBody)
        with self.hub.asked(body.thread) as room:
            await room.again(body.interrupt_id)
        return _done()

    async def _move(self, request: Request, who: str) -> Response:
        body = await _body(request, MoveBody)
        with self.hub.asked(body.thread) as room:
            await room.move(body.move, body.turns)
        return _done()

    async def _fork(self, request: Request, who: str) -> Response:
        body = await _body(request, ForkBody)
        return JSONResponse({"thread": await self.hub.fork(body.thread, body.at)})

    async def _delete(self, request: Request, who: str) -> Response:
        body = await _body(request, _Body)
        await self.hub.delete(body.thread)
        return _done()

    async def _terminal(self, request: Request, who: str) -> Response:
        body = await _body(request, TerminalBody)
        with self.hub.asked(body.thread) as room:
            terminal = room.terminal or room.opened_terminal(_workspace(room.new_work()))
            try:
                await self.hub.beside.do(terminal.open)
            except ToolException as error:
                raise NotLetIn(503, str(error)) from error
            if body.rows and body.cols and (body.rows, body.cols) != terminal.size:
                terminal.resize(body.rows, body.cols)
                await room.sized()
            if body.data:
                terminal.write(valid_text(body.data).encode())
        return _done()


def _workspace(work: Work) -> str:
    return work.settings().workspace


def _done() -> Response:
    return JSONResponse({})


def _problem(status: int, why: str, *, late: bool = False) -> Response:
    return JSONResponse({"problem": why, "late": late}, status)


def _status(error: SignoffError) -> int:
    if isinstance(error, TooLate | ThreadBusy):
        return 409
    if isinstance(error, StorageError):
        return 503
    return 422 if isinstance(error, ThreadError | SetupError) else 500


async def _body(request: Request, kind: type[Any], most: int = MOST_BYTES) -> Any:
    """Returns the validated body of a request. Raises NotLetIn if it is too large or not valid."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise NotLetIn(415, "The request body must be JSON.")
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise NotLetIn(413, f"The request is too large; at most {most:,} bytes are accepted.")
    except TimeoutError as error:
        raise NotLetIn(408, "The request did not arrive in time.") from error
    try:
        return kind.model_validate(json.loads(data, parse_constant=_refuse_constant))
    except ValidationError as error:
        raise NotLetIn(422, f"The request is not valid: {explain(error)}") from error
    except (ValueError, RecursionError) as error:
        raise NotLetIn(400, "The request is not valid JSON.") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


class Headed:
    """Checks the origin of every request first, and sets the browser policy of every response."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app, self.gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # The application has no WebSockets; what remains is the server's own startup and shutdown.
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
                headers["Cache-Control"] = "no-store"
                headers["Referrer-Policy"] = "no-referrer"
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        try:
            self.gate.check_place(Headers(scope=scope), reads=scope["path"].startswith(("/api/", "/agui")))
        except NotLetIn as refused:
            await _problem(refused.status, refused.why)(scope, receive, headed)
            return
        try:
            await self.app(scope, receive, headed)
        except (OSError, ClientDisconnect) as error:
            # A browser disconnected in the middle of a response; nothing depends on it.
            logging.getLogger(__name__).debug("a client disconnected: %s", error)
