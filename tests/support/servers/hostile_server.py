"""A model's server on loopback that does what no provider should: it is silent, or never comes to an end."""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tests.support.servers.loopback import Handler, Loopback

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
Sent = Iterator[bytes | float]


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "reply", "object": "chat.completion.chunk", "created": 0, "model": "hostile"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


def opened(name: str, arguments: str, index: int = 0) -> bytes:
    """The beginning of a call, with the first of its arguments."""
    function = {"name": name, "arguments": arguments}
    return event(
        {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}
    )


def more(arguments: str, index: int = 0) -> bytes:
    return event({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


WORD = event({"content": "word "})


def forever(item: bytes, pause: float = 0.0) -> Sent:
    while True:
        yield item
        if pause:
            yield pause


def silent() -> Sent:
    """Accepts, and never answers."""
    yield 600.0


def silent_after_headers() -> Sent:
    yield HEADERS
    yield 600.0


def silent_after_a_chunk() -> Sent:
    yield HEADERS + WORD
    yield 600.0


def keep_alive() -> Sent:
    yield HEADERS
    yield from forever(b": keep-alive\n\n", 0.02)


def drip() -> Sent:
    yield HEADERS
    yield from forever(WORD, 0.1)


def flood() -> Sent:
    yield HEADERS
    yield from forever(WORD * 4)


def arguments() -> Sent:
    """One call whose arguments never end."""
    yield HEADERS + opened("write", '{"text": "')
    yield from forever(more("abcdefgh") * 4)


def no_json() -> Sent:
    """A call whose arguments never end, and are nothing that could be read."""
    yield HEADERS + opened("write", "x")
    yield from forever(more("abcdefgh"))


def large_text() -> Sent:
    """Text that never ends, in large chunks."""
    yield HEADERS
    yield from forever(event({"content": "word " * 10_000}))


def large_arguments() -> Sent:
    """The arguments of one call, likewise."""
    yield HEADERS + opened("write", '{"text": "')
    yield from forever(more("abcdefgh" * 8_000))


def large_no_json() -> Sent:
    """The same, as nothing that could be read."""
    yield HEADERS + opened("write", "x")
    yield from forever(more("abcdefgh" * 8_000))


def large_behind_a_call() -> Sent:
    """A whole call, then another one, likewise."""
    yield HEADERS + opened("write", '{"text": "a"}') + opened("write", '{"text": "', 1)
    yield from forever(more("abcdefgh" * 8_000, 1))


def line() -> Sent:
    """One line that never ends: no chunk ever comes of it."""
    yield HEADERS + b'data: {"id": "'
    yield from forever(b"x" * 4096, 0.001)


def drip_behind_a_call() -> Sent:
    """A whole call, then another one that never ends."""
    yield HEADERS + opened("write", '{"text": "a"}') + opened("write", '{"text": "', 1)
    yield from forever(more("b", 1), 0.02)


def silent_behind_a_finish() -> Sent:
    """A whole finish, and then nothing: not even the word that the reply has ended."""
    yield HEADERS + opened("finish_task", '{"summary": "All of it is done."}')
    yield 600.0


def drip_behind_the_end() -> Sent:
    """A whole reply that says that it has ended, and goes on."""
    yield HEADERS + opened("finish_task", '{"summary": "All of it is done."}') + event({}, "tool_calls")
    yield from forever(event({}), 0.05)


def whole() -> Sent:
    """A reply as it should be."""
    yield HEADERS + opened("finish_task", '{"summary": "All of it is done."}') + event({}, "tool_calls")
    yield b"data: [DONE]\n\n"


class HostileServer(Loopback):
    """Answers each request by the next of `ways`, the last one again and again.

    requests: when each came. left: when each client had left, in seconds of the monotonic clock. Whoever is
    still connected at the end is cut off.
    """

    def __init__(self, *ways: Callable[[], Sent]) -> None:
        super().__init__(_Handler)
        self.ways = list(ways)
        self.requests: list[float] = []
        self.left: list[float] = []
        self.asked, self.gone = threading.Event(), threading.Event()
        self.connections = set[socket.socket]()

    def take(self) -> Callable[[], Sent]:
        return self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(Handler):
    server: HostileServer

    def do_POST(self) -> None:
        self.body()
        self.server.connections.add(self.connection)
        self.server.requests.append(time.monotonic())
        self.server.asked.set()
        way = self.server.take()
        try:
            for item in way():
                if isinstance(item, bytes):
                    self.connection.sendall(item)
                else:
                    self._pause(item)
        except OSError:
            self.server.left.append(time.monotonic())
            self.server.gone.set()
        finally:
            self.server.connections.discard(self.connection)

    def _pause(self, seconds: float) -> None:
        """Waits. Raises ConnectionResetError as soon as the client has left."""
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client has left")
