"""Which thread ids PostgreSQL can hold."""

from signoff.graph.compiled.runner import checked_thread_id
from signoff.graph.errors import ThreadError, shown

LONGEST_ID = 512
"""The bytes of a thread id, as UTF-8; its rows are found by indexes, which cannot hold much more."""


def usable(thread_id: str) -> str:
    """The id itself. Raises SetupError for what is no id, ThreadError when PostgreSQL cannot hold it."""
    size = len(checked_thread_id(thread_id).encode())
    if size > LONGEST_ID:
        raise ThreadError(
            f"The thread id {shown(thread_id)} is {size:,} bytes long; PostgreSQL takes at most {LONGEST_ID}."
        )
    return thread_id
