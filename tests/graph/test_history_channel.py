"""The reducer of the history."""

import random
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from signoff.graph.messages import HistoryChannel, append_messages


def ids(messages: list[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages]


ACCEPTED: dict[str, Any] = {
    "a message": HumanMessage("hi"),
    "a list": [HumanMessage("hi")],
    "a tuple": ("user", "hi"),
    "a dict": {"role": "user", "content": "hi"},
    "a string": "hi",
    "strings": ["hi"],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_what_add_messages_accepts(name: str) -> None:
    write = ACCEPTED[name]
    (message,) = append_messages(None, [write if not isinstance(write, tuple) else [write]])
    assert isinstance(message, HumanMessage)
    assert message.text == "hi"
    assert message.id


def test_appends_by_copy() -> None:
    before = append_messages([], ["a"])
    after = append_messages(before, ["b"])
    assert (len(before), len(after)) == (1, 2)


def test_replaces_by_id_in_place() -> None:
    merged = append_messages(
        [], [[HumanMessage("a", id="1"), HumanMessage("b", id="2")], HumanMessage("c", id="1")]
    )
    assert [message.text for message in merged] == ["c", "b"]


def test_replaces_many_in_a_long_history_at_once() -> None:
    """An imported history has as many messages to mark as the user wrote, and is not searched for each."""
    long = append_messages([], [[HumanMessage("a", id=f"{at}") for at in range(20_000)]])
    begins = time.process_time()
    merged = append_messages(long, [[HumanMessage("b", id=f"{at}") for at in range(20_000)]])
    assert time.process_time() - begins < 5
    assert ids(merged) == ids(long)
    assert {message.text for message in merged} == {"b"}


def test_replaces_what_the_same_writes_have_added_and_moved() -> None:
    write = [
        HumanMessage("a", id="1"),
        HumanMessage("b", id="2"),
        HumanMessage("B", id="2"),
        RemoveMessage(id="1"),
        HumanMessage("c", id="3"),
        HumanMessage("C", id="3"),
        HumanMessage("BB", id="2"),
    ]
    assert [(one.id, one.text) for one in append_messages([], [write])] == [("2", "BB"), ("3", "C")]


def test_removes_by_id_or_all() -> None:
    messages = append_messages([], [[HumanMessage("a", id="1"), HumanMessage("b", id="2")]])
    assert ids(append_messages(messages, [RemoveMessage(id="1")])) == ["2"]
    assert ids(
        append_messages(messages, [[RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("c", id="3")]])
    ) == ["3"]
    assert append_messages(messages, [RemoveMessage(id="9")]) == messages


def test_a_chunk_becomes_a_message() -> None:
    (message,) = append_messages([], [AIMessageChunk(content="x", id="1")])
    assert type(message) is AIMessage


def test_the_same_text_twice_is_two_messages() -> None:
    assert len(set(ids(append_messages([], ["hi", "hi"])))) == 2


def test_ids_are_the_same_in_a_replay() -> None:
    writes = ["a", ("user", "b"), ["c", "c"]]
    assert ids(append_messages([], writes)) == ids(append_messages([], writes))


def write_of(rng: random.Random, known: list[str]) -> Any:
    kind = rng.randrange(5)
    if kind == 0 and known:
        return RemoveMessage(id=known.pop(rng.randrange(len(known))))
    if kind == 1 and known:
        return HumanMessage(f"again {rng.random()}", id=rng.choice(known))
    if kind == 2:
        return [rng.choice(["x", "y"]), ("assistant", rng.choice(["x", "y"]))]
    fresh = [HumanMessage(str(i), id=f"{rng.random()}") for i in range(rng.randrange(1, 4))]
    known += [message.id or "" for message in fresh]
    return fresh


@pytest.mark.parametrize("seed", range(200))
def test_batching_changes_nothing(seed: int) -> None:
    rng, known = random.Random(seed), list[str]()
    writes = [write_of(rng, known) for _ in range(rng.randrange(1, 12))]
    whole = append_messages([], writes)
    parts: list[BaseMessage] = []
    rest = list(writes)
    while rest:
        size = rng.randrange(1, len(rest) + 1)
        parts, rest = append_messages(parts, rest[:size]), rest[size:]
    assert [(m.id, m.text) for m in parts] == [(m.id, m.text) for m in whole]


def test_full_copies_stay_in_proportion_to_the_history() -> None:
    history: HistoryChannel = HistoryChannel(append_messages, snapshot_frequency=10).from_checkpoint([])
    copied, since, updates = list[int](), 0, 1_000
    for number in range(updates):
        history.update([AIMessage(f"{number}")])
        since += 1
        if since >= history.snapshot_frequency:
            copied.append(len(history.get()))
            since = 0
    assert copied[:4] == [10, 20, 30, 44]
    assert sum(copied) < 3 * updates, "at a fixed distance it is fifty times as much as there is"
    assert history.copy().snapshot_frequency == history.snapshot_frequency
