"""Subjects that are no good, each in a way of its own: `python bad.py WAY`. Else they are the small loop."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))
from tests.conformance.subjects import loop

HELLO: Mapping[str, Any] = {
    **loop.HELLO,
    "finish": {**loop.HELLO["finish"], "structured": {"text": "$json"}},
    "delegation": {"name": "$name", "args": {"task": "$text"}},
    "lacks": {},  # it claims all there is
}
# What it says of itself, where that is what is wrong with it.
FIRST: Mapping[str, Any] = {
    "speaks another protocol": {**HELLO, "protocol": 2},
    "asks for an unknown value": {**HELLO, "finish": {"any": {"text": "$answer"}}},
    "lacks what there is not": {**HELLO, "lacks": {"crashes": "it has no storage"}},
}


class Subject(loop.Subject):
    def do_GET(self) -> None:
        if way == "does not speak JSON":
            self.send(b"<html>Welcome!</html>")
        else:
            self.say(FIRST.get(way, HELLO))

    def answer(self, order: loop.Message) -> None:
        if self.path != "/stop":
            STEPS[way](self, order)

    def send(self, data: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)


def call_the_model(order: Mapping[str, Any]) -> None:
    message = {"role": "user", "content": order.get("text", "")}
    loop.post(f"{loop.SETUP['model']}/chat/completions", {"model": "scripted", "messages": [message]})


def hang(*_: object) -> None:
    Path(os.environ["LOOPCHECK_TEST"], "hangs").touch()
    time.sleep(3600)


def idle(status: str, **more: Any) -> Callable[[Subject, Any], None]:
    return lambda subject, _: subject.say({"status": status, "words": "I did all.", "final": "Done.", **more})


def crash(subject: Subject, order: Mapping[str, Any]) -> None:
    call_the_model(order)
    os._exit(1)


def answer_for_ever(subject: Subject, _: object) -> None:
    subject.send(b'{"status": "success", "words": "')
    while True:
        subject.wfile.write(b"x" * 65_536)


def give_up(subject: Subject, order: Mapping[str, Any]) -> None:
    call_the_model(order)
    subject.say({"status": "error", "words": "It is too hard."})


STEPS: Mapping[str, Callable[[Subject, Any], None]] = {
    "gives up": give_up,
    "hangs in a step": hang,
    "crashes in a step": crash,
    "answers for ever": answer_for_ever,
    "says success": idle("success"),
    "says approval": idle("approval", pending=[{"id": "call_1", "name": "pay", "args": {"to": "ada"}}]),
    "leaves a child as it crashes": crash,
}


def serve() -> None:
    if way == "never serves":
        hang()
    elif way == "leaves a child as it crashes":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Subject)
    server.serve_forever()


if __name__ == "__main__":
    way = sys.argv[1]
    serve()
