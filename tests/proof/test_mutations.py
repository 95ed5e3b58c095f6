"""The machine without one of its rules: a property notices each. `make proof` breaks everything else, too."""

import pytest

from signoff.graph.rules import RULES
from signoff.verify.explore import OVERALL, Exploration, Explorer
from signoff.verify.properties import PROPERTIES
from tests.proof.mutations import ALL, DROPPED, NOT_TO_FINISH, TO_FINISH
from tests.proof.worlds import WORLDS

ANY = (*OVERALL, *(one.name for one in PROPERTIES))


def explored(name: str) -> Exploration:
    mutation = ALL[name]
    world = WORLDS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return Explorer(world, thorough=mutation.thorough, until=mutation.seen_by or ANY).run()


@pytest.mark.parametrize("rule", DROPPED)
def test_a_rule_that_is_missing_is_noticed(rule: str) -> None:
    assert {broken.name for broken in explored(f"no rule {rule!r}").broken} & set(ANY)


def test_every_rule_but_five_is_left_out_once() -> None:
    assert set(DROPPED) | {"seconds", "not_ready", "children", "depth", "tree_turns"} == {
        rule.name for rule in RULES
    }


def test_every_way_of_the_table_is_bent_once() -> None:
    assert len({*NOT_TO_FINISH, *TO_FINISH}) == sum("->" in name for name in ALL)
