"""Model-checks a graph in all its worlds, and says which properties held."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from signoff.graph.build import Graph
from signoff.verify.explore import OVERALL, Exploration, Explorer
from signoff.verify.properties import PROPERTIES
from signoff.verify.tree_explore import TreeExplorer
from signoff.verify.tree_properties import TREE_OVERALL, TREE_PROPERTIES
from signoff.verify.worlds import compositions, worlds

RUN_LENGTH: int = 5
"""How many replies and events the runs that are counted have at most."""


@dataclass(frozen=True)
class CheckedProperty:
    """One property: what must hold, and where it does not, why, and by which replies and events."""

    name: str
    sentence: str
    why: str | None
    by: tuple[str, ...]

    @property
    def held(self) -> bool:
        return self.why is None


@dataclass(frozen=True)
class ExploredWorld:
    """How much was tried with one choice of tools. runs: of up to `longest` replies and events."""

    tools: str
    states: int
    transitions: int
    runs: int
    longest: int = RUN_LENGTH


@dataclass(frozen=True)
class Verification:
    """Whether every property holds in every world."""

    worlds: tuple[ExploredWorld, ...]
    properties: tuple[CheckedProperty, ...]

    @property
    def held(self) -> bool:
        return all(each.held for each in self.properties)


def verify_graph(graph: Graph[Any], finish: Mapping[str, Any] | None = None) -> Verification:
    """Model-checks a graph without calling its model or tools.

    finish: arguments of a valid finish, where those generated from its schema do not fit.

    Raises SetupError if a tool's arguments cannot be generated.
    """
    explored = {world.name: Explorer(world).run() for world in worlds(graph, finish)}
    trees = compositions(graph)
    explored |= {world.name: TreeExplorer(world).run() for world in trees}
    broken = {each.name: each for found in reversed(explored.values()) for each in reversed(found.broken)}
    properties = (
        CheckedProperty(name, sentence, broken[name].why, tuple(broken[name].path))
        if name in broken
        else CheckedProperty(name, sentence, None, ())
        for name, sentence in _sentences(below=bool(trees))
    )
    return Verification(tuple(_world(name, found) for name, found in explored.items()), tuple(properties))


def _sentences(*, below: bool) -> Iterator[tuple[str, str]]:
    yield from ((each.name, each.sentence) for each in PROPERTIES)
    yield from OVERALL.items()
    if below:
        yield from ((each.name, each.sentence) for each in TREE_PROPERTIES)
        yield from TREE_OVERALL.items()


def _world(name: str, found: Exploration) -> ExploredWorld:
    return ExploredWorld(name, found.states, found.transitions, found.sequences(RUN_LENGTH))
