"""The limits of a tree hold however often it was stopped, copied, answered by the clock, or gone on with."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from signoff import (
    Failed,
    Limits,
    Question,
    Session,
    build_graph,
    delegate,
    sqlite_storage,
    standard_controls,
)
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.session.expiring import expire_all
from signoff.storage.sqlite import SqliteStorage

LATER = 9e12
DOWN = RuntimeError("down")
BOTH = [call("early", task="Go."), call("late", task="Go.")]
FAILED = call("finish_task", summary="x", outcome="blocked")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@tool
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def asking(after: int) -> Callable[[list[BaseMessage]], Any]:
    """Pays so often, asks, and pays on without an end. One that asks at once takes no answer for a yes."""
    by_clock: dict[str, Any] = {} if after else {"default_answer": "yes", "deadline_seconds": 60}
    question = call("ask_user", question="Go on?", **by_clock)

    def script(messages: list[BaseMessage]) -> Any:
        turn = sum(map(is_reply, messages))
        return question if turn == after else call("pay", to=f"{turn}")

    return script


def worker(script: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel(script), [pay], limits=Limits(repeats=None), **options)


def lead(limits: Limits, storage: SqliteStorage) -> Graph:
    """Two delegates beside each other: `early` asks at once, and `late` after it has paid three times."""
    controls = standard_controls(deadlines=True)
    made = [
        delegate(name, worker(asking(after), control_tools=controls), description="Works.")
        for name, after in (("early", 0), ("late", 3))
    ]
    return build_graph(ScriptedModel([BOTH, FAILED, FAILED, FAILED]), made, limits=limits, storage=storage)


def stopped(session: Session) -> Session:
    session.stop()
    session.retry()
    return session


def copied(session: Session) -> Session:
    copy = session.fork(thread_id="copy")
    copy.run()
    return copy


def expired(session: Session) -> Session:
    assert len(expire_all(session.graph, "t", now=LATER)) == 1
    session.run()
    return session


WAYS: dict[str, Callable[[Session], Session]] = {
    "it waits": lambda session: session,
    "it was stopped, and retried": stopped,
    "it was copied": copied,
    "it was copied; the first one": lambda session: [session, copied(session)][0],
    "a question has expired": expired,
}


@pytest.mark.parametrize(
    ("limits", "name"), [(Limits(tree_turns=9), "turns"), (Limits(tool_calls=8), "calls")]
)
@pytest.mark.parametrize("way", WAYS)
def test_what_waits_keeps_its_part_whatever_happens_to_the_thread(
    way: str, limits: Limits, name: str, storage: SqliteStorage
) -> None:
    session = Session(lead(limits, storage), "t")
    session.run("go")
    session = WAYS[way](session)
    # The one that has used nothing yet goes on first; that of the other must be known to it.
    for path in (("early",), ("late",)):
        for waits in [one for one in session.status().waits if one.path == path]:
            session.resume("yes", waits.interrupt_id)
    outcome = session.status().outcome
    assert outcome is not None
    tree = outcome["tree"]
    used = {"turns": tree["turns"], "calls": tree["tool_calls"]}
    assert used[name] == (limits.tree_turns or limits.tool_calls)


def test_a_retry_knows_what_each_of_those_that_go_on_has_used(storage: SqliteStorage) -> None:
    """They go on one after the other: what the second had used must count while the first one runs."""
    steps = [
        call("pay", to="1"),
        call("pay", to="2"),
        DOWN,
        *[call("pay", to=f"{n}") for n in range(3)],
        DOWN,
    ]
    child = worker([*steps, *[call("pay", to=f"again {n}") for n in range(9)]], model_retries=None)
    calls = [call("worker", task="One."), call("worker", task="Two.")]
    made = delegate("worker", child, description="Works.", parallel=1)
    model = ScriptedModel([calls, DOWN, FAILED])
    graph = build_graph(model, [made], limits=Limits(tree_turns=10), storage=storage, model_retries=None)
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Failed)
    decision = session.retry()
    assert not isinstance(decision, Question)
    outcome = session.status().outcome
    assert outcome is not None
    assert (outcome["reason"], outcome["tree"]["turns"]) == ("tree_turns", 10)


def by_task(messages: list[BaseMessage]) -> Any:
    """Asks at once, or after three turns, as its task says, and pays on without an end."""
    task = next(message.text for message in messages if isinstance(message, HumanMessage))
    return asking(0 if task == "early" else 3)(messages)


def handing_on(messages: list[BaseMessage]) -> Any:
    task = next(message.text for message in messages if isinstance(message, HumanMessage))
    done = any(map(is_reply, messages))
    return FAILED if done else call("worker", task=task)


@pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("deep", [False, True])
def test_without_a_store_too_those_that_have_not_had_their_turn_count(deep: bool, way: str) -> None:
    """They go on one after the other; the first one must know of all that the second has below it."""
    below = worker(by_task, control_tools=standard_controls(deadlines=True))
    if deep:
        below = build_graph(ScriptedModel(handing_on), [delegate("worker", below, description="Works.")])
    made = delegate("below", below, description="Works.", parallel=1)
    model = ScriptedModel([[call("below", task="early"), call("below", task="late")], FAILED])
    limits = Limits(tree_turns=11 if deep else 9)
    session = Session(build_graph(model, [made], limits=limits, checkpointer=InMemorySaver()), "t")
    session.run("go")
    while waits := session.status().waits:
        if way == "sync":
            session.resume("yes", waits[0].interrupt_id)
        else:
            asyncio.run(session.aresume("yes", waits[0].interrupt_id))
    outcome = session.status().outcome
    assert outcome is not None
    assert (outcome["reason"], outcome["tree"]["turns"]) == ("tree_turns", limits.tree_turns)
