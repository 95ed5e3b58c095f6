"""How writes merge into the history: what is accepted, replaced and removed, in whatever batches it comes."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from signoff import Graph, Storage, build_graph, outcome_of, postgres_storage, sqlite_storage
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="x")


def begun() -> Graph:
    return build_graph(ScriptedModel([FINISH]), checkpointer=InMemorySaver())


def history(*writes: Any, graph: Graph | None = None) -> list[BaseMessage]:
    """The messages of a thread after these writes, one after the other."""
    thread = graph or begun()
    for write in writes:
        thread.update_state(THREAD, {"messages": write}, as_node="compress")
    messages: list[BaseMessage] = thread.get_state(THREAD).values["messages"]
    return messages


def told(messages: list[BaseMessage]) -> list[tuple[str | None, str]]:
    return [(message.id, message.text) for message in messages]


ACCEPTED: dict[str, Any] = {
    "a message": HumanMessage("hi"),
    "a list": [HumanMessage("hi")],
    "a pair in a list": [("user", "hi")],
    "a mapping": {"role": "user", "content": "hi"},
    "a text": "hi",
    "texts": ["hi"],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_langgraph_accepts_is_a_message(name: str) -> None:
    (message,) = history(ACCEPTED[name])
    assert isinstance(message, HumanMessage)
    assert (message.text, bool(message.id)) == ("hi", True)


A, B, C = (HumanMessage(text, id=number) for text, number in (("a", "1"), ("b", "2"), ("c", "3")))
MERGED: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "one after the other": ([A, B], [("1", "a"), ("2", "b")]),
    "the same id replaces in place": ([[A, B], HumanMessage("A", id="1")], [("1", "A"), ("2", "b")]),
    "what the same write has added and moved": (
        [[A, B, HumanMessage("B", id="2"), RemoveMessage(id="1"), C, HumanMessage("BB", id="2")]],
        [("2", "BB"), ("3", "c")],
    ),
    "one is removed": ([[A, B], RemoveMessage(id="1")], [("2", "b")]),
    "all are removed": ([[A, B], [RemoveMessage(id=REMOVE_ALL_MESSAGES), C]], [("3", "c")]),
    "one that is not there is removed": ([A, RemoveMessage(id="9")], [("1", "a")]),
}


@pytest.mark.parametrize("name", MERGED)
def test_how_writes_merge(name: str) -> None:
    writes, merged = MERGED[name]
    assert told(history(*writes)) == merged


def test_a_chunk_becomes_a_message() -> None:
    assert type(history("go", AIMessageChunk(content="x", id="1"))[-1]) is AIMessage


def test_the_same_text_twice_is_two_messages() -> None:
    assert len({message.id for message in history(["hi", "hi"])}) == 2


def test_a_long_history_is_replaced_at_once() -> None:
    """An imported history has as many messages to mark as the user wrote, and is not searched for each."""
    long = [HumanMessage("a", id=f"{at}") for at in range(10_000)]
    merged = history(long, [HumanMessage("b", id=f"{at}") for at in range(10_000)])
    assert [message.id for message in merged] == [message.id for message in long]
    assert {message.text for message in merged} == {"b"}


def write_of(draw: random.Random, known: list[str]) -> Any:
    kind = draw.randrange(4)
    if kind == 0 and known:
        return RemoveMessage(id=known.pop(draw.randrange(len(known))))
    if kind == 1 and known:
        return HumanMessage(f"again {draw.random()}", id=draw.choice(known))
    fresh = [HumanMessage(str(at), id=f"{draw.random()}") for at in range(draw.randrange(1, 4))]
    known += [message.id or "" for message in fresh]
    return fresh


@pytest.mark.parametrize("seed", range(20))
def test_batching_changes_nothing(seed: int) -> None:
    draw, known = random.Random(seed), list[str]()
    writes = [write_of(draw, known) for _ in range(draw.randrange(2, 12))]
    flat = [each for write in writes for each in (write if isinstance(write, list) else [write])]
    assert told(history(*writes)) == told(history(flat))


# Ids from outside.
OPENS: dict[str, Callable[[Path, str], Storage]] = {
    "sqlite": lambda folder, _: sqlite_storage(folder / "threads.sqlite"),
    "postgres": lambda _, url: postgres_storage(url),
}


@pytest.mark.parametrize("message_id", ["a\0b", "a\ud800b", "\udc00"], ids=["NUL", "half", "the other half"])
@pytest.mark.parametrize("database", OPENS)
def test_an_id_that_is_no_valid_text_is_made_one(
    message_id: str, database: str, tmp_path: Path, postgres_url: str
) -> None:
    with OPENS[database](tmp_path, postgres_url) as storage:
        graph = build_graph(ScriptedModel([FINISH]), storage=storage)
        result = graph.invoke({"messages": [HumanMessage("go", id=message_id)]}, THREAD)
    assert outcome_of(result).status == "success"
    assert result["messages"][0].id == message_id.translate(dict.fromkeys(map(ord, "\0\ud800\udc00"), "�"))
