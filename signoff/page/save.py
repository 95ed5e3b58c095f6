"""Writes a page: whole, or not at all."""

import os
import secrets
import stat
import sys

from signoff.graph.errors import SetupError

STDOUT = "-"


def save(page: str, file: str) -> None:
    """Writes the page into `file`, or to the standard output for `-`.

    A file that is there keeps what it holds until the new page is complete. Raises SetupError, with what to
    do, when it cannot be written there.
    """
    data = page.encode()
    if file == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        _replace(_target(file), data)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SetupError(
            f"The page cannot be written to {_shown(file)} ({why}); name another file."
        ) from error


def _target(file: str) -> str:
    """The file itself, where `file` is a link to it."""
    if not file:
        raise SetupError("--html is empty; name a file, or - for the standard output.")
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return os.path.realpath(file)
    if stat.S_ISDIR(found.st_mode):
        raise SetupError(f"{_shown(file)} is a folder; name a file in it.")
    if not stat.S_ISREG(found.st_mode):
        raise SetupError(f"{_shown(file)} is no ordinary file; name one, or - for the standard output.")
    if not os.access(file, os.W_OK):
        raise SetupError(f"{_shown(file)} is write-protected; name another file.")
    return os.path.realpath(file)


def _replace(target: str, data: bytes) -> None:
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".signoff-{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _shown(file: str) -> str:
    return file if len(file) <= 200 else f"{file[:200]}…"
