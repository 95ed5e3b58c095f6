"""The tool by which a model gives a part of its task to another graph.

What it holds is data: the graph runs in `nodes/delegates/`, in the thread of whoever calls it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from signoff.graph.errors import SetupError


class Assignment(BaseModel):
    """What a delegate is given."""

    task: str = Field(
        min_length=1,
        description="The task, with all that is needed for it: nothing of this conversation is known to "
        "whoever gets it.",
    )


GIVEN = frozenset(Assignment.model_fields)
"""The names of a delegate's arguments, which every call of one has; it passes over others."""


class Delegate(BaseTool):
    """A tool whose calls another graph answers.

    graph: compiled, or a function that returns it. at_once: how many of its calls in one reply run beside
    each other; None for all. effects: whether something below it may change something. tools: the names of
    what may be called below it, as far as that is known when it is made. later: whether
    its graph, or one below it, is made by a function, so that not all of them are known. read: what makes an
    outcome of the last values of a graph that is not Signoff's; None for one that is.
    """

    graph: Any = Field(exclude=True, repr=False)
    at_once: int | None = None
    effects: bool = True
    tools: frozenset[str] = frozenset()
    later: bool = False
    read: Callable[[Mapping[str, Any]], Any] | None = Field(default=None, exclude=True, repr=False)

    def _run(self, *_: Any, **__: Any) -> Any:
        raise SetupError(
            f"{self.name} is a delegate, which only a graph of build_graph can run; pass it there in tools=."
        )
