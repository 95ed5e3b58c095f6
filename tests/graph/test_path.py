"""The path of a thread, as its history tells it, after every way in which a run can go."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import (
    Graph,
    Limits,
    Session,
    Storage,
    ThreadError,
    build_graph,
    go_on,
    sqlite_storage,
)
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


def works(thread: Thread) -> None:
    thread.graph(WORK, FINISH).invoke(GO, THREAD)


def talks(thread: Thread) -> None:
    thread.graph("Let me see.", FINISH).invoke(GO, THREAD)


def asks(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    (wait,) = graph.invoke(GO, THREAD)["__interrupt__"]
    graph.invoke(Command(resume={wait.id: "blue"}), THREAD)


def is_killed_and_gets_a_new_message(thread: Thread) -> None:
    graph = thread.graph(call("crash"), FINISH)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    graph.invoke(GO, THREAD)


def gets_a_message_while_it_waits(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke({"messages": [("user", "blue")]}, THREAD)


def goes_on_after_a_limit(thread: Thread) -> None:
    graph = thread.graph(WORK, FINISH, limits=Limits(turns=1))
    graph.invoke(GO, THREAD)
    graph.invoke(go_on(turns=9), THREAD)


def is_changed_from_outside(thread: Thread) -> None:
    graph = thread.graph(ASK, FINISH)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"messages": [("user", "blue")]})
    graph.invoke(None, THREAD)


def is_forked_before_its_second_turn(thread: Thread) -> None:
    graph = thread.graph(WORK, WORK, WORK, FINISH, FINISH)
    graph.invoke(GO, THREAD)
    step = Session(graph, "t").history()[0].steps[-1]
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_id": step.checkpoint_id}}
    assert step.next == ("call_llm",)
    graph.invoke(None, at)


def has_two_tasks(thread: Thread) -> None:
    graph = thread.graph(FINISH, FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke(GO, THREAD)


def finishes_before_a_call(thread: Thread) -> None:
    thread.graph(reply(WORK, FINISH, call("work", what="never"))).invoke(GO, THREAD)


REPLIED, AGAIN = "call_llm replied", ["compress ready", "decide think"]
WORKED = [REPLIED, "route_tools work", "execute done"]
CLAIMED = ["decide claimed", "review accepted", "finish ended"]
ENDS = [REPLIED, "route_tools settled", *CLAIMED]
ASKED = [REPLIED, "route_tools settled", "decide asked"]
HAPPENINGS: dict[Callable[[Thread], None], list[str]] = {
    works: [*WORKED, "decide think", *ENDS],
    talks: [REPLIED, "route_tools talked", "nudge nudged", *AGAIN, *ENDS],
    asks: [*ASKED, "ask_user answered", *AGAIN, *ENDS],
    is_killed_and_gets_a_new_message: [*WORKED[:2], "input", *AGAIN, *ENDS],
    gets_a_message_while_it_waits: [*ASKED, "input", *AGAIN, *ENDS],
    goes_on_after_a_limit: [*WORKED, "decide exhausted", "finish ended", *AGAIN, *ENDS],
    is_changed_from_outside: [*ASKED, "update", "ask_user answered", *AGAIN, *ENDS],
    is_forked_before_its_second_turn: [*WORKED, "decide think", "fork", *ENDS],
    has_two_tasks: [*ENDS, "input", *AGAIN, *ENDS],
    finishes_before_a_call: [*WORKED, "decide not ready", "compress ready", *CLAIMED],
}


@pytest.mark.parametrize("happens", HAPPENINGS, ids=lambda happens: happens.__name__)
def test_the_path_of_a_thread_that(happens: Callable[[Thread], None], thread: Thread) -> None:
    happens(thread)
    assert thread.path() == HAPPENINGS[happens]
    for step in (step for turn in Session(thread.last, "t").history() for step in turn.steps):
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_id": step.checkpoint_id}}
        state = thread.last.get_state(at)
        assert (step.at, step.next, step.task) == (state.created_at, state.next, state.values["task"])
        decided = state.values["decision"] if step.name == "decide" else {"rule": "", "why": ""}
        assert (step.rule, step.why) == (decided["rule"], decided["why"])


def test_without_the_steps_between_a_turn_is_told_all_the_same() -> None:
    graph = build_graph(ScriptedModel([ASK]), checkpointer=InMemorySaver())
    graph.invoke(GO, THREAD, durability="exit")
    (turn,) = Session(graph, "t").history()
    assert ([made.name for made in turn.calls], turn.steps) == (["ask_user"], ())


@pytest.mark.parametrize("turn", [-1, 3])
def test_a_fork_from_a_turn_that_never_came_is_refused(turn: int, thread: Thread) -> None:
    works(thread)
    with pytest.raises(ThreadError, match=f"2 .*{turn}"):
        Session(thread.last, "t").fork(at=turn)


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
