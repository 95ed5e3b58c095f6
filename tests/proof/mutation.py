"""One broken copy of the machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """What is broken, the world in which that shows, and properties of which at least one must see it."""

    world: str
    apply: Break
    seen_by: Sequence[str]
    thorough: bool = False
