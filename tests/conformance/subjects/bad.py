"""Subjects that are no good, each in a way of its own: `python bad.py WAY`. Standard library only."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
# What it says of itself, where that is what is wrong with it.
FIRST: Mapping[str, Any] = {
    "speaks another protocol": {**HELLO, "protocol": 2},
    "says nothing of itself": {"protocol": 1},
    "asks for an unknown value": {**HELLO, "finish": {"any": {"text": "$answer"}}},
    "lacks what there is not": {**HELLO, "lacks": {"crashes": "it has no storage"}},
}


class Subject(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = ""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if way == "does not speak JSON":
            self.send(b"<html>Welcome!</html>")
        else:
            self.say(FIRST.get(way, HELLO))

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/setup" and way != "hangs in its setup":
            Subject.model = order["model"]
            self.say({"status": "ready"})
        elif self.path != "/stop":
            STEPS[way](self, order)

    def say(self, answer: Any) -> None:
        self.send(json.dumps(answer).encode())

    def send(self, data: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def call_the_model(self, text: str) -> None:
        body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(f"{self.model}/chat/completions", json.dumps(body).encode())
        with suppress(OSError):  # whatever it says
            urllib.request.urlopen(request).read()


def hang(*_: object) -> None:
    Path(os.environ["LOOPCHECK_TEST"], "hangs").touch()
    time.sleep(3600)


def idle(status: str, **more: Any) -> Callable[[Subject, Any], None]:
    return lambda subject, _: subject.say({"status": status, "words": "I did all.", "final": "Done.", **more})


def crash(subject: Subject, order: Mapping[str, Any]) -> None:
    subject.call_the_model(order.get("text", ""))
    os._exit(1)


def answer_for_ever(subject: Subject, _: object) -> None:
    subject.send(b'{"status": "success", "words": "', length=1 << 50)
    while True:
        subject.wfile.write(b"x" * 65_536)


def drip(subject: Subject, _: object) -> None:
    subject.send(b"", length=1 << 50)
    while True:
        subject.wfile.write(b" ")
        time.sleep(0.02)


def give_up(subject: Subject, order: Mapping[str, Any]) -> None:
    subject.call_the_model(order.get("text", ""))
    subject.say({"status": "error", "words": "It is too hard."})


STEPS: Mapping[str, Callable[[Subject, Any], None]] = {
    "gives up": give_up,
    "hangs in its setup": hang,
    "hangs in a step": hang,
    "crashes in a step": crash,
    "answers for ever": answer_for_ever,
    "drips an answer": drip,
    "answers no JSON": lambda subject, _: subject.send(b"All done!"),
    "speaks oddly": lambda subject, _: subject.send(
        b'{"status": "success", "final": [NaN, "\\udc00\\u001b"]}'
    ),
    "reports no list of calls": idle("approval", pending=[{"name": "pay", "args": "all"}]),
    "says success": idle("success"),
    "says approval": idle("approval", pending=[{"id": "call_1", "name": "pay", "args": {"to": "ada"}}]),
    "leaves a child as it crashes": crash,
    "does not end": idle("success"),
}


def serve() -> None:
    if way == "never serves":
        hang()
    elif way == "crashes at start":
        sys.exit("There is no module named sense.")
    elif way == "leaves a child as it crashes":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    elif way == "does not end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Subject)
    server.serve_forever()


if __name__ == "__main__":
    way = sys.argv[1]
    serve()
