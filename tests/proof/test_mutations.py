"""Broken copies of the machine: each is caught by a property. One that survived would be a gap.

Those of the rules and of the table are caught by `make proof`, which tries all of them.
"""

import pytest

from signoff.graph.rules import RULES
from signoff.verify.explore import OVERALL, Exploration, Explorer
from signoff.verify.properties import PROPERTIES
from tests.proof.mutations import ALL, DROPPED, NOT_TO_FINISH, TO_FINISH
from tests.proof.mutations_of_nodes import NODE_MUTATIONS
from tests.proof.worlds import WORLDS

ANY = (*OVERALL, *(one.name for one in PROPERTIES))


def explored(name: str) -> Exploration:
    mutation = ALL[name]
    world = WORLDS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return Explorer(world, thorough=mutation.thorough, until=mutation.seen_by or ANY).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", NODE_MUTATIONS)
@pytest.mark.sample(4)
def test_a_broken_machine_is_caught(name: str) -> None:
    seen = {broken.name for broken in explored(name).broken}
    assert seen & set(ALL[name].seen_by or ANY)


def test_every_rule_but_five_is_left_out_once() -> None:
    assert set(DROPPED) | {"seconds", "not_ready", "children", "depth", "tree_turns"} == {
        rule.name for rule in RULES
    }


def test_every_way_of_the_table_is_bent_once() -> None:
    assert len({*NOT_TO_FINISH, *TO_FINISH}) == sum("->" in name for name in ALL)
