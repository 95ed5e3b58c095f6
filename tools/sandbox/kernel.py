"""The C library, for the system calls that Python has no function for. Standard library alone."""

import ctypes
import functools
import os


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library of this process, keeping `errno`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """`result`, unless it says that the call failed: then OSError with `what` in it."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
