"""The thread of every incident is decided again as it was; what is decided differently is reported."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from langchain_core.tools import tool

import signoff.graph.rules
import signoff.session.path
from signoff import Limits, SetupError, build_graph, sqlite_storage
from signoff.graph.machine import _TABLE, Event, State
from signoff.graph.rules import RULES
from signoff.models import ScriptedModel, call
from signoff.session.below import is_machine
from signoff.session.copying import namespaces_below
from signoff.session.path import steps
from signoff.session.replay import DECIDED, Replay, replay
from signoff.storage import SqliteStorage
from tests.incidents.fixtures import World
from tests.incidents.player import graph_of, incidents

INCIDENTS = incidents()


@tool
def note(text: str) -> str:
    """Note."""
    return "noted"


note.metadata = {"kind": "read"}

# The states whose steps cannot be decided again in an incident, since the record does not hold the answer.
_HOOKED = {State.DECIDE, State.ROUTE_TOOLS, State.REVIEW, State.FINISH}
NOT_KEPT = {
    "history: summarised by a model": {State.COMPRESS},
    # The check that failed is not run again.
    "finish: refused twice": {State.REVIEW},
    # Hooks of a middleware run in these states, and what they say is known to nobody but them.
    **{name: _HOOKED for name in INCIDENTS if name.startswith(("middleware:", "channels:"))},
}


def check(name: str, storage: Any) -> None:
    """The thread is decided again as it was; no step is left out, and none is only taken that could be."""
    found = replay(graph_of(INCIDENTS[name], (), storage), name)
    assert [str(one) for one in found.differences] == [], name
    saver = storage.checkpointer
    below = [ns for ns in namespaces_below(saver, name) if is_machine(saver, name, ns)]
    whole = [step for ns in ("", *below) for step in steps(saver, name, within=ns) if step.name]
    assert sorted([*found.again, *found.taken], key=repr) == sorted(whole, key=repr), name
    assert {step.state for step in found.taken} & DECIDED <= NOT_KEPT.get(name, set()), name


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

    before, world = held(), World(tmp_path / "effects", "", {})
    for name, incident in INCIDENTS.items():
        with ScriptedModel([]) as model:
            replay(graph_of(incident, model, storage, world), name)
        assert model.seen == []
    assert not world.effects.exists()
    assert held() == before


Break = Callable[[pytest.MonkeyPatch, SqliteStorage, str], object]


def without(name: str) -> Break:
    """The rules without one of them."""
    rules = tuple(rule for rule in RULES if rule.name != name)
    return lambda patch, *_: patch.setattr(signoff.graph.rules, "RULES", rules)


def swapped(one: str, other: str) -> Break:
    """The rules with two of them in each other's place."""
    by_name = {rule.name: rule for rule in RULES}
    names = {one: other, other: one}
    rules = tuple(by_name[names.get(rule.name, rule.name)] for rule in RULES)
    return lambda patch, *_: patch.setattr(signoff.graph.rules, "RULES", rules)


def leads(state: State, event: Event, target: State) -> Break:
    """The table with one event that leads elsewhere."""
    return lambda patch, *_: patch.setitem(_TABLE[state], event, target)


def unknown(state: State) -> Break:
    """A state of which nothing is known by its stored name."""
    known = signoff.session.path.known_state

    def of_another_version(name: str) -> State | None:
        return None if name == state else known(name)

    return lambda patch, *_: patch.setattr(signoff.session.path, "known_state", of_another_version)


def edited(channel: str, edit: Callable[[Any], Any], *, where: Callable[[Any], bool]) -> Break:
    """A value of a channel is another one in the first checkpoint of the thread where it is as said."""

    def change(_: Any, storage: SqliteStorage, name: str) -> None:
        saver = storage.checkpointer
        saved = list(saver.list({"configurable": {"thread_id": name, "checkpoint_ns": ""}}))[::-1]
        held = next(one for one in saved if where(one.checkpoint["channel_values"].get(channel)))
        values = held.checkpoint["channel_values"]
        values[channel] = edit(values[channel])
        assert held.parent_config is not None
        saver.put(held.parent_config, held.checkpoint, held.metadata, {})

    return change


def recorded_otherwise(_: Any, storage: SqliteStorage, name: str) -> None:
    """The store says something else of how the task ended."""
    (item,) = storage.store.search(("signoff", "outcomes", name))
    storage.store.put(item.namespace, item.key, {**item.value, "turns": 7})


@dataclass(frozen=True)
class Mutation:
    """Something that is made different, and how the first difference is reported.

    thread: that of the incident of this name. settings: of the graph, in place of the recorded ones.
    """

    thread: str
    reports: str
    apply: Break = lambda *_: None
    settings: Mapping[str, Any] = field(default_factory=dict)


MUTATIONS: Mapping[str, Mutation] = {
    "a rule is removed: a question": Mutation(
        "questions: in the second task",
        "turn 3, decide: rule was 'asked → asked: ask_user stands (call_1_2_0)', "
        "and now is 'think → think: nothing else applies'",
        without("asked"),
    ),
    "a rule is removed: a limit": Mutation(
        "limits: turns",
        "turn 3, decide: rule was 'turns → exhausted: 3 of 3 turns are used', "
        "and now is 'think → think: nothing else applies'",
        without("turns"),
    ),
    "a rule is removed: a reminder": Mutation(
        "loop: replies of every kind",
        "turn 2, decide: rule was 'truncated → remind: the last reply was cut off (finish_reason length)', "
        "and now is 'think → think: nothing else applies'",
        without("truncated"),
    ),
    "two rules are swapped: a claim and a limit": Mutation(
        "finish: the answer in an argument",
        "turn 1, decide: rule was 'claimed → claimed: finish_task stands (call_0_0_0)', "
        "and now is 'turns → exhausted: 1 of 1 turns are used'",
        swapped("claimed", "turns"),
        {"limits": {"turns": 1}},
    ),
    "two rules are swapped: a limit and the last one": Mutation(
        "loop: replies of every kind",
        "turn 2, decide: rule was 'truncated → remind: the last reply was cut off (finish_reason length)', "
        "and now is 'think → think: nothing else applies'",
        swapped("turns", "think"),
    ),
    "a limit is lower": Mutation(
        "limits: talk and repeats",
        "turn 4, decide: rule was 'repeating → remind: 2 identical results in a row', "
        "and now is 'repeats → exhausted: 2 identical results in a row'",
        settings={"limits": {"talk_turns": 2, "repeats": 2}},
    ),
    "a limit is higher": Mutation(
        "limits: talk and repeats",
        "turn 2, decide: rule was 'talk_turns → exhausted: 2 replies in a row without a call', "
        "and now is 'think → think: nothing else applies'",
        settings={"limits": {"talk_turns": 3, "repeats": 3}},
    ),
    "another policy": Mutation(
        "approvals: two calls at once",
        "turn 1, route_tools: event was 'needs approval', and now is 'work'",
        settings={"approvals": {}},
    ),
    "an outcome was edited": Mutation(
        "finish: without a final message",
        "turn 2, finish: outcome was {'turns': 3}, and now is {'turns': 2}",
        edited("outcome", lambda found: {**found, "turns": 3}, where=bool),
    ),
    "a recorded outcome was edited": Mutation(
        "finish: without a final message",
        "turn 2, finish: recorded outcome was {'turns': 7}, and now is {'turns': 2}",
        recorded_otherwise,
    ),
    "an event was edited, to one of its state": Mutation(
        "questions: nobody answered in time",
        "turn 1, route_tools: next was [<State.DECIDE: 'decide'>], and now is [<State.EXECUTE: 'execute'>]",
        edited("event", lambda _: "work", where=lambda event: event == "settled"),
    ),
    "an event was edited, to one of another state": Mutation(
        "questions: nobody answered in time",
        "turn 1, call_llm: event was 'refused', and now is 'one of: replied, too long, stopped, failed'",
        edited("event", lambda _: "refused", where=lambda event: event == "replied"),
    ),
    "an event was edited, to one that there is not": Mutation(
        "questions: nobody answered in time",
        "turn 1, call_llm: event was 'sung', and now is 'one of: replied, too long, stopped, failed'",
        edited("event", lambda _: "sung", where=lambda event: event == "replied"),
    ),
    "a reason was edited": Mutation(
        "limits: turns",
        "turn 3, decide: rule was 'turns → exhausted: tired', "
        "and now is 'turns → exhausted: 3 of 3 turns are used'",
        edited(
            "decision",
            lambda found: {**found, "why": "tired"},
            where=lambda found: bool(found) and found["rule"] == "turns",
        ),
    ),
    "a verdict was edited": Mutation(
        "finish: a phase then the rest",
        "turn 3, review: verdicts was ",
        edited(
            "verdicts",
            lambda found: {**found, "calls": dict.fromkeys(found["calls"], "accepted")},
            where=bool,
        ),
    ),
    "a refusal by a check was edited": Mutation(
        "finish: refused by a check",
        "turn 1, review: event was 'refused', and now is 'accepted'",
        edited(
            "verdicts",
            lambda found: {
                **found,
                "calls": {key: {"kind": "siblings", "why": "note failed"} for key in found["calls"]},
            },
            where=bool,
        ),
    ),
    "a state is not known any more": Mutation(
        "loop: talk does not end a task",
        "turn 1, nudge: state was 'nudge', and now is 'one of: compress, decide, ",
        unknown(State.NUDGE),
    ),
    "an event leads elsewhere": Mutation(
        "loop: talk does not end a task",
        "turn 1, nudge: next was [<State.COMPRESS: 'compress'>], and now is [<State.DECIDE: 'decide'>]",
        leads(State.NUDGE, Event.NUDGED, State.DECIDE),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_decided_differently_is_reported(
    name: str, storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation = MUTATIONS[name]
    check(mutation.thread, storage)
    mutation.apply(monkeypatch, storage, mutation.thread)
    incident = INCIDENTS[mutation.thread]
    settings = {**incident.get("settings", {}), **mutation.settings}
    found = replay(graph_of({**incident, "settings": settings}, (), storage), mutation.thread).differences
    assert found, "it was not seen"
    assert str(found[0]).startswith(mutation.reports)
    assert re.fullmatch(r"[0-9a-f-]{36}", found[0].checkpoint_id)


def test_a_thread_of_two_hundred_turns_is_decided_again_in_three_seconds(tmp_path: Path) -> None:
    script = [call("note", text=f"{number} " + "x" * 400) for number in range(199)]
    finish = call("finish_task", summary="All of it.")
    with (
        sqlite_storage(tmp_path / "long.sqlite") as storage,
        ScriptedModel([*script, finish]) as model,
    ):
        graph = build_graph(
            model, [note], storage=storage, limits=Limits(turns=200), policy={"prompt_tokens": 5_000}
        )
        graph.invoke({"messages": ["go"]}, {"configurable": {"thread_id": "t"}})
        begun = time.process_time()
        found = replay(graph, "t")
    assert time.process_time() - begun < 3
    assert found.differences == ()
    assert len(found.again) > 400
    assert sum(step.state is State.COMPRESS for step in found.again) > 5, "the history was folded"


def test_a_run_that_saved_only_its_end_is_taken_as_it_is(tmp_path: Path) -> None:
    thread: Any = {"configurable": {"thread_id": "t"}}
    script = [call("note", text="a"), call("finish_task", summary="All of it.")]
    with sqlite_storage(tmp_path / "t.sqlite") as storage, ScriptedModel(script * 2) as model:
        graph = build_graph(model, [note], storage=storage)
        graph.invoke({"messages": ["one"]}, thread, durability="exit")
        graph.invoke({"messages": ["two"]}, thread)
        found = replay(graph, "t")
    assert found.differences == ()
    assert [str(step.state) for step in found.taken] == ["finish", "call_llm", "execute", "call_llm"]
    assert len(found.again) == 8


def test_the_context_of_the_runs_can_be_given(tmp_path: Path) -> None:
    thread: Any = {"configurable": {"thread_id": "t"}}
    with (
        sqlite_storage(tmp_path / "t.sqlite") as storage,
        ScriptedModel([call("note", text="a")]) as model,
    ):
        graph = build_graph(model, [note], storage=storage)
        graph.invoke({"messages": ["one"]}, thread, context={"turns": 1})
        assert replay(graph, "t", context={"turns": 1}).differences == ()
        (rule, *_) = replay(graph, "t").differences
    assert (rule.turn, rule.what, rule.now) == (1, "rule", "think → think: nothing else applies")


def test_an_unknown_thread_has_nothing_to_decide(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([]), storage=storage)
    assert replay(graph, "nobody") == Replay("nobody", (), (), ())


def test_a_graph_without_a_checkpointer_is_refused() -> None:
    with pytest.raises(SetupError, match="nothing to replay without a checkpointer"):
        replay(build_graph(ScriptedModel([])), "t")
