"""A thread that `begin` runs until it is killed in its last effect, and that `go_on` ends: a tool that is
given its runtime, two reads that ask, an approval."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from pydantic import PrivateAttr

from signoff import Graph, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
SCRIPT: list[Any] = [
    [call("look", what="left", messages=["forged"]), call("look", what="right"), call("add", a=1, b=2)],
    [call("ask", what="one"), call("ask", what="two")],
    call("pay", amount=5),
    call("blow"),
    # It is questioned, since the outcome of the last call is unknown.
    call("finish_task", summary="Done."),
    [call("finish_task", summary="Done."), "and more that is never read"],
]


class Counting(ScriptedModel):
    """Counts in private how often it was asked."""

    _asked: int = PrivateAttr(default=0)

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._asked += 1
        return super()._stream(*args, **kwargs)

    def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self._asked += 1
        return super()._astream(*args, **kwargs)


def step(messages: list[BaseMessage]) -> Any:
    return SCRIPT[sum(message.type == "ai" for message in messages)]


@tool
def look(
    what: str,
    runtime: ToolRuntime[Any, Any],
    messages: Annotated[list[Any], InjectedState("messages")],
    store: Annotated[BaseStore, InjectedStore()],
) -> str:
    """Look at something."""
    return f"{what} {runtime.tool_call_id} {len(messages)} {runtime.context.turns} {store is runtime.store}"


@tool
def ask(what: str) -> str:
    """Ask a person, by an interrupt of its own."""
    return f"{what}: {interrupt(what)}"


look.metadata = ask.metadata = {"kind": "read"}


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@contextmanager
def graph(folder: Path) -> Iterator[tuple[Graph[Any], Counting]]:
    def note(what: str) -> str:
        with (folder / "effects").open("a") as file:
            file.write(f"{what} ")
        return what

    def pay(amount: int) -> str:
        """Pay."""
        return note(f"paid-{amount}")

    def blow() -> str:
        """End the process."""
        note("blown")
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    model = Counting(step)  # type: ignore[call-arg]  # pydantic's plugin does not see the one of ScriptedModel
    with sqlite_storage(folder / "threads.sqlite") as storage:
        tools: list[Any] = [look, ask, add, pay, blow]
        yield build_graph(model, tools, storage=storage, approvals={"pay": True}), model


def begin(folder: Path) -> None:
    with graph(folder) as (made, _):
        given: Any = {"messages": [("user", "go")]}
        for answer in (None, "red", "blue", "approve"):
            made.invoke(Command(resume=answer) if answer else given, THREAD, context={"turns": 20})


async def go_on(folder: Path) -> list[Any]:
    """How the thread ends, and all that was seen on the way."""
    with graph(folder) as (made, model):
        end = await made.ainvoke(None, THREAD)
        said = [(message.type, message.text, getattr(message, "status", "")) for message in end["messages"]]
        outcome = [end["outcome"][name] for name in ("status", "summary", "turns", "tool_calls")]
        return [outcome, said, (folder / "effects").read_text(), model._asked, len(model.seen)]
