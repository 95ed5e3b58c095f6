"""A model's server that does what no provider should: it is silent, slow, or never comes to an end."""

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


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "reply", "object": "chat.completion.chunk", "created": 0, "model": "hostile"}
    return f"data: {json.dumps({**head, 'choices': [choice], **more})}\n\n".encode()


def opened(name: str, arguments: str, index: int = 0) -> bytes:
    """The beginning of a call, with the first of its arguments."""
    function = {"name": name, "arguments": arguments}
    return event(
        {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}
    )


def more(arguments: str, index: int = 0) -> bytes:
    return event({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


WORD = event({"content": "word "})
A_CALL, B_CALL = opened("write", '{"text": "a"}'), opened("write", '{"text": "', 1)
FINISH = opened("finish_task", '{"summary": "All of it is done."}')


def way(name: str, begins: bytes = b"", then: bytes = b"", pause: float = 0.0) -> Callable[[], Sent]:
    """A reply that begins like this and goes on for ever, or with nothing. pause: between two pieces."""

    def sent() -> Sent:
        yield begins
        while then:
            yield then
            if pause:
                yield pause
        yield 600.0

    sent.__name__ = name
    return sent


silent = way("silent")
silent_after_headers = way("silent_after_headers", HEADERS)
silent_after_a_chunk = way("silent_after_a_chunk", HEADERS + WORD)
keep_alive = way("keep_alive", HEADERS, b": keep-alive\n\n", 0.02)
drip = way("drip", HEADERS, WORD, 0.1)
flood = way("flood", HEADERS, WORD * 4)
# The arguments of a call: those that never end, and those that are nothing that could be read.
arguments = way("arguments", HEADERS + opened("write", '{"text": "'), more("abcdefgh") * 4)
no_json = way("no_json", HEADERS + opened("write", "x"), more("abcdefgh"))
# The same in large chunks.
large_text = way("large_text", HEADERS, event({"content": "word " * 10_000}))
large_arguments = way("large_arguments", HEADERS + opened("write", '{"text": "'), more("abcdefgh" * 8_000))
large_no_json = way("large_no_json", HEADERS + opened("write", "x"), more("abcdefgh" * 8_000))
# A whole call, then another one that never ends.
large_behind_a_call = way("large_behind_a_call", HEADERS + A_CALL + B_CALL, more("abcdefgh" * 8_000, 1))
drip_behind_a_call = way("drip_behind_a_call", HEADERS + A_CALL + B_CALL, more("b", 1), 0.02)
# One line that never ends: no chunk ever comes of it.
line = way("line", HEADERS + b'data: {"id": "', b"x" * 4096, 0.001)
# A whole finish, and then not even the word that the reply has ended; or that word, and it goes on.
silent_behind_a_finish = way("silent_behind_a_finish", HEADERS + FINISH)
drip_behind_the_end = way("drip_behind_the_end", HEADERS + FINISH + event({}, "tool_calls"), event({}), 0.05)


def whole() -> Sent:
    """A reply as it should be."""
    yield HEADERS + FINISH + event({}, "tool_calls") + b"data: [DONE]\n\n"


def finishes(count: int, pause: float = 0.02) -> Callable[[], Sent]:
    """A reply that finishes so many times, streamed slowly, the way OpenAI does."""
    summary = '{"summary": "All of it is done, and checked."}'
    parts = [summary[at : at + 8] for at in range(0, len(summary), 8)]

    def sent() -> Sent:
        yield HEADERS
        for index in range(count):
            for piece in (opened("finish_task", "", index), *(more(part, index) for part in parts)):
                yield pause
                yield piece
        tokens = count * (1 + len(parts))
        usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
        yield event({}, "tool_calls") + event({}, choices=[], usage=usage) + b"data: [DONE]\n\n"

    return sent


class HostileServer(Loopback):
    """Answers each request by the next of `ways`, the last one again and again.

    requests: when each came. left: when each client had left, in seconds of the monotonic clock. pieces: how
    many were sent. Whoever is still connected at the end is cut off.
    """

    def __init__(self, *ways: Callable[[], Sent]) -> None:
        super().__init__(_Handler)
        self.ways = list(ways)
        self.requests: list[float] = []
        self.left: list[float] = []
        self.pieces = 0
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
                    self.server.pieces += 1
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
