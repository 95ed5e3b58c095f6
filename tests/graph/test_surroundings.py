"""What code around a run and inside it sees of LangGraph: steps, callbacks, runtime, messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph.message import REMOVE_ALL_MESSAGES

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


def test_a_runnable_within_a_tool_runs_under_its_own_name() -> None:
    inner, outer = Ear(), Ear()

    def look() -> str:
        """Look."""
        step = RunnableLambda(lambda text: text, name="step").with_config(callbacks=[inner])
        return str(step.invoke("seen"))

    graph = build_graph(ScriptedModel([call("look"), FINISH]), [look])
    assert outcome_of(graph.invoke(GO, {"callbacks": [outer]})).status == "success"
    assert inner.heard == ["step"]
    assert {"decide", "call_llm", "execute"} <= set(outer.heard)


# Messages: how writes merge, their ids, and what `invoke` gives back.


A, B, C = (HumanMessage(text, id=number) for text, number in (("a", "1"), ("b", "2"), ("c", "3")))
MERGED: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "the same id replaces in place": ([[A, B], HumanMessage("A", id="1")], [("1", "A"), ("2", "b")]),
    "what the same write has added and moved": (
        [[A, B, HumanMessage("B", id="2"), RemoveMessage(id="1"), C, HumanMessage("BB", id="2")]],
        [("2", "BB"), ("3", "c")],
    ),
    "all are removed": ([[A, B], [RemoveMessage(id=REMOVE_ALL_MESSAGES), C]], [("3", "c")]),
    "one that is not there is removed": ([A, RemoveMessage(id="9")], [("1", "a")]),
}


@pytest.mark.parametrize(("writes", "merged"), MERGED.values(), ids=MERGED)
def test_how_writes_merge(writes: list[Any], merged: list[tuple[str, str]]) -> None:
    graph = build_graph(ScriptedModel([]), checkpointer=InMemorySaver())
    for write in writes:
        graph.update_state(THREAD, {"messages": write}, as_node="compress")
    messages = graph.get_state(THREAD).values["messages"]
    assert [(message.id, message.text) for message in messages] == merged


def test_an_id_that_is_no_valid_text_is_made_one(tmp_path: Path, postgres_url: str) -> None:
    for address in (str(tmp_path / "threads.sqlite"), postgres_url):
        with build_graph(ScriptedModel([FINISH]), storage=address) as graph:
            result = graph.invoke({"messages": [HumanMessage("go", id="a\0\ud800b")]}, THREAD)
        assert outcome_of(result).status == "success"
        assert result["messages"][0].id == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"


def test_a_message_that_is_loaded_is_complete_and_can_be_copied(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    returned = looking.graph.invoke(GO, THREAD)["messages"]
    loaded = looking.graph.get_state(THREAD).values["messages"]
    assert [message.model_dump(exclude_unset=True) for message in loaded] == [
        message.model_dump() for message in returned
    ]
    assert loaded[0].model_copy(update={"content": "new"}).content == "new" != loaded[0].content
    looking.graph.close()


def test_invoke_gives_the_keys_that_are_asked_for() -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH]))
    assert set(graph.invoke(GO, output_keys=["outcome"])) == {"outcome"}
    assert graph.invoke(GO, output_keys="outcome")["status"] == "success"
