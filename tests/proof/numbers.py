"""The numbers of the proof: what was visited in each world, and what caught each mutation."""

from typing import NamedTuple

from signoff.verify.explore import Explorer
from tests.proof.mutations import ALL
from tests.proof.test_mutations import ANY, explored
from tests.proof.worlds import WORLDS

LENGTH = 8


class Visited(NamedTuple):
    """What one world came to. sequences: of up to LENGTH replies and events."""

    name: str
    states: int
    transitions: int
    compared: int
    sequences: int
    broken: list[str]


def visit(name: str) -> Visited:
    found = Explorer(WORLDS[name]()).run()
    broken = [f"{one.name}: {one.why}; by {' / '.join(one.path)}" for one in found.broken[:5]]
    return Visited(name, found.states, found.transitions, found.compared, found.sequences(LENGTH), broken)


def catch(name: str) -> tuple[str, str]:
    """A mutation, and the first property that catches it."""
    seen = {one.name for one in explored(name).broken} & set(ALL[name].seen_by or ANY)
    return name, next(iter(sorted(seen)), "")
