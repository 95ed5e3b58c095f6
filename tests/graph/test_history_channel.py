"""How writes merge into the history: what is accepted, replaced and removed, in whatever batches it comes."""

import random
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from signoff import build_graph, outcome_of, postgres_storage, sqlite_storage
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="x")


def history(*writes: Any) -> list[BaseMessage]:
    """The messages of a thread after these writes, one after the other."""
    thread = build_graph(ScriptedModel([]), checkpointer=InMemorySaver())
    for write in writes:
        thread.update_state(THREAD, {"messages": write}, as_node="compress")
    messages: list[BaseMessage] = thread.get_state(THREAD).values["messages"]
    return messages


def told(messages: list[BaseMessage]) -> list[tuple[str | None, str]]:
    return [(message.id, message.text) for message in messages]


A, B, C = (HumanMessage(text, id=number) for text, number in (("a", "1"), ("b", "2"), ("c", "3")))
MERGED: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "the same id replaces in place": ([[A, B], HumanMessage("A", id="1")], [("1", "A"), ("2", "b")]),
    "what the same write has added and moved": (
        [[A, B, HumanMessage("B", id="2"), RemoveMessage(id="1"), C, HumanMessage("BB", id="2")]],
        [("2", "BB"), ("3", "c")],
    ),
    "one is removed": ([[A, B], RemoveMessage(id="1")], [("2", "b")]),
    "all are removed": ([[A, B], [RemoveMessage(id=REMOVE_ALL_MESSAGES), C]], [("3", "c")]),
    "one that is not there is removed": ([A, RemoveMessage(id="9")], [("1", "a")]),
}


@pytest.mark.parametrize(("writes", "merged"), MERGED.values(), ids=MERGED)
def test_how_writes_merge(writes: list[Any], merged: list[tuple[str, str]]) -> None:
    assert told(history(*writes)) == merged


def test_a_chunk_becomes_a_message() -> None:
    assert type(history("go", AIMessageChunk(content="x", id="1"))[-1]) is AIMessage


def write_of(draw: random.Random, known: list[str]) -> Any:
    kind = draw.randrange(4)
    if kind == 0 and known:
        return RemoveMessage(id=known.pop(draw.randrange(len(known))))
    if kind == 1 and known:
        return HumanMessage(f"again {draw.random()}", id=draw.choice(known))
    fresh = [HumanMessage(str(at), id=f"{draw.random()}") for at in range(draw.randrange(1, 4))]
    known += [message.id or "" for message in fresh]
    return fresh


@pytest.mark.parametrize("seed", range(5))
def test_batching_changes_nothing(seed: int) -> None:
    draw, known = random.Random(seed), list[str]()
    writes = [write_of(draw, known) for _ in range(draw.randrange(2, 12))]
    flat = [each for write in writes for each in (write if isinstance(write, list) else [write])]
    assert told(history(*writes)) == told(history(flat))


@pytest.mark.parametrize("message_id", ["a\0b", "a\ud800b"], ids=["NUL", "half a character"])
def test_an_id_that_is_no_valid_text_is_made_one(message_id: str, tmp_path: Path, postgres_url: str) -> None:
    for storage in (sqlite_storage(tmp_path / "threads.sqlite"), postgres_storage(postgres_url)):
        with storage:
            graph = build_graph(ScriptedModel([FINISH]), storage=storage)
            result = graph.invoke({"messages": [HumanMessage("go", id=message_id)]}, THREAD)
        assert outcome_of(result).status == "success"
        assert result["messages"][0].id == "a\N{REPLACEMENT CHARACTER}b"
