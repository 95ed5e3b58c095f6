"""The graph of somebody's own that a worker runs its threads on."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError
from signoff.storage.postgres import PostgresStorage
from signoff.verify.loading import load, run_theirs


def own_graph(named: str, storage: PostgresStorage) -> Graph:
    """The graph that the function at `package.module:name` or `path/to/file.py:name` makes on `storage`.

    The function takes the open storage and returns `build_graph(…, storage=storage)`. It is called once in
    a process; the graph then runs several threads at once. Raises SetupError for anything else.
    """
    make = load(named)
    if isinstance(make, Graph) or not callable(make):
        raise SetupError(
            f"{named} is no function; name one that takes the storage of the workers and returns "
            "build_graph(…, storage=storage)."
        )
    graph = run_theirs(partial(make, storage), named)
    if not isinstance(graph, Graph):
        raise SetupError(
            f"{named} returned {type(graph).__name__}, no graph; return what build_graph gave you."
        )
    if graph.checkpointer is not storage.checkpointer or graph.store is not storage.store:
        raise SetupError(
            f"The graph of {named} keeps its threads elsewhere; build it with the storage that the function "
            "is given: build_graph(…, storage=storage)."
        )
    return graph


def queue_of(named: str) -> str:
    """The queue that the workers of such a graph take threads from, when none is named: `module:name`."""
    place, _, name = named.rpartition(":")
    return f"{Path(place).stem if place.endswith('.py') else place}:{name}"


class OneGraph:
    """All threads on one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, thread_id: str) -> AbstractContextManager[Graph]:
        return nullcontext(self._graph)
