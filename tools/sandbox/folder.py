"""The folder to which the code of a thread writes: its place, what is new in it, and its end.

It lies in the user's cache beside the long results of the thread, where the file tools read it. The code may
leave anything in it: links are not followed, and no depth or name of a file does harm.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from signoff.graph.errors import SetupError
from signoff.graph.foreign import Outputs, outputs_folder
from signoff.tools.filesystem.paths import one_line, quote_path
from signoff.tools.sandbox.base import PythonResult

_NAME = "python"
_PREFIX = "python-"
_PROGRAMS = "/usr/bin:/bin:/run/current-system/sw/bin"
_LEFT_BEHIND = 7 * 86_400.0
"""After so many seconds without a call, a temporary folder belongs to a program that was killed."""
_MOST_FILES = 20_000
_COPY = "To read a database in WAL mode, copy it there, with its -wal file."
_DATABASE = re.compile(r"readonly database|unable to open database file")


@dataclass
class OwnFolder:
    """The folder of one interpreter.

    path: absolute, links resolved. refusal: what is said of a refused write. is_kept: whether it outlives its
    interpreter.
    """

    path: str
    is_kept: bool = True
    refusal: str = ""
    _before: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _identities: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _top: str | None = None
    _top_names: set[str] = field(default_factory=set)
    _was_refused: bool = False

    def begin(self, reached: Iterable[str], top: str | None = None) -> None:
        """To be called when its interpreter is started.

        reached: to what else it gets rights. top: a folder of whose entries it gets rights to some.
        """
        self._before = dict(_states(self.path))
        self._identities = {path: _identity(path) for path in (self.path, *reached)}
        self._top, self._top_names = top, set(os.listdir(top)) if top else set()

    def outdated(self) -> str:
        """Why the interpreter cannot go on with it; empty if it can. Rights belong to what was at a path."""
        for path, before in self._identities.items():
            now = _identity(path)
            if now != before and (now or path == self.path):
                return f"{quote_path(os.path.basename(path))} was replaced, so Python was started anew."
        newer = set(os.listdir(self._top)) - self._top_names if self._was_refused and self._top else set()
        return f"Python was started anew and reaches {quote_path(min(newer))}, too." if newer else ""

    def finish(self, result: PythonResult, answer: Mapping[str, Any]) -> PythonResult:
        """The result with its new files, and with the refusal where a write was refused."""
        states = dict(_states(self.path)) if self.is_kept else {}
        new = sorted(name for name, state in states.items() if self._before.get(name) != state)
        files = {f"{self.path}/{name}": states[name][0] for name in new}
        self._before = states
        is_database = answer.get("database") is True and _DATABASE.search(result.stdout + result.stderr)
        self._was_refused = answer.get("refused") is True or bool(is_database)
        notes = (result.note, self.refusal if self._was_refused else "", _COPY if is_database else "")
        return replace(result, files=files, note=" ".join(filter(None, notes)))

    def clean(self) -> None:
        """To be called when its interpreter has ended."""
        if not self.is_kept:
            remove_folder(self.path)


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        info = os.lstat(path)
        return info.st_dev, info.st_ino
    return None


def _states(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The regular files below `folder`, with size and identity, without caches; not all of very many."""
    left, waiting = _MOST_FILES, [""]
    while waiting and left > 0:
        prefix = waiting.pop()
        # Gone since it was listed, closed, or with a path too long.
        with suppress(OSError), os.scandir(os.path.join(folder, prefix)) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.name in ("__pycache__", ".cache", ".config", ".local"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{prefix}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    yield f"{prefix}{entry.name}", (info.st_size, info.st_ino, info.st_ctime_ns)


class OwnFolders:
    """The folders of the threads of one sandbox; it has to close those that no database has."""

    def __init__(self) -> None:
        self._temporary: dict[str, str] = {}

    def of(self, thread: str | None) -> OwnFolder:
        """Makes the folder of a thread; without a thread it is for one call. Raises SetupError.

        thread: with the database, as in `signoff.graph.foreign.Outputs.owner`, or its id alone.
        """
        owner = thread if thread and "\0" in thread else ""
        outputs = Outputs(outputs_folder(), owner)
        try:
            outputs.own.mkdir(parents=True, exist_ok=True)
            if thread is None:
                return OwnFolder(_temporary_folder(outputs.own), is_kept=False)
            # A saver that names no database goes by the name of its class: other programs have such, too.
            if owner and not owner.partition("\0")[0].isidentifier():
                (outputs.own / _NAME).mkdir(exist_ok=True)
                return OwnFolder(os.path.realpath(outputs.own / _NAME))
            if thread not in self._temporary:
                self._temporary[thread] = _temporary_folder(outputs.own)
            return OwnFolder(self._temporary[thread])
        except OSError as error:
            raise SetupError(f"There is no folder to which Python could write: {error}.") from error

    def close(self, thread: str | None) -> None:
        """Removes the temporary folder of a thread, or all of them."""
        for name in list(self._temporary) if thread is None else [thread]:
            if name in self._temporary:
                remove_folder(self._temporary.pop(name))


def _temporary_folder(place: Path) -> str:
    """Makes a temporary folder in `place`, and removes what programs left there that were killed."""
    for old in place.glob(f"{_PREFIX}*"):
        # Gone since it was listed.
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _LEFT_BEHIND:
                remove_folder(str(old))
    return tempfile.mkdtemp(prefix=_PREFIX, dir=place.resolve())


def remove_folder(folder: str) -> None:
    """Removes a folder and all that is in it.

    `shutil.rmtree` fails on folders nested thousands deep, and on those that were made closed to their owner.
    """
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    for command in (("chmod", "-R", "u+rwx"), ("rm", "-rf")) if os.path.lexists(folder) else ():
        with suppress(OSError):
            subprocess.run(
                [*command, "--", folder], env={"PATH": _PROGRAMS}, capture_output=True, check=False
            )


def files_text(files: Mapping[str, int], most: int = 10) -> str:
    """The line that names new files; empty without any."""
    shown = [f"{one_line(name)} ({size:,} bytes)" for name, size in islice(files.items(), most)]
    more = [f"{len(files) - most:,} more"] if len(files) > most else []
    return f"New files: {', '.join([*shown, *more])}" if files else ""
