"""The clock: the one place where the machine asks for the time.

By it limits, deadlines and expiries are decided, and what is stored is dated. A test puts other functions in
the place of these two, and hours pass at once. What waits for something real (a process, a lock, a server)
asks the system instead.
"""

import time


def now() -> float:
    """The time, in seconds since the epoch."""
    return time.time()


def monotonic() -> float:
    """Seconds of a clock that nobody sets, for how long something takes."""
    return time.monotonic()
