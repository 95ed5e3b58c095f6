"""Subjects that are no good, each in a way of its own: `python bad.py WAY`. Standard library only."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HELLO = {
    "protocol": 1,
    "framework": "No good",
    "versions": {"bad": "1.0"},
    "finish": {
        "any": {"text": "$text"},
        "call": {"name": "done", "args": {"summary": "$text"}},
        "structured": {"text": "$json"},
    },
    "ask": {"name": "ask_user", "args": {"question": "$text"}},
    "delegation": {"name": "$name", "args": {"task": "$text"}},
    "lacks": {},  # it claims all there is
}
FIRST: Mapping[str, Any] = {
    "speaks another protocol": {**HELLO, "protocol": 2},
    "names no protocol": {"framework": "No good"},
    "says nothing of itself": {"protocol": 1},
    "has no way to finish": {**HELLO, "finish": {}},
    "has a template of no shape": {**HELLO, "ask": {"say": "$text"}},
    "asks for an unknown value": {**HELLO, "finish": {"any": {"text": "$answer"}}},
    "lacks a list": {**HELLO, "lacks": ["crash"]},
    "lacks what there is not": {**HELLO, "lacks": {"crashes": "it has no storage"}},
    "speaks a protocol that is no number": {**HELLO, "protocol": True},
    "has no version": {**HELLO, "versions": {}},
    "lacks without a reason": {**HELLO, "lacks": {"crash": " "}},
    "claims a finishing call and has none": {**HELLO, "finish": {"any": {"text": "$text"}}},
    "claims a structured answer and has none": {
        **HELLO,
        "finish": {"any": {"name": "done", "args": {"summary": "$text"}}},
    },
    "claims questions and has none": {**HELLO, "ask": None},
    "claims sub-agents and has none": {**HELLO, "delegation": None},
}
"""What it says of itself, where that is what is wrong with it."""


class Subject(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = tools = ""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if way == "does not speak JSON":
            self.send(b"<html>Welcome!</html>")
        else:
            self.say(FIRST.get(way, HELLO), 503 if way == "serves with an error" else 200)

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/setup" and way != "hangs in its setup":
            Subject.model, Subject.tools = order["model"], order["tools_url"]
            self.say({"status": "not ready" if way == "is never ready" else "ready"})
        elif self.path != "/stop":
            STEPS[way](self, order)

    def say(self, answer: Any, status: int = 200) -> None:
        self.send(json.dumps(answer).encode(), status)

    def send(self, data: bytes, status: int = 200, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def call_the_model(self, text: str, *more: Any, **fields: Any) -> None:
        body = {"model": "scripted", "messages": [{"role": "user", "content": text}, *more], **fields}
        request = urllib.request.Request(f"{self.model}/chat/completions", json.dumps(body).encode())
        with suppress(OSError):  # whatever it says
            urllib.request.urlopen(request).read()


def hang(*_: object) -> None:
    Path(os.environ["LOOPCHECK_TEST"], "hangs").touch()
    time.sleep(3600)


def idle(status: str, **more: Any) -> Callable[[Subject, Any], None]:
    return lambda subject, _: subject.say({"status": status, "words": "I did all.", "final": "Done.", **more})


def call_for_ever(subject: Subject, order: Mapping[str, Any]) -> None:
    while True:
        subject.call_the_model(order.get("text", ""))


def call_tools_for_ever(subject: Subject, _: object) -> None:
    where = urlsplit(subject.tools).netloc
    connection = http.client.HTTPConnection(where)
    while True:
        connection.request("POST", "/call/pay", b'{"to": "me", "amount": 1}')
        connection.getresponse().read()


def shout(subject: Subject, order: Mapping[str, Any]) -> None:
    """Much of everything that the suite keeps or prints."""
    many = [{"role": "user"}] * 20_000
    for _ in range(10):
        subject.call_the_model(order.get("text", ""), tools=[{"function": {"description": "x" * 1_000_000}}])
        subject.call_the_model(order.get("text", ""), *many)
    where = urlsplit(subject.tools).netloc
    for _ in range(100):
        connection = http.client.HTTPConnection(where)
        with suppress(OSError):
            connection.request("POST", "/call/write", b'{"name": "a", "text": "%s"}' % (b"x" * 900_000))
            connection.getresponse().read()
    subject.say({"status": "stopped", "words": "x" * 1_000_000, "final": "x" * 900_000})


def speak_oddly(subject: Subject, order: Mapping[str, Any]) -> None:
    """What is JSON, and what no one expects."""
    for name, arguments in ((["pay"], "{}"), ("look", "[1]"), ("look", "[" * 5000), ({}, None)):
        call = {"id": "call_1", "function": {"name": name, "arguments": arguments}}
        result = {"role": "tool", "tool_call_id": ["call_1"], "content": {"a": [1e999]}}
        subject.call_the_model(order.get("text", ""), {"role": "assistant", "tool_calls": [call]}, result)
    subject.send(b'{"status": "success", "words": "\\ud83d\\u001b[31m", "final": [NaN, 1e999, "\\udc00"]}')


def crash(subject: Subject, order: Mapping[str, Any]) -> None:
    subject.call_the_model(order.get("text", ""))
    os._exit(1)


def answer_for_ever(subject: Subject, _: object) -> None:
    subject.send(b'{"status": "success", "words": "', length=1 << 50)
    while True:
        subject.wfile.write(b"x" * 65_536)


def answer_half(subject: Subject, _: object) -> None:
    subject.send(b'{"status": "succ', length=99)
    subject.close_connection = True


def drip(subject: Subject, _: object) -> None:
    subject.send(b"", length=1 << 50)
    while True:
        subject.wfile.write(b" ")
        time.sleep(0.02)


def drip_a_header(subject: Subject, _: object) -> None:
    subject.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    drip_on = subject.wfile.write
    while True:
        drip_on(b"x")
        time.sleep(0.02)


def give_up(subject: Subject, order: Mapping[str, Any]) -> None:
    subject.call_the_model(order.get("text", ""))
    subject.say({"status": "error", "words": "It is too hard."})


STEPS: Mapping[str, Callable[[Subject, Any], None]] = {
    "gives up": give_up,
    "hangs in its setup": hang,
    "hangs in a step": hang,
    "crashes in a step": crash,
    "calls the model for ever": call_for_ever,
    "calls tools for ever": call_tools_for_ever,
    "answers too much": idle("success", words="x" * 5_000_000),
    "answers for ever": answer_for_ever,
    "drips an answer": drip,
    "drips a header": drip_a_header,
    "shouts": shout,
    "speaks oddly": speak_oddly,
    "is never ready": idle("success"),
    "answers no JSON": lambda subject, _: subject.send(b"All done!"),
    "nests its answer": lambda subject, _: subject.send(b"[" * 1_000_000),
    "nests its answer a little": lambda subject, _: subject.send(
        b'{"final": %s}' % (b"[" * 900 + b"]" * 900)
    ),
    "answers half of it": answer_half,
    "answers with 500": lambda subject, _: subject.say({"status": "success"}, 500),
    "reports an unknown status": idle("fine"),
    "reports no list of calls": idle("approval", pending=[{"name": "pay", "args": "all"}]),
    "says success": idle("success"),
    "says error": idle("error"),
    "says refused": idle("refused"),
    "says limit": idle("limit"),
    "says question": idle("question"),
    "says approval": idle("approval", pending=[{"id": "call_1", "name": "pay", "args": {"to": "ada"}}]),
    "prints for ever": idle("success"),
    "leaves a child": idle("success"),
    "leaves a daemon": idle("success"),
    "leaves a child as it crashes": crash,
    "does not end": idle("success"),
}


def print_for_ever() -> None:
    while True:
        sys.stdout.write("x" * 65_536)


def serve() -> None:
    match way:
        case "never serves":
            hang()
        case "crashes at start":
            sys.exit("There is no module named sense.")
        case "prints for ever":
            threading.Thread(target=print_for_ever, daemon=True).start()
        case "leaves a child" | "leaves a child as it crashes":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        case "leaves a daemon":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        case "does not end":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Subject)
    server.serve_forever()


if __name__ == "__main__":
    way = sys.argv[1]
    serve()
