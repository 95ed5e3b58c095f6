"""Going on with a thread, whatever stopped it: one call, which needs to know nothing of the thread."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from signoff import (
    Graph,
    Session,
    SetupError,
    ThreadError,
    ThreadUnknown,
    build_graph,
    delegate,
    go_on,
    outcome_of,
    sqlite_storage,
    stop,
    undo,
)
from signoff.models import ScriptedModel, call
from tests.support.interrupting import interrupt_process
from tests.support.ways import WAYS

TASK = {"messages": [("user", "Do it.")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def looks(number: int) -> list[Any]:
    return [call("look", place=str(at)) for at in range(number)]


DONE = call("finish_task", summary="Done.")


def interrupted() -> BaseTool:
    """A tool during which the process is interrupted, the first time."""
    times = []

    def interrupted() -> str:
        """Do it."""
        times.append(1)
        if len(times) == 1:
            interrupt_process()
        return "done"

    return StructuredTool.from_function(interrupted, metadata={"idempotent": True})


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Graph]]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:

        def make(*script: Any, **options: Any) -> Graph:
            return build_graph(
                ScriptedModel([*script]), options.pop("tools", [look]), storage=storage, **options
            )

        yield make


def whatever_stopped_it(graph: Graph, answer: Any = "blue") -> Any:
    """The program of the door."""
    result = graph.invoke(go_on(), CONFIG)
    for wait in result.get("__interrupt__", ()):
        result = graph.invoke(Command(resume={wait.id: answer}), CONFIG)
    return result


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_ends_a_task_and_going_on_grants_more_by_every_way(
    build: Callable[..., Graph], way: str
) -> None:
    graph = build(*looks(3), DONE, limits={"turns": 2})
    assert outcome_of(graph.invoke(TASK, CONFIG)).reason == "turns"
    assert outcome_of(WAYS[way](graph, go_on(turns=1), CONFIG)).reason == "turns"
    outcome = outcome_of(WAYS[way](graph, go_on(), CONFIG))
    assert (outcome.status, outcome.turns) == ("success", 4)


LIMITS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "turns": ({"turns": 3}, looks(5)),
    "tool_calls": ({"tool_calls": 2}, looks(4)),
    "talk_turns": ({"talk_turns": 2}, ["hm", "hmm", "and", "so"]),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_after_a_limit_every_limit_counts_anew(build: Callable[..., Graph], limit: str) -> None:
    limits, script = LIMITS[limit]
    graph = build(*script, DONE, limits=limits)
    assert outcome_of(graph.invoke(TASK, CONFIG)).reason == limit
    for _ in range(3):
        result = whatever_stopped_it(graph)
    assert outcome_of(result).status == "success"


def test_after_a_limit_there_are_as_many_turns_more_as_the_run_allows(build: Callable[..., Graph]) -> None:
    graph = build(*looks(9), limits={"turns": 2})
    graph.invoke(TASK, CONFIG)
    assert outcome_of(graph.invoke(go_on(), CONFIG)).turns == 4


def test_a_run_with_a_limit_of_its_own_grants_as_many(build: Callable[..., Graph]) -> None:
    graph = build(*looks(9), limits={"turns": 2})
    graph.invoke(TASK, CONFIG, context={"turns": 3})
    assert outcome_of(graph.invoke(go_on(), CONFIG, context={"turns": 3})).turns == 6
    assert Session(graph, "t", context={"turns": 3}).go_on().outcome.turns == 9  # type: ignore[union-attr]


def test_after_an_error_it_tries_again(build: Callable[..., Graph]) -> None:
    graph = build(ValueError("quota"), ValueError("quota"), DONE)
    assert outcome_of(graph.invoke(TASK, CONFIG)).reason == "model_error"
    assert outcome_of(whatever_stopped_it(graph)).reason == "model_error"
    assert outcome_of(whatever_stopped_it(graph)).status == "success"


def test_after_a_persons_stop_only_this_goes_on(build: Callable[..., Graph]) -> None:
    graph = build(call("ask_user", question="Which?"), DONE)
    graph.invoke(TASK, CONFIG)
    assert outcome_of(graph.invoke(stop(), CONFIG)).reason == "cancelled"
    assert Session(graph, "t").run().outcome.reason == "cancelled"  # type: ignore[union-attr]
    assert outcome_of(whatever_stopped_it(graph)).status == "success"


def test_what_waits_comes_back_and_nothing_runs(build: Callable[..., Graph]) -> None:
    graph = build(call("ask_user", question="Which colour?"), DONE)
    graph.invoke(TASK, CONFIG)
    before = graph.get_state(CONFIG)
    (wait,) = graph.invoke(go_on(), CONFIG)["__interrupt__"]
    assert wait.value["question"] == "Which colour?"
    assert graph.get_state(CONFIG).config == before.config
    assert outcome_of(whatever_stopped_it(graph)).status == "success"


def test_a_success_comes_back_and_nothing_runs(build: Callable[..., Graph]) -> None:
    graph = build(DONE)
    graph.invoke(TASK, CONFIG)
    before = graph.get_state(CONFIG)
    for way in WAYS.values():
        assert outcome_of(way(graph, go_on(turns=3), CONFIG)).status == "success"
    assert graph.get_state(CONFIG).config == before.config


@pytest.mark.parametrize("way", WAYS)
def test_only_an_unknown_thread_raises(build: Callable[..., Graph], way: str) -> None:
    with pytest.raises(ThreadUnknown, match="'t'"):
        WAYS[way](build(DONE), go_on(), CONFIG)
    assert ThreadUnknown.__mro__[1] is ThreadError


def test_a_paused_thread_goes_on_where_it_stood(build: Callable[..., Graph]) -> None:
    def rest() -> str:
        """Rest."""
        session.pause()
        return "rested"

    graph = build(call("rest"), DONE, tools=[rest])
    session = Session(graph, "t")
    session.run("Rest.")
    result = graph.invoke(go_on(turns=5), CONFIG)
    assert [message.text for message in result["messages"] if message.name == "rest"] == ["rested"]
    assert outcome_of(result).status == "success"


_DIES = '''
import os, sys
from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

def die(once: str) -> str:
    """Do something."""
    os._exit(9)

with sqlite_storage(sys.argv[1]) as storage:
    graph = build_graph(ScriptedModel([call("die", once="x")]), [die], storage=storage)
    graph.invoke({"messages": [("user", "Do it.")]}, {"configurable": {"thread_id": "t"}})
'''


@pytest.mark.parametrize("id", [None, "a button"])
def test_a_killed_thread_goes_on_where_it_stood(tmp_path: Path, id: str | None) -> None:
    ran = []

    def die(once: str) -> str:
        """Do something."""
        ran.append(once)
        return "done after all"

    path = str(tmp_path / "killed.sqlite")
    killed = subprocess.run([sys.executable, "-c", _DIES, path], env={**os.environ}, timeout=60)
    assert killed.returncode == 9
    with sqlite_storage(path) as storage:
        claim = call("finish_task", summary="It may have run.", outcome="partial")
        graph = build_graph(ScriptedModel([claim]), [die], storage=storage)
        outcome = outcome_of(graph.invoke(go_on(id=id), CONFIG))
        assert (outcome.status, outcome.changes[0].came, ran) == ("success", "unknown", [])


def test_one_id_goes_on_once(build: Callable[..., Graph]) -> None:
    graph = build(*looks(9), limits={"turns": 2})
    graph.invoke(TASK, CONFIG)
    for command in (go_on(1, "a"), go_on(1, "a"), go_on(1, "b"), go_on(1, "a"), go_on(1, "b")):
        outcome = outcome_of(graph.invoke(command, CONFIG))
    assert outcome.turns == 4
    assert Session(graph, "t").go_on(1, "b").outcome.turns == 4  # type: ignore[union-attr]


def test_one_id_goes_on_once_from_a_pause_to_a_limit(build: Callable[..., Graph]) -> None:
    def rest() -> str:
        """Rest."""
        session.pause()
        return "rested"

    graph = build(call("rest"), *looks(9), tools=[rest, look], limits={"turns": 3})
    session = Session(graph, "t")
    session.run("Rest.")
    for _ in range(3):
        outcome = outcome_of(graph.invoke(go_on(id="a"), CONFIG))
    assert (outcome.reason, outcome.turns) == ("turns", 3)


def test_one_id_of_a_run_that_was_killed_is_continued(build: Callable[..., Graph]) -> None:
    graph = build(*looks(2), call("interrupted"), DONE, tools=[look, interrupted()], limits={"turns": 2})
    graph.invoke(TASK, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(go_on(id="a"), CONFIG)
    assert outcome_of(graph.invoke(go_on(id="a"), CONFIG)).status == "success"


def test_delegates_go_on_with_the_thread(tmp_path: Path) -> None:
    below = build_graph(ScriptedModel([*looks(3), DONE]), [look], limits={"turns": 2})
    team = [delegate("helper", below, description="Helps.")]
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(
            ScriptedModel([call("helper", task="help"), DONE]), team, storage=storage, limits={"turns": 1}
        )
        assert outcome_of(graph.invoke(TASK, CONFIG)).status == "limit"
        assert outcome_of(graph.invoke(go_on(turns=3), CONFIG)).status == "success"


WRONG: dict[str, Callable[[], Any]] = {
    "turns=0": lambda: go_on(0),
    "turns=True": lambda: go_on(True),
    "turns='3'": lambda: go_on("3"),  # type: ignore[arg-type]
    "id=''": lambda: go_on(id=""),
    "id=3": lambda: go_on(id=3),  # type: ignore[arg-type]
    "ask=3": lambda: undo(3),  # type: ignore[arg-type]
    "an unknown option": lambda: Command(update={"go_on": {"turn": 3}}),
    "no options": lambda: Command(update={"go_on": 3}),
    "with an answer": lambda: Command(update={"go_on": {}}, resume="yes"),
    "of stop": lambda: Command(update={"stop": {"ask": True}}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_option_is_refused(build: Callable[..., Graph], wrong: str) -> None:
    graph = build(*looks(2), limits={"turns": 1})
    graph.invoke(TASK, CONFIG)
    before = graph.get_state(CONFIG)
    with pytest.raises(SetupError, match=r"go_on|undo|stop"):
        graph.invoke(WRONG[wrong](), CONFIG)
    assert graph.get_state(CONFIG).config == before.config


def test_the_command_is_the_same_as_json(build: Callable[..., Graph]) -> None:
    assert go_on().update == {"go_on": {}}
    assert go_on(3, "a").update == {"go_on": {"turns": 3, "id": "a"}}
    assert (undo().update, stop().update) == ({"undo": {"ask": False}}, {"stop": {}})
    graph = build(*looks(1), DONE, limits={"turns": 1})
    graph.invoke(TASK, CONFIG)
    assert outcome_of(graph.invoke(Command(update={"go_on": None}), CONFIG)).status == "success"


def test_without_storage_there_is_nothing_to_go_on_with() -> None:
    for command in (go_on(), undo(), stop()):
        with pytest.raises(SetupError, match="storage"):
            build_graph(ScriptedModel([DONE])).invoke(command)


def test_a_node_of_somebody_elses_graph_cannot_use_it() -> None:
    inner = build_graph(ScriptedModel([DONE]))

    def node(state: MessagesState) -> Any:
        return inner.invoke(go_on())

    task: Any = TASK
    outer = StateGraph(MessagesState).add_node("agent", node).add_edge(START, "agent").add_edge("agent", END)
    with pytest.raises(SetupError, match="graph"):
        outer.compile(checkpointer=InMemorySaver()).invoke(task, CONFIG)


def test_undo_takes_back_what_has_ended(build: Callable[..., Graph]) -> None:
    taken_back = []

    def pay(to: str) -> str:
        """Pay somebody."""
        return "paid"

    def take_back(args: dict[str, Any], result: str) -> str:
        taken_back.append(args["to"])
        return "taken back"

    tool = StructuredTool.from_function(pay, metadata={"undo": take_back})
    graph = build(call("pay", to="ada"), DONE, tools=[tool])
    with pytest.raises(ThreadUnknown):
        graph.invoke(undo(), CONFIG)
    graph.invoke(TASK, CONFIG)
    for way in WAYS.values():
        report = outcome_of(way(graph, undo(), CONFIG)).undo
        assert report is not None
        assert [one.said for one in report.undone] == ["taken back"]
    assert taken_back == ["ada"]


@pytest.mark.parametrize("way", WAYS)
def test_stop_ends_what_waits(build: Callable[..., Graph], way: str) -> None:
    graph = build(call("ask_user", question="Which?"), DONE)
    with pytest.raises(ThreadUnknown):
        WAYS[way](graph, stop(), CONFIG)
    graph.invoke(TASK, CONFIG)
    outcome = outcome_of(WAYS[way](graph, stop(), CONFIG))
    assert (outcome.status, outcome.reason) == ("error", "cancelled")
    with pytest.raises(ThreadError, match="ended"):
        WAYS[way](graph, stop(), CONFIG)


def test_stop_ends_what_was_killed_and_keeps_what_was_saved(build: Callable[..., Graph]) -> None:
    graph = build(*looks(1), call("interrupted"), tools=[look, interrupted()])
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(TASK, CONFIG)
    result = graph.invoke(stop(), CONFIG)
    assert outcome_of(result).reason == "cancelled"
    seen, interrupted_call = [message for message in result["messages"] if message.type == "tool"]
    assert seen.text == "nothing in 0"
    assert "unknown" in interrupted_call.text


# What surprised users before: each of these is gone.


def test_reading_the_events_of_a_thread_that_has_ended_grants_nothing(build: Callable[..., Graph]) -> None:
    graph = build(*looks(5), limits={"turns": 2})
    session = Session(graph, "t")
    session.run("Look.")
    before = graph.get_state(CONFIG).config
    assert [event.type for event in session.events()][-1] == "decided"
    session.run()
    session.step()
    assert graph.get_state(CONFIG).config == before


@pytest.mark.parametrize("word", ["pause", "stop"])
def test_another_session_reaches_the_run(build: Callable[..., Graph], word: str) -> None:
    looked, reached, asked = list[str](), threading.Event(), threading.Event()

    def slow(place: str) -> str:
        """Look slowly."""
        looked.append(place)
        reached.set()
        asked.wait(20)
        return "nothing"

    graph = build(call("slow", place="a"), call("slow", place="b"), DONE, tools=[slow])
    decisions: list[Any] = []
    runner = threading.Thread(target=lambda: decisions.append(Session(graph, "t").run("Look.")), daemon=True)
    runner.start()
    assert reached.wait(20)
    other = Session(graph, "t")
    assert (other.pause() if word == "pause" else other.stop()) is (True if word == "pause" else None)
    asked.set()
    runner.join(20)
    (decision,) = decisions
    assert looked == ["a"]
    if word == "pause":
        assert decision.by == "request"
    else:
        assert decision.outcome.reason == "cancelled"
    assert other.pause() is False
