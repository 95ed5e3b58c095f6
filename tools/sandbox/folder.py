"""The folder to which the code of a thread writes: its place, what is new in it, and its end.

It lies in the user's cache beside the long results of the thread, where the file tools read it. The code may
leave anything in it: links are not followed, and no depth or name of a file does harm.
"""

import os
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from signoff.graph.errors import SetupError
from signoff.graph.foreign import Outputs, outputs_folder
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.processes.helpers import find_program
from signoff.tools.protected import within
from signoff.tools.sandbox.base import PythonResult

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none

_NAME = "python"
_PREFIX = "python-"
_PROGRAMS = "/usr/bin:/bin:/run/current-system/sw/bin"
_MOST_FILES = 20_000
_MOST_LINES = 200
_DATABASE = re.compile(r"readonly database|unable to open database file")
_DENIED = re.compile(r"permission denied|errno 13|read-only file system", re.IGNORECASE)
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")


@dataclass
class OwnFolder:
    """The folder of one interpreter.

    path: absolute, links resolved. workspace: the working folder, whose files the code can read and only in
    part change. refusal: what is said of a refused write. kept: whether it outlives the interpreter.
    """

    path: str
    workspace: str | None = None
    refusal: str = ""
    kept: bool = True
    remove: Callable[[], None] = lambda: None
    _before: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = dict(_states(self.path))

    def outdated(self) -> str:
        """Returns why the interpreter cannot go on with it; empty if it can."""
        return "" if os.path.isdir(self.path) else "Its folder was deleted, so Python was started anew."

    def finish(self, result: PythonResult, answer: Mapping[str, Any]) -> PythonResult:
        """Returns the result with its new files, and with the refusal where a write was refused."""
        states = dict(_states(self.path)) if self.kept else {}
        new = {name: state[0] for name, state in states.items() if self._before.get(name) != state}
        self._before = states
        files = {f"{self.path}/{name}": size for name, size in sorted(new.items())}
        note = result.note
        if self._is_refused(f"{result.stdout}\n{result.stderr}", answer):
            note = f"{note} {self.refusal}".strip()
        return replace(result, files=files, note=note) if files or note != result.note else result

    def _is_refused(self, text: str, answer: Mapping[str, Any]) -> bool:
        """Whether a write was refused, as far as the worker knows or what was printed says.

        All of the workspace can be read: what is denied there was to be written. What a link in it leads to
        lies elsewhere.
        """
        if answer.get("refused") is True or (answer.get("database") is True and _DATABASE.search(text)):
            return True
        lines = islice((line for line in text.splitlines() if _DENIED.search(line)), _MOST_LINES)
        return any(self._names_workspace(line) for line in lines)

    def _names_workspace(self, line: str) -> bool:
        if self.workspace is None:
            return False
        names = (first or second for first, second in _QUOTED.findall(line))
        paths = (os.path.join(self.workspace, name) for name in names if not _DENIED.search(name))
        return any(within(os.path.realpath(path), self.workspace) for path in paths)


def _states(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The regular files below `folder`, with size and identity, without hidden ones; not all of very many."""
    left, waiting = _MOST_FILES, [""]
    while waiting and left > 0:
        prefix = waiting.pop()
        # Gone since it was listed, closed, or with a path too long.
        with suppress(OSError), os.scandir(os.path.join(folder, prefix)) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.name.startswith((".", "__pycache__")):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{prefix}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    yield f"{prefix}{entry.name}", (info.st_size, info.st_ino, info.st_ctime_ns)


class OwnFolders:
    """The folders of the threads of one sandbox; those that no database has are removed with it."""

    def __init__(self) -> None:
        self._temporary: dict[str, tuple[str, Callable[[], None]]] = {}
        weakref.finalize(self, _remove_all, self._temporary, os.getpid())

    def of(self, thread: str | None) -> OwnFolder:
        """Makes the folder of a thread; without a thread it is for one call. Raises SetupError.

        thread: with the database, as in `signoff.graph.foreign.Outputs.owner`, or its id alone.
        """
        owner = thread if thread and "\0" in thread else ""
        outputs = Outputs(outputs_folder(), owner)
        try:
            outputs.own.mkdir(parents=True, exist_ok=True)
            if thread is None:
                path, remove = _temporary_folder(outputs.own)
                return OwnFolder(path, kept=False, remove=remove)
            # A saver that names no database goes by the name of its class: other programs have such, too.
            if owner and not owner.partition("\0")[0].isidentifier():
                (outputs.own / _NAME).mkdir(exist_ok=True)
                return OwnFolder(os.path.realpath(outputs.own / _NAME))
            if thread not in self._temporary:
                self._temporary[thread] = _temporary_folder(outputs.own)
            return OwnFolder(self._temporary[thread][0])
        except OSError as error:
            raise SetupError(f"There is no folder to which Python could write: {error}.") from error

    def close(self, thread: str | None) -> None:
        """Removes the temporary folder of a thread, or all of them."""
        for name in list(self._temporary) if thread is None else [thread]:
            _, remove = self._temporary.pop(name, ("", lambda: None))
            remove()


def _remove_all(temporary: dict[str, tuple[str, Callable[[], None]]], owner: int) -> None:
    # A fork of this process has the folders, but does not own them.
    if os.getpid() == owner:
        for _, remove in temporary.values():
            remove()


def delete(outputs: Outputs) -> None:
    """Deletes the folder of a thread."""
    if outputs.owner:
        remove_folder(str(outputs.own / _NAME))


def _temporary_folder(place: Path) -> tuple[str, Callable[[], None]]:
    """Makes a temporary folder in `place`; returns it and the function that removes it.

    Also removes the folders of owners that have ended: a living owner holds a lock on its folder.
    """
    place = place.resolve()
    if fcntl is None:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        return folder, partial(remove_folder, folder)
    for old in place.glob(f"{_PREFIX}*"):
        # In use, or gone since it was listed.
        with suppress(OSError):
            _remove_held(str(old), _locked(str(old)))
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        # Another process may have removed it before the lock was taken.
        with suppress(OSError):
            handle = _locked(folder)
            if os.path.exists(folder):
                return folder, partial(_remove_held, folder, handle)
            os.close(handle)


def _locked(folder: str) -> int:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove_held(folder: str, handle: int) -> None:
    remove_folder(folder)
    os.close(handle)


def remove_folder(folder: str) -> None:
    """Removes a folder and all that is in it. `shutil.rmtree` fails on folders nested thousands deep."""
    programs = {name: find_program(name, env={"PATH": _PROGRAMS}) for name in ("chmod", "rm")}
    if None in programs.values():
        shutil.rmtree(folder, ignore_errors=True)
        return
    # Folders that were made closed to their owner.
    for name, *options in (("chmod", "-R", "u+rwx"), ("rm", "-rf")) if os.path.lexists(folder) else ():
        command = [str(programs[name]), *options, "--", folder]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def files_text(files: Mapping[str, int], most: int = 10) -> str:
    """Returns the line that names new files; empty without any."""
    shown = [f"{quote_path(name)} ({size:,} bytes)" for name, size in islice(files.items(), most)]
    more = [f"{len(files) - most:,} more"] if len(files) > most else []
    return f"New files: {', '.join([*shown, *more])}" if files else ""
