"""Sessions on a bench: a database and tools."""

from collections.abc import Callable
from typing import Any

from langchain_core.tools import tool

from signoff import Session, build_graph
from signoff.models import ScriptedModel, call


@tool
def look(where: str) -> str:
    """Look."""
    return f"nothing in {where}"


look.metadata = {"kind": "read"}


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def run(command: str) -> str:
    """Run."""
    raise AssertionError("the driver runs it")


run.metadata = {"kind": "terminal"}
DONE = call("finish_task", summary="Done.")


def play(*steps: Any) -> Callable[[list[Any]], Any]:
    """The step after as many replies as the history holds: it also serves a thread that goes on elsewhere."""

    def step(messages: list[Any]) -> Any:
        # A message that the machine puts before a reminder is of no model.
        return steps[sum("model_name" in message.response_metadata for message in messages)]

    return step


class Bench:
    """A database, and sessions on its threads, each of a graph of its own as after a restart."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __call__(self, *steps: Any, thread_id: str = "t", **options: Any) -> Session:
        given = {key: options.pop(key) for key in ("on_pending", "context", "config") if key in options}
        tools = options.pop("tools", [look, pay, run])
        graph = build_graph(ScriptedModel(play(*steps)), tools, storage=self.storage, **options)
        return Session(graph, thread_id, **given)
