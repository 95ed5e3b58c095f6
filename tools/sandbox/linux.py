"""The Linux sandbox: Landlock, seccomp and resource limits, inside bubblewrap where that works.

Its temporary folders do not pile up, even when their owners are killed.
"""

import os
import platform
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import Lock

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.processes.helpers import base_python, find_program
from signoff.tools.protected import Protected, find_protected, open_places, within
from signoff.tools.sandbox import bubblewrap
from signoff.tools.sandbox import confine as landlock
from signoff.tools.sandbox.base import Bounds, PythonResult
from signoff.tools.sandbox.bubblewrap import mounted_as_wanted
from signoff.tools.sandbox.confine import Confinement
from signoff.tools.sandbox.process import Interpreter, Launch, Pool
from signoff.tools.sandbox.program import PROGRAM, installation
from signoff.tools.sandbox.watch import EVERY_DISK
from signoff.tools.workspace import Workspace

_PREFIX = "signoff-python-"
_PROGRAMS = "/usr/bin:/bin:/run/current-system/sw/bin"


def new_scratch(uid: int | None) -> tuple[str, Callable[[], None]]:
    """Makes a folder for the user `uid`, or for the current one; returns it and the function that removes it.

    Also removes the folders of owners that have ended: a living owner holds a lock on its folder.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_unless_held(str(old))
    folder, handle = _hold_folder()
    if uid is not None:
        os.chown(folder, uid, uid)

    def remove() -> None:
        _remove(folder)
        os.close(handle)

    return folder, remove


def _hold_folder() -> tuple[str, int]:
    import fcntl  # Only Unix has it, and this module can be imported elsewhere

    while True:
        folder = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(folder):
            return folder, handle
        # Another process removed it before the lock was taken.
        os.close(handle)


def _remove_unless_held(folder: str) -> None:
    # Another user's, in use, or gone since it was listed.
    import fcntl  # Only Unix has it, and this module can be imported elsewhere

    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        finally:
            os.close(handle)


def _remove(folder: str) -> None:
    # `shutil.rmtree` fails on folders that are nested thousands deep.
    remove = find_program("rm", env={"PATH": _PROGRAMS})
    assert remove, "every Unix has it"
    subprocess.run([remove, "-rf", "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)


_OVERRIDE, _READ_ANY = 1, 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_NOBODYS = 1_879_048_192
"""From here on no distribution assigns user ids."""
_NOBODYS_IN_A_CONTAINER = 60_600
_MOST_NAMED = 5
_ATTEMPTS = 3


@dataclass(frozen=True)
class ProtectedPaths:
    """The protected paths of a workspace.

    protected: all of them. closed: those that Landlock protects by leaving them out of `writable`, which has
    the rest of the workspace.
    """

    protected: Sequence[Protected]
    closed: Collection[str] = frozenset()
    writable: Sequence[str] = ()


class LinuxSandbox:
    """Runs code in a process that sees neither the network, nor other processes, nor files of the user.

    workspace: a folder that the code sees at its usual path and works in; changed only when `writable`.
    bubblewrap: False leaves the outer layer out, None uses it when it works. Without it Landlock is required,
    no process can be started, and file modes cannot be changed. As root the code runs under a user id of its
    own; files it makes in the workspace belong to that user.

    protect: what code may not change in the workspace, as in `signoff.tools.protected`: by default git's
    folders, Python environments, Signoff's installation and its folder. These paths are searched for whenever
    an interpreter starts. Where the protection needs Landlock, whose rights on a folder hold for everything
    below it, nothing new can be made directly in a folder that contains a protected path; other existing
    files there can be changed.

    Raises SetupError when neither layer works here, or when a path cannot be protected.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        writable: bool = True,
        bounds: Bounds | None = None,
        bubblewrap: bool | None = None,
        protect: Collection[str] | None = None,
    ) -> None:
        if platform.system() != "Linux":
            raise SetupError(
                f"This sandbox needs Linux; on other systems use the Monty sandbox: {install_hint('monty')}"
            )
        self._workspace = None if workspace is None else Workspace(workspace).root
        self._writable = writable and workspace is not None
        self._bounds = bounds or Bounds()
        self._wrapped = wrapping() == "" if bubblewrap is None else bubblewrap
        self._protect = None if protect is None else frozenset(protect)
        # The interpreter is started from outside and confines itself after that.
        base_python(self._workspace, self._protect)
        self._pool = Pool(self._start)
        self._held: Mapping[str, bool | str] | None = None
        self._lock = Lock()
        self.enforced()

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        return self._pool.run(code, timeout, thread)

    def close(self, thread: str | None = None) -> None:
        self._pool.close(thread)

    def enforced(self) -> Mapping[str, bool | str]:
        with self._lock:
            if self._held is None:
                kept = self._current_protection()
                probe = self._started(kept)
                held = probe.held
                probe.kill()
                self._held = {**self._outer(kept), **held, **self._limits()}
            return self._held

    def _current_protection(self) -> ProtectedPaths:
        """Returns the paths to protect now. Raises SetupError when they cannot be protected."""
        if not self._workspace or not self._writable:
            return ProtectedPaths(())
        found = find_protected(self._workspace, self._protect)
        if found and found[0].path == self._workspace:
            raise SetupError(
                f"The workspace {self._workspace} belongs to {found[0].why}, which code may not change. Take "
                "another folder, or accept it by name: protect={*PROTECTED, '!.'}."
            )
        links = [one for one in found if one.link]
        if self._wrapped and links and not landlock.version():
            raise SetupError(
                f"{links[0].path} is a link to {links[0].why}, and this kernel has no Landlock to protect "
                "it. Replace the link with the folder itself, or accept it by name: "
                f"protect={{*PROTECTED, '!{os.path.relpath(links[0].path, self._workspace)}'}}."
            )
        closed = frozenset(one.path for one in (links if self._wrapped else found))
        return ProtectedPaths(found, closed, open_places(self._workspace, closed))

    def _outer(self, kept: ProtectedPaths) -> dict[str, bool | str]:
        apart = self._wrapped
        names = self._names(kept)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        workspace: bool | str = "writable" if self._writable else "read-only" if self._workspace else False
        if kept.closed:
            workspace = "existing files are writable; nothing new beside protected paths"
        return {
            "bubblewrap": True if apart else wrapping() or "left out",
            "own files": True if apart else "by Landlock",
            "own processes": True if apart else "by Landlock and seccomp",
            "own network": True if apart else "by seccomp: no sockets",
            "workspace": workspace,
            **({"protected": ", ".join(names[:_MOST_NAMED]) + more} if names else {}),
        }

    def _limits(self) -> dict[str, bool | str]:
        bounds = self._bounds
        return {
            "memory": f"{bounds.memory // 1_000_000} MB per process, "
            f"{bounds.memory_together // 1_000_000} MB together",
            "processes": f"{bounds.processes} at once" if self._wrapped else "none can be started",
            "files": f"{bounds.file // 1_000_000} MB per file; per call {bounds.files:,} files and "
            f"{bounds.disk // 1_000_000} MB, checked every {EVERY_DISK:g} s",
            "output": f"{bounds.written // 1_000_000} MB",
        }

    def _names(self, kept: ProtectedPaths) -> list[str]:
        return [quote_path(os.path.relpath(one.path, self._workspace)) for one in kept.protected]

    def _start(self) -> Interpreter:
        return self._started(self._current_protection())

    def _started(self, kept: ProtectedPaths) -> Interpreter:
        for _ in range(_ATTEMPTS):
            mounts = self._mounts(kept)
            interpreter = self._launched(kept)
            if not mounts or interpreter.sees(partial(mounted_as_wanted, wanted=mounts)):
                return interpreter
            interpreter.kill()
            kept = self._current_protection()
        raise SetupError(
            f"Folders in {self._workspace} were replaced while Python started in the sandbox; try again."
        )

    def _mounts(self, kept: ProtectedPaths) -> dict[str, tuple[int, int]]:
        """Returns the paths that bubblewrap mounts in the workspace, with the device and inode of each."""
        if not self._wrapped or not self._workspace or not kept.protected:
            return {}
        found = {}
        folders = bubblewrap.folders_above(self._workspace, kept.protected)
        for path in (*folders, *(one.path for one in kept.protected if not one.link)):
            # It may have gone since it was found; then nothing is mounted.
            with suppress(OSError):
                info = os.lstat(path)
                found[path] = (info.st_dev, info.st_ino)
        return found

    def _launched(self, kept: ProtectedPaths) -> Interpreter:
        uid = _free_user() if os.geteuid() == 0 else None
        launch = self._in_bubblewrap(uid, kept) if self._wrapped else self._alone(uid, kept)
        return Interpreter(replace(launch, refused=self._refused(kept)), self._bounds)

    def _refused(self, kept: ProtectedPaths) -> str:
        """Returns the note for a call that was denied a write; empty when nothing is protected."""
        if not kept.protected:
            return ""
        said = f"Protected from this code: {', '.join(self._names(kept)[:_MOST_NAMED])}."
        if kept.closed:
            said += (
                " Nothing can be created, renamed or deleted next to a protected path; existing files "
                "there can be written. Create new files in an existing folder or in tempfile.gettempdir()."
            )
        return said

    def _in_bubblewrap(self, uid: int | None, kept: ProtectedPaths) -> Launch:
        python = installation()
        found = bubblewrap.program()
        if found is None:
            raise SetupError("bubblewrap is not installed; install the package `bubblewrap`.")
        outer = bubblewrap.arguments(
            python,
            self._workspace,
            writable=self._writable,
            scratch=self._bounds.scratch,
            protected=kept.protected,
        )
        scratch = bubblewrap.SCRATCH
        memory = [scratch, bubblewrap.SHARED]
        if kept.closed:
            # Landlock's rights on a folder hold for all below it, whatever is mounted there.
            apart = [folder for folder in memory if not within(self._workspace or "", folder)]
            scratch = scratch if scratch in apart else bubblewrap.SCRATCH_INSIDE
            memory = [*apart, scratch]
        write = (*memory, *bubblewrap.DEVICES, *kept.writable)
        confinement = self._confinement(uid, scratch, write, ("/proc",))
        return self._launch([found, *outer, "--"], scratch, confinement)

    def _alone(self, uid: int | None, kept: ProtectedPaths) -> Launch:
        # Not at the top: Windows, where this module is imported too, has no such lock.

        scratch, remove = new_scratch(uid)
        confinement = self._confinement(uid, scratch, (scratch, *bubblewrap.DEVICES, *kept.writable), ())
        return self._launch([], scratch, confinement, remove)

    def _confinement(
        self, uid: int | None, scratch: str, write: tuple[str, ...], read: tuple[str, ...]
    ) -> Confinement:
        python, bounds = installation(), self._bounds
        keep = [_OVERRIDE] if self._writable else []
        if self._workspace or not self._wrapped:
            keep.append(_READ_ANY)
        workspace = [self._workspace] if self._workspace else []
        return Confinement(
            memory=bounds.memory,
            file_size=bounds.file,
            cpu=bounds.cpu,
            tasks=bounds.processes,
            forks=self._wrapped,
            uid=uid,
            keep=keep,
            hidden=self._wrapped,
            mounted=self._wrapped,
            read=[*python.system, *python.own, *read, *workspace],
            write=list(write),
            folder=self._workspace or scratch,
            owner=None if self._wrapped else os.getpid(),
        )

    def _launch(
        self,
        outer: list[str],
        scratch: str,
        confinement: Confinement,
        clean: Callable[[], None] = lambda: None,
    ) -> Launch:
        python = installation()
        disk = [*([] if self._wrapped else [scratch]), *([self._workspace] if self._writable else [])]
        return Launch(
            command=[*outer, python.executable, "-I", "-S", "-B", "-c", PROGRAM],
            env=environment(scratch),
            settings={"confinement": asdict(confinement), "folder": None, "packages": python.packages},
            disk=[folder for folder in disk if folder],
            in_memory=(bubblewrap.SCRATCH, bubblewrap.SHARED) if self._wrapped else (),
            clean=clean,
        )


def environment(home: str) -> dict[str, str]:
    """Returns the code's environment: nothing of the caller's, and one thread for numeric libraries."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, **one}


@cache
def wrapping() -> str:
    """Returns why bubblewrap does not work on this host; empty when it does."""
    found = bubblewrap.program()
    if found is None:
        return "not installed"
    outer = bubblewrap.arguments(installation(), None, writable=False, scratch=1_000_000)
    command = [found, *outer, "--", installation().executable, "-I", "-S", "-c", ""]
    nothing, env = subprocess.DEVNULL, environment("/tmp")
    try:
        tried = subprocess.run(command, env=env, stdin=nothing, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if tried.returncode == 0:
        return ""
    return tried.stderr.decode(errors="replace").strip()[:300] or f"exit code {tried.returncode}"


def _free_user() -> int:
    """Returns an unused user id within the range of this container, a different one for each interpreter."""
    first, _, count = max(
        (tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()),
        key=lambda row: row[2],
    )
    if first + count > _NOBODYS + 2**24:
        return _NOBODYS + secrets.randbelow(2**24)
    return _NOBODYS_IN_A_CONTAINER + secrets.randbelow(400)
