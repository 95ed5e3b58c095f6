"""Ctrl-C and SIGTERM: a thread that runs stops after its step, everything else at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """The user, or the system, asked this process to stop."""


class Stopper:
    """Says what a signal does. `soon` is set while the thread runs: it asks for a stop after that step.

    `begun`: the thread has run. Once `done` is set, signals change nothing: the run has stopped and only has
    to say so.
    """

    def __init__(self) -> None:
        self.soon: Callable[[], None] | None = None
        self.begun = False
        self.done = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.done:
            return
        if self.soon is None:
            raise Stopped
        soon, self.soon = self.soon, None
        soon()


@contextmanager
def stopping() -> Iterator[Stopper]:
    """While this lasts, a signal raises Stopped, or stops softly; the second one always raises.

    A signal that the parent process ignores stays ignored.
    """
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():
        yield stopper
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stopper)
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
