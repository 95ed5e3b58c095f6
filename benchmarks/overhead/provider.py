"""A provider in a process of its own: `python provider.py` prints its address, and ends with its input.

OpenAI's chat completions, streamed or not, as the client asks, one chunk a packet. What is asked for stands
in the path, /CHUNKS/TURNS/v1: a reply of so many chunks of words, and a call of the tool `step` in all turns
but the last; in that one `finish_task`, where the client has such a tool. Standard library only.
"""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
HEAD: Body = {"id": "chatcmpl-1", "created": 0, "model": "m", "service_tier": "default"}
USAGE: Body = {"prompt_tokens": 1_000, "completion_tokens": 300, "total_tokens": 1_300}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that has ended leaves its connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chunks, turns = map(int, self.path.split("/")[1:3])
        call = _call(asked, turns)
        if asked.get("stream"):
            self._head("text/event-stream", "Transfer-Encoding", "chunked")
            for event in _events(chunks, call):
                data = event.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        else:
            message = {"role": "assistant", "content": "word " * chunks, "refusal": None}
            message |= {"tool_calls": [call]} if call else {}
            choice = {"index": 0, "message": message, "finish_reason": _reason(call)}
            body = {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}
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
    names = [tool["function"]["name"] for tool in asked.get("tools", ())]
    if said < turns - 1:
        function = {"name": "step", "arguments": json.dumps({"n": said})}
    elif "finish_task" in names:
        function = {"name": "finish_task", "arguments": json.dumps({"summary": "Done."})}
    else:
        return None
    return {"id": f"call_{said}", "type": "function", "function": function}


def _events(chunks: int, call: Body | None) -> Iterator[str]:
    def event(choices: list[Body], usage: Body | None = None) -> str:
        body = {**HEAD, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        return f"data: {json.dumps(body)}\n\n"

    def choice(delta: Body, reason: str | None = None) -> list[Body]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    for _ in range(chunks):
        yield event(choice({"content": "word "}))
    if call:
        yield event(choice({"tool_calls": [{"index": 0, **call}]}))
    yield event(choice({}, _reason(call)))
    yield event([], USAGE)
    yield "data: [DONE]\n\n"


def _reason(call: Body | None) -> str:
    return "tool_calls" if call else "stop"


def main() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
