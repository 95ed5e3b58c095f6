"""What the tests of this folder share: two tools, a thread in memory, and what came of a run."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff.models import call

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
CONTROLS = ["finish_task", "ask_user", "think"]
ACCEPTED = ("success", "finish_task")


class Bank:
    """A tool that looks and one that pays, which fails above 5; and what was paid, or tried to be."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool
        def look(at: str = "it") -> str:
            """Look."""
            return f"seen {at}"

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            if amount > 5:
                raise ValueError("too much")
            return f"paid {amount}"

        look.metadata = {"kind": "read"}
        self.look, self.pay = look, pay

    @property
    def tools(self) -> list[BaseTool]:
        return [self.look, self.pay]


def memory() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def play(agent: Any, given: Any = GO, **options: Any) -> dict[str, Any]:
    """The state after a run, on the thread if there is a saver."""
    return dict(agent.invoke(given, THREAD if agent.checkpointer else None, **options))


def ended(state: Mapping[str, Any]) -> tuple[str, str]:
    return state["outcome"]["status"], state["outcome"]["reason"]


def results(state: Mapping[str, Any], *names: str) -> list[str]:
    """The results of the calls of these tools, or of all."""
    found = [message for message in state["messages"] if message.type == "tool"]
    return [message.text for message in found if not names or message.name in names]


def texts(state: Mapping[str, Any], kind: str = "human") -> list[str]:
    return [message.text for message in state["messages"] if message.type == kind]


@contextmanager
def warned(*categories: str) -> Iterator[list[warnings.WarningMessage]]:
    """Exactly these kinds of warning are given, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    assert sorted(each.category.__name__ for each in caught) == sorted(categories)
