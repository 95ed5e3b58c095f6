"""LangGraph's own drawing of a graph, with its delegates added."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.graph import Graph as Drawing
from langgraph.pregel import Pregel

from signoff.graph.machine import State
from signoff.nodes.delegates.graphs import deps_of, graph_of

_CALLER = str(State.EXECUTE)


def draw(graph: Pregel[Any, Any, Any, Any], config: RunnableConfig | None, xray: int | bool) -> Drawing:
    """The machine of a graph; `execute` lists the delegates that may be called.

    xray: as in LangGraph: also draws the delegates' machines, to this depth or all. A graph that delegates to
    itself is drawn once.
    """
    return _with_own_names(_draw(graph, config, xray))


def _draw(
    graph: Any, config: RunnableConfig | None, xray: int | bool, above: tuple[Any, ...] = (), deeper: int = -1
) -> Drawing:
    """above: the declarations of the graphs that lead here. deeper: how many more levels to draw."""
    deps = deps_of(graph)
    drawn = Pregel.get_graph(graph, config, xray=xray)
    if not deps.toolbox.delegates:
        return drawn
    caller = drawn.nodes[_CALLER]
    told = {**(caller.metadata or {}), "delegates": list(deps.toolbox.delegates)}
    drawn.nodes[_CALLER] = caller._replace(metadata=told)
    above, deeper = (*above, graph.builder), min(deeper, deps.limits.depth) if above else deps.limits.depth
    if not xray or not deeper:
        return drawn
    less = xray if isinstance(xray, bool) or xray < 0 else xray - 1
    for name, tool in deps.toolbox.delegates.items():
        below = graph_of(tool)
        if not any(below.builder is one for one in above):
            _add(drawn, name, _draw(below, config, less, above, deeper - 1))
    return drawn


def _add(drawn: Drawing, name: str, below: Drawing) -> None:
    """Adds the machine of a delegate, with the edges there and back."""
    if below.first_node() is None or below.last_node() is None:
        return
    first, last = drawn.extend(below, prefix=name)
    assert first is not None, "it has one, as seen above"
    assert last is not None, "as above"
    caller = drawn.nodes[_CALLER]
    drawn.add_edge(caller, first, name, conditional=True)
    drawn.add_edge(last, caller)


def _with_own_names(drawn: Drawing) -> Drawing:
    """The drawing with a unique name for each machine: Mermaid would merge two with the same name."""
    taken = {at for at in drawn.nodes if ":" not in at}
    names = dict[str, str]()

    def named(path: str) -> str:
        if path not in names:
            above, _, name = path.rpartition(":")
            numbered = (f"{name}_{n}" if n > 1 else name for n in range(1, len(drawn.nodes) + 2))
            own = next(one for one in numbered if one not in taken)
            taken.add(own)
            names[path] = f"{named(above)}:{own}" if above else own
        return names[path]

    def placed(at: str) -> str:
        above, _, name = at.rpartition(":")
        return f"{named(above)}:{name}" if above else at

    return Drawing(
        nodes={placed(at): node.copy(id=placed(at)) for at, node in drawn.nodes.items()},
        edges=[edge.copy(source=placed(edge.source), target=placed(edge.target)) for edge in drawn.edges],
    )
