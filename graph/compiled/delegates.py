"""Makes the tool by which a model gives a part of its task to another graph."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from signoff.graph.compiled.settings import describe, positive
from signoff.graph.errors import SetupError
from signoff.graph.kinds import Kind
from signoff.nodes.delegates.graphs import check_graph, has_effects, made_later, tools_below
from signoff.tools.delegates import Assignment, Delegate

# It stands in the namespace of checkpoints, where `|` and `:` mean something, and numbers alone as well.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def delegate(
    name: str,
    graph: Any,
    *,
    description: str,
    parallel: int | None = None,
    read: Callable[[Mapping[str, Any]], Any] | None = None,
) -> BaseTool:
    """A tool of kind `delegate`: the model calls it with a task, which `graph` works on in its own way.

    name: of the tool; it begins the path of what the graph waits for. graph: what `build_graph` returned,
    without storage, since it is kept in the thread of the graph that calls it; or a function that returns it,
    so that a graph may delegate to itself. description: for the model, when to call it. parallel: how many of
    its calls in one reply run beside each other at most; None for all. read: for a compiled graph that
    `build_graph` has not made: a function of its last values that returns text, or an `Outcome`.

    The result of a call is the outcome of the graph's task. Anything but a success that claims "done" is a
    failed call. A call that a crash cut short goes on where it stood, and no effect of a graph of Signoff's
    runs twice. Of any other graph neither can be promised: LangGraph runs the node again in which it was
    killed, what it uses is not counted, and no limit but its own number of steps holds in it.

    Raises SetupError for a name that is none, and for a graph with storage or a thread of its own.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SetupError(
            f"The name of a delegate is {describe(name)}; begin with a letter, then letters, digits, _ and -."
        )
    if not isinstance(description, str) or not description.strip():
        raise SetupError(f"The delegate {name!r} has no description; say what it does, and when to call it.")
    later = callable(graph) and not isinstance(graph, Pregel)
    if not later:
        check_graph(name, graph, read)
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
        read=read,
    )
