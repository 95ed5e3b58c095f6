"""Machines that call each other: what must hold of all of them together.

`make proof` explores all of their worlds, with the abstraction, and breaks what runs them; here are two.
"""

import pytest

from signoff.verify.explore import Exploration
from signoff.verify.tree_explore import TreeExplorer
from signoff.verify.tree_properties import TREE_OVERALL, TREE_PROPERTIES
from tests.proof.compositions import COMPOSITIONS
from tests.proof.mutations_of_delegates import DELEGATE_MUTATIONS

BELOW = (*TREE_OVERALL, *(one.name for one in TREE_PROPERTIES))


def explored_below(name: str) -> Exploration:
    mutation = DELEGATE_MUTATIONS[name]
    world = COMPOSITIONS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return TreeExplorer(world, thorough=mutation.thorough, until=mutation.seen_by).run()


@pytest.mark.parametrize("name", ["two ask", "finish beside"])
def test_every_property_holds_in_every_state(name: str) -> None:
    found = TreeExplorer(COMPOSITIONS[name](), thorough=False).run()
    assert found.broken == []
    assert found.states > 25


def test_every_property_catches_a_broken_copy() -> None:
    assert {name for one in DELEGATE_MUTATIONS.values() for name in one.seen_by} >= set(BELOW)
