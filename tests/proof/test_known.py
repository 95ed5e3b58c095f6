"""What the exploration has found and what is not put right yet. Strict: a test that passes has to move."""

import pytest

from signoff.verify.choices import World
from signoff.verify.explore import Explorer
from tests.proof.worlds import machine


@pytest.mark.xfail(
    raises=AssertionError,
    strict=True,
    reason="calls of a reply that was never routed keep ids that are not unique",
)
def test_one_id_twice_then_killed_then_a_new_message() -> None:
    world = World("known", machine(turns=2), ("repeated id", "finish"), ("message",), 1)
    assert Explorer(world).run().broken == []
