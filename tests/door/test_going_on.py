"""Going on with a thread, whatever stopped it: one call, by any way in, which knows nothing of it. After a
pause it is in test_pause_and_stop.py, and undo in tests/loop/test_undo.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from signoff import (
    Graph,
    Session,
    SetupError,
    ThreadError,
    ThreadUnknown,
    build_graph,
    go_on,
    outcome_of,
    sqlite_storage,
    stop,
    undo,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from tests.support.interrupting import interrupt_process
from tests.support.plays import ASK, FINISH, GO, THREAD, results, saved
from tests.support.ways import GRAPH_WAYS, SESSION_WAYS, WAYS

QUOTA = ValueError("quota")
PARTLY = call("finish_task", summary="It may have run.", outcome="partial")
COMMANDS = {"go_on": go_on(), "undo": undo(), "stop": stop()}
some_ways = pytest.mark.parametrize("way", ["invoke", "astream", "Session.run", "Session.aevents"])
Build = Callable[..., Graph]


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def looks(number: int) -> list[Any]:
    return [call("look", place=str(at)) for at in range(number)]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:

        def make(*script: Any, tools: Any = (), **options: Any) -> Graph:
            return build_graph(ScriptedModel([*script]), [look, *tools], storage=storage, **options)

        yield make


def begun(build: Build, *script: Any, **options: Any) -> Graph:
    graph = build(*script, **options)
    graph.invoke(GO, THREAD)
    return graph


class Work:
    """A tool during which the process is interrupted, the first time, and how often it ran."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.ran = 0
        self.tool = StructuredTool.from_function(self.work, metadata={"idempotent": idempotent})

    def work(self) -> str:
        """Work."""
        self.ran += 1
        if self.ran == 1:
            interrupt_process()
        return "worked"


WORK = call("work")


def after_a_kill(build: Build) -> Graph:
    with pytest.raises(KeyboardInterrupt):
        begun(build, *looks(1), WORK, tools=[Work().tool])
    return build(PARTLY, tools=[Work().tool])


def after_a_stop(build: Build) -> Graph:
    graph = begun(build, ASK, FINISH)
    graph.invoke(stop(), THREAD)
    return graph


# What stopped it, and status and turns once it went on; None where it waits.
STOPPED: dict[str, tuple[Callable[[Build], Graph], tuple[str, int] | None]] = {
    "a kill in a tool": (after_a_kill, ("success", 3)),
    "a limit": (lambda build: begun(build, *looks(3), FINISH, limits={"turns": 2}), ("success", 4)),
    "an error": (lambda build: begun(build, QUOTA, FINISH), ("success", 1)),
    "a person's stop": (after_a_stop, ("success", 2)),
    "a question": (lambda build: begun(build, ASK), None),
    "a success": (lambda build: begun(build, FINISH), ("success", 1)),
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_thread_goes_on(build: Build, name: str) -> None:
    stopped, after = STOPPED[name]
    graph = stopped(build)
    before = graph.get_state(THREAD)
    values = graph.invoke(go_on(), THREAD)
    state = graph.get_state(THREAD)
    outcome = state.values["outcome"]
    assert (outcome and (outcome["status"], outcome["turns"])) == after
    assert values["outcome"] == outcome
    if name in ("a question", "a success"):
        assert (state.config, state.interrupts) == (before.config, before.interrupts), "nothing has run"
    looked = results(state.values, "look")
    assert len(looked) == len({*looked})


@some_ways
def test_it_grants_turns_once_for_each_id(build: Build, way: str) -> None:
    graph = begun(build, *looks(12), limits={"turns": 2})

    def turns(command: Any) -> int:
        return outcome_of(WAYS[way](graph, command, THREAD)).turns

    assert [turns(go_on(1, name)) for name in ("a", "a", "b", "a", "b")] == [3, 3, 4, 4, 4]
    assert [turns(go_on()), turns(go_on(5))] == [6, 11]


def test_an_id_is_spent_whatever_it_went_on_from(build: Build) -> None:
    graph = begun(build, QUOTA, QUOTA, *looks(9), limits={"turns": 2})
    reasons = [outcome_of(graph.invoke(go_on(id=name), THREAD)).reason for name in "aab"]
    assert reasons == ["model_error", "model_error", "turns"]
    assert outcome_of(graph.invoke(go_on(id="b"), THREAD)).turns == 2


def test_it_grants_as_many_turns_as_the_context_of_the_run_allows(build: Build) -> None:
    graph = build(*looks(20), limits={"turns": 2})
    for given, turns in ((GO, 3), (go_on(), 6), (go_on(1), 7)):
        assert outcome_of(graph.invoke(given, THREAD, context={"turns": 3})).turns == turns
    ended: Any = Session(graph, "t", context={"turns": 3}).go_on()
    assert ended.outcome.turns == 10


@pytest.mark.parametrize(
    ("limits", "script"),
    [({"tool_calls": 2}, looks(4)), ({"talk_turns": 2}, ["hm", "hmm", "and", "so"])],
    ids=["tool_calls", "talk_turns"],
)
def test_after_a_limit_every_limit_counts_anew(build: Build, limits: Any, script: list[Any]) -> None:
    graph = begun(build, *script, FINISH, limits=limits)
    assert [outcome_of(graph.get_state(THREAD)).reason] == [*limits]
    assert "success" in [outcome_of(graph.invoke(go_on(), THREAD)).status for _ in range(3)]


@some_ways
def test_what_waits_is_stopped_and_then_only_this_goes_on(build: Build, way: str) -> None:
    graph = build(ASK, FINISH)
    for command in (*COMMANDS.values(), go_on(3, "a")):
        with pytest.raises(ThreadUnknown, match="'t'"):
            WAYS[way](graph, command, THREAD)
    assert graph.get_state(THREAD).values == {}
    graph.invoke(GO, THREAD)
    assert outcome_of(WAYS[way](graph, stop(), THREAD)).reason == "cancelled"
    with pytest.raises(ThreadError):
        WAYS[way](graph, stop(), THREAD)
    assert outcome_of(WAYS[way](graph, go_on(), THREAD)).status == "success"


@pytest.mark.parametrize(("name", "way"), [("a limit", "Session.run"), ("an error", "Session.aevents")])
def test_to_look_at_what_has_ended_grants_nothing(build: Build, name: str, way: str) -> None:
    graph = STOPPED[name][0](build)
    before = graph.get_state(THREAD)
    SESSION_WAYS[way](graph, None, THREAD)
    assert graph.get_state(THREAD).config == before.config


WRONG: dict[str, Callable[[], Any]] = {
    "an empty id": lambda: go_on(id=""),
    "a number for ask": lambda: undo(3),  # type: ignore[arg-type]
    "an unknown option": lambda: Command(update={"go_on": {"turn": 3}}),
    "an answer beside it": lambda: Command(update={"go_on": {}}, resume="yes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused(build: Build, name: str) -> None:
    graph = begun(build, *looks(2), limits={"turns": 1})
    before = graph.get_state(THREAD)
    with pytest.raises(SetupError, match=r"go_on|undo|stop"):
        graph.invoke(WRONG[name](), THREAD)
    assert graph.get_state(THREAD).config == before.config


def test_the_command_is_the_same_as_json(build: Build) -> None:
    assert (go_on().update, go_on(3, "a").update) == ({"go_on": {}}, {"go_on": {"turns": 3, "id": "a"}})
    assert (undo().update, stop().update) == ({"undo": {"ask": False}}, {"stop": {}})
    graph = begun(build, *looks(1), FINISH, limits={"turns": 1})
    assert outcome_of(graph.invoke(Command(update={"go_on": None}), THREAD)).status == "success"


# Where there is no storage, in the graph of somebody else, and with guards in an agent of LangChain.


def test_without_a_storage_there_is_nothing_to_go_on_with() -> None:
    for command in COMMANDS.values():
        with pytest.raises(SetupError, match="storage"):
            build_graph(ScriptedModel([FINISH])).invoke(command)


def outer_graph(node: Any, **options: Any) -> Any:
    graph = StateGraph(MessagesState).add_node("agent", node).add_edge(START, "agent").add_edge("agent", END)
    return graph.compile(**options)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_node_of_somebody_elses_graph_cannot_use_it(name: str) -> None:
    inner = build_graph(ScriptedModel([FINISH]))
    node = outer_graph(lambda state: inner.invoke(COMMANDS[name]), **saved())
    with pytest.raises(SetupError, match="graph"):
        node.invoke(GO, THREAD)


def test_somebody_elses_graph_goes_on_by_its_own_means() -> None:
    work = Work(idempotent=True)
    graph = outer_graph(build_graph(ScriptedModel([ASK, WORK, FINISH]), [work.tool]), **saved())
    (wait,) = graph.invoke(GO, THREAD)["__interrupt__"]
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume={wait.id: "blue"}), THREAD)
    assert graph.invoke(None, THREAD)["messages"][-1].text == "All of it."
    assert work.ran == 2


def agent(script: list[Any], limits: Any = None, **options: Any) -> Any:
    return create_agent(ScriptedModel(script), [look], middleware=[Guards(limits=limits)], **options)


@pytest.mark.parametrize("way", ["invoke", "astream"])
def test_a_guarded_agent_goes_on_and_says_what_it_cannot(way: str) -> None:
    run, graph = GRAPH_WAYS[way], guarded(agent([*looks(4), QUOTA, ASK, FINISH], {"turns": 2}, **saved()))
    with pytest.raises(ThreadUnknown, match="'t'"):
        run(graph, go_on(), THREAD)
    graph.invoke(GO, THREAD)
    for command in (undo(), stop()):
        with pytest.raises(SetupError, match="undo"):
            run(graph, command, THREAD)
    turns = [outcome_of(run(graph, go_on(1, name), THREAD)).turns for name in "aabab"]
    assert turns == [3, 3, 4, 4, 4]
    assert outcome_of(run(graph, go_on(), THREAD)).reason == "model_error"
    for _ in range(2):
        run(graph, go_on(), THREAD)
        (wait,) = graph.get_state(THREAD).interrupts
    graph.invoke(Command(resume={wait.id: "blue"}), THREAD)
    assert outcome_of(run(graph, go_on(), THREAD)).status == "success"
    with pytest.raises(SetupError, match="thread"):
        run(guarded(agent([FINISH])), go_on(), None)
