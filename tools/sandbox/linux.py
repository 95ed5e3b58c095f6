"""The Linux sandbox: Landlock, seccomp and resource limits."""

import os
import platform
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.processes.helpers import base_python
from signoff.tools.protected import Protected
from signoff.tools.sandbox.base import MB, Bounds, PythonResult
from signoff.tools.sandbox.confine import Confinement
from signoff.tools.sandbox.folder import OwnFolder, OwnFolders
from signoff.tools.sandbox.process import Interpreter, Launch, Pool
from signoff.tools.sandbox.program import PROGRAM, installation
from signoff.tools.sandbox.watch import EVERY
from signoff.tools.workspace import Workspace

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_OVERRIDE, _READ_ANY = 1, 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_NOBODYS = 1_879_048_192
"""From here on no distribution assigns user ids."""
_NOBODYS_IN_A_CONTAINER = 60_600
_MOST_NAMED = 5


@dataclass(frozen=True)
class Opened:
    """What is open for writing in a workspace.

    paths: the root itself, or the entries at its top that are neither protected nor links. protected: the
    names of those that are.
    """

    paths: Sequence[str] = ()
    protected: Sequence[str] = ()
    identities: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: str, protected: Protected) -> "Opened":
        closed = protected.top()
        if not closed:
            return cls([root])
        with os.scandir(root) as entries:
            paths = sorted(
                entry.path
                for entry in entries
                if entry.name not in closed
                and (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False))
            )
        return cls(paths, list(closed), {path: identity for path in paths if (identity := _identity(path))})

    def outdated(self) -> str:
        """Returns what was replaced since, in a sentence: the rights belong to the file that was there."""
        for path, identity in self.identities.items():
            if _identity(path) not in (identity, None):
                return f"{quote_path(os.path.basename(path))} was replaced, so Python was started anew."
        return ""


def _identity(path: str) -> tuple[int, int] | None:
    # Gone since it was listed.
    with suppress(OSError):
        info = os.lstat(path)
        return info.st_dev, info.st_ino
    return None


class LinuxSandbox:
    """Runs code in a process without a network, that reaches no other process and no files of the user.

    workspace: a folder that the code reads at its usual path, and works in. It writes to a folder of its own
    (also HOME and TMPDIR), which belongs to its thread and outlives its interpreters; a call without a thread
    has a temporary one. No process can be started, and no mode changed. As root the code runs under a user id
    of its own, to which the files belong that it makes.

    writable: also opens what exists at the top of the workspace, links aside, but not what is protected there
    (`protect`, as in `signoff.tools.protected`). Beside something protected nothing new can be made, since
    rights on a folder hold for everything below it; where nothing is protected, the whole workspace is open.

    Raises SetupError when it does not work here, or when the workspace as a whole is protected.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        writable: bool = False,
        bounds: Bounds | None = None,
        protect: Collection[str] | None = None,
    ) -> None:
        if platform.system() != "Linux":
            raise SetupError(
                f"This sandbox needs Linux; on other systems use the Monty sandbox: {install_hint('monty')}"
            )
        self.workspace = None if workspace is None else Workspace(workspace).root
        self._protected = None
        if writable and self.workspace:
            self._protected = writable_workspace(self.workspace, protect)
        self._bounds = bounds or Bounds()
        # The interpreter is started from outside and confines itself after that.
        base_python(self.workspace, protect)
        self._folders = OwnFolders()
        self._pool = Pool(self._launch, self._bounds)
        self._held: Mapping[str, bool | str] | None = None
        self._lock = Lock()
        self.enforced()

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        return self._pool.run(code, timeout, thread)

    def close(self, thread: str | None = None) -> None:
        self._pool.close(thread)
        self._folders.close(thread)

    def enforced(self) -> Mapping[str, bool | str]:
        with self._lock:
            if self._held is None:
                probe = Interpreter(self._launch(None), self._bounds)
                probe.kill()
                self._held = {**self._boundary(), **probe.held, **self._limits()}
            return self._held

    def _opened(self) -> Opened:
        if not self.workspace or not self._protected:
            return Opened()
        return Opened.of(self.workspace, self._protected)

    def _boundary(self) -> dict[str, bool | str]:
        opened = self._opened()
        workspace: bool | str = "read-only" if self.workspace else False
        if self._protected:
            workspace = "writable" if not opened.protected else "existing entries are writable"
        names = _named(opened.protected)
        return {
            "own files": "by Landlock",
            "own processes": "by Landlock and seccomp",
            "own network": "by seccomp: no sockets",
            "workspace": workspace,
            **({"protected": names} if names else {}),
        }

    def _limits(self) -> dict[str, bool | str]:
        bounds = self._bounds
        return {
            "memory": f"{bounds.memory // MB:,} MB, {bounds.memory_together // MB:,} MB of all together, "
            f"checked every {EVERY:g} s; {bounds.addresses // MB:,} MB reserved",
            "processes": "none can be started",
            "threads": f"{bounds.threads}",
            "files": f"{bounds.file // MB:,} MB per file; per call {bounds.files:,} files and "
            f"{bounds.disk // MB:,} MB, checked every {EVERY:g} s",
            "output": f"{bounds.written // MB:,} MB",
        }

    def _launch(self, thread: str | None) -> Launch:
        opened = self._opened()
        folder = self._folders.of(thread)
        folder.workspace, folder.refusal = self.workspace, self._refusal(folder, opened)
        uid = _free_user() if os.geteuid() == 0 else None
        if uid is not None:
            # Where this user may not give a file away, or has no such other user, the start says so.
            with suppress(OSError):
                os.chown(folder.path, uid, uid)
        python, bounds = installation(), self._bounds
        confinement = Confinement(
            addresses=bounds.addresses,
            file_size=bounds.file,
            cpu=bounds.cpu,
            threads=bounds.threads,
            descriptors=bounds.descriptors,
            uid=uid,
            # The files of earlier users, and folders that only root may enter.
            keep=[_OVERRIDE, _READ_ANY],
            read=[*python.readable, *([self.workspace] if self.workspace else [])],
            write=[folder.path, *_DEVICES, *opened.paths],
            owner=os.getpid(),
        )
        return Launch(
            command=[python.executable, "-I", "-S", "-B", "-c", PROGRAM],
            env=environment(folder.path),
            settings={
                "confinement": confinement._asdict(),
                "folder": self.workspace or folder.path,
                "own": folder.path,
                "packages": python.packages,
            },
            disk=[folder.path, *([self.workspace] if self.workspace and opened.paths else [])],
            finish=folder.finish,
            outdated=lambda: folder.outdated() or opened.outdated(),
            clean=folder.remove,
        )

    def _refusal(self, folder: OwnFolder, opened: Opened) -> str:
        where = f"its own folder {quote_path(folder.path)} (also the home and the temporary folder)"
        if opened.protected:
            return (
                f"Protected from this code: {_named(opened.protected)}. Beside that, existing entries of the "
                f"workspace can be changed, and nothing new made at its top; make new files in an existing "
                f"folder, or in {where}."
            )
        if opened.paths:
            return f"This code can write to the workspace and to {where}."
        return f"This code can write only to {where}."


def writable_workspace(root: str, protect: Collection[str] | None) -> Protected:
    """Returns what is protected in a workspace that code may change. Raises SetupError when all of it is."""
    protected = Protected(root, protect)
    if protected.why(root):
        raise SetupError(
            f"The workspace {root} is protected as a whole, and code may not change it. Take another folder, "
            "or accept it by name: protect=['!.']."
        )
    return protected


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(quote_path(name) for name in names[:_MOST_NAMED]) + more


def environment(home: str) -> dict[str, str]:
    """Returns the code's environment: nothing of the caller's, one thread for numeric libraries, and few
    arenas, which reserve addresses.
    """
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR"), home)
    names = dict.fromkeys(("USER", "LOGNAME"), "user")
    # Else joblib would try processes, and fail instead of going on with one.
    libraries = {"JOBLIB_MULTIPROCESSING": "0", "MALLOC_ARENA_MAX": "4"}
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **folders, **names, **single, **libraries}


def _free_user() -> int:
    """Returns an unused user id within the range of this container, a different one for each interpreter."""
    first, _, count = max(
        (tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()),
        key=lambda row: row[2],
    )
    if first + count > _NOBODYS + 2**24:
        return _NOBODYS + secrets.randbelow(2**24)
    return _NOBODYS_IN_A_CONTAINER + secrets.randbelow(400)
