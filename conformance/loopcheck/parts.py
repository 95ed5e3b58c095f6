"""Each part in a process of its own, so that nothing of a source is shared; and the end of all of them."""

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
    """Of the parts whose results are kept in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = set[SpawnProcess]()
        self._ended = False
        self._lock = threading.Lock()

    def run(self, part: Part) -> str:
        """Why the part could not run, or an empty text. It begins nothing after the end."""
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
            why = (
                ""
                if self._ended
                else "the suite broke off here, by an error of its own that is printed above"
            )
        process.join()
        with self._lock:
            self._running.remove(process)
        return why

    def end(self) -> None:
        """Tells all that run to end: each ends its subject."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()


def _run(part: Part, folder: Path, out: Connection) -> None:
    # From a terminal an interrupt comes to every process; the suite tells the parts, each once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    try:
        out.send(work(part, folder))
    except KeyboardInterrupt:
        """It was told to end, and has ended its subject."""


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
