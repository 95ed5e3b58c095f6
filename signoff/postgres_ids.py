"""Which thread ids PostgreSQL can hold."""

from signoff.graph.errors import ThreadError
from signoff.graph.runner import shown

LONGEST_ID = 512
"""The bytes of a thread id, as UTF-8; its rows are found by indexes, which cannot hold much more."""


def usable(thread_id: str) -> str:
    """The id itself. Raises ThreadError when PostgreSQL cannot hold it."""
    try:
        size = len(thread_id.encode())
    except UnicodeEncodeError:
        raise ThreadError(
            f"The thread id {shown(thread_id)} holds half a character, which PostgreSQL cannot keep; use "
            "another id."
        ) from None
    if "\0" in thread_id:
        raise ThreadError(
            f"The thread id {shown(thread_id)} holds a NUL character, which PostgreSQL cannot keep; use "
            "another id."
        )
    if size > LONGEST_ID:
        raise ThreadError(
            f"The thread id {shown(thread_id)} is {size:,} bytes long; PostgreSQL takes at most {LONGEST_ID}."
        )
    return thread_id
