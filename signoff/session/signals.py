"""SIGTERM and Ctrl-C for a program that drives a session: the first one pauses it, nothing is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from signoff.graph.errors import SetupError
from signoff.session.session import Session


@contextmanager
def pause_on_signals(session: Session) -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM pause the session's run at the next step boundary.

    Its method then returns `Paused("signal")`. A second signal, or one while nothing runs, raises
    KeyboardInterrupt. A signal that the parent process ignores stays ignored. Raises SetupError outside the
    main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SetupError("pause_on_signals works in the main thread only; call session.pause() elsewhere.")
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not session.pause("signal"):
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
