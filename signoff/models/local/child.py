"""One running worker process, seen from its owner."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from signoff.tools.processes.helpers import program_text, with_packages

_WORKER = program_text(Path(__file__).with_name("worker.py"))
# Without these, OpenMP's threads spin while they wait: ten times slower on a busy machine. They are read when
# the native library loads, so they must be set before the process starts.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


class Child:
    """A worker process that ends with this process, however this process ends.

    It is started and waited for by a thread of its own that lives as long as the worker: Linux takes the end
    of the *thread* that started a process for the death of its parent, and callers' threads come and go.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        """Start the worker and give it its settings. Raises OSError when no process can be started."""
        self.owner = os.getpid()
        self._order = json.dumps({**order, "owner": self.owner})
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child; `stop` closes it
        self._started: SimpleQueue[subprocess.Popen[str] | OSError] = SimpleQueue()
        self._reports: SimpleQueue[str] = SimpleQueue()
        self._keeper = threading.Thread(target=self._keep, name="signoff-local-model", daemon=True)
        self._keeper.start()
        started = self._started.get()
        if isinstance(started, OSError):
            self._log.close()
            raise started
        self._process = started

    def _keep(self) -> None:
        try:
            process = subprocess.Popen(
                with_packages(_WORKER),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        except OSError as error:
            self._started.put(error)
            return
        self._started.put(process)
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(self._order + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            process.kill()
        with process.stdout:
            self._reports.put(process.stdout.readline())
        process.wait()

    @property
    def alive(self) -> bool:
        """Whether the worker runs. In a fork of its owner it counts as dead."""
        return self._keeper.is_alive()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def report(self, timeout: float) -> dict[str, Any] | None:
        """What the worker reported, waiting up to `timeout` seconds for it; None when nothing came yet.

        Raises ChildProcessError with the end of its log when it ended instead.
        """
        try:
            line = self._reports.get(timeout=timeout)
        except Empty:
            return None
        if not line:
            self._keeper.join()
            raise ChildProcessError(f"exit code {self._process.returncode}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the worker and wait for it. Does nothing in a fork of its owner."""
        if os.getpid() != self.owner or self._log.closed:
            return
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._keeper.join(timeout=3)
        if self._keeper.is_alive():
            self._process.kill()
            self._keeper.join()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:]) or "no message"
