"""A client of a program that speaks JSON-RPC over its standard streams, as editors and agents do."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, Self

from tests.support.waiting import SECONDS

NEVER = None
"""The answer of a person who never answers."""
FAILS = {"error": {"code": -32000, "message": "There is no window."}}
"""The answer of a client whose dialog fails."""
_MODEL = Path(__file__).parent / "servers" / "scripted_tasks.py"


def signoff(name: str, database: Path, *options: str) -> list[str]:
    """A command that plays the tasks of `scripted_tasks`."""
    program = [sys.executable, "-m", "signoff.cli", name, "--config", "none", "--database", str(database)]
    return [*program, "--model", f"scripted:{_MODEL}", "--tools", "files,shell", *options]


def fill_in(**content: Any) -> dict[str, Any]:
    """The answer of a person who fills in a form."""
    return {"result": {"action": "accept", "content": content}}


class Refused(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code, self.data = error["code"], error.get("data")


class Peer:
    """asked, heard: the method and parameters of its requests and notifications. answers: what its requests
    are answered, one after the other. handlers: those of a method, which return the result, are asked first.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, Any]] = []
        self.heard: list[tuple[str, Any]] = []
        self.answers: deque[dict[str, Any] | None] = deque()
        self.handlers: dict[str, Callable[[Any], dict[str, Any]]] = {}
        self._responses: dict[Any, dict[str, Any]] = {}
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._numbers = count(1)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """Goes away, as a client that is closed does; returns the exit code of the program."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        exit_code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return exit_code

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def start(self, method: str, **params: Any) -> int:
        """Sends a request; returns its id."""
        number = next(self._numbers)
        self.send(id=number, method=method, params=params)
        return number

    def response(self, request_id: Any) -> Any:
        """Waits for the result of a request. Raises Refused for an error."""
        self.wait_for(lambda: request_id in self._responses)
        response = self._responses.pop(request_id)
        if "error" in response:
            raise Refused(response["error"])
        return response["result"]

    def request(self, method: str, **params: Any) -> Any:
        return self.response(self.start(method, **params))

    def wait_for(self, is_true: Callable[[], object]) -> None:
        until = time.monotonic() + SECONDS
        while not is_true():
            line = self._lines.get(timeout=max(0.01, until - time.monotonic()))
            self._take(json.loads(line, parse_constant=_refuse))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._responses[message["id"]] = message
        elif "id" not in message:
            self.heard.append((message["method"], message["params"]))
        else:
            self.asked.append((message["method"], message["params"]))
            answer = self._answer(message["method"], message["params"])
            if answer is not NEVER:
                self.send(id=message["id"], **answer)

    def _answer(self, method: str, params: Any) -> dict[str, Any] | None:
        if method in self.handlers:
            return {"result": self.handlers[method](params)}
        return self.answers.popleft()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")
