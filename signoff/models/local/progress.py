"""How long work is reported: a stage, how much is done, and how much there is."""

from collections.abc import Callable
from enum import StrEnum

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total). `total` 0 means that the length is not known."""


class Stage(StrEnum):
    """What takes time before the local model can answer, in this order. The unit of its numbers."""

    INSTALL = "install"  # packages
    JOIN = "join"  # bytes
    VERIFY = "verify"  # bytes
    LOAD = "load"  # length not known


def silent(stage: str, done: int, total: int) -> None:
    """A Progress that reports nothing."""
