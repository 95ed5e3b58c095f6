"""The last reading of a run is kept for its next node, and for no other run."""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import build_graph, delegate, sqlite_storage
from signoff.graph.messages import is_reply, marks
from signoff.models import ScriptedModel, call
from signoff.session.status import deps_of

GO: Any = {"messages": [("user", "go")]}
SCRIPT = [call("step", n=1), call("step", n=2), call("finish_task", summary="Done.")]


def step(n: int) -> str:
    """Step."""
    return f"ok {n}"


async def test_runs_without_a_thread_that_begin_alike_keep_a_reading_each() -> None:
    graph = build_graph(ScriptedModel(SCRIPT), [step])
    runs = [graph.astream(GO, stream_mode="updates") for _ in range(3)]
    most = 0
    ended = [False] * len(runs)
    while not all(ended):
        for place, run in enumerate(runs):
            ended[place] = ended[place] or await anext(run, None) is None
        most = max(most, len(deps_of(graph).readings))
    assert (most, len(deps_of(graph).readings)) == (3, 0)


@pytest.mark.parametrize("stored", [False, True])
def test_what_a_run_writes_is_as_complete_as_what_is_loaded(stored: bool, tmp_path: Any) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(ScriptedModel(SCRIPT), [step], storage=storage)
        config: Any = {"configurable": {"thread_id": "t"}}
        written = graph.invoke(GO, config)["messages"]
        messages = graph.get_state(config).values["messages"] if stored else written
    assert sum(is_reply(message) for message in messages) == 3
    for message in messages:
        assert message.model_dump(exclude_unset=True) == message.model_dump()
        assert message.model_copy(update={"content": "new"}).content == "new" != message.content


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_read_of_a_delegate_is_not_kept_after_its_end(stored: bool, tmp_path: Any) -> None:
    below = build_graph(ScriptedModel(SCRIPT * 3), [step])
    team = [delegate("worker", below, description="Works.")]
    calls = [call("worker", task=f"go {n}") for n in range(3)]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        script = ScriptedModel([*calls, call("finish_task", summary="Done.")])
        graph = build_graph(script, team, storage=storage if stored else None)
        config: Any = {"configurable": {"thread_id": "t"}} if stored else {}
        told = [marks(one) for one in graph.invoke(GO, config)["messages"]]
    assert [found["delegate"]["used"]["turns"] for found in told if "delegate" in found] == [3, 3, 3]
    assert len(deps_of(below).readings) == 0


def test_what_is_read_of_a_delegate_that_waited_is_not_kept_after_its_end() -> None:
    below = build_graph(ScriptedModel([call("ask_user", question="Which?"), SCRIPT[-1]]))
    team = [delegate("worker", below, description="Works.")]
    script = ScriptedModel([call("worker", task="go"), call("finish_task", summary="Done.")])
    # Without a store, what a delegate has used before is read from its history when it goes on.
    graph = build_graph(script, team, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke(GO, config)
    assert graph.invoke(Command(resume="this"), config)["outcome"]["status"] == "success"
    assert len(deps_of(below).readings) == 0
