"""The thread of every incident is decided again as it was, and so are drawn threads; what is decided
differently is reported."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from langchain_core.tools import tool

from signoff import Graph, Session, SetupError, build_graph, delegate, sqlite_storage
from signoff.machine import State
from signoff.models import ScriptedModel, call
from signoff.session.replay import Replay, ReplayDifference, replay
from signoff.storage import SqliteStorage
from tests.incidents.fixtures import World as Effects
from tests.incidents.player import graph_of, incidents
from tests.simulate.choices import Choices
from tests.simulate.world import World
from tests.support.plays import FINISH, GO, THREAD

INCIDENTS = incidents()
PAY, NOTE = call("pay", amount=3), call("note", text="a")
DECIDED = {State.COMPRESS, State.DECIDE, State.ROUTE_TOOLS, State.NUDGE, State.REVIEW, State.FINISH}
# The states whose steps cannot be decided again in an incident, since the record does not hold the answer.
_HOOKED = {State.DECIDE, State.ROUTE_TOOLS, State.REVIEW, State.FINISH}
NOT_KEPT = {
    "history: summarised by a model": {State.COMPRESS},
    # The check that failed is not run again.
    "finish: refused twice": {State.REVIEW},
    # Hooks of a middleware run in these states, and what they say is known to nobody but them.
    **{name: _HOOKED for name in INCIDENTS if name.startswith(("middleware:", "channels:"))},
}


@tool
def note(text: str) -> str:
    """Note."""
    return "noted"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


note.metadata = {"kind": "read"}


def check(name: str, storage: Any) -> None:
    """The thread is decided again as it was; no step is left out, and none is only taken that could be."""
    graph = graph_of(INCIDENTS[name], (), storage)
    found = replay(graph, name)
    assert [str(difference) for difference in found.differences] == []
    steps = [step for turn in Session(graph, name).history() for step in turn.steps if step.name]
    places = {step.checkpoint_id for step in (*found.again, *found.taken)}
    assert {step.checkpoint_id for step in steps} <= places
    assert {step.state for step in found.taken} & DECIDED <= NOT_KEPT.get(name, set())


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_thread_of_every_incident_is_decided_as_it_was(
    name: str, incident_storage: SqliteStorage
) -> None:
    check(name, incident_storage)


@pytest.fixture
def storage(played_incidents: Path, tmp_path: Path) -> Any:
    """The threads of the incidents, to be changed."""
    with sqlite_storage(copy(played_incidents, tmp_path)) as opened:
        yield opened


def test_nothing_is_called_and_nothing_is_written(storage: SqliteStorage, tmp_path: Path) -> None:
    def held() -> list[Any]:
        entries = storage.store.search((), limit=10_000)
        return [list(storage.checkpointer.list(None)), [(item.key, item.value) for item in entries]]

    before, effects = held(), Effects(tmp_path / "effects", "", {})
    for name, incident in [*INCIDENTS.items()][::4]:
        with ScriptedModel([]) as model:
            replay(graph_of(incident, model, storage, effects), name)
        assert model.seen == []
    assert not effects.effects.exists()
    assert held() == before


# What is different, and how it is reported.

Change = Callable[[SqliteStorage, str], object]


def edited(channel: str, edit: Callable[[Any], Any], *, where: Callable[[Any], Any] = bool) -> Change:
    """A value of a channel is another one in the first checkpoint of the thread where it is as said."""

    def change(storage: SqliteStorage, name: str) -> None:
        saver = storage.checkpointer
        saved = list(saver.list({"configurable": {"thread_id": name, "checkpoint_ns": ""}}))[::-1]
        held = next(one for one in saved if where(one.checkpoint["channel_values"].get(channel)))
        values = held.checkpoint["channel_values"]
        values[channel] = edit(values[channel])
        assert held.parent_config is not None
        saver.put(held.parent_config, held.checkpoint, held.metadata, {})

    return change


def event(before: str, after: str) -> Change:
    return edited("event", lambda _: after, where=lambda value: value == before)


def recorded_otherwise(storage: SqliteStorage, name: str) -> None:
    """The store says something else of how the task ended."""
    (item,) = storage.store.search(("signoff", "outcomes", name))
    storage.store.put(item.namespace, item.key, {**item.value, "turns": 7})


def not_recorded(storage: SqliteStorage, name: str) -> None:
    (item,) = storage.store.search(("signoff", "outcomes", name))
    storage.store.delete(item.namespace, item.key)


def calls_as(verdict: Any) -> Callable[[Any], Any]:
    return lambda found: {**found, "calls": dict.fromkeys(found["calls"], verdict)}


@dataclass(frozen=True)
class Mutation:
    """Something that is made different, and where the first difference is reported: turn, state, and what.

    thread: that of the incident of this name. settings: of the graph, in place of the recorded ones.
    """

    thread: str
    reports: tuple[int, str, str]
    apply: Change = lambda *_: None
    settings: Mapping[str, Any] = field(default_factory=dict)


TALKS, UNANSWERED = "limits: talk and repeats", "questions: nobody answered in time"
MUTATIONS: Mapping[str, Mutation] = {
    "a limit is lower": Mutation(
        TALKS, (4, "decide", "rule"), settings={"limits": {"talk_turns": 2, "repeats": 2}}
    ),
    "another policy": Mutation(
        "approvals: two calls at once", (1, "route_tools", "event"), settings={"approvals": {}}
    ),
    "an outcome was edited": Mutation(
        "finish: without a final message",
        (2, "finish", "outcome"),
        edited("outcome", lambda found: {**found, "turns": 3}),
    ),
    "a recorded outcome was edited": Mutation(
        "finish: without a final message", (2, "finish", "recorded outcome"), recorded_otherwise
    ),
    "a recorded outcome is gone": Mutation(
        "finish: without a final message", (2, "finish", "recorded outcome"), not_recorded
    ),
    "an event was edited": Mutation(UNANSWERED, (1, "call_llm", "event"), event("replied", "refused")),
    "a reason was edited": Mutation(
        "limits: turns",
        (3, "decide", "rule"),
        edited(
            "decision",
            lambda found: {**found, "why": "tired"},
            where=lambda found: found and found["rule"] == "turns",
        ),
    ),
    "a verdict was edited": Mutation(
        "finish: a phase then the rest", (3, "review", "verdicts"), edited("verdicts", calls_as("accepted"))
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_decided_differently_is_reported(name: str, storage: SqliteStorage) -> None:
    mutation = MUTATIONS[name]
    incident = INCIDENTS[mutation.thread]
    mutation.apply(storage, mutation.thread)
    settings = {**incident.get("settings", {}), **mutation.settings}
    first, *_ = replay(graph_of({**incident, "settings": settings}, (), storage), mutation.thread).differences
    assert (first.turn, first.state, first.what) == mutation.reports
    assert storage.checkpointer.get_tuple(
        {"configurable": {"thread_id": mutation.thread, "checkpoint_id": first.checkpoint_id}}
    )
    assert first.stored != first.now


# Threads that no incident leaves: script, limits and input.


def differences(graph: Graph, name: str) -> list[ReplayDifference]:
    """What is decided differently than when the thread was recorded."""
    return list(replay(graph, name).differences)


DRAWN = [range(4), pytest.param(range(4, 120), marks=[pytest.mark.thorough, pytest.mark.timeout(900)])]


@pytest.mark.parametrize("seeds", DRAWN, ids=str)
def test_drawn_threads_are_decided_as_they_were(seeds: range) -> None:
    """Of processes that died, too: seed 18 kills one after it has recorded how the task ended."""
    decided = 0
    for seed in seeds:
        world = World(Choices(seed), Counter())
        world.play()
        for name in world.threads:
            found = replay(world.graph, name)
            assert found.differences == (), (seed, name)
            decided += len(found.again)
    assert decided > 5 * len(seeds)


def test_the_machines_of_delegates_are_decided_again_too(tmp_path: Path) -> None:
    def team(storage: Any, turns: int, *script: Any, deep: bool = True) -> Graph:
        """A graph with a delegate, which has one, too. turns: those that the lowest may take."""
        lowest = build_graph(ScriptedModel([PAY, PAY, FINISH]), [pay], limits={"turns": turns})
        below = delegate("deep", lowest, description="Works.") if deep else note
        script_below = [call("deep", task="a part"), FINISH]
        middle = build_graph(ScriptedModel(script_below), [below], limits={"depth": 3})
        members = [delegate("child", middle, description="Works.")]
        return build_graph(ScriptedModel([*script]), members, storage=storage)

    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        team(opened, 3, call("child", task="work"), FINISH).invoke(GO, THREAD)
        found = replay(team(opened, 3), "t")
        assert found.differences == ()
        first, *_ = differences(team(opened, 2), "t")
        assert (first.path, first.turn, first.what) == (("child", "deep"), 1, "rule")
        # What no graph is known of is taken as it is, and said to be.
        lost = replay(team(opened, 3, deep=False), "t")
        assert len(lost.again) < len(found.again)
        assert len(lost.again) + len(lost.taken) == len(found.again) + len(found.taken)


def test_a_run_that_saved_only_its_end_is_taken_as_it_is(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([NOTE, FINISH] * 2), [note], storage=storage)
        graph.invoke(GO, THREAD, durability="exit")
        graph.invoke(GO, THREAD)
        found = replay(graph, "t")
    assert found.differences == ()
    assert [str(step.state) for step in found.taken] == ["finish", "call_llm", "execute", "call_llm"]
    assert len(found.again) == 8


def test_there_is_nothing_to_decide_of_an_unknown_thread_or_without_a_storage(tmp_path: Path) -> None:
    with build_graph(ScriptedModel([]), storage=tmp_path / "t.sqlite") as graph:
        assert replay(graph, "nobody") == Replay("nobody", (), (), ())
    with pytest.raises(SetupError):
        replay(build_graph(ScriptedModel([])), "t")
