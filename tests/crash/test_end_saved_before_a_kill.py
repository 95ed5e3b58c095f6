"""A process that was killed when its task had ended and the checkpoint of that end was not yet saved.

Whatever comes next, the end stays in the history.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from signoff import Limits, Session, build_graph, go_on
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from tests.support.ends import saved_outcome

THREAD: Any = {"configurable": {"thread_id": "t"}}
NEXT = {"messages": [("user", "second")]}


class Died(BaseException):
    """The process is gone: no code of ours may catch this."""


class Mortal(InMemorySaver):
    """Dies where it would save the checkpoint of an end; what the last step wrote is saved before."""

    armed = True

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.armed and checkpoint["channel_values"].get("outcome"):
            self.armed = False
            raise Died
        return super().put(config, checkpoint, metadata, new_versions)


def reply(messages: list[BaseMessage]) -> Any:
    """The second task, and what goes on, ends at once; the first one as its words say."""
    asked = [message.text for message in messages if isinstance(message, HumanMessage)]
    if asked[-1] == "first: error":
        raise ConnectionError("no network")
    return (
        call("think", thought="hm") if asked[-1] == "first: limit" else call("finish_task", summary="Done.")
    )


def thread_of(end: str) -> Graph:
    """The graph of a thread whose process died at such an end."""
    made = build_graph(
        ScriptedModel(reply),
        [],
        checkpointer=Mortal(),
        limits=Limits(turns=1),
        policy={"model_retries": None},
    )
    with pytest.raises(Died):
        made.invoke({"messages": [("user", f"first: {end}")]}, THREAD)
    state = made.get_state(THREAD)
    outcome = saved_outcome(state.values)
    assert (outcome and outcome["status"], state.next) == (end, ())
    return made


def values(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = graph.get_state(THREAD).values
    return found


WAYS: dict[str, tuple[str, Callable[[Graph], Any]]] = {
    "a message": ("success", lambda graph: graph.invoke(NEXT, THREAD)),
    "a message, async": ("success", lambda graph: asyncio.run(graph.ainvoke(NEXT, THREAD))),
    "a message by stream": ("limit", lambda graph: list(graph.stream(NEXT, THREAD))),
    "a message by Session": ("error", lambda graph: Session(graph, "t").run("second")),
    "more turns": ("limit", lambda graph: graph.invoke(go_on(turns=3), THREAD)),
    "another try": ("error", lambda graph: graph.invoke(go_on(), THREAD)),
    "another try, async": ("error", lambda graph: asyncio.run(graph.ainvoke(go_on(), THREAD))),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_end_stays_in_the_history_whatever_comes_next(way: str) -> None:
    end, go = WAYS[way]
    graph = thread_of(end)
    before = values(graph)["messages"]
    go(graph)
    after = values(graph)
    assert [message.id for message in after["messages"][: len(before)]] == [message.id for message in before]
    assert (after["outcome"]["status"], len(after["messages"]) > len(before)) == ("success", True)


def test_nothing_else_runs_than_what_was_asked_for() -> None:
    graph = thread_of("success")
    graph.invoke(NEXT, THREAD)
    states = [message.text for message in values(graph)["messages"] if message.type == "human"]
    assert states == ["first: success", "second"]


def test_a_change_of_the_state_keeps_the_end_too() -> None:
    graph = thread_of("success")
    before = values(graph)["messages"]
    graph.update_state(THREAD, {"stop": ""}, as_node="compress")
    assert [message.id for message in values(graph)["messages"]] == [message.id for message in before]
