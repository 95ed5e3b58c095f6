"""A model's provider on loopback: real HTTP, OpenAI's chat completions, one scripted answer a request.

    with FakeProvider([error(429, "too fast", Retry_After="1"), Reply("Hello.")]) as server:
        model = ChatOpenAI(base_url=server.url, api_key="…", model="m")

Whether a reply is streamed is the client's choice, as with a real one; `server.requests` are what came.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.servers.loopback import Handler, Loopback

Body = dict[str, Any]
USAGE: Body = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def tool_call(name: str | None, raw: str | None = None, id: str | None = "call_0", **args: Any) -> Body:
    """One call as the API writes it. `raw` is the text of the arguments in place of `args`."""
    function = {"name": name, "arguments": json.dumps(args) if raw is None else raw}
    return {"id": id, "type": "function", "function": function}


@dataclass(frozen=True)
class Reply:
    """A reply of the model.

    finish: None leaves the finish reason out. size: characters in one streamed piece. wait: seconds before
    the first byte. pause: seconds between two pieces. ends: how a stream ends; "cut" is a broken connection,
    "silent" one that looks like a regular end. after: how many pieces are sent before an early end.
    """

    text: str | None = None
    calls: Sequence[Body] = ()
    finish: str | None = "auto"
    size: int = 8
    wait: float = 0.0
    pause: float = 0.0
    ends: Literal["well", "cut", "silent"] = "well"
    after: int = 3

    @property
    def reason(self) -> str | None:
        if self.finish != "auto":
            return self.finish
        return "tool_calls" if self.calls else "stop"

    def message(self) -> Body:
        calls = {"tool_calls": list(self.calls)} if self.calls else {}
        return {"role": "assistant", "content": self.text, **calls}

    def deltas(self) -> Iterator[Body]:
        yield {"role": "assistant", "content": ""}
        for piece in _pieces(self.text or "", self.size):
            yield {"content": piece}
        for index, call in enumerate(self.calls):
            function = call["function"]
            yield {
                "tool_calls": [
                    {"index": index, **call, "function": {"name": function["name"], "arguments": ""}}
                ]
            }
            for piece in _pieces(function["arguments"] or "", self.size):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def events(self) -> Iterator[str]:
        for sent, delta in enumerate(self.deltas()):
            if self.ends != "well" and sent == self.after:
                return
            yield _event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if self.ends != "well":
            return
        yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.reason}]})
        yield _event({"choices": [], "usage": USAGE})
        yield "data: [DONE]\n\n"

    def whole(self) -> str:
        choice = {"index": 0, "message": self.message(), "finish_reason": self.reason}
        return json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE})


@dataclass(frozen=True)
class Fault:
    """Any other answer: a status, a body (a dict is sent as JSON, bytes as they are) and headers.
    `{authorization}` in a text body is replaced by the header that the client sent."""

    status: int = 500
    body: Body | str | bytes = ""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def error(status: int, message: str, code: str | None = None, **headers: str) -> Fault:
    """An error as OpenAI's API writes it. Underscores in the names of headers are sent as hyphens."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return Fault(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def sse(*events: str) -> Fault:
    """A stream of just these lines, with status 200."""
    return Fault(200, "".join(f"{event}\n\n" for event in events), content_type="text/event-stream")


@dataclass(frozen=True)
class Request:
    """One request as the server got it; `at` is when, in seconds of the monotonic clock."""

    path: str
    headers: dict[str, str]
    body: Body
    at: float

    @property
    def streamed(self) -> bool:
        # Google says it in the path.
        return bool(self.body.get("stream")) or ":stream" in self.path


class FakeProvider(Loopback):
    """Answers each request with the next of `script`; what comes after its end gets status 500."""

    def __init__(self, script: Sequence[Reply | Fault] = ()) -> None:
        super().__init__(_Handler)
        self.script = list(script)
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()

    def plays(self, *answers: Reply | Fault) -> None:
        """Begins anew with these answers."""
        with self._lock:
            self.script, self.requests = list(answers), []

    def take(self, request: Request) -> Reply | Fault:
        with self._lock:
            self.requests.append(request)
            return self.script.pop(0) if self.script else error(500, "the script is at its end")

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        super().__exit__()


class _Handler(Handler):
    server: FakeProvider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(self.body()), time.monotonic())
        answer = self.server.take(request)
        self.close_connection = True
        try:
            if isinstance(answer, Fault):
                self._fault(answer, headers)
            elif not self.server.closing.wait(answer.wait):
                self._reply(answer, streamed=request.streamed)
        except ConnectionError:
            pass  # the client has left, as a real one may

    def _fault(self, fault: Fault, headers: dict[str, str]) -> None:
        if isinstance(fault.body, bytes):
            body = fault.body
        else:
            text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
            body = text.replace("{authorization}", headers.get("authorization", "")).encode()
        self._head(fault.status, fault.content_type, **fault.headers, **{"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _reply(self, reply: Reply, *, streamed: bool) -> None:
        if not streamed:
            body = reply.whole().encode()
            self._head(200, "application/json", **{"Content-Length": str(len(body))})
            self.wfile.write(body if reply.ends == "well" else body[: len(body) // 2])
        else:
            self._head(200, "text/event-stream", **{"Transfer-Encoding": "chunked"})
            for event in reply.events():
                self._chunk(event.encode())
                if self.server.closing.wait(reply.pause):
                    return
            if reply.ends in ("well", "silent"):
                self._chunk(b"")

    def _head(self, status: int, content_type: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


_HEAD: Body = {"id": "chatcmpl-1", "created": 0, "model": "fake"}


def _event(body: Body) -> str:
    return f"data: {json.dumps({**_HEAD, 'object': 'chat.completion.chunk', **body})}\n\n"


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
