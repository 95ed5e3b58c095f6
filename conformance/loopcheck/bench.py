"""One subject on the bench: its processes and a scratch folder. Runs share a process until it dies."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loopcheck.outside import line
from loopcheck.process import START, Hello, NoAnswer, Output, Process, Unfit

PATIENCE = 60.0
"""Time limit for one step, in seconds; after that the run counts as hung."""


class Bench:
    """command: starts the subject. url: of a running subject, which the suite cannot kill.

    patience: seconds for one step. start: seconds until it serves. Raises NoAnswer if it does not.
    """

    def __init__(
        self, command: Sequence[str], url: str = "", *, patience: float = PATIENCE, start: float = START
    ) -> None:
        self._command, self._url, self._start_within = command, url, start
        self.patience = patience
        self._scratch = tempfile.TemporaryDirectory(prefix="loopcheck-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        self._printed = Output()
        self._runs = 0
        try:
            self._process = self._start()
        except BaseException:
            self._scratch.cleanup()
            raise
        self.hello: Hello = self._process.hello

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close()
        self._scratch.cleanup()

    @property
    def killable(self) -> bool:
        return bool(self._command)

    def new_folder(self) -> Path:
        """Prepares one run."""
        self._runs += 1
        folder = self.folder / str(self._runs)
        folder.mkdir()
        return folder

    def process(self, *, fresh: bool = False) -> Process:
        """Returns the process; a new one if it has died or a fresh one is required."""
        if (fresh and self.killable) or not self._process.alive:
            self._process.close()
            self._process = self._start()
        return self._process

    def start_another(self) -> Process:
        """Starts a second process beside the first one."""
        return self._start()

    def _start(self) -> Process:
        return Process(self._command, self._printed, self._url, self._start_within)


class Seat:
    """The subject in one run, set up in each of its processes. setup: everything but the tools' address."""

    def __init__(self, bench: Bench, setup: Mapping[str, Any]) -> None:
        self._bench, self._setup = bench, setup
        self._process: Process | None = None
        self.taken = 0
        """How many processes the run has used so far."""

    def ready(self, *, fresh: bool = False) -> Process:
        """Returns the process, with this run set up in it. Raises NoAnswer if that fails."""
        found = self._bench.process(fresh=fresh and self._process is not None)
        if found is not self._process:
            self.set_up(found)
            self._process = found
        return found

    def set_up(self, process: Process) -> Process:
        said = process.ask("/setup", self._setup, self._bench.patience)
        if said.get("status") != "ready":
            raise Unfit(f"It answered the setup with {line(said, 200)}, not with the status `ready`.")
        self.taken += 1
        return process

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def ask_to_stop(self) -> None:
        """Asks the run to stop."""
        if self._process is not None:
            with suppress(NoAnswer):
                self._process.ask("/stop", {}, self._bench.patience)
