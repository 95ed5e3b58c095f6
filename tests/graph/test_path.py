"""The path of a thread, as its history tells it, after every way in which a run can go."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command

from signoff import Graph, Session, Storage, build_graph, go_on, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from tests.support.interrupting import interrupt_process
from tests.support.plays import ASK, FINISH, GO, THREAD

WORK = call("work")


def work(what: str = "a") -> str:
    """Work."""
    return what * 40


def crash() -> str:
    """Crash."""
    interrupt_process()
    return "never heard"


def pay() -> str:
    """Pay."""
    return "paid"


class Thread:
    """A thread in a database, with graphs that play scripts."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.last: Graph

    def graph(self, *script: Any, **options: Any) -> Graph:
        # Streamed, a reply would be cut off after a finish.
        model = ScriptedModel(script, disable_streaming=True)
        self.last = build_graph(model, [work, crash, pay], storage=self.storage, **options)
        return self.last

    def path(self) -> list[str]:
        """Each step from the first reply on, as "state event"; those in which no state ran by the event."""
        turns = Session(self.last, "t").history()
        return [f"{step.name} {step.event}".strip() for turn in turns for step in turn.steps]


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[Thread]:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        yield Thread(storage)


# What happens to a thread.


def reaches_a_limit(graph: Graph) -> None:
    graph.invoke(GO, THREAD, context={"turns": 1})


REPLIED, AGAIN = "call_llm replied", ["compress ready", "decide think"]
WORKED = [REPLIED, "route_tools work", "execute done"]
CLAIMED = ["decide claimed", "review accepted", "finish ended"]
ENDS = [REPLIED, "route_tools settled", *CLAIMED]
ASKED = [REPLIED, "route_tools settled", "decide asked"]
BLUE: Any = {"messages": [("user", "blue")]}
CRASH = call("crash")
# What the model replies, what is sent or done, and the path.
HAPPENINGS: dict[str, tuple[list[Any], list[Any], list[str]]] = {
    "works": ([WORK, FINISH], [GO], [*WORKED, "decide think", *ENDS]),
    "talks": (["Let me see.", FINISH], [GO], [REPLIED, "route_tools talked", "nudge nudged", *AGAIN, *ENDS]),
    "asks": ([ASK, FINISH], [GO, Command(resume="blue")], [*ASKED, "ask_user answered", *AGAIN, *ENDS]),
    "is killed, and gets a message": ([CRASH, FINISH], [GO, GO], [*WORKED[:2], "input", *AGAIN, *ENDS]),
    "gets a message while it waits": ([ASK, FINISH], [GO, BLUE], [*ASKED, "input", *AGAIN, *ENDS]),
    "goes on after a limit": (
        [WORK, FINISH],
        [reaches_a_limit, go_on(9)],
        [*WORKED, "decide exhausted", "finish ended", *AGAIN, *ENDS],
    ),
    "has two tasks": ([FINISH, FINISH], [GO, GO], [*ENDS, "input", *AGAIN, *ENDS]),
    "finishes before a call": (
        [reply(WORK, FINISH, call("work", what="never"))],
        [GO],
        [*WORKED, "decide not ready", "compress ready", *CLAIMED],
    ),
}


@pytest.mark.parametrize(("script", "moves", "path"), HAPPENINGS.values(), ids=HAPPENINGS)
def test_the_path_of_a_thread_that(
    script: list[Any], moves: list[Any], path: list[str], thread: Thread
) -> None:
    graph = thread.graph(*script)
    for move in moves:
        with suppress(KeyboardInterrupt):
            move(graph) if callable(move) else graph.invoke(move, THREAD)
    assert thread.path() == path
    for step in (step for turn in Session(thread.last, "t").history() for step in turn.steps):
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_id": step.checkpoint_id}}
        state = thread.last.get_state(at)
        assert (step.at, step.next, step.task) == (state.created_at, state.next, state.values["task"])
        decided = state.values["decision"] if step.name == "decide" else {"rule": "", "why": ""}
        assert (step.rule, step.why) == (decided["rule"], decided["why"])


def test_a_message_that_an_edit_brings_begins_a_task_clean(thread: Thread) -> None:
    graph = thread.graph(WORK, FINISH)
    graph.invoke(GO, THREAD, interrupt_after=["execute"])
    graph.update_state(THREAD, {"messages": [HumanMessage("something else", id="new")]})
    outcome = graph.invoke(None, THREAD)["outcome"]
    assert (outcome["status"], outcome["task"]) == ("success", "new")
    assert [*WORKED, "update", "decide not ready", *AGAIN, *ENDS] == thread.path()


def test_a_prompt_over_its_budget_is_summarised_before_the_next_turn(thread: Thread) -> None:
    script = [call("work", what=f"number {number} ") for number in range(8)]
    thread.graph(*script, FINISH, policy={"prompt_tokens": 1_000, "compaction": "lines"}).invoke(GO, THREAD)
    path = thread.path()
    over = [at for at, step in enumerate(path) if step == "decide not ready"]
    assert 0 < len(over) < 8
    assert all(path[at + 1 : at + 3] == AGAIN for at in over)
