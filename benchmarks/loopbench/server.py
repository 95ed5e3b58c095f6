"""The scripted model: an OpenAI-compatible server on loopback, so that every framework runs its own client.

It lives in the bench's process. So the script, its position and the record of what the model was shown
outlive a kill of the process under test, and no adapter sees the script.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self

from benchmarks.loopbench.observed import Sent, Shown
from benchmarks.loopbench.replies import Manner, Wire, render
from benchmarks.loopbench.scenario import Scenario

MOST_CALLS = 60
"""Calls of the model after which a run counts as one that does not end; further ones get an error."""
CONTEXT = 600_000
"""Characters that the model takes, about 150,000 tokens."""
KEPT = 4_000


@dataclass
class ModelServer:
    """Plays the script of one scenario in the manner of one framework. delay: seconds before each reply.

    `seen`: when, and what was shown.
    """

    scenario: Scenario
    manner: Manner
    on_request: Callable[[], None] = lambda: None
    delay: float = 0.0
    seen: list[tuple[int, Shown]] = field(default_factory=list)
    capped: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: Iterator[str] = (f"call_{number}" for number in count(1))
        self._served = 0
        self._issued: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, body: Mapping[str, Any]) -> tuple[int, Wire | str]:
        """The status, and the reply or what is wrong."""
        messages = tuple(_sent(message) for message in body.get("messages", ()))
        self.on_request()
        time.sleep(self.delay)
        with self._lock:
            who = self._who(messages)
            status, found = self._play(messages, who, cornered=_cornered(body))
            text, calls = _said(found) if isinstance(found, Wire) else ("", ())
            self._issued |= {id: who for id, _, _ in calls}
            forbids = _forbids(body, [name for _, name, _ in calls])
            shown = Shown(messages, status, text, calls, forbids, who)
            self.seen.append((time.monotonic_ns(), shown))
        return status, found

    def _who(self, messages: tuple[Sent, ...]) -> str:
        """The task of the sub-agent that calls: from what it is told, or, where that is gone, from the calls
        that it made before."""
        told = self.scenario.who(Shown(messages).told_first)
        made = (id for message in messages for id, _, _ in message.calls)
        return told or next((self._issued[id] for id in made if id in self._issued), "")

    def _play(self, messages: tuple[Sent, ...], who: str, *, cornered: bool) -> tuple[int, Wire | str]:
        if sum(message.size for message in messages) > CONTEXT:
            return 400, "context_length_exceeded"
        if self._served >= MOST_CALLS:
            self.capped = True
            return 400, "too_many_calls"
        own = sum(message.role == "assistant" for message in messages)
        number = own if self.scenario.by_history else self._served
        said = self.scenario.reply(number, who, cornered=cornered)
        self._served += 1
        if said.error is not None:
            return said.error, "scripted_error"
        return 200, render(said, self.manner, self.scenario.setup.finish, self._ids)


def _cornered(body: Mapping[str, Any]) -> bool:
    """Whether the request lets the model call nothing."""
    return not body.get("tools") or body.get("tool_choice") == "none"


def _forbids(body: Mapping[str, Any], called: Collection[str]) -> frozenset[str]:
    """What a provider that does as it is told would not reply to this request. called: by the reply."""
    shape = (body.get("response_format") or {}).get("json_schema") or {}
    functions = [tool.get("function", {}) for tool in body.get("tools") or ()]
    strict = {function.get("name") for function in functions if function.get("strict")}
    talk = body.get("tool_choice") not in (None, "auto", "none")
    shaped = bool(shape.get("strict")) or any(name in strict for name in called)
    return frozenset({"talk"} if talk else ()) | frozenset({"shape"} if shaped else ())


def _sent(message: Mapping[str, Any]) -> Sent:
    text = _text(message.get("content"))
    calls = tuple(
        (str(call.get("id", "")), str(call["function"]["name"]), str(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    answers = message.get("tool_call_id") if message.get("role") == "tool" else None
    size = len(text) + sum(len(arguments) for _, _, arguments in calls)
    return Sent(str(message.get("role", "")), text[:KEPT], calls, answers, size)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _said(wire: Wire) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in wire.calls]
    return wire.text, tuple(calls)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed breaks its connection: nothing to print."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing: the record is what counts."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, found = server.answer(body)
            if isinstance(found, str):
                self._send(status, "application/json", json.dumps(_error(found, status)))
            elif body.get("stream"):
                self._send(status, "text/event-stream", _stream(found))
            else:
                self._send(status, "application/json", json.dumps(_whole(found)))

        def _send(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


_BASE: dict[str, Any] = {"id": "chatcmpl-0", "created": 0, "model": "scripted"}
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _error(code: str, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": f"The provider refuses: {code}.", "type": kind, "code": code}}


def _whole(wire: Wire) -> dict[str, Any]:
    calls = {"tool_calls": list(wire.calls)} if wire.calls else {}
    message = {"role": "assistant", "content": wire.text or None, **calls}
    choice = {"index": 0, "message": message, "finish_reason": wire.reason}
    return {**_BASE, "object": "chat.completion", "choices": [choice], "usage": _USAGE}


def _stream(wire: Wire) -> str:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if wire.text:
        deltas.append({"content": wire.text})
    for index, call in enumerate(wire.calls):
        start = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": start}]})
        rest = {"arguments": call["function"]["arguments"]}
        deltas.append({"tool_calls": [{"index": index, "function": rest}]})
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": wire.reason})
    chunks: list[dict[str, Any]] = [{"choices": [choice]} for choice in choices]
    chunks.append({"choices": [], "usage": _USAGE})
    lines = [json.dumps({**_BASE, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
