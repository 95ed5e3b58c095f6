"""What Linux's process table says of processes that a test has started; each may end at any moment."""

import time
from pathlib import Path


def state(pid: int) -> str:
    """The letter that ps shows: R runs, S sleeps, T stands still, Z has ended; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    # A process that ends after its file was opened raises the second error.
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runs(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be collected does not."""
    return state(pid) not in ("", "Z", "X")


def gone(*pids: int, seconds: float = 10) -> bool:
    """Whether these processes end within `seconds`."""
    deadline = time.monotonic() + seconds
    while any(map(runs, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that are still in the table."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += list(map(int, tasks.read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
