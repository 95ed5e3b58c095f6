"""What makes ordinary code work inside the sandbox, or say why it does not. Nothing here is a protection.

Runs inside the sandbox, on the standard library alone. Libraries are changed when they are imported, by their
names in `_CHANGES`. An audit hook refuses processes with a sentence, and notes writes that the kernel is
going to refuse, also where a library or the code hides the error."""

import errno
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

NO_PROCESSES = "code here starts no processes; run programs by the tool run_shell, where there is one"
_SHOWN = (
    "plt.show() shows nothing here; save the figure, for example plt.savefig('figure.png'), in the folder "
)
_PROCESSES = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MAKES, _REMOVES = {"os.mkdir"}, {"os.remove", "os.rmdir"}
_CHANGES_TWO = {"os.rename", "os.link", "os.symlink"}
_NO_FILES = ("/dev", "/proc", "/sys")


class Hook:
    """Refuses processes, and notes writes outside of the folders and files in `writable`.

    While `listening`, `refused` becomes True with such a write, and `database` when one is opened there.
    """

    def __init__(self, writable: Sequence[str]) -> None:
        self._open = tuple(map(os.fsdecode, (*writable, *_NO_FILES)))
        self.listening = self.refused = self.database = False
        sys.addaudithook(self._hear)

    def listen(self) -> None:
        self.listening, self.refused, self.database = True, False, False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROCESSES:
            raise PermissionError(errno.EPERM, NO_PROCESSES)
        if self.listening and event.startswith(("open", "os.", "sqlite3.")):
            try:
                self._note(event, arguments)
            except Exception:  # noqa: BLE001  (whatever a path is, the call itself says what is wrong with it)
                return

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        path: Any = arguments[0] if arguments else None
        if event == "sqlite3.connect":
            path = re.sub(r"^file:(?://)?([^?]*).*", r"\1", os.fsdecode(path))
            self.database |= path != ":memory:" and self._is_closed(path) and _can_be_read(path)
        elif event == "open":
            self.refused |= (
                not isinstance(path, int) and bool(arguments[2] & _WRITES) and self._is_closed(path)
            )
        elif event in _MAKES:
            self.refused |= self._is_closed(path) and not os.path.lexists(path)
        elif event in _REMOVES or event == "os.truncate":
            self.refused |= self._is_closed(path) and os.path.lexists(path)
        elif event in _CHANGES_TWO:
            self.refused |= self._is_closed(arguments[1]) or (event == "os.rename" and self._is_closed(path))

    def _is_closed(self, path: Any) -> bool:
        real = os.path.realpath(os.fsdecode(path))
        return not any(real == place or real.startswith(f"{place}/") for place in self._open)


def _can_be_read(path: str) -> bool:
    """Whether a file is missing or can be read, so that it is a write that fails."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return True


class Finder:
    """Changes modules when they are imported: `changes` by their names."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        change = self._changes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if change else None
        if spec is None or spec.loader is None or change is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this import alone
        return spec


def adapt(folder: str, source_of: Callable[[type], str | None]) -> None:
    """Prepares for libraries that the code imports later.

    folder: the code's own folder. source_of: returns the name of the source that defines a class, if it is
    one of the code's own."""
    # Where it is built into the interpreter, it raises no event.
    import _posixsubprocess

    setattr(_posixsubprocess, "fork_exec", _refuse_process)  # noqa: B010  (it has another type)
    changes = {
        "inspect": lambda module: _find_sources(module, source_of),
        "matplotlib.pyplot": lambda module: _show_nothing(module, folder),
        "multiprocessing.heap": lambda module: setattr(module.Arena, "_dir_candidates", []),
        "multiprocessing.resource_tracker": _track_nothing,
        "multiprocessing.shared_memory": lambda module: _share_files(folder),
        "multiprocessing.synchronize": _use_threads,
        "shutil": _keep_modes,
    }
    for name in changes.keys() & sys.modules.keys():
        changes[name](sys.modules[name])
    sys.meta_path.insert(0, Finder(changes))


def _refuse_process(*arguments: Any) -> None:
    raise PermissionError(errno.EPERM, NO_PROCESSES)


def _find_sources(inspect: Any, source_of: Callable[[type], str | None]) -> None:
    getfile = inspect.getfile

    def getfile_of_code(wanted: Any) -> Any:
        source = source_of(wanted) if isinstance(wanted, type) and wanted.__module__ == "__main__" else None
        return source or getfile(wanted)

    inspect.getfile = getfile_of_code


def _show_nothing(pyplot: Any, folder: str) -> None:
    def show(*arguments: Any, **keywords: Any) -> None:
        print(f"{_SHOWN}{folder}.")

    pyplot.show = show


def _keep_modes(shutil: Any) -> None:
    """A copy has the content; modes and times cannot be changed here."""

    def tolerant(copy: Callable[..., None]) -> Callable[..., None]:
        def copy_if_allowed(*arguments: Any, **keywords: Any) -> None:
            try:
                copy(*arguments, **keywords)
            except PermissionError:
                return

        return copy_if_allowed

    shutil.copymode, shutil.copystat = tolerant(shutil.copymode), tolerant(shutil.copystat)


def _track_nothing(tracker: Any) -> None:
    tracker.register = tracker.unregister = lambda *arguments: None


def _share_files(folder: str) -> None:
    """Shared memory of `multiprocessing` in files of the own folder."""
    import _posixshmem  # type: ignore[import-not-found]  # it has no stubs

    place = os.path.join(folder, ".shared")

    def shm_open(path: str, flags: int, mode: int = 0o600) -> int:
        os.makedirs(place, exist_ok=True)
        return os.open(os.path.join(place, path.strip("/")), flags, mode)

    def shm_unlink(path: str) -> None:
        os.unlink(os.path.join(place, path.strip("/")))

    _posixshmem.shm_open, _posixshmem.shm_unlink = shm_open, shm_unlink


def _use_threads(synchronize: Any) -> None:
    import _multiprocessing  # type: ignore[import-not-found]  # it has no stubs

    _multiprocessing.SemLock = SemLock
    synchronize.sem_unlink = lambda name: None


class SemLock:
    """`_multiprocessing.SemLock` over threads, since there is no other process."""

    SEM_VALUE_MAX = 2**31 - 1

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        import threading

        self.kind, self.maxvalue, self.name, self.handle = kind, maxvalue, name, 0
        self._ident = threading.get_ident
        self._free = threading.Condition()
        self._value, self._held, self._owner = value, 0, 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        with self._free:
            if self.kind or not self._is_mine():
                wait = timeout if timeout is None else max(timeout, 0)
                if not self._free.wait_for(lambda: self._value > 0, wait if block else 0):
                    return False
                self._value -= 1
            self._held, self._owner = self._held + 1, self._ident()
            return True

    def release(self) -> None:
        with self._free:
            if not self.kind and not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self.kind and self._value >= self.maxvalue:
                raise ValueError("semaphore or lock released too many times")
            self._held -= 1
            if self.kind or not self._held:
                self._value += 1
                self._free.notify()

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._owner == self._ident()

    def _get_value(self) -> int:
        return self._value

    def _is_zero(self) -> bool:
        return self._value == 0


def add_names() -> None:
    """Adds the names that Python itself adds: `help`, `exit` and `quit`."""
    import site

    site.setquit()
    site.sethelper()
