"""Machines that call each other: what must hold of all of them together, and what catches each broken copy.

`make proof` explores all of these worlds, with the abstraction; here the small ones.
"""

import pytest

from signoff.verify.explore import Exploration
from signoff.verify.tree_explore import TreeExplorer
from signoff.verify.tree_properties import TREE_OVERALL, TREE_PROPERTIES
from tests.proof.compositions import COMPOSITIONS
from tests.proof.mutations_of_delegates import DELEGATE_MUTATIONS

BELOW = (*TREE_OVERALL, *(one.name for one in TREE_PROPERTIES))
QUICK = (
    "two ask",
    "few tokens",
    "few calls",
    "few tokens, and a copy",
    "few calls, and a copy",
    "finish beside",
)


def explored_below(name: str) -> Exploration:
    mutation = DELEGATE_MUTATIONS[name]
    world = COMPOSITIONS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return TreeExplorer(world, thorough=mutation.thorough, until=mutation.seen_by).run()


@pytest.mark.parametrize("name", QUICK)
def test_every_property_holds_in_every_state(name: str) -> None:
    found = TreeExplorer(COMPOSITIONS[name](), thorough=False).run()
    assert found.broken == []
    assert found.states > 25


@pytest.mark.slow
@pytest.mark.parametrize("name", DELEGATE_MUTATIONS)
@pytest.mark.sample(6)
def test_a_broken_copy_is_caught(name: str) -> None:
    seen = {broken.name for broken in explored_below(name).broken}
    assert seen & set(DELEGATE_MUTATIONS[name].seen_by)


def test_every_property_catches_a_broken_copy() -> None:
    assert {name for one in DELEGATE_MUTATIONS.values() for name in one.seen_by} >= set(BELOW)
