"""Explores the world in which a mutation shows, with what is broken."""

import pytest

from signoff.verify.explore import OVERALL, Exploration, Explorer
from signoff.verify.properties import PROPERTIES
from signoff.verify.tree_explore import TreeExplorer
from signoff.verify.tree_properties import TREE_OVERALL, TREE_PROPERTIES
from tests.proof.compositions import COMPOSITIONS
from tests.proof.mutation import Mutation
from tests.proof.worlds import WORLDS

ANY = (*OVERALL, *(one.name for one in PROPERTIES))
BELOW = (*TREE_OVERALL, *(one.name for one in TREE_PROPERTIES))


def explored(mutation: Mutation) -> Exploration:
    """A broken machine, until a property that must see it does."""
    world = WORLDS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return Explorer(world, thorough=mutation.thorough, until=mutation.seen_by or ANY).run()


def explored_below(mutation: Mutation) -> Exploration:
    """The same for machines that call each other."""
    world = COMPOSITIONS[mutation.world]()
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        return TreeExplorer(world, thorough=mutation.thorough, until=mutation.seen_by).run()
