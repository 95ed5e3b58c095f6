"""The first effect of a reply starts when the saver has the checkpoint that holds the reply."""

import asyncio
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from signoff import outcome_of
from signoff.graph.errors import JournalWarning
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call

# LangGraph takes a number, too, and guarded() text alone.
CONFIG: Any = {"configurable": {"thread_id": 1}}
NAMED: Any = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [("user", "do it")]}
DONE = call("finish_task", summary="All of it.")
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


class SlowSaver(InMemorySaver):
    """Needs a while for each checkpoint, as for a long history."""

    def put(self, *args: Any) -> Any:
        time.sleep(0.1)
        return super().put(*args)

    async def aput(self, *args: Any) -> Any:
        await asyncio.sleep(0.1)
        return super().put(*args)


class World:
    """A tool that looks, at its start, for the checkpoints of its own graph and of all around it."""

    def __init__(self, saver: Any, *, kind: str = "write") -> None:
        self.saver, self.seen = saver, list[dict[str, bool]]()

        def pay(to: str) -> str:
            """Pay somebody."""
            configurable = get_config()["configurable"]
            thread_id, map_ = configurable["thread_id"], configurable.get("checkpoint_map", {})
            places = {
                ns: {"thread_id": str(thread_id), "checkpoint_ns": ns, "checkpoint_id": id}
                for ns, id in map_.items()
            }
            self.seen.append(
                {ns: self.saver.get_tuple({"configurable": at}) is not None for ns, at in places.items()}
            )
            return "paid"

        async def apay(to: str) -> str:
            """Pay somebody."""
            return pay(to)

        self.tool = StructuredTool.from_function(pay, coroutine=apay, metadata={"kind": kind})

    def agent(self, *script: Any, **saved: Any) -> Any:
        model = ScriptedModel(
            script or ([call("pay", to="ada"), call("pay", to="bob")], call("pay", to="cy"), DONE)
        )
        return create_agent(model, [self.tool], middleware=[Guards()], **saved)


def run(built: Any, way: str, config: Any = CONFIG, **options: Any) -> Any:
    if way == "sync":
        return built.invoke(GO, config, **options)
    return asyncio.run(built.ainvoke(GO, config, **options))


def alone(world: World, saved: dict[str, Any]) -> Any:
    return world.agent(**saved)


def as_a_node(world: World, saved: dict[str, Any]) -> Any:
    """The first node of another graph, whose own first checkpoint may be late, too."""
    outer: Any = StateGraph(MessagesState)
    return outer.add_node("agent", world.agent()).add_edge(START, "agent").compile(**saved)


def below_an_agent(world: World, saved: dict[str, Any]) -> Any:
    """Called in a tool of an agent without guards."""
    child = world.agent()

    def ask(to: str) -> str:
        """Ask another agent."""
        return str(child.invoke(GO)["messages"][-1].text)

    async def aask(to: str) -> str:
        """Ask another agent."""
        return str((await child.ainvoke(GO))["messages"][-1].text)

    tool = StructuredTool.from_function(ask, coroutine=aask)
    return create_agent(ScriptedModel([call("ask", to="it"), "Done."]), [tool], **saved)


@WAYS
@pytest.mark.parametrize("build", [alone, as_a_node, below_an_agent])
@pytest.mark.parametrize("saver", [InMemorySaver, SlowSaver])
def test_each_effect_starts_after_its_reply_is_saved(
    saver: Callable[[], Any], build: Callable[[World, dict[str, Any]], Any], way: str
) -> None:
    world = World(saver())
    run(build(world, {"checkpointer": world.saver, "store": InMemoryStore()}), way)
    depth = 1 if build is alone else 2
    assert [list(saved.values()) for saved in world.seen] == [[True] * depth] * 3


@WAYS
@pytest.mark.filterwarnings(f"ignore::{JournalWarning.__module__}.JournalWarning")
def test_it_does_so_without_a_store_too(way: str) -> None:
    world = World(SlowSaver())
    run(world.agent(checkpointer=world.saver), way)
    assert [list(saved.values()) for saved in world.seen] == [[True]] * 3


@WAYS
def test_a_run_that_saves_at_its_end_is_told_once_and_waits_for_nothing(way: str) -> None:
    world = World(InMemorySaver())
    begun = time.monotonic()
    with pytest.warns(JournalWarning, match="is not saved") as told:
        found = run(world.agent(checkpointer=world.saver, store=InMemoryStore()), way, durability="exit")
    assert (len(told), len(world.seen), outcome_of(found).succeeded) == (1, 3, True)
    assert time.monotonic() - begun < 5


@WAYS
@pytest.mark.parametrize(
    ("kind", "saved"),
    [("read", {"checkpointer": InMemorySaver()}), ("write", {}), ("write", {"store": InMemoryStore()})],
    ids=["reads", "nothing saved", "a store alone"],
)
def test_nothing_is_said_where_nothing_can_be_lost(kind: str, saved: dict[str, Any], way: str) -> None:
    world = World(saved.get("checkpointer", InMemorySaver()), kind=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome_of(run(world.agent(**saved), way)).succeeded


@WAYS
def test_guarded_says_when_it_is_built_that_there_is_no_journal(way: str) -> None:
    world = World(InMemorySaver())
    with pytest.warns(JournalWarning, match="pay may change something") as told:
        held = guarded(world.agent(checkpointer=world.saver))
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome_of(run(held, way, NAMED)).succeeded


@pytest.mark.parametrize(
    ("kind", "saved"),
    [
        ("read", {"checkpointer": InMemorySaver()}),
        ("write", {}),
        ("write", {"checkpointer": InMemorySaver(), "store": InMemoryStore()}),
    ],
    ids=["reads", "nothing saved", "a journal"],
)
def test_guarded_says_nothing_where_nothing_can_be_lost(kind: str, saved: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guarded(World(InMemorySaver(), kind=kind).agent(**saved))
