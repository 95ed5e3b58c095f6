"""Ctrl-C, as it comes while a tool runs."""

import os
import signal


def interrupt_process() -> None:
    """Interrupts this process. What a tool raises itself, KeyboardInterrupt too, is a result."""
    os.kill(os.getpid(), signal.SIGINT)
