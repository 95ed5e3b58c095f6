"""Private temporary folders that do not pile up, also when their owners are killed."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from signoff.tools.processes.helpers import find_program

_PREFIX = "signoff-python-"
_PROGRAMS = "/usr/bin:/bin:/run/current-system/sw/bin"


def scratch(uid: int | None) -> tuple[str, Callable[[], None]]:
    """A new folder for the user `uid`, or for this one, and the function that removes it.

    Folders of owners that have ended are removed too: an owner holds a lock on its own.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_unless_held(str(old))
    folder, handle = _held()
    if uid is not None:
        os.chown(folder, uid, uid)

    def remove() -> None:
        _remove(folder)
        os.close(handle)

    return folder, remove


def _held() -> tuple[str, int]:
    while True:
        folder = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(folder):
            return folder, handle
        # Somebody who clears up was faster than the lock.
        os.close(handle)


def _remove_unless_held(folder: str) -> None:
    # Somebody else's, in use, or gone since it was listed.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        finally:
            os.close(handle)


def _remove(folder: str) -> None:
    # Python's own function fails on folders that are nested thousands deep.
    remove = find_program("rm", env={"PATH": _PROGRAMS})
    assert remove, "every Unix has it"
    subprocess.run([remove, "-rf", "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)
