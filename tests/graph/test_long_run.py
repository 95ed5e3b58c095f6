"""A run of 300 turns in a window of 8,000 tokens: it ends, it knows its task, and nothing of it is lost."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from signoff import Limits, Session, build_graph, sqlite_storage
from signoff.graph.build import Graph, Storage
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from signoff.session.events import CallFinished
from tests.support.histories import assert_sendable

WINDOW: Any = {"max_input_tokens": 8_000}
BUDGET = 6_400
FIRST = "Read all pages. The word to remember is heron."
NEEDLE = "the key lies under the third flowerpot"
THREAD: Any = {"configurable": {"thread_id": "long"}}
TURNS = 300


def pages(count: int) -> list[Any]:
    steps: list[Any] = [call("read_page", number=number) for number in range(1, count)]
    return [*steps, call("finish_task", summary="All of it.")]


def long_run(model: ScriptedModel, storage: Storage | None, turns: int) -> Graph:
    def read_page(number: int) -> str:
        """Read a page."""
        words = NEEDLE if number == 3 else "nothing to see here"
        return f"Page {number}: " + "words " * 150 + words + " words" * 150

    return build_graph(model, [read_page], storage=storage, limits=Limits(turns=turns))


@pytest.mark.slow
@pytest.mark.thorough
def test_300_turns_in_a_window_of_8000_tokens(tmp_path: Path) -> None:
    with (
        ScriptedModel(pages(TURNS), profile=WINDOW) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = long_run(model, storage, TURNS)
        outcome = graph.invoke({"messages": [("user", FIRST)]}, THREAD)["outcome"]
        messages = graph.get_state(THREAD).values["messages"]
        turns = Session(graph, "long").history()
    assert (outcome["status"], outcome["turns"]) == ("success", TURNS)
    assert len(model.seen) == TURNS
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET
        assert sum(message.text == FIRST for message in seen.messages) == 1
    assert_found(messages)
    assert NEEDLE in told(model.seen[3].messages)
    assert NEEDLE not in told(model.seen[-1].messages), "it is folded"
    assert len(turns) == TURNS
    (event,) = (event for event in turns[2].events if isinstance(event, CallFinished))
    assert NEEDLE in event.result


def assert_found(messages: list[BaseMessage]) -> None:
    """The whole history is there, and the needle in it where it was told."""
    replies = [message for message in messages if is_reply(message)]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert len(replies) == len(results) == TURNS
    assert [number for number, result in enumerate(results, 1) if NEEDLE in result.text] == [3]


def told(view: list[BaseMessage]) -> str:
    return "\n".join(message.text for message in view)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_turn_costs_the_same_after_300_turns(figure: Callable[[str], None]) -> None:
    """CPU time of one turn in runs of 50 and of 300 turns, with usage and without; each the best of three."""
    for usage in (None, False):
        short, long = (min(cpu_of_a_turn(turns, usage) for _ in range(3)) for turns in (50, TURNS))
        counts = "the provider counts" if usage is None else "it does not"
        figure(f"8,000 tokens, {counts}: {short:.2f} ms a turn at 50 turns, {long:.2f} at {TURNS}")
        assert long < 1.6 * short


def cpu_of_a_turn(turns: int, usage: Any) -> float:
    """Milliseconds."""
    steps = [reply(step, usage=usage) for step in pages(turns)]
    with ScriptedModel(steps, profile=WINDOW) as model:
        graph = long_run(model, None, turns)
        begun = time.process_time()
        graph.invoke({"messages": [("user", FIRST)]})
    return (time.process_time() - begun) / turns * 1_000
