"""What makes ordinary code work inside the sandbox, or say why it does not. Nothing here is a protection.

Runs inside the sandbox, on the standard library alone. Libraries are changed when they are imported, by their
names. An audit hook refuses processes with a sentence, and notes writes that the kernel is
going to refuse, also where a library or the code hides the error."""

import errno
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

NO_PROCESSES = (
    "code here starts no processes, and there are no locks, queues or memory to share with them (those of "
    "threading and queue work); run programs by the tool run_shell, where there is one"
)
_SHARED = (
    *("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Queue"),
    *("JoinableQueue", "Value", "Array", "RawValue", "RawArray", "Pool", "Manager"),
)
"""What `multiprocessing` shares between processes."""
_SHOWN = "plt.show() shows nothing here; save the figure, as in plt.savefig('figure.png'), in the folder "
_PROCESSES = ("os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen")
"""How their audit events begin."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_REMOVES = ("os.remove", "os.rmdir", "os.truncate", "os.rename")
_DENIED = re.compile(r"permission denied|errno 13|read-only file system|cross-device", re.IGNORECASE)
_MAKES = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}
"""Which argument is the path that is made."""


class Hook:
    """Refuses processes, and notes writes outside of the folders and files in `writable`.

    While `listening`, `refused` becomes True with such a write, and `database` when one is opened there.
    """

    def __init__(self, writable: Sequence[str]) -> None:
        self._open = tuple(map(os.fsdecode, (*writable, "/dev", "/proc", "/sys")))
        self.listening = self.refused = self.database = False

    def listen(self) -> None:
        self.listening, self.refused, self.database = True, False, False

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_PROCESSES):
            raise PermissionError(errno.EPERM, NO_PROCESSES)
        if self.listening and event.startswith(("open", "os.", "sqlite3.")):
            # Whatever a path is, the call itself says what is wrong with it.
            with suppress(Exception):
                self._note(event, arguments)

    def hear_error(self, text: str) -> None:
        """Takes from the text of an error what no event told: libraries in C write, too."""
        for line in filter(_DENIED.search, text.splitlines()):
            names = (name for name in re.findall(r"['\"]([^'\"]+)['\"]", line) if not _DENIED.search(name))
            self.refused |= any(map(_can_be_read, names))

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect":
            path = re.sub(r"^file:(?://)?([^?]*).*", r"\1", os.fsdecode(arguments[0]))
            self.database |= path != ":memory:" and self._is_closed(path) and _can_be_read(path)
        elif event == "open" and not isinstance(arguments[0], int):
            self.refused |= bool(arguments[2] & _WRITES) and self._is_closed(arguments[0])
        elif event in _REMOVES:
            self.refused |= self._is_closed(arguments[0]) and os.path.lexists(arguments[0])
        if event in _MAKES:
            path = arguments[_MAKES[event]]
            self.refused |= self._is_closed(path) and (event != "os.mkdir" or not os.path.lexists(path))

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


def adapt(folder: str, sources: Mapping[str, str]) -> None:
    """Changes libraries that the code imports later, and those that are there.

    folder: the code's own folder. sources: by the names of its classes, what defines them."""
    changes: dict[str, Callable[[Any], None]] = {
        "inspect": lambda module: _find_sources(module, sources),
        "matplotlib.pyplot": lambda module: _show_nothing(module, folder),
        "multiprocessing.context": _refuse_sharing,
        "multiprocessing.process": lambda module: _refuse(module.BaseProcess, ["start"]),
        "multiprocessing.shared_memory": lambda module: _refuse(module.SharedMemory, ["__init__"]),
        "shutil": _copy_content,
    }

    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        change = changes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if change else None
        if spec is None or spec.loader is None or change is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this import alone
        return spec

    for name in changes.keys() & sys.modules.keys():
        changes[name](sys.modules[name])
    sys.meta_path.insert(0, types.SimpleNamespace(find_spec=find_spec))


def _refuse_process(*arguments: Any, **keywords: Any) -> None:
    raise PermissionError(errno.EPERM, NO_PROCESSES)


def _refuse(target: Any, names: Sequence[str]) -> None:
    for name in names:
        setattr(target, name, _refuse_process)


def _refuse_sharing(context: Any) -> None:
    _refuse(context.BaseContext, _SHARED)

    def queue_of_threads(_: Any) -> Any:
        # A pool of threads has one.
        import threading
        from multiprocessing.queues import SimpleQueue

        return SimpleQueue(ctx=threading)

    context.BaseContext.SimpleQueue = queue_of_threads


def _find_sources(inspect: Any, sources: Mapping[str, str]) -> None:
    getfile = inspect.getfile

    def getfile_of_code(wanted: Any) -> Any:
        is_own = isinstance(wanted, type) and wanted.__module__ == "__main__"
        return (is_own and sources.get(wanted.__name__)) or getfile(wanted)

    inspect.getfile = getfile_of_code


def _show_nothing(pyplot: Any, folder: str) -> None:
    pyplot.show = lambda *arguments, **keywords: print(f"{_SHOWN}{folder}.")


def _copy_content(shutil: Any) -> None:
    """Modes and times cannot be changed here."""
    shutil.copymode = shutil.copystat = lambda *arguments, **keywords: None
