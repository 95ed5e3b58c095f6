"""The numbers of the proof: what was visited in each world, and what caught each mutation."""

from collections.abc import Sequence
from typing import NamedTuple

from signoff.graph.machine import ENTRIES, TRANSITIONS, Event, State
from signoff.verify.explore import Exploration, Explorer
from signoff.verify.tree_explore import TreeExplorer
from tests.proof.compositions import COMPOSITIONS
from tests.proof.exploring import ANY, BELOW, explored, explored_below
from tests.proof.mutations import ALL
from tests.proof.mutations_of_delegates import DELEGATE_MUTATIONS
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
    reported: set[tuple[State | None, Event | None]]


def visit(name: str) -> Visited:
    return _visited(name, Explorer(WORLDS[name]()).run())


def visit_tree(name: str) -> Visited:
    """The same for machines that call each other."""
    return _visited(name, TreeExplorer(COMPOSITIONS[name](), thorough=True).run())


def _visited(name: str, found: Exploration) -> Visited:
    broken = [f"{one.name}: {one.why}; by {' / '.join(one.path)}" for one in found.broken[:5]]
    numbers = (found.states, found.transitions, found.compared, found.sequences(LENGTH))
    return Visited(name, *numbers, broken, found.reported)


def catch(name: str) -> tuple[str, set[str]]:
    """A mutation, and the properties that it breaks, of those that must see it."""
    mutation = ALL[name]
    return name, {one.name for one in explored(mutation).broken} & set(mutation.seen_by or ANY)


def catch_below(name: str) -> tuple[str, set[str]]:
    """A mutation of what runs delegates, and the properties that it breaks, of those that must see it."""
    return name, {one.name for one in explored_below(DELEGATE_MUTATIONS[name]).broken} & set(
        DELEGATE_MUTATIONS[name].seen_by
    )


def gaps(visited: Sequence[Visited], caught: Sequence[tuple[str, set[str]]]) -> list[str]:
    """What keeps the proof from being whole, a line each."""
    reported = {pair for one in visited for pair in one.reported}
    rows = {(state, event) for state, row in TRANSITIONS.items() for event in row}
    entries = {(None, event) for event in ENTRIES}
    seen = {name for _, by in caught for name in by}
    return [
        *(f"broken in {one.name!r}: {line}" for one in visited for line in one.broken),
        *(f"survived: {name}" for name, by in caught if not by),
        *(f"catches no mutation: {name}" for name in (*ANY, *BELOW) if name not in seen),
        *(f"never visited: {event} of {state}" for state, event in sorted(rows - reported)),
        *(f"never came from outside: {event}" for _, event in sorted(entries - reported)),
    ]
