"""Opens files that other code may have left: a model's code, a command, a program beside.

Such a file may be a pipe that nobody writes to, a device, a link to anywhere, or without an end, and its name
may be any bytes but NUL and the slash. So it is opened without following a link at its end and without
waiting, only if it is a regular file, and read to a bound.
"""

import errno
import os
import stat
from typing import BinaryIO

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = (_READ & ~os.O_RDONLY) | os.O_WRONLY


class NotRegular(OSError):
    """What is there is a folder, a link, a pipe, a device or the like."""


def open_regular(path: str | os.PathLike[str], *, write: bool = False) -> BinaryIO:
    """The regular file at `path`, which is not a link, for reading from its start; or to write over it, at
    its start and without shortening it. Raises OSError, NotRegular among them."""

    def opened(name: str, _: int) -> int:
        handle = os.open(name, _WRITE if write else _READ)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise NotRegular(errno.EINVAL, "not a regular file", name)

    try:
        return open(path, "wb" if write else "rb", opener=opened)
    except ValueError as error:
        # A NUL, or characters that no name can have.
        raise FileNotFoundError(errno.ENOENT, str(error), os.fspath(path)) from error
    except OSError as error:
        # A link, a socket, or a pipe without a reader.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise NotRegular(error.errno, "not a regular file", os.fspath(path)) from error
        raise


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of the regular file at `path`. Raises OSError as `open_regular`."""
    with open_regular(path) as file:
        return file.read(most)
