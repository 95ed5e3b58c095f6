"""Starts processes that end with this one."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

_lock = Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def spawn(command: Sequence[str], env: Mapping[str, str], handles: tuple[int, int, int, int]) -> int:
    """Starts `command` as the leader of a session of its own and returns its process id.

    handles: its stdout and stderr, and two that it gets under the same numbers. stdin is empty. Linux
    sends a parent's death signal when the *thread* that started the child ends, so that one thread starts
    them all. Raises OSError.
    """
    with _lock:
        # After a fork the thread is missing in the child.
        starter = _starters.setdefault(os.getpid(), ThreadPoolExecutor(1, "signoff-spawn"))
    out, error, *passed = handles
    process = starter.submit(
        subprocess.Popen,
        command,
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=error,
        pass_fds=passed,
        start_new_session=True,
    ).result()
    # The caller waits for it by its number; so Popen does not warn that nobody did.
    process.returncode = 0
    return process.pid
