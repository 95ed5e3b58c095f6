"""A model's server on loopback that streams one reply slowly, the way OpenAI does, and notices who leaves."""

import json
import queue
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.servers.loopback import Handler, Loopback

Delta = dict[str, Any]


def call_deltas(index: int, name: str, arguments: str, size: int = 8) -> Iterator[Delta]:
    """One tool call in pieces: its name first, then `size` characters of arguments at a time."""
    yield _part({"index": index, "id": f"call_{index}", "type": "function"}, name=name, arguments="")
    for start in range(0, len(arguments), size):
        yield _part({"index": index}, arguments=arguments[start : start + size])


def finishes(count: int, summary: str = "All of it is done, and checked.") -> list[Delta]:
    """The deltas of a reply that calls `finish_task` so many times."""
    arguments = json.dumps({"summary": summary})
    return [delta for index in range(count) for delta in call_deltas(index, "finish_task", arguments)]


def _part(call: dict[str, Any], **function: str) -> Delta:
    return {"tool_calls": [{**call, "function": function}]}


@dataclass(frozen=True)
class Served:
    """One request as the server saw it: chunks that it sent, whether the client left first, and seconds."""

    chunks: int
    left: bool
    seconds: float


class SlowServer(Loopback):
    """Answers every request with `deltas`, one each `pause` seconds. `served` gets what became of each."""

    def __init__(self, deltas: Sequence[Delta], pause: float = 0.02) -> None:
        super().__init__(_Handler)
        self.deltas = deltas
        self.pause = pause
        self.served: queue.Queue[Served] = queue.Queue()


class _Handler(Handler):
    server: SlowServer

    def do_POST(self) -> None:
        self.body()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        begun, sent, left = time.monotonic(), 0, False
        try:
            for delta in self.server.deltas:
                self._pause()
                self._send({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                sent += 1
            self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
            usage = {"prompt_tokens": 100, "completion_tokens": sent, "total_tokens": 100 + sent}
            self._send({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        except ConnectionError:
            left = True
        self.server.served.put(Served(sent, left, time.monotonic() - begun))

    def _pause(self) -> None:
        """Waits between two chunks. Raises ConnectionError as soon as the client has left."""
        readable, _, _ = select.select([self.connection], [], [], self.server.pause)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client has left")

    def _send(self, event: dict[str, Any]) -> None:
        head = {"id": "reply", "object": "chat.completion.chunk", "created": 0, "model": "slow"}
        self.wfile.write(f"data: {json.dumps({**head, **event})}\n\n".encode())
