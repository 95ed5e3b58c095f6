"""Opens files that other code may have left: a model's code, a command, a program beside.

Such a file may be a pipe that nobody writes to, a device, a link to anywhere, or without an end, and its name
may be any bytes but NUL and the slash. So it is opened without following a link at its end and without
waiting, only if it is a regular file, and read to a bound.
"""

import errno
import os
import stat
from typing import BinaryIO

# Windows has neither.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_WHAT = "not a regular file (but a device, a pipe or the like)"


class NotRegular(OSError):
    """What is there is a folder, a link, a pipe, a device or the like."""


def open_regular(path: str | os.PathLike[str], *, write: bool = False, follow: bool = False) -> BinaryIO:
    """The regular file at `path`, for reading from its start; or to write over it, at its start and without
    shortening it. follow: also through a link, for a path that a person has named.

    Raises OSError, NotRegular among them.
    """

    def opened(name: str, _: int) -> int:
        access = os.O_WRONLY if write else os.O_RDONLY
        handle = os.open(name, access | _NO_WAIT | (0 if follow else _NO_LINK))
        mode = os.fstat(handle).st_mode
        if stat.S_ISREG(mode):
            return handle
        os.close(handle)
        raise NotRegular(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, _WHAT, name)

    try:
        return open(path, "wb" if write else "rb", opener=opened)
    except ValueError as error:
        # A NUL, or characters that no name can have.
        raise FileNotFoundError(errno.ENOENT, str(error), os.fspath(path)) from error
    except OSError as error:
        # A link, a socket, or a pipe without a reader.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise NotRegular(error.errno, _WHAT, os.fspath(path)) from error
        raise


def read_regular(path: str | os.PathLike[str], most: int, *, follow: bool = False) -> bytes:
    """The first `most` bytes of the regular file at `path`. Raises OSError as `open_regular`."""
    with open_regular(path, follow=follow) as file:
        return file.read(most)
