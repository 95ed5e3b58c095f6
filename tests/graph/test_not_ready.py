"""From a settled reply the machine goes straight on to `decide`, but for what only `compress` does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from signoff import Limits, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.session.path import steps
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
DONE = call("finish_task", summary="Done.")
THINKS = ["compress ready", "decide think", "call_llm replied", "route_tools work", "execute done"]
ENDS = ["decide claimed", "review accepted", "finish ended"]


def work(what: str) -> str:
    """Work."""
    return what * 40


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def path(storage: SqliteStorage) -> list[str]:
    found = steps(storage.checkpointer, "t")
    return [f"{step.state} {step.event}" for step in found if step.state is not None]


def run(storage: SqliteStorage, *script: Any, **settings: Any) -> None:
    # Streamed, a reply would be cut off after a finish.
    model = ScriptedModel(script, disable_streaming=True)
    graph = build_graph(model, [work], storage=storage, limits=Limits(turns=9), **settings)
    graph.invoke({"messages": [("user", "go")]}, THREAD)


def test_most_work_leads_on_at_once(storage: SqliteStorage) -> None:
    run(storage, call("work", what="a"), call("work", what="b"), DONE)
    turn = ["decide think", "call_llm replied", "route_tools work", "execute done"]
    end = ["decide think", "call_llm replied", "route_tools settled", *ENDS]
    assert path(storage) == ["compress ready", *turn, *turn, *end]


def test_a_call_that_nothing_will_run_is_answered_first(storage: SqliteStorage) -> None:
    run(storage, reply(call("work", what="a"), DONE, call("work", what="never")))
    assert path(storage) == [*THINKS, "decide not ready", "compress ready", *ENDS]


def test_a_prompt_over_its_budget_is_summarised_first(storage: SqliteStorage) -> None:
    scripted = [call("work", what=f"number {number} ") for number in range(8)]
    run(storage, *scripted, DONE, prompt_tokens=1_000, compaction="lines")
    found = path(storage)
    assert 0 < found.count("decide not ready") < 8
    compacted = [at for at, step in enumerate(found) if step == "decide not ready"]
    assert all(found[at + 1 : at + 3] == ["compress ready", "decide think"] for at in compacted)


def test_a_message_that_an_edit_brings_begins_a_task_clean(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([call("work", what="a"), DONE]), [work], storage=storage)
    graph.invoke({"messages": [("user", "go")]}, THREAD, interrupt_after=["execute"])
    graph.update_state(THREAD, {"messages": [HumanMessage("something else", id="new")]})
    outcome = graph.invoke(None, THREAD)["outcome"]
    assert (outcome["status"], outcome["task"]) == ("success", "new")
    values = graph.get_state(THREAD).values
    assert values["task"] == "new"
    assert next(m.text for m in values["messages"] if isinstance(m, ToolMessage)) == "a" * 40
    assert "decide not ready" in path(storage)
