"""The application in a browser: on the loopback interface, only for clients with the token."""

import asyncio
import base64
import hashlib
import secrets
import shlex
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

from signoff.graph.errors import SetupError
from signoff.tools.processes.helpers import module_with_packages

HOST = "127.0.0.1"
_END_SECONDS = 3.0
_TEMPLATES = Path(__file__).parent

_REFUSED = "Open the address that signoff serve printed, with its token."
_AGAIN = 'const token = sessionStorage.getItem("token"); if (token) location.replace(`/${token}/`);'

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TokenServer(Server):
    """Serves `command`, one process for each open page.

    All paths are below a folder named by the token, so a request without it gets nothing. The token is not a
    cookie: a browser would send that to every server on this machine, whatever its port. The page stores it
    in its tab's session storage, which belongs to this port alone, and removes it from the address. Requests
    with another host name than the loopback's, or from another origin, are refused, so that no web site can
    reach it.
    """

    def __init__(self, command: str, listening: socket.socket, token: str) -> None:
        super().__init__(
            command, HOST, listening.getsockname()[1], title="signoff", templates_path=str(_TEMPLATES)
        )
        self.listening, self.token = listening, token

    @property
    def address(self) -> str:
        """Returns the address to open, including the token."""
        return f"{self.public_url}/?token={self.token}"

    def run(self) -> None:
        """Serves until SIGINT or SIGTERM; ends the processes of the open pages."""
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        made = self._make_app()
        web.run_app(
            made,
            sock=self.listening,
            loop=loop,
            handle_signals=False,
            print=None,
            access_log=None,
            shutdown_timeout=_END_SECONDS,
        )

    async def _make_app(self) -> web.Application:
        pages: web.Application = await super()._make_app()
        for name in ("entry.js", "focus.js"):
            pages.router.add_get(f"/{name}", _script(name))

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guard])
        app.router.add_get("/", self._enter)
        app.add_subapp(f"/{self.token}/", pages)
        app.on_cleanup.append(self._ended)
        return app

    async def _ended(self, app: web.Application) -> None:
        """Waits for the processes of pages to end: asyncio warns of one that outlives its loop."""
        end = time.monotonic() + _END_SECONDS
        while time.monotonic() < end and any(
            thread.name.startswith("waitpid") for thread in threading.enumerate()
        ):
            await asyncio.sleep(0.05)

    async def on_startup(self, app: web.Application) -> None:
        """Prints nothing: the command has printed the address."""

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        own = f"{HOST}:{self.port}"
        if request.host != own or request.headers.get("Origin", self.public_url) != self.public_url:
            raise web.HTTPForbidden(text="This address is for the page that signoff serve printed.")
        if request.path != "/" and not self._knows(request.path.split("/")[1]):
            raise web.HTTPForbidden(text=_REFUSED)
        response = await handler(request)
        if not response.prepared:
            response.headers.setdefault("Content-Security-Policy", _policy(own))
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["Cache-Control"] = "no-store"
        return response

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        """Returns the page for a request with the token; without it, at most the redirect of a known tab."""
        if self._knows(request.query.get("token", "")):
            return web.Response(status=302, headers={"Location": f"/{self.token}/"})
        again = {"Content-Security-Policy": f"default-src 'none'; script-src '{_hash_of(_AGAIN)}'"}
        page = f"<!doctype html><title>signoff</title><p>{_REFUSED}</p><script>{_AGAIN}</script>"
        return web.Response(status=403, text=page, content_type="text/html", headers=again)

    def _knows(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="replace"), self.token.encode())


def _script(name: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.FileResponse(_TEMPLATES / name)

    return answer


def _hash_of(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _policy(own: str) -> str:
    return (
        f"default-src 'self'; connect-src 'self' ws://{own}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def serve(words: Sequence[str], port: int, say: Callable[[str], None]) -> None:
    """Serves `signoff WORDS` until it is stopped. port: 0 for any free port.

    Raises SetupError when the port cannot be used.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise SetupError(f"Port {port} cannot be used ({error.strerror}); try --port 0.") from error
    # Quoted for sh, which supports less than the shells that commands are shown for. `exec`: an intermediate
    # shell would keep the application from noticing that this process has ended.
    command = f"exec {shlex.join(module_with_packages('signoff.cli', *words))}"
    server = TokenServer(command, listening, secrets.token_urlsafe(24))
    say(server.address)
    server.run()
