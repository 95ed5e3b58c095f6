"""The thread that runs without private names: `begin` is killed in its last effect, `go_on` resumes it."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from pydantic import PrivateAttr

from signoff import Graph, Session, build_graph, sqlite_storage
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

    @property
    def asked(self) -> int:
        return self._asked

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
            file.write(what + "\n")
        return what

    def pay(amount: int) -> str:
        """Pay."""
        return note(f"paid {amount}")

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
    with graph(folder) as (made, model):
        context: Any = {"turns": 20}
        state: Any = made.invoke({"messages": [("user", "go")]}, THREAD, context=context)
        asked = []
        while "__interrupt__" in state:
            waits = [one.value for one in state["__interrupt__"]]
            asked.append(repr(waits))
            note = f"{asked}\n{model.asked}"
            (folder / "asked").write_text(note)
            approval = "action_requests" in repr(waits)
            answer = {"decisions": [{"type": "approve"}]} if approval else f"answer {len(asked)}"
            state = made.invoke(Command(resume=answer), THREAD, context=context)


async def go_on(folder: Path) -> dict[str, Any]:
    """How the thread ends, and all that was seen on the way."""
    with graph(folder) as (made, model):
        end = await made.ainvoke(None, THREAD)
        again = Session(made, "t").step()
        return {
            "outcome": {key: end["outcome"][key] for key in ("status", "summary", "turns", "tool_calls")},
            "messages": [told(message) for message in end["messages"]],
            "asked": (folder / "asked").read_text(),
            "effects": (folder / "effects").read_text().split(),
            "model": [model.asked, len(model.seen)],
            "again": type(again).__name__,
            "lean": type(made.nodes["decide"]).__name__ == "Lean",
            "plain": "add" in made.nodes["decide"].bound.deps.plain,  # type: ignore[attr-defined]  # a Node
        }


def told(message: BaseMessage) -> list[Any]:
    calls = [one["name"] for one in message.tool_calls] if isinstance(message, AIMessage) else []
    return [message.type, message.text, calls, getattr(message, "status", "")]
