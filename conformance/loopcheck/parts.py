"""Runs each part in its own process, so that they share no state of a source, and ends them all."""

import signal
import threading
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

from loopcheck.conduct import Part, work

_SPAWN = get_context("spawn")


class Processes:
    """Runs the parts whose results are kept in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = set[SpawnProcess]()
        self._ended = False
        self._lock = threading.Lock()

    def run(self, part: Part) -> str:
        """Returns why the part could not run, or an empty text. Starts nothing after the end."""
        here, there = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_run, args=(part, self._folder, there))
        with self._lock:
            if self._ended:
                return ""
            process.start()
            self._running.add(process)
        there.close()
        try:
            why = str(here.recv())
        except EOFError:
            why = "" if self._ended else "the suite stopped here because of an internal error, printed above"
        process.join()
        with self._lock:
            self._running.remove(process)
        return why

    def end(self) -> None:
        """Tells all running parts to end; each ends its subject."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()


def _run(part: Part, folder: Path, out: Connection) -> None:
    # An interrupt from a terminal reaches every process; so the suite tells each part, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    try:
        out.send(work(part, folder))
    except KeyboardInterrupt:
        """The part was told to end, and has ended its subject."""


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
