"""Checks the graphs of delegates, and finds out what they can do."""

from collections.abc import Coroutine, Iterable
from typing import Any

from langgraph.pregel import Pregel

from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past, words
from signoff.graph.machine import FIRST
from signoff.nodes.node import Dependencies, Node
from signoff.tools.delegates import Delegate


def deps_of(graph: Any) -> Dependencies:
    """The dependencies of a graph that `build_graph` made."""
    node = _first_node(graph)
    assert node is not None, "no other graph is let in"
    return node.deps


def _first_node(graph: Any) -> Node | None:
    """The first node of a graph that `build_graph` made; None for any other graph."""
    node = getattr(getattr(graph, "builder", None), "nodes", {}).get(str(FIRST))
    return node.runnable if node is not None and isinstance(node.runnable, Node) else None


def graph_of(tool: Delegate) -> Any:
    """The graph of a delegate. Raises SetupError if a function fails, or returns something else."""
    if isinstance(tool.graph, Pregel):
        return tool.graph
    try:
        found = tool.graph()
    except BaseException as error:
        if gets_past(error) or isinstance(error, SetupError):
            raise
        raise SetupError(
            f"The function that makes the graph of the delegate {tool.name!r} failed: "
            f"{type(error).__name__}: {words(error)}"
        ) from error
    if isinstance(found, Coroutine):
        found.close()
    check_graph(tool.name, found)
    return found


def check_graph(name: str, graph: Any) -> None:
    """Raises SetupError for a graph that cannot live in the thread of another one."""
    if not isinstance(graph, Pregel):
        raise SetupError(
            f"The delegate {name!r} was given {type(graph).__name__}, which is no compiled graph; pass what "
            "build_graph returns."
        )
    if _first_node(graph) is None:
        raise SetupError(
            f"The graph of the delegate {name!r} was not made by build_graph; an ordinary tool can call "
            "such a graph."
        )
    if graph.checkpointer is not None or graph.store is not None:
        raise SetupError(
            f"The graph of the delegate {name!r} has storage of its own; build it without storage=, "
            "checkpointer= and store=: it is kept in the thread of the graph that calls it."
        )
    if (graph.config or {}).get("configurable", {}).get("thread_id") is not None:
        raise SetupError(
            f"The graph of the delegate {name!r} has a thread of its own; leave the thread_id out of its "
            "configuration: it is kept in the thread of the graph that calls it."
        )


def has_effects(graph: Any) -> bool:
    """Whether this graph, or one below it, may change something."""
    box = deps_of(graph).toolbox
    return any(box.is_effect(name) for name in box.run_tools)


def tools_below(graph: Any) -> frozenset[str]:
    """The names of the tools of this graph, and of those below it."""
    box = deps_of(graph).toolbox
    return frozenset(box.kinds).union(*(made.tools for made in box.delegates.values()))


def made_later(graph: Any) -> bool:
    """Whether a graph below this one is made by a function, so that its tools are not known yet."""
    return any(made.later for made in deps_of(graph).toolbox.delegates.values())


def check_prices(tools: Iterable[Delegate]) -> None:
    """Raises SetupError if a limit of cost cannot be enforced, since the cost of a delegate is unknown."""
    for tool in tools:
        if not isinstance(tool.graph, Pregel):
            continue
        deps = deps_of(tool.graph)
        if deps.limits.prices is not None or deps.priced is None:
            continue
        try:
            deps.priced("")
        except SetupError as error:
            raise SetupError(
                f"The limit of cost counts what the delegate {tool.name!r} costs, too; build its graph with "
                f"limits=Limits(prices=Prices(…)). {error}"
            ) from None
