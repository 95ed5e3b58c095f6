"""What every server of HTTP on loopback is that a test runs in a thread of its own."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Loopback(ThreadingHTTPServer):
    """Serves as long as its `with` lasts."""

    daemon_threads = True
    request_queue_size = 128  # the standard's 5 drops connections when many clients call at once

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Reads what is sent to it."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the output belongs to the tests."""
