"""Waiting for what happens in another thread or process."""

import time
from collections.abc import Callable

SECONDS = 60.0
"""After which nothing comes any more."""


def wait_until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
