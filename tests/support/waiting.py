"""Waiting for what happens in another thread or process."""

import time
from collections.abc import Callable

SECONDS = 60.0
"""After which nothing comes any more."""


def until(is_true: Callable[[], object], seconds: float = SECONDS) -> bool:
    """Whether it comes true within `seconds`; it is asked again until then."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def wait_until(is_true: Callable[[], object]) -> None:
    assert until(is_true), "it did not come"
