"""The threads of a storage, as a list shows them."""

from typing import Any


def ids(storage: Any) -> list[str]:
    """The ids of its threads, the one changed last first."""
    return [row.thread_id for row in storage.threads()]
