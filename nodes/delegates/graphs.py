"""Checks the graphs of delegates, and finds out what they can do."""

from collections.abc import Iterable
from typing import Any

from langgraph.pregel import Pregel

from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past, words
from signoff.graph.machine import FIRST
from signoff.nodes.node import Dependencies, Node
from signoff.tools.delegates import Delegate


def deps_of(graph: Any) -> Dependencies | None:
    """The dependencies of a Signoff graph; None for any other graph."""
    nodes = getattr(getattr(graph, "builder", None), "nodes", {})
    node = nodes.get(str(FIRST))
    return node.runnable.deps if node is not None and isinstance(node.runnable, Node) else None


def graph_of(tool: Delegate) -> Any:
    """The graph of a delegate. Raises SetupError if a function fails, or returns something else."""
    if isinstance(tool.graph, Pregel):
        return tool.graph
    try:
        found = tool.graph()
    except SetupError:
        raise
    except Exception as error:
        if gets_past(error):
            raise
        raise SetupError(
            f"The function that makes the graph of the delegate {tool.name!r} failed: "
            f"{type(error).__name__}: {words(error)}"
        ) from error
    check_graph(tool.name, found, tool.read)
    return found


def check_graph(name: str, graph: Any, read: Any) -> None:
    """Raises SetupError for a graph that cannot live in the thread of another one."""
    if not isinstance(graph, Pregel):
        raise SetupError(
            f"The delegate {name!r} was given {type(graph).__name__}, which is no compiled graph; pass what "
            "build_graph returns, or another compiled graph of LangGraph with read=."
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
    ours = deps_of(graph) is not None
    if ours and read is not None:
        raise SetupError(
            f"read= is for graphs without an outcome, and that of {name!r} has one; leave it out."
        )
    if not ours and read is None:
        raise SetupError(
            f"The graph of the delegate {name!r} was not made by build_graph; say by read= how its last "
            "values are read: a function of them that returns text, or an Outcome."
        )


def has_effects(graph: Any) -> bool:
    """Whether this graph, or one below it, may change something; assumed for a graph that is not
    Signoff's."""
    deps = deps_of(graph)
    return deps is None or any(deps.toolbox.is_effect(name) for name in deps.toolbox.run_tools)


def tools_below(graph: Any) -> frozenset[str]:
    """The names of the tools of this graph, and of those below it; none of a graph that is not Signoff's."""
    deps = deps_of(graph)
    if deps is None:
        return frozenset()
    below = (made.tools for made in deps.toolbox.delegates.values())
    return frozenset(deps.toolbox.kinds).union(*below)


def made_later(graph: Any) -> bool:
    """Whether a graph below this one is made by a function, so that its tools are not known yet."""
    deps = deps_of(graph)
    return deps is not None and any(made.later for made in deps.toolbox.delegates.values())


def check_prices(tools: Iterable[Delegate]) -> None:
    """Raises SetupError if a limit of cost cannot be enforced, since the cost of a delegate is unknown."""
    for tool in tools:
        deps = deps_of(tool.graph) if isinstance(tool.graph, Pregel) else None
        if deps is None or deps.limits.prices is not None or deps.priced is None:
            continue
        try:
            deps.priced("")
        except SetupError as error:
            raise SetupError(
                f"The limit of cost counts what the delegate {tool.name!r} costs, too; build its graph with "
                f"limits=Limits(prices=Prices(…)). {error}"
            ) from None
