"""The channels' version strings: a server makes its own kind, and a thread must hold one kind only."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.server import ServerSaver, narrow, wide
from signoff.storage import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
OURS = "AC0a1B2c"
THEIRS = "00000000000000000000000000000012.0.8444218515250481"


@pytest.mark.parametrize("version", [OURS, "AC"])
def test_our_strings_come_back_as_they_were(version: str) -> None:
    assert int(wide(version).partition(".")[0]) == 12
    assert narrow(wide(version)) == version


def test_theirs_come_back_as_the_same_number() -> None:
    assert wide(narrow(THEIRS)).partition(".")[0] == THEIRS.partition(".")[0]
    assert len(narrow(THEIRS)) == len(OURS)


def test_equal_stays_equal_and_the_forks_of_one_number_stay_apart() -> None:
    chance = random.Random(1)
    forks = [f"{5:032}.{chance.random():.16f}" for _ in range(1_000)]
    assert len({narrow(fork) for fork in forks}) == len(forks)
    assert [narrow(fork) for fork in forks] == [narrow(fork) for fork in forks]


def test_order_is_by_number_in_either_kind() -> None:
    chance = random.Random(2)
    numbers = [1, 9, 10, 99, 100, 123_456, 9_999_999_999]
    theirs = [f"{number:032}.{chance.random():.16f}" for number in numbers]
    ours = [narrow(version) for version in theirs]
    assert ours == sorted(ours)
    assert [wide(version) for version in ours] == sorted(wide(version) for version in ours)


class Wrapper(ServerSaver):
    """Makes new versions as the server's own wrapper does."""

    def get_next_version(self, current: str | None, channel: None) -> str:
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{random.random():.16f}"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def graph_on(saver: BaseCheckpointSaver[Any], storage: SqliteStorage) -> Graph:
    def script(messages: list[Any]) -> Any:
        turn = sum(map(is_reply, messages))
        return call("ask_user", question="And?") if turn % 5 else call("finish_task", summary=f"{turn}")

    return build_graph(ScriptedModel(script), checkpointer=saver, store=storage.store)


@pytest.mark.slow
@pytest.mark.parametrize("server_begins", [True, False])
@pytest.mark.thorough
async def test_a_thread_goes_on_by_turns_in_the_server_and_here(
    storage: SqliteStorage, server_begins: bool
) -> None:
    here, there = graph_on(storage.checkpointer, storage), graph_on(Wrapper(storage), storage)
    for at in range(25):
        graph = there if (at % 2 == 0) == server_begins else here
        state = await graph.aget_state(THREAD)
        waiting = state.interrupts
        given: Any = Command(resume={waiting[0].id: "go on"}) if waiting else {"messages": [("user", "go")]}
        result = await graph.ainvoke(given, THREAD)
        assert result, f"step {at} was lost"
        assert ("__interrupt__" in result) != bool(result["outcome"]), f"step {at} stopped half-way"
    found = [saved async for saved in storage.checkpointer.alist(THREAD)]
    widths = {
        len(str(version)) for saved in found for version in saved.checkpoint["channel_versions"].values()
    }
    # A file keeps no mark of forks; what the server made has one.
    assert max(widths) <= len(OURS) + 1


async def test_a_history_is_the_same_from_either_side(storage: SqliteStorage) -> None:
    here, there = graph_on(storage.checkpointer, storage), graph_on(Wrapper(storage), storage)
    await there.ainvoke({"messages": [("user", "go")]}, THREAD)
    mine = [state.values async for state in here.aget_state_history(THREAD)]
    assert mine == [state.values async for state in there.aget_state_history(THREAD)]
