"""The application in a real browser: a server in a process of its own, and what its page is sent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, WebSocket

from signoff.ui.screen import TerminalScreen
from tests.support.chromium import browser as connected

SECONDS = 30.0


class Served:
    """A server and its address."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "signoff.cli", "serve", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[1]
        self.origin, _, self.token = self.address.partition("/?token=")

    def children(self) -> list[int]:
        """The processes that it has started, and theirs."""
        found = [self.process.pid]
        for pid in found:
            tasks = Path(f"/proc/{pid}/task").glob("*/children")
            found += [int(child) for task in tasks for child in task.read_text().split()]
        return found[1:]

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)
        if self.process.stdout:
            self.process.stdout.close()


class Browser:
    """A page of the application. Its screen is read from what the server sends."""

    def __init__(self, page: Page) -> None:
        self.page, self.screen = page, TerminalScreen(100, 300)
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("websocket", self._listen)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._received)

    def _received(self, frame: Any) -> None:
        if isinstance(frame, bytes):
            self.screen.feed(frame)

    def shows(self, *words: str) -> None:
        """Waits until all of `words` stand on the screen."""
        self.until(lambda: all(word in "\n".join(self.screen.text) for word in words))

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, "\n".join(self.screen.text)
            self.page.wait_for_timeout(50)

    def send(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def press(self, key: str) -> None:
        """A single key outside of the prompt. Escape is known as such when nothing follows it at once."""
        self.page.keyboard.press("Escape")
        self.page.wait_for_timeout(400)
        self.page.keyboard.press(key)

    def colour_of(self, words: str) -> tuple[int, int, int] | None:
        """The colour of the first place where these words stand."""
        for y in range(100):
            for segment in self.screen.line(y):
                if words in segment.text and segment.style and segment.style.color:
                    found = segment.style.color.triplet
                    return None if found is None else (found.red, found.green, found.blue)
        return None


@contextmanager
def browser(width: int = 1500, height: int = 900, *, address: str | None = None) -> Iterator[Browser]:
    """Headless Chromium, that at `address` or one of its own, with an empty page."""
    with connected(address) as chromium:
        context = chromium.new_context(viewport={"width": width, "height": height})
        try:
            yield Browser(context.new_page())
        finally:
            context.close()


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that still run."""
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe") and not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Other:
    """Another server of this machine: what it was asked for, with all headers."""

    def __init__(self, page: str) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(f"{self.requestline}\n{self.headers}")
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                """What came is in `requests`."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"


@contextmanager
def listening(page: str) -> Iterator[Other]:
    """A server on a port of its own that answers with `page`."""
    other = Other(page)
    thread = threading.Thread(target=other.server.serve_forever)
    thread.start()
    try:
        yield other
    finally:
        other.server.shutdown()
        other.server.server_close()
        thread.join()
