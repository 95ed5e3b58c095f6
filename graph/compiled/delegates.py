"""Makes the tool through which a model delegates part of its task to another graph."""

import re
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from signoff.graph.arguments import describe, positive
from signoff.graph.errors import SetupError
from signoff.graph.kinds import Kind
from signoff.nodes.delegates.graphs import check_graph, has_effects, made_later, tools_below
from signoff.tools.delegates import Assignment, Delegate

# Names become part of the checkpoint namespace, where `|`, `:` and bare numbers have a meaning.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def delegate(
    name: str,
    graph: Any,
    *,
    description: str,
    parallel: int | None = None,
) -> BaseTool:
    """A tool of kind `delegate`: the model calls it with a task, and `graph` runs that task as its own.

    name: the tool's name; it starts the path of whatever the graph waits for. graph: a graph from
    `build_graph`, without storage, since it is saved in the calling graph's thread; or a function that
    returns one, so that a graph can delegate to itself. description: tells the model when to call it.
    parallel: the maximum number of its calls in one reply that run in parallel; None for all.

    The result of a call is the outcome of the graph's task. Anything but a success that claims "done" is a
    failed call. A call interrupted by a crash continues where it stopped, and no effect runs twice.

    Raises SetupError for an invalid name, for a graph that does not come from `build_graph` (an ordinary tool
    can call such a graph), and for one with its own storage or thread.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SetupError(
            f"The name of a delegate is {describe(name)}; use a letter, then letters, digits, _ and -."
        )
    if not isinstance(description, str) or not description.strip():
        raise SetupError(f"The delegate {name!r} has no description; say what it does, and when to call it.")
    later = callable(graph) and not isinstance(graph, Pregel)
    if not later:
        check_graph(name, graph)
    return Delegate(
        name=name,
        description=description,
        args_schema=Assignment,
        metadata={"kind": str(Kind.DELEGATE)},
        graph=graph,
        at_once=positive("parallel", parallel, whole=True),
        effects=True if later else has_effects(graph),
        tools=frozenset() if later else tools_below(graph),
        later=later or made_later(graph),
    )
