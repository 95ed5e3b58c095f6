"""A model's provider on loopback: real HTTP, OpenAI's chat completions, one scripted answer a request.

    with FakeProvider([error(429, "too fast", Retry_After="1"), Reply("Hello.")]) as server:
        model = ChatOpenAI(base_url=server.url, api_key="…", model="m")

Whether a reply is streamed is the client's choice, as with a real one; `server.requests` are what came.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.support.replies import whole, wire
from tests.support.replies.wire import WireReply
from tests.support.servers.loopback import Handler, Loopback

Body = dict[str, Any]


def tool_call(name: str, **args: Any) -> tuple[str, str]:
    return name, json.dumps(args)


@dataclass(frozen=True)
class Reply(WireReply):
    """A reply of the model; without a reason it ends as is regular.

    wait: seconds before the first byte. pause: seconds between two pieces. ends: how it ends after three
    pieces; "cut" is a broken connection, "silent" one that looks like a regular end.
    """

    size: int = 8
    wait: float = 0.0
    pause: float = 0.0
    ends: Literal["well", "cut", "silent"] = "well"


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
        # Google and Amazon say it in the path.
        return bool(self.body.get("stream")) or "stream" in self.path


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
        reply = replace(reply, reason=reply.reason or ("tool_calls" if reply.calls else "stop"))
        if not streamed:
            body = json.dumps(whole.openai(reply)).encode()
            self._head(200, "application/json", **{"Content-Length": str(len(body))})
            self.wfile.write(body if reply.ends == "well" else body[: len(body) // 2])
            return
        self._head(200, "text/event-stream", **{"Transfer-Encoding": "chunked"})
        events = [*map(wire.sse, wire.openai_events(reply)), b"data: [DONE]\n\n"]
        for event in events if reply.ends == "well" else events[:3]:
            self._chunk(event)
            if self.server.closing.wait(reply.pause):
                return
        if reply.ends != "cut":
            self._chunk(b"")

    def _head(self, status: int, content_type: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
