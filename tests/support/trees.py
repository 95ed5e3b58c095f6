"""Graphs that call graphs: what the tests of delegates build their trees of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from signoff import Graph, build_graph, delegate
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Found it.")
BLOCKED = call("finish_task", summary="No key.", outcome="blocked")
ASK = call("ask_user", question="Which one?")
DOWN = RuntimeError("down")
ONCE: Any = {"policy": {"model_retries": None}}
"""The options of a graph whose model is not asked again."""


def by_turn(*steps: Any) -> ScriptedModel:
    """Says these, one after the other, in every history anew: also when a thread goes on elsewhere."""
    return ScriptedModel(lambda messages: steps[turns_of(messages)])


def turns_of(messages: Sequence[BaseMessage]) -> int:
    """How many replies there are. A message that the machine puts before a reminder has no calls."""
    return sum(isinstance(one, AIMessage) and bool(one.tool_calls) for one in messages)


def graph_of(steps: Sequence[Any] | ScriptedModel, tools: Sequence[Any] = (), **options: Any) -> Graph:
    model = steps if isinstance(steps, ScriptedModel) else ScriptedModel(list(steps))
    return build_graph(model, tools, **options)


def helper(graph: Any, name: str = "helper", **options: Any) -> BaseTool:
    return delegate(name, graph, description="Helps.", **options)


def hand_to(*names: str, task: str = "Go.") -> list[Any]:
    """One reply that calls these delegates."""
    return [call(name, task=task) for name in names]


@dataclass
class Shop:
    """What was paid, in order."""

    paid: list[str] = field(default_factory=list)

    @property
    def pay(self) -> BaseTool:
        @tool
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return f"paid {to}"

        return pay


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


look.metadata = {"kind": "read"}


def results(values: Any, name: str = "helper") -> list[ToolMessage]:
    """The results of the calls of this tool."""
    return [one for one in values["messages"] if isinstance(one, ToolMessage) and one.name == name]
