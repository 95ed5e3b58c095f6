"""Subjects that are no good, each in a way of its own: `python bad.py WAY`. Else they are the small loop."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
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
    "lacks what there is not": {**HELLO, "lacks": {"crashes": "it has no storage"}},
}


class Subject(loop.Subject):
    def do_GET(self) -> None:
        if way == "does not speak JSON":
            self.send(b"<html>Welcome!</html>")
        else:
            self.say(FIRST.get(way, HELLO))

    def answer(self, order: loop.Message) -> None:
        if self.path == "/stop":
            return
        if way == "hangs in a step":
            hang()
        if way in ("gives up", "leaves a child as it crashes"):
            message = {"role": "user", "content": order.get("text", "")}
            body = {"model": "scripted", "messages": [message]}
            loop.post(f"{loop.SETUP['model']}/chat/completions", body)
        match way:
            case "gives up":
                self.say({"status": "error", "words": "It is too hard."})
            case "leaves a child as it crashes":
                os._exit(1)
            case "says success":
                self.say({"status": "success", "words": "I did all.", "final": "Done."})
            case "answers for ever":
                self.send(b'{"status": "success", "words": "')
                while True:
                    self.wfile.write(b"x" * 65_536)

    def send(self, data: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)


def hang() -> None:
    Path(os.environ["LOOPCHECK_TEST"], "hangs").touch()
    time.sleep(3600)


if __name__ == "__main__":
    way = sys.argv[1]
    if way == "never serves":
        hang()
    elif way == "leaves a child as it crashes":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Subject).serve_forever()
