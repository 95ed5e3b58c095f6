"""A thread in a state of another version: it is refused and left alone, and a new message is understood."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import Graph, Storage, ThreadError, build_graph, go_on, outcome_of, sqlite_storage, stop, undo
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from tests.support.plays import ASK, FINISH, GO, THREAD

OTHER = "as_it_is_called_there"


# What the model replies first, and the state in which the thread then stands.
CASES: dict[str, tuple[Any, str]] = {
    "a question": (ASK, "ask_user"),
    "work that has not begun": (call("work"), "execute"),
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def work() -> str:
    """Work."""
    return "worked"


def begun(name: str, storage: Storage) -> tuple[Graph, Any]:
    """A graph, and the checkpoint of its thread, which stands in the state of this case."""
    first, state = CASES[name]
    model = ScriptedModel([first, FINISH, FINISH])
    graph = build_graph(model, [work], storage=storage)
    graph.invoke(GO, THREAD, interrupt_before=["execute"])
    assert graph.get_state(THREAD).next == (state,)
    return graph, storage.checkpointer.get_tuple(THREAD)


def elsewhere(storage: Storage, saved: Any, state: str) -> None:
    """Saves the thread as a version would that calls the state by another name."""
    here, there = f"branch:to:{state}", f"branch:to:{OTHER}"
    checkpoint = deepcopy(saved.checkpoint)
    for part in ("channel_values", "channel_versions"):
        checkpoint[part][there] = checkpoint[part].pop(here)
    version = checkpoint["channel_versions"][there]
    storage.checkpointer.put(saved.parent_config, checkpoint, saved.metadata, {there: version})


def everything(storage: Storage) -> list[Any]:
    """All that is saved of the thread: checkpoints and the writes beside them."""
    saved = storage.checkpointer.list(THREAD)
    return [(found.checkpoint["id"], found.metadata, found.pending_writes) for found in saved]


@pytest.mark.parametrize("name", CASES)
def test_a_thread_in_an_unknown_state_is_left_alone_until_a_new_message(name: str, storage: Storage) -> None:
    graph, saved = begun(name, storage)
    elsewhere(storage, saved, CASES[name][1])
    before = everything(storage)
    for given in (None, Command(resume="x"), Command(goto="compress", update={}), go_on(), undo(), stop()):
        with pytest.raises(ThreadError, match=f"'{OTHER}'.* 1,"):
            graph.invoke(given, THREAD)
    assert everything(storage) == before
    values = graph.get_state(THREAD).values
    outcome = outcome_of(graph.invoke({"messages": [("user", "now this")]}, THREAD))
    # What waits for a person takes the message; work that was cut short is superseded by it.
    superseded = name == "work that has not begun"
    assert (outcome.status, outcome.task != values["task"]) == ("success", superseded)
    ended = [found.reason for found in read_ended(storage.store)]
    assert ended == [*["superseded"] * superseded, "finish_task"]


def test_a_fork_from_before_the_unknown_state_takes_the_way_of_today(storage: Storage) -> None:
    graph, saved = begun("a question", storage)
    elsewhere(storage, saved, "ask_user")
    stands, before, *_ = storage.checkpointer.list(THREAD)
    with pytest.raises(ThreadError, match=OTHER):
        graph.invoke(None, stands.config)
    (wait,) = graph.invoke(None, before.config)["__interrupt__"]
    assert outcome_of(graph.invoke(Command(resume={wait.id: "blue"}), THREAD)).status == "success"


def test_a_newer_version_goes_on_where_every_name_is_known(storage: Storage) -> None:
    graph, _ = begun("a question", storage)
    graph.update_state(THREAD, {"machine": 2})
    (wait,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert graph.get_state(THREAD).values["machine"] == 2
    assert outcome_of(graph.invoke(Command(resume={wait.id: "blue"}), THREAD)).status == "success"
    assert graph.get_state(THREAD).values["machine"] == 1, "the machine that ran it last"
