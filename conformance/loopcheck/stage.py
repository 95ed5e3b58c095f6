"""The stage of one run: an OpenAI-compatible model and the tools, on loopback, in the suite's process.

So the script, its position, the world that the tools change, and the record survive when the subject is
killed, and no subject sees them.
"""

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Protocol, Self

from loopcheck.observed import Message, ModelCall
from loopcheck.outside import load
from loopcheck.replies import Manner, Reply, Wire, render

MOST_CALLS = 60
"""Model calls after which a unit case counts as never ending; further calls get an error."""
CONTEXT = 600_000
"""Most characters in a model request, about 150,000 tokens."""
LARGEST = 64_000_000
"""Largest model request, in bytes; a larger one is refused."""
LARGEST_CALL = 1_000_000
"""Largest arguments of a tool call, in bytes: the record keeps all of them."""
MOST_BYTES = 4_000_000
"""Largest arguments of all tool calls of a run, in bytes."""
MOST_MESSAGES = 5_000
"""Most messages in a request; the record keeps each."""
KEPT = 4_000
"""How many characters of a message the record keeps."""
MOST_RUNS = 2_000
"""Tool calls in one run after which further ones are refused, so that no endless loop fills the memory."""


@dataclass(frozen=True)
class ModelRequest:
    """A model request. body: as received. sent: its messages. served: how many came before it.

    who: the task of the calling sub-agent; empty for the top-level agent.
    """

    body: Mapping[str, Any]
    sent: tuple[Message, ...]
    served: int
    who: str = ""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return [one for one in self.body.get("messages", ()) if isinstance(one, Mapping)]

    @property
    def cornered(self) -> bool:
        """Whether the request offers no tools."""
        return not self.body.get("tools") or self.body.get("tool_choice") == "none"


class Brain(Protocol):
    """Decides what the model says. finish: the way of ending in the setup. most: calls that it accepts."""

    finish: str
    most: int

    def who(self, told: str) -> str:
        """Returns the task of the sub-agent with this prompt; empty for the agent."""

    def reply(self, asked: ModelRequest) -> Reply:
        """Returns the next reply."""


class World(Protocol):
    """The world in which tools take effect."""

    def call(self, name: str, args: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Returns the status and the response: `result`, or `error`."""

    def gate(self) -> str | None:
        """Returns what is missing; None if the work is done."""


class Server(ABC):
    """A model and the tools of a world, served on loopback while the context is open.

    capped: the model or the tools were called too often, or with too much data; later calls are refused and
    not recorded.
    """

    def __init__(self, world: World) -> None:
        self.world, self.capped = world, False
        self._lock = threading.Lock()
        self._taken = self._bytes = 0

    def __enter__(self) -> Self:
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def tools_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Of the model."""
        return f"{self.tools_url}/v1"

    @abstractmethod
    def reply(self, body: Mapping[str, Any], handler: BaseHTTPRequestHandler) -> None:
        """Answers one model request."""

    def take_place(self, name: str, args: Mapping[str, Any], size: int = 0) -> tuple[int, Mapping[str, Any]]:
        """Runs a tool call; returns the status and the response. size: bytes of its arguments."""
        with self._lock:
            self._taken += 1
            self._bytes += size
            if self._taken > MOST_RUNS or self._bytes > MOST_BYTES:
                self.capped = True
                return 429, {"error": "The tools were called too often."}
        return self.world.call(name, args)


class Stage(Server):
    """Serves a brain's replies in one framework's form, and runs tools in a world.

    on_request: called for each request. delay: seconds before each reply. seen: when, and what the model was
    shown.
    """

    def __init__(self, brain: Brain, world: World, manner: Manner) -> None:
        super().__init__(world)
        self.brain, self.manner = brain, manner
        self.on_request: Callable[[], None] = lambda: None
        self.delay = 0.0
        self.seen: list[tuple[int, ModelCall]] = []
        self._ids: Iterator[str] = (f"call_{number}" for number in count(1))
        self._served = 0
        self._issued: dict[str, str] = {}

    def reply(self, body: Mapping[str, Any], handler: BaseHTTPRequestHandler) -> None:
        status, found = self.answer(body)
        streams = bool(body.get("stream"))
        if isinstance(found, Wire):
            text = _stream(found) if streams else json.dumps(_whole(found))
            send(handler, status, text, _STREAMED if streams else "application/json")
        elif status:
            send(handler, status, json.dumps(_error(found, status)))
        else:
            _break_off(handler, streams)

    def answer(self, body: Mapping[str, Any]) -> tuple[int, Wire | str]:
        """Returns the status, and the reply or an error. A status of 0 drops the connection."""
        tools = json.dumps(body.get("tools") or [], sort_keys=True)
        try:
            if len(body["messages"]) > MOST_MESSAGES or len(tools) > CONTEXT:
                return 400, "context_length_exceeded"
            messages = tuple(_sent(message) for message in body["messages"])
            _forbids(body, ())
        except (AttributeError, KeyError, TypeError):
            return 400, "malformed_request"
        self.on_request()
        time.sleep(self.delay)
        with self._lock:
            if self.capped:
                return 400, "too_many_calls"
            who = self._who(messages)
            status, found = self._play(ModelRequest(body, messages, self._served, who))
            text, calls = _said(found) if isinstance(found, Wire) else ("", ())
            self._issued |= {id: who for id, _, _ in calls}
            forbids = _forbids(body, [name for _, name, _ in calls])
            shown = ModelCall(messages, status, text, calls, forbids, who, tools)
            self.seen.append((time.monotonic_ns(), shown))
        return status, found

    def _who(self, messages: tuple[Message, ...]) -> str:
        """Returns the task of the calling sub-agent: from its prompt, or, if that is gone, from its earlier
        calls."""
        told = self.brain.who(ModelCall(messages).told_first)
        made = (id for message in messages for id, _, _ in message.calls)
        return told or next((self._issued[id] for id in made if id in self._issued), "")

    def _play(self, asked: ModelRequest) -> tuple[int, Wire | str]:
        # A refused request is not served, but could also repeat for ever.
        if self._served >= self.brain.most or len(self.seen) >= 4 * self.brain.most:
            self.capped = True
            return 400, "too_many_calls"
        if sum(message.size for message in asked.sent) > CONTEXT:
            return 400, "context_length_exceeded"
        said = self.brain.reply(asked)
        self._served += 1
        if said.error is not None:
            return said.error, "scripted_error"
        wire = render(said, self.manner, self.brain.finish, self._ids)
        return 200, replace(wire, shown=sum(message.size for message in asked.sent))


def _forbids(body: Mapping[str, Any], called: Collection[str]) -> frozenset[str]:
    """Returns what an obedient provider would not reply to this request. called: the tools in the reply."""
    shape = (body.get("response_format") or {}).get("json_schema") or {}
    functions = [tool.get("function", {}) for tool in body.get("tools") or ()]
    strict = {function.get("name") for function in functions if function.get("strict")}
    talk = body.get("tool_choice") not in (None, "auto", "none")
    shaped = bool(shape.get("strict")) or any(name in strict for name in called)
    return frozenset({"talk"} if talk else ()) | frozenset({"shape"} if shaped else ())


def _sent(message: Mapping[str, Any]) -> Message:
    text = text_of(message.get("content"))
    calls = tuple(
        (str(call.get("id", "")), str(call["function"]["name"]), str(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    answers = message.get("tool_call_id") if message.get("role") == "tool" else None
    size = len(text) + sum(len(arguments) for _, _, arguments in calls)
    return Message(str(message.get("role", "")), text[:KEPT], calls, answers, size)


def text_of(content: Any) -> str:
    """Returns the text of a message's content, which may consist of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _said(wire: Wire) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in wire.calls]
    return wire.text, tuple(calls)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: a client that is killed drops its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Prints nothing: the record has everything."""

        def do_POST(self) -> None:
            data = _body(self, LARGEST if self.path.endswith("/chat/completions") else LARGEST_CALL)
            if data is None:
                self.close_connection = True
                send(self, 413, json.dumps(_error("too_large", 413)))
                return
            try:
                body = load(data or b"{}")
            except ValueError:
                body = None
            if isinstance(body, dict):
                _serve(server, self, body, len(data))
            else:
                send(self, 400, json.dumps(_error("no_json_object", 400)))

    return Handler


def _body(handler: BaseHTTPRequestHandler, most: int) -> bytes | None:
    """Returns the body of a request. None if it is larger than `most` or does not state its length."""
    if "chunked" in handler.headers.get("Transfer-Encoding", "").lower():
        return _chunks(handler, most)
    size = handler.headers.get("Content-Length") or "0"
    fits = size.isdecimal() and len(size) < 20 and int(size) <= most
    return handler.rfile.read(int(size)) if fits else None


def _chunks(handler: BaseHTTPRequestHandler, most: int) -> bytes | None:
    """Reads a chunked body: many clients send streams this way."""
    found = bytearray()
    while True:
        digits = handler.rfile.readline(100).split(b";")[0].strip()
        if not digits or len(digits) > 8 or digits.strip(b"0123456789abcdefABCDEF"):
            return None
        size = int(digits, 16)
        if len(found) + size > most:
            return None
        if not size:
            while handler.rfile.readline(1000).strip():
                """Skips a trailer; none is used here."""
            return bytes(found)
        found += handler.rfile.read(size)
        handler.rfile.readline(1000)


def _serve(server: Server, handler: BaseHTTPRequestHandler, body: Mapping[str, Any], size: int) -> None:
    """Answers one request of a subject: for its model, a tool, or the completion check. size: of its body."""
    name = handler.path.removeprefix("/call/")
    if handler.path == "/gate":
        send(handler, 200, json.dumps({"missing": server.world.gate()}))
    elif name != handler.path:
        status, answer = server.take_place(name, body, size)
        send(handler, status, json.dumps(answer))
    elif handler.path.endswith("/chat/completions"):
        server.reply(body, handler)
    else:
        send(handler, 404, json.dumps(_error("unknown_path", 404)))


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    text: str,
    kind: str = "application/json",
    of: int | None = None,
) -> None:
    """of: the length to announce if less is sent."""
    data = text.encode()
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data) if of is None else of))
    if status == 429:
        handler.send_header("Retry-After", "1")
    handler.end_headers()
    handler.wfile.write(data)


def _break_off(handler: BaseHTTPRequestHandler, streams: bool) -> None:
    """Begins a reply and drops the connection in the middle of it."""
    said = Wire("I will", (), "stop")
    whole = _stream(said) if streams else json.dumps(_whole(said))
    send(handler, 200, whole[: len(whole) // 3], _STREAMED if streams else "application/json", len(whole))
    handler.close_connection = True


_STREAMED = "text/event-stream"
_REPLIES = count(1)


def _base() -> dict[str, Any]:
    """Returns the envelope of a reply. Each has its own ID: some frameworks use it as the message's."""
    return {"id": f"chatcmpl-{next(_REPLIES)}", "created": 0, "model": "scripted"}


def _usage(wire: Wire) -> dict[str, int]:
    """Returns the usage, at four characters per token: some frameworks use it to compact the history."""
    prompt, completion = wire.shown // 4, 20
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _error(code: str, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": f"The provider refuses: {code}.", "type": kind, "code": code}}


def _whole(wire: Wire) -> dict[str, Any]:
    calls = {"tool_calls": list(wire.calls)} if wire.calls else {}
    message = {"role": "assistant", "content": wire.text or None, **calls}
    choice = {"index": 0, "message": message, "finish_reason": wire.reason}
    return {**_base(), "object": "chat.completion", "choices": [choice], "usage": _usage(wire)}


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
    chunks.append({"choices": [], "usage": _usage(wire)})
    base = _base()
    lines = [json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
