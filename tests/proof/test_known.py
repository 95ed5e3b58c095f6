"""What the exploration has found once, each as the smallest world that shows it."""

from signoff.verify.choices import World
from signoff.verify.explore import Explorer
from tests.proof.worlds import machine


def test_one_id_twice_then_killed_then_a_new_message() -> None:
    """Calls of a reply that was never routed were closed under ids that were not unique."""
    world = World("known", machine(turns=2), ("repeated id", "finish"), ("message",), 1)
    assert Explorer(world).run().broken == []
