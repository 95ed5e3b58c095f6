"""A process that was killed when a command was saved, and not yet the first step that takes it up.

LangGraph adds what the next command writes to it: two values for one channel, and nobody could read the
thread any more.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import Limits, Session, ThreadError, build_graph, delegate, go_on
from signoff.graph.build import Graph
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.ends import saved_outcome

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Died(BaseException):
    """The process is gone: no code of ours may catch this."""


class Mortal(InMemorySaver):
    """Dies, once it is told to, where it would save the next checkpoint; what was written is saved before."""

    armed, below = False, False

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.armed and (not self.below or config["configurable"]["checkpoint_ns"]):
            self.armed = False
            raise Died
        return super().put(config, checkpoint, metadata, new_versions)


def killed(end: str) -> Graph:
    """The graph of a thread that ended like this, was told to go on, and died before it had."""
    tries = 0

    def reply(_: list[BaseMessage]) -> Any:
        nonlocal tries
        tries += 1
        if tries > 1:
            return call("finish_task", summary="Done.")
        return RuntimeError("no") if end == "error" else call("think", thought="hm")

    saver = Mortal()
    graph = build_graph(
        ScriptedModel(reply),
        [],
        checkpointer=saver,
        limits=Limits(turns=1),
        policy={"model_retries": None},
    )
    ended = graph.invoke({"messages": [("user", "do it")]}, THREAD)
    assert ended["outcome"]["status"] == end
    saver.armed = True
    with pytest.raises(Died):
        graph.invoke(go_on() if end == "error" else go_on(1), THREAD)
    state = graph.get_state(THREAD)
    assert (saved_outcome(state.values), state.next) == (None, ())
    return graph


async def _in_a_loop(graph: Graph) -> Any:
    return await graph.ainvoke(go_on(), THREAD)


WAYS: dict[str, Callable[[Graph], Any]] = {
    "nothing": lambda graph: graph.invoke(None, THREAD),
    "go_on": lambda graph: graph.invoke(go_on(), THREAD),
    "go_on in a loop": lambda graph: asyncio.run(_in_a_loop(graph)),
    "a session": lambda graph: Session(graph, "t").run(),
    "the message once more": lambda graph: graph.invoke({"messages": [("user", "do it")]}, THREAD),
    "another message": lambda graph: graph.invoke({"messages": [("user", "and that")]}, THREAD),
}


@pytest.mark.parametrize("end", ["limit", "error"])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_comes_next_the_thread_goes_on(way: str, end: str) -> None:
    graph = killed(end)
    WAYS[way](graph)
    state = graph.get_state(THREAD)
    outcome = saved_outcome(state.values)
    assert outcome
    assert (outcome["status"], outcome["summary"]) == ("success", "Done.")
    ids = [message.id for message in state.values["messages"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("end", ["limit", "error"])
def test_another_command_is_refused_and_nothing_is_lost(end: str) -> None:
    graph = killed(end)
    with pytest.raises(ThreadError, match=r"'t' was killed while it applied a command; .* invoke\(None\)"):
        graph.invoke(Command(goto="compress", update={"event": "fork"}), THREAD)
    assert graph.invoke(None, THREAD)["outcome"]["status"] == "success"


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_an_agent_with_guards_goes_on(in_a_loop: bool) -> None:
    saver = Mortal()
    script = [call("think", thought="hm"), call("finish_task", summary="Done.")]
    agent = create_agent(
        ScriptedModel(script), [], middleware=[Guards(limits=Limits(turns=1))], checkpointer=saver
    )
    graph = guarded(agent)
    assert graph.invoke({"messages": [("user", "do it")]}, THREAD)["outcome"]["status"] == "limit"
    saver.armed = True
    with pytest.raises(Died):
        graph.invoke(go_on(1), THREAD)
    given: Any = go_on()
    ended = asyncio.run(graph.ainvoke(given, THREAD)) if in_a_loop else graph.invoke(given, THREAD)
    assert ended["outcome"]["status"] == "success"


def test_a_delegate_goes_on() -> None:
    script = [call("think", thought="hm"), call("finish_task", summary="Found.")]
    child = build_graph(ScriptedModel(script), [], limits=Limits(turns=1))
    clerk, saver = delegate("clerk", child, description="Looks."), Mortal()
    above = ScriptedModel([call("clerk", task="look"), call("finish_task", summary="All found.")])
    graph = build_graph(above, [clerk], checkpointer=saver, limits=Limits(turns=1))
    assert graph.invoke({"messages": [("user", "do it")]}, THREAD)["outcome"]["status"] == "limit"
    saver.armed = saver.below = True
    with pytest.raises(Died):
        graph.invoke(go_on(1), THREAD)
    ended = graph.invoke(go_on(), THREAD)
    assert ended["outcome"]["status"] == "success"
    assert any("Found." in message.text for message in ended["messages"])


@pytest.mark.parametrize("end", ["limit", "error"])
def test_it_can_be_stopped(end: str) -> None:
    graph = killed(end)
    Session(graph, "t").stop()
    Session(graph, "t").run()
    outcome = saved_outcome(graph.get_state(THREAD).values)
    assert outcome
    assert outcome["reason"] == "cancelled"
