"""Sessions on a bench: a database and tools."""

from collections.abc import Callable
from typing import Any

from langchain_core.tools import tool

from signoff import Session, build_graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from tests.support.adapted import adapted


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
    return lambda messages: steps[sum(map(is_reply, messages))]


class Bench:
    """A database, and sessions on its threads, each of a graph of its own as after a restart."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __call__(self, *steps: Any, thread_id: str = "t", **options: Any) -> Session:
        given = {key: options.pop(key) for key in ("on_pending", "context", "config") if key in options}
        graph = build_graph(
            ScriptedModel(play(*steps)),
            options.pop("tools", [look, pay, run]),
            storage=self.storage,
            **adapted(**options),
        )
        return Session(graph, thread_id, **given)
