"""Sessions on a bench: a database, tools, and both ways of every method."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import tool

from signoff import (
    Decision,
    Session,
    build_graph,
)
from signoff.graph.messages import is_reply
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
            **options,
        )
        return Session(graph, thread_id, **given)


class Sync:
    """The methods of a session, for tests that go through both ways."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def step(self, command: Any = None) -> Decision:
        return self.session.step(command)

    async def run(self, command: Any = None) -> Decision:
        return self.session.run(command)

    async def resume(self, answer: Any) -> Decision:
        return self.session.resume(answer)

    async def events(self, command: Any = None, **options: Any) -> list[Any]:
        return list(self.session.events(command, **options))


class Async(Sync):
    async def step(self, command: Any = None) -> Decision:
        return await self.session.astep(command)

    async def run(self, command: Any = None) -> Decision:
        return await self.session.arun(command)

    async def resume(self, answer: Any) -> Decision:
        return await self.session.aresume(answer)

    async def events(self, command: Any = None, **options: Any) -> list[Any]:
        return [event async for event in self.session.aevents(command, **options)]


ways = pytest.mark.parametrize("way", [Sync, Async])


def kinds(decisions: list[Decision]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]
