"""The Linux sandbox: Landlock, seccomp and resource limits."""

import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.sandbox.confine import NOBODY, landlock_version
from signoff.tools.sandbox.folder import OwnFolder
from signoff.tools.sandbox.pool import Interpreter, WorkspacePool, names_text
from signoff.tools.sandbox.process import ProcessInterpreter, readable

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "full", "random", "urandom"))
"""Not `zero`: a shared map of it is memory that belongs to no process."""


def _opened(root: str, protected: Collection[str]) -> list[str]:
    """What can be changed: the root, or the entries at its top that are neither protected nor links."""
    if not protected:
        return [root]
    with os.scandir(root) as entries:
        return [
            entry.path
            for entry in entries
            if entry.name not in protected
            and (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False))
        ]


class LinuxSandbox(WorkspacePool):
    """Runs code in a process without a network, that reaches no other process and no files of the user.

    workspace: a folder that the code reads at its usual path, and works in. It writes to a folder of its own
    (also HOME and TMPDIR), which belongs to its thread and outlives its interpreters; a call without a thread
    has a temporary one. No process can be started, and no mode changed.

    writable: also opens what exists at the top of the workspace, links aside, but not what is protected there
    (`protect`, as in `signoff.tools.protected`). Beside something protected nothing new can be made, since
    rights on a folder hold for everything below it; where nothing is protected, the whole workspace is open.

    Raises SetupError when it does not work here, or when the workspace as a whole is protected.
    """

    beside_protected = "existing entries are writable"

    def _prepare(self) -> None:
        if platform.system() != "Linux":
            raise SetupError(f"This sandbox needs Linux; elsewhere use Monty: {install_hint('monty')}")

    def enforced(self) -> Mapping[str, bool | str]:
        by = f"by Landlock, version {landlock_version()}, and seccomp"
        return {**self._boundary(by), **self._bounds.described()}

    def _start(self, folder: OwnFolder, fits: Callable[[], bool]) -> Interpreter:
        protected = list(self._protected.top()) if self._protected else []
        opened = _opened(self.workspace, protected) if self.workspace and self._protected else []
        root = [self.workspace] if self.workspace else []
        folder.refusal = _refusal(folder, opened, protected)
        folder.begin([*root, *opened], top=self.workspace if opened and protected else None)
        # Where root may not give a file away, the start says so.
        with suppress(OSError):
            if os.geteuid() == 0:
                os.chown(folder.path, NOBODY, NOBODY)
        confinement = {
            "bounds": asdict(self._bounds),
            "read": [*readable(), *root],
            "write": [folder.path, *_DEVICES, *opened],
            "owner": os.getpid(),
        }
        settings = {"confinement": confinement, "folder": self.workspace or folder.path}
        disk = [folder.path, *(root if opened else [])]
        return ProcessInterpreter(settings, environment(folder.path), folder, self._bounds, fits, disk)


def _refusal(folder: OwnFolder, opened: Sequence[str], protected: Sequence[str]) -> str:
    where = f"its own folder {quote_path(folder.path)} (also the home and the temporary folder)"
    if protected:
        return (
            f"Protected from this code: {names_text(protected)}. Beside that, existing entries of the "
            "workspace can be changed, those that are newer than this Python from the next call on; at its "
            f"top, nothing can be made, deleted, renamed or replaced: use a folder in it, or {where}."
        )
    also = "to the workspace and to" if opened else "only to"
    return f"This code can write {also} {where}."


def environment(home: str) -> dict[str, str]:
    """The code's environment: nothing of the caller's, one thread for numeric libraries, and few
    arenas, which reserve addresses.
    """
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own = {"HOME": home, "TMPDIR": home, "USER": "user", "LOGNAME": "user"}
    # Else joblib would try processes, and fail instead of going on with one.
    libraries = {"JOBLIB_MULTIPROCESSING": "0", "MALLOC_ARENA_MAX": "4"}
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **own, **single, **libraries}
