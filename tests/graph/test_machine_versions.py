"""A thread in a state of another version: it is refused with the number of its machine, and left alone."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import ThreadError, build_graph, sqlite_storage
from signoff.graph.build import Graph, Storage
from signoff.graph.machine import FIRST, MACHINE, State
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from tests.support.interrupting import interrupt_process
from tests.support.other_machine import OTHER, other_machine

pytestmark = pytest.mark.slow

THREAD: Any = {"configurable": {"thread_id": "old"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")


@dataclass(frozen=True)
class Memory:
    checkpointer: InMemorySaver
    store: InMemoryStore


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "memory":
        yield Memory(InMemorySaver(), InMemoryStore())
    else:
        with sqlite_storage(tmp_path / "threads.sqlite") as opened:
            yield opened


def invoke(graph: Graph, given: Any) -> dict[str, Any]:
    return graph.invoke(given, THREAD)


def ainvoke(graph: Graph, given: Any) -> dict[str, Any]:
    return asyncio.run(graph.ainvoke(given, THREAD))


Run = Callable[[Graph, Any], dict[str, Any]]
both_ways = pytest.mark.parametrize("run", [invoke, ainvoke])


# A thread in each sort of state that it can stand in.


def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError("the driver runs it")


@dataclass(frozen=True)
class Case:
    """A thread that stands in `state` after its first reply; `answer` is what it waits for."""

    reply: Any
    state: State
    answer: Any = None
    killed: bool = False


CASES = {
    "a question": Case(call("ask_user", question="Which one?"), State.ASK_USER, "blue"),
    "an approval": Case(call("pay", amount=3), State.APPROVE, "approve"),
    "an action": Case(call("shell", command="ls"), State.HAND_OVER, "3 files"),
    "killed in a tool": Case(call("work"), State.EXECUTE, killed=True),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def current(case: Case, storage: Storage) -> Graph:
    """The graph of today; `work` is killed when it runs for the first time."""
    starts = iter([case.killed])

    def work() -> str:
        """Work."""
        if next(starts, False):
            interrupt_process()
        return "worked"

    work.__name__ = "work"

    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return build_graph(
        # The first finish is questioned where the outcome of a call is unknown.
        ScriptedModel([case.reply, FINISH, FINISH]),
        [work, pay, shell],
        approvals={"pay": True},
        hand_over=["shell"],
        storage=storage,
    )


def begin(case: Case, graph: Graph) -> Any:
    """Lets another machine bring the thread to where it stands; gives the input that goes on."""
    other = other_machine(graph, case.state)
    if case.killed:
        with pytest.raises(KeyboardInterrupt):
            other.invoke(GO, THREAD)
        return None
    (pending,) = other.invoke(GO, THREAD)["__interrupt__"]
    return Command(resume={pending.id: case.answer})


def everything(storage: Storage) -> list[Any]:
    """All that is saved of the thread: checkpoints and the writes beside them."""
    saved = storage.checkpointer.list(THREAD)
    return [(found.checkpoint["id"], found.metadata, found.pending_writes) for found in saved]


@both_ways
@each_case
@pytest.mark.sample(4)
def test_a_thread_in_an_unknown_state_is_refused_and_left_alone(
    case: Case, run: Run, storage: Storage
) -> None:
    graph = current(case, storage)
    go_on = begin(case, graph)
    before = everything(storage)
    for given in (go_on, None, Command(goto=str(FIRST), update={}), Command(resume="x")):
        with pytest.raises(ThreadError, match=f"'{OTHER}' of machine version {MACHINE}, which .* finish it"):
            run(graph, given)
    assert everything(storage) == before
    assert graph.get_state(THREAD).next == ()
    assert other_machine(graph, case.state).invoke(go_on, THREAD)["outcome"]["status"] == "success"


@both_ways
@each_case
@pytest.mark.sample(4)
def test_a_new_message_is_understood_though_the_state_is_not(case: Case, run: Run, storage: Storage) -> None:
    graph = current(case, storage)
    begin(case, graph)
    first = graph.get_state(THREAD).values["task"]
    outcome = run(graph, {"messages": [("user", "now this")]})["outcome"]
    assert outcome["status"] == "success"
    # What waits for a person takes the message; work that was cut short is superseded by it.
    assert (outcome["task"] == first) is not case.killed
    ended = [(found.status, found.reason) for found in recorded(storage.store, "old")]
    superseded = [("error", "superseded")] if case.killed else []
    assert ended == [*superseded, ("success", "finish_task")]


ASKS = CASES["a question"]


class Dies(InMemorySaver):
    """Fails when it is to save that the thread stands in the other state, as if the process were killed."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if f"branch:to:{OTHER}" in checkpoint["channel_values"]:
            raise KeyboardInterrupt
        return super().put(config, checkpoint, metadata, new_versions)


@both_ways
def test_a_thread_on_its_way_to_an_unknown_state_is_refused_too(run: Run) -> None:
    storage = Memory(Dies(), InMemoryStore())
    graph = current(ASKS, storage)
    with pytest.raises(KeyboardInterrupt):
        other_machine(graph, ASKS.state).invoke(GO, THREAD)
    with pytest.raises(ThreadError, match=f"is in the state '{OTHER}'"):
        run(graph, None)


def test_a_fork_from_before_the_unknown_state_takes_the_way_of_today(storage: Storage) -> None:
    graph = current(ASKS, storage)
    begin(ASKS, graph)
    stands, before, *_ = storage.checkpointer.list(THREAD)
    with pytest.raises(ThreadError, match=OTHER):
        graph.invoke(None, stands.config)
    (pending,) = graph.invoke(None, before.config)["__interrupt__"]
    assert graph.get_state(THREAD).next == ("ask_user",)
    assert graph.invoke(Command(resume={pending.id: "blue"}), THREAD)["outcome"]["status"] == "success"


def test_a_newer_version_goes_on_where_every_name_is_known(storage: Storage) -> None:
    graph = current(ASKS, storage)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"machine": MACHINE + 1})
    (pending,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert graph.get_state(THREAD).values["machine"] == MACHINE + 1
    assert graph.invoke(Command(resume={pending.id: "blue"}), THREAD)["outcome"]["status"] == "success"
    assert graph.get_state(THREAD).values["machine"] == MACHINE, "the machine that ran it last"


def test_a_thread_that_carries_no_number_says_so(storage: Storage) -> None:
    graph = current(ASKS, storage)
    other = other_machine(graph, ASKS.state)
    other.invoke(GO, THREAD)
    other.update_state(THREAD, {"machine": None})
    with pytest.raises(ThreadError, match="of an unknown machine version, which this Signoff"):
        graph.invoke(None, THREAD)
