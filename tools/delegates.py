"""The tool through which a model delegates part of its task to another graph.

It only contains data: `nodes/delegates/` runs the graph, in the thread of the calling graph.
"""

from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, field_validator

from signoff.graph.errors import SetupError


class Assignment(BaseModel):
    """The arguments of a delegate."""

    task: str = Field(
        min_length=1,
        description="The task, with all that is needed for it: nothing of this conversation is known to "
        "whoever gets it.",
    )

    @field_validator("task")
    @classmethod
    def _says_something(cls, task: str) -> str:
        if not task.strip():
            raise ValueError("it says nothing; write what there is to do")
        return task


GIVEN = frozenset(Assignment.model_fields)
"""The names of a delegate's arguments, which every call of one has; further arguments are ignored."""


class Delegate(BaseTool):
    """A tool whose calls another graph answers.

    graph: compiled, or a function that returns it. at_once: how many of its calls in one reply run in
    parallel; None for all. effects: whether anything below it may change something. tools: the names of the
    tools that may be called below it, as far as known when it is created. later: whether its graph, or one
    below it, is made by a function, so that not all tools are known.
    """

    graph: Any = Field(exclude=True, repr=False)
    at_once: int | None = None
    effects: bool = True
    tools: frozenset[str] = frozenset()
    later: bool = False

    def _run(self, *_: Any, **__: Any) -> Any:
        raise SetupError(
            f"{self.name} is a delegate, which only a graph of build_graph can run; pass it there in tools=."
        )
