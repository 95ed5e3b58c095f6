"""A framework's process: started, asked, killed and started again."""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.loopbench.replies import Manner

HERE = Path(__file__).parent
SERVE = HERE / "adapters" / "shared" / "serve.py"
START = 120.0
"""Seconds that a framework may take to be imported."""


class Dead(Exception):
    """The process has ended."""


class Silent(Exception):
    """The process gave no answer in time."""


@dataclass(frozen=True)
class Hello:
    """What an adapter says of its framework. lacks: features it does not claim, each with why."""

    framework: str
    versions: Mapping[str, str]
    manner: Manner
    lacks: Mapping[str, str]


class Process:
    """One process of an adapter. errors: where its stderr goes.

    Raises Dead when it ends before it has said what it is.
    """

    def __init__(self, python: Path, adapter: Path, errors: IO[bytes]) -> None:
        # The bench talks to loopback only; keys of this machine are no business of the frameworks.
        clean = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_PROXY"))}
        clean = {key: value for key, value in clean.items() if not key.endswith("_proxy")}
        self._child = subprocess.Popen(
            [python, SERVE, adapter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**clean, "OPENAI_API_KEY": "none", "PYTHONUNBUFFERED": "1"},
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        said = self._next(START)
        self.hello = Hello(
            said["framework"],
            said["versions"],
            Manner(said["finish"], said["ask"], said["delegation"]),
            said["lacks"],
        )

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            raise Silent from None
        if line is None:
            self._lines.put(None)
            self._child.wait()
            raise Dead
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to one line. Raises Dead or, having killed it, Silent."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(order) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            self._child.wait()
            raise Dead from None
        return self._next(seconds)

    def kill(self) -> None:
        """SIGKILL; it does not wait."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def close(self) -> None:
        """Lets it end by itself, for a moment."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
