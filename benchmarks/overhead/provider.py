"""A provider in its own process: `python -m benchmarks.overhead.provider` prints its address, and ends at the
end of its input.

It serves OpenAI's chat completions, streamed if the client asks for that, with one chunk per packet. The
path, /CHUNKS/TURNS/v1, selects the replies: this many chunks of text, and a call of the tool `step` in all
turns except the last one, which calls `finish_task` if the client has such a tool.
"""

import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
HEAD: Body = {"id": "chatcmpl-1", "created": 0, "model": "m", "service_tier": "default"}
USAGE: Body = {"prompt_tokens": 1_000, "completion_tokens": 300, "total_tokens": 1_300}


@dataclass(frozen=True)
class Reply:
    """The model's reply: the text in chunks, and a call."""

    words: Sequence[str]
    call: Body | None
    usage: Body = field(default_factory=lambda: USAGE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: a client that ends drops its connections."""


class Handler(BaseHTTPRequestHandler):
    """Serves one client."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reply(self, asked: Body) -> Reply:
        """Returns the reply to a request, by its path and body."""
        chunks, turns = map(int, self.path.split("/")[1:3])
        return Reply(["word "] * chunks, _call(asked, turns))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.reply(asked)
        if asked.get("stream"):
            self._head("text/event-stream", "Transfer-Encoding", "chunked")
            for event in _events(reply):
                data = event.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        else:
            message: Body = {"role": "assistant", "content": "".join(reply.words), "refusal": None}
            message |= {"tool_calls": [reply.call]} if reply.call else {}
            choice = {"index": 0, "message": message, "finish_reason": _reason(reply.call)}
            self.say({**HEAD, "object": "chat.completion", "choices": [choice], "usage": reply.usage})

    def say(self, body: Body) -> None:
        """Sends one JSON document."""
        data = json.dumps(body).encode()
        self._head("application/json", "Content-Length", str(len(data)))
        self.wfile.write(data)

    def _head(self, content: str, name: str, value: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content)
        self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _call(asked: Body, turns: int) -> Body | None:
    said = sum(message["role"] == "assistant" for message in asked["messages"])
    if said < turns - 1:
        return call_of(said, "step", {"n": said})
    return call_of(said, "finish_task", {"summary": "Done."}) if offers_finish(asked) else None


def offers_finish(asked: Body) -> bool:
    """Returns whether the client ends its tasks with a call."""
    return any(tool["function"]["name"] == "finish_task" for tool in asked.get("tools", ()))


def call_of(number: int, name: str, arguments: Body) -> Body:
    """Returns a tool call in wire format."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _events(reply: Reply) -> Iterator[str]:
    def event(choices: list[Body], usage: Body | None = None) -> str:
        body = {**HEAD, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        return f"data: {json.dumps(body)}\n\n"

    def choice(delta: Body, reason: str | None = None) -> list[Body]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    for words in reply.words:
        yield event(choice({"content": words}))
    if reply.call:
        yield event(choice({"tool_calls": [{"index": 0, **reply.call}]}))
    yield event(choice({}, _reason(reply.call)))
    yield event([], reply.usage)
    yield "data: [DONE]\n\n"


def _reason(call: Body | None) -> str:
    return "tool_calls" if call else "stop"


def serve(handler: type[Handler]) -> None:
    """Serves until the input ends."""
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(Handler)
