"""What code around a run and inside it sees of LangGraph: steps, callbacks, runtime, messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphRecursionError

from signoff import Graph, Session, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import THREAD

GO: Any = {"messages": [("user", "look")]}
FINISH = call("finish_task", summary="Seen.")
LOOKS = 12


# A caller's own limit of LangGraph's steps: it raises, the state is kept, and the thread goes on.


class Looking:
    """A graph whose model looks twelve times."""

    def __init__(self, folder: Path) -> None:
        self.looked: list[int] = []
        self.graph = build_graph(ScriptedModel(self.step), [self.look], storage=folder / "threads.sqlite")

    def step(self, messages: list[BaseMessage]) -> Any:
        turns = sum(isinstance(message, AIMessage) for message in messages)
        return call("look", n=turns) if turns < LOOKS else FINISH

    def look(self, n: int) -> str:
        """Look."""
        self.looked.append(n)
        return str(n)


WAYS: dict[str, Callable[[Graph, Any], Any]] = {
    "invoke": lambda graph, config: graph.invoke(GO, config),
    "stream": lambda graph, config: list(graph.stream(GO, config)),
    "batch": lambda graph, config: graph.batch([GO], config),
    "Session": lambda graph, config: Session(graph, "t", config=config).run("look"),
    "bound": lambda graph, config: graph.with_config(config).invoke(GO, THREAD),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_of_steps_raises_and_the_thread_goes_on(way: str, tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    thread = {} if way == "Session" else THREAD
    with pytest.raises(GraphRecursionError):
        WAYS[way](looking.graph, {"recursion_limit": 6} | thread)
    state = looking.graph.get_state(THREAD)
    assert (state.values["messages"][0].text, bool(state.next)) == ("look", True)
    with pytest.raises(GraphRecursionError):
        looking.graph.invoke(go_on(), THREAD | {"recursion_limit": 6})
    assert outcome_of(looking.graph.invoke(go_on(), THREAD)).status == "success"
    assert looking.looked == list(range(LOOKS))
    looking.graph.close()


@pytest.mark.parametrize("way", WAYS)
def test_langchain_s_own_default_counts_as_not_given_unless_it_is_bound(way: str, tmp_path: Path) -> None:
    """`batch` and chains fill it in, so that nobody can tell it from a caller's own."""
    looking = Looking(tmp_path)
    limited = {"recursion_limit": 25} | ({} if way == "Session" else THREAD)
    if way == "bound":
        with pytest.raises(GraphRecursionError):
            WAYS[way](looking.graph, limited)
    else:
        WAYS[way](looking.graph, limited)
        assert looking.looked == list(range(LOOKS))
    looking.graph.close()


# Callbacks.


class Ear(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.heard.append(kwargs.get("name", ""))


@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "somebody listens"])
def test_a_runnable_within_a_tool_runs_under_its_own_name(listens: bool) -> None:
    inner, outer = Ear(), Ear()

    def look() -> str:
        """Look."""
        step = RunnableLambda(lambda text: text, name="step").with_config(callbacks=[inner])
        return str(step.invoke("seen"))

    config: Any = {"callbacks": [outer]} if listens else {}
    result = build_graph(ScriptedModel([call("look"), FINISH]), [look]).invoke(GO, config)
    assert outcome_of(result).status == "success"
    assert inner.heard == ["step"]
    assert ({"decide", "call_llm", "execute"} <= set(outer.heard)) is listens


# The runtime.


# Messages, and what `invoke` gives back.


def test_a_message_that_is_loaded_is_complete_and_can_be_copied(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    returned = looking.graph.invoke(GO, THREAD)["messages"]
    loaded = looking.graph.get_state(THREAD).values["messages"]
    assert [message.model_dump() for message in loaded] == [message.model_dump() for message in returned]
    for message in loaded:
        assert message.model_dump(exclude_unset=True) == message.model_dump()
        assert message.model_copy(update={"content": "new"}).content == "new" != message.content
    looking.graph.close()


def test_invoke_gives_the_keys_that_are_asked_for() -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH]))
    assert set(graph.invoke(GO, output_keys=["outcome"])) == {"outcome"}
    assert graph.invoke(GO, output_keys="outcome")["status"] == "success"
