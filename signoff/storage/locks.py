"""One runner a thread: a lock file for each thread in a folder beside the database.

The lock is the operating system's, held by the process, so a killed process frees it.
"""

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from signoff.graph.compiled.graph import GRACE_SECONDS, busy
from signoff.graph.errors import StorageError


def lock_folder(database: Path) -> Path:
    """Where the lock files of `database` are."""
    real = database.expanduser().resolve()
    return real.with_name(f"{real.name}.locks")


@contextmanager
def thread_lock(database: Path, thread_id: str) -> Iterator[None]:
    """Holds the lock of a thread; another process, or another `thread_lock` of this one, cannot.

    Raises ThreadBusy at once when it is held already, StorageError when no lock file can be made.
    """
    lock = _lock(database, thread_id)
    try:
        try:
            lock_folder(database).mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=GRACE_SECONDS, poll_interval=0.02)
        except Timeout:
            raise busy(thread_id) from None
        except (OSError, NotImplementedError) as error:
            raise _no_lock_files(database, error) from error
        yield
    finally:
        # Also when Ctrl-C comes as soon as it is held; does nothing when it is not.
        lock.release()


@contextmanager
def opening_lock(database: Path, seconds: float) -> Iterator[None]:
    """Holds the right to open and set up `database`, for which it waits so long.

    Two connections that make the same new file at once would meet: SQLite answers one of them "database is
    locked" without waiting, since both have begun to read.

    Raises StorageError when another process holds it all that time, or no lock file can be made.
    """
    lock = FileLock(lock_folder(database) / "opening.lock")
    try:
        lock_folder(database).mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=seconds, poll_interval=0.01)
    except Timeout:
        raise StorageError(
            f"Another process has been opening the database {database} for {seconds:g} s; end it, or try "
            "again."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise _no_lock_files(database, error) from error
    try:
        yield
    finally:
        lock.release()


def is_locked(database: Path, thread_id: str) -> bool:
    """Whether some process runs the thread now. Makes no files."""
    lock = _lock(database, thread_id)
    if not Path(lock.lock_file).exists():
        return False
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True


def _no_lock_files(database: Path, error: Exception) -> StorageError:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(
            "Too many files are open: each thread that runs holds the file of its lock. Allow more open "
            "files (ulimit -n), or run fewer threads at once."
        )
    return StorageError(
        f"The folder {lock_folder(database)} cannot hold lock files ({error}); use a database on another "
        "disk."
    )


def _lock(database: Path, thread_id: str) -> FileLock:
    name = hashlib.sha256(thread_id.encode(errors="surrogatepass")).hexdigest()[:32]
    # An async run may be taken up by one thread of a pool and let go by another.
    return FileLock(lock_folder(database) / f"{name}.lock", thread_local=False)
