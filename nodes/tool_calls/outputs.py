"""Full texts of long results below the cache folder: kept as long as their thread needs them, then cleared.

A thread has a folder of its own. When it ends, a mark in the folder says so, and it goes when the thread goes
on: only marked folders are cleared. Of a text that is cleared a line is left, for whoever reads it later.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from signoff.graph.foreign import kept_in

OLDEST_SECONDS = 30 * 86_400.0
"""How long the texts of a thread are kept after its end."""

MOST_BYTES = 500_000_000
"""How much all of them together may take up; above it those of the threads that ended first go."""

# A thread that has just ended may go on at once, or be one whose end a killed process has not saved.
_GRACE_SECONDS = 3_600.0
_MARK = ".ended"
_GONE = "This text is no longer kept: "


@dataclass(frozen=True)
class Outputs:
    """The texts of one thread. owner: the database and the thread; empty for a run without a thread, which
    counts as ended, since nobody can go on with it."""

    folder: Path
    owner: str

    @property
    def own(self) -> Path:
        """The folder of the thread."""
        label = hashlib.sha256(self.owner.encode()).hexdigest()[:24] if self.owner else "no-thread"
        return self.folder / label

    def keep(self, name: str) -> Callable[[str], str]:
        """A `keep` for `signoff.graph.foreign.capped`."""
        write = kept_in(self.own, name)

        def keep(text: str) -> str:
            where = write(text)
            if not self.owner:
                (self.own / _MARK).touch()
            return where

        return keep

    def ended(self) -> None:
        """Says that the thread has ended, and clears what is too old or too much."""
        with suppress(OSError):
            if self.own.is_dir():
                (self.own / _MARK).touch()
                clear(self.folder)

    def goes_on(self) -> None:
        """Says that the thread has not ended: what it has is kept."""
        if self.owner:
            with suppress(OSError):
                (self.own / _MARK).unlink()


@dataclass(frozen=True)
class _Text:
    path: Path
    ended: float
    size: int


def clear(folder: Path, now: float | None = None) -> None:
    """Clears what the threads that have ended no longer need. Files that are no thread's are left alone."""
    moment = time.time() if now is None else now
    found = sorted(_texts(folder), key=lambda text: (text.ended, text.path))
    left = sum(text.size for text in found)
    for text in found:
        old = moment - text.ended > OLDEST_SECONDS
        if not old and (left <= MOST_BYTES or moment - text.ended <= _GRACE_SECONDS):
            continue
        age = f"its thread ended more than {OLDEST_SECONDS / 86_400:g} days ago"
        why = age if old else "there were too many"
        day = datetime.fromtimestamp(moment, UTC).date()
        with suppress(OSError):
            # In one step: a reader sees the whole text, or that it is gone.
            temporary = text.path.with_suffix(".tmp")
            temporary.write_text(f"{_GONE}{why}, and it was removed on {day}. Do again what gave it.\n")
            os.replace(temporary, text.path)
            left -= text.size


def _texts(folder: Path) -> Iterator[_Text]:
    """The texts that are still whole, of the threads that have ended."""
    for own in folder.iterdir():
        with suppress(OSError):
            ended = (own / _MARK).stat().st_mtime
            for path in own.glob("*.txt"):
                size = path.stat().st_size
                if size > 300 or not path.read_text("utf-8", "replace").startswith(_GONE):
                    yield _Text(path, ended, size)
