"""Going on by every way to run a graph, after everything that stops a thread: one table."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
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
from signoff.storage import SqliteStorage
from tests.support.interrupting import interrupt_process
from tests.support.ways import GRAPH_WAYS, WAYS

CONFIG: Any = {"configurable": {"thread_id": "t"}}
TASK: Any = {"messages": [("user", "Do it.")]}
DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Which colour?")
every_way = pytest.mark.parametrize("way", WAYS)

# A program that dies in a tool, as by a power cut.
DIES = '''
import os, sys
from signoff import build_graph, sqlite_storage
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from langchain.agents import create_agent

def look(place: str) -> str:
    """Look somewhere."""
    if place == "1":
        os._exit(9)
    return "nothing in " + place

TASK, CONFIG = {"messages": [("user", "Do it.")]}, {"configurable": {"thread_id": "t"}}
MODEL = ScriptedModel([call("look", place="0"), call("look", place="1")])
with sqlite_storage(sys.argv[1]) as storage:
    if sys.argv[2] == "graph":
        graph = build_graph(MODEL, [look], storage=storage)
    else:
        saved = {"checkpointer": storage.checkpointer, "store": storage.store}
        graph = create_agent(MODEL, [look], middleware=[Guards()], **saved)
    graph.invoke(TASK, CONFIG)
'''


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def looks(number: int) -> list[Any]:
    return [call("look", place=str(at)) for at in range(number)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders with the databases of programs that died in a tool: of a graph, of an agent with guards."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("graph", "agent")}
    for kind, folder in folders.items():
        command = [sys.executable, "-W", "ignore", "-c", DIES, str(folder / "t.sqlite"), kind]
        assert subprocess.run(command, env={**os.environ}, timeout=60).returncode == 9
    return folders


class Case(NamedTuple):
    """begin: a graph whose thread is stopped. after: status and turns once it went on; None: it waits."""

    begin: Callable[[SqliteStorage], Graph]
    after: tuple[str, int] | None


def after_a_kill(storage: SqliteStorage) -> Graph:
    partly = call("finish_task", summary="The second look may have run.", outcome="partial")
    return build_graph(ScriptedModel([partly]), [look], storage=storage)


def after_a_pause(storage: SqliteStorage) -> Graph:
    def rest() -> str:
        """Rest."""
        session.pause()
        return "rested"

    graph = build_graph(ScriptedModel([call("rest"), DONE]), [rest], storage=storage)
    session = Session(graph, "t")
    session.run("Rest.")
    return graph


def begun(storage: SqliteStorage, *script: Any, **options: Any) -> Graph:
    graph = build_graph(ScriptedModel([*script]), [look], storage=storage, **options)
    graph.invoke(TASK, CONFIG)
    return graph


def after_a_stop(storage: SqliteStorage) -> Graph:
    graph = begun(storage, ASK, DONE)
    graph.invoke(stop(), CONFIG)
    return graph


CASES: dict[str, Case] = {
    "a kill in a tool": Case(after_a_kill, ("success", 3)),
    "a pause": Case(after_a_pause, ("success", 2)),
    "a limit": Case(lambda storage: begun(storage, *looks(3), DONE, limits={"turns": 2}), ("success", 4)),
    "an error": Case(lambda storage: begun(storage, ValueError("quota"), DONE), ("success", 1)),
    "a person's stop": Case(after_a_stop, ("success", 2)),
    "a question": Case(lambda storage: begun(storage, ASK), None),
    "a success": Case(lambda storage: begun(storage, DONE), ("success", 1)),
}


@pytest.fixture
def storage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SqliteStorage]:
    if (
        getattr(request.node, "callspec", None)
        and "a kill in a tool" in request.node.callspec.params.values()
    ):
        shutil.copytree(request.getfixturevalue("killed")["graph"], tmp_path, dirs_exist_ok=True)
    with sqlite_storage(tmp_path / "t.sqlite") as opened:
        yield opened


@every_way
@pytest.mark.parametrize("click", [None, "a click"])
@pytest.mark.parametrize("stopped_by", CASES)
def test_a_thread_goes_on(storage: SqliteStorage, stopped_by: str, click: str | None, way: str) -> None:
    case = CASES[stopped_by]
    graph = case.begin(storage)
    before = graph.get_state(CONFIG)
    values = WAYS[way](graph, go_on(id=click), CONFIG)
    state = graph.get_state(CONFIG)
    if case.after is None:
        assert (state.config, state.interrupts) == (before.config, before.interrupts)
        # LangGraph's events of a run name no interrupt.
        if way in GRAPH_WAYS and way != "astream_events":
            assert [wait.value["question"] for wait in values["__interrupt__"]] == ["Which colour?"]
        return
    outcome = outcome_of(state)
    assert outcome_of(values) == outcome
    assert (outcome.status, outcome.turns) == case.after
    assert stopped_by != "a success" or state.config == before.config
    seen = [message.text for message in state.values["messages"] if message.name == "look"]
    assert len(seen) == len({*seen})


@every_way
def test_only_an_unknown_thread_raises(storage: SqliteStorage, way: str) -> None:
    graph = build_graph(ScriptedModel([DONE]), storage=storage)
    for command in (go_on(), go_on(turns=3, id="a"), undo(), stop()):
        with pytest.raises(ThreadUnknown, match="'t'"):
            WAYS[way](graph, command, CONFIG)
    assert graph.get_state(CONFIG).values == {}


@every_way
@pytest.mark.parametrize("turns", [None, 1, 5])
def test_it_goes_on_with_as_many_turns_as_it_says(
    storage: SqliteStorage, turns: int | None, way: str
) -> None:
    graph = begun(storage, *looks(9), limits={"turns": 2})
    assert outcome_of(WAYS[way](graph, go_on(turns=turns), CONFIG)).turns == 2 + (turns or 2)


BY_CONTEXT: dict[str, Callable[[Graph, Any, Any], Any]] = {
    "invoke": lambda graph, given, context: graph.invoke(given, CONFIG, context=context),
    "ainvoke": lambda graph, given, context: asyncio.run(graph.ainvoke(given, CONFIG, context=context)),
    "stream": lambda graph, given, context: [*graph.stream(given, CONFIG, context=context)],
    "Session": lambda graph, given, context: Session(graph, "t", context=context).run(
        "Do it." if given is TASK else given
    ),
}


@pytest.mark.parametrize("way", BY_CONTEXT)
def test_it_grants_as_many_turns_as_the_context_of_the_run_allows(storage: SqliteStorage, way: str) -> None:
    graph = build_graph(ScriptedModel(looks(20)), [look], storage=storage, limits={"turns": 2})
    for given, turns in ((TASK, 3), (go_on(), 6), (go_on(turns=1), 7)):
        BY_CONTEXT[way](graph, given, {"turns": 3})
        assert outcome_of(graph.get_state(CONFIG)).turns == turns


@every_way
def test_stop_ends_what_waits_and_going_on_takes_it_up(storage: SqliteStorage, way: str) -> None:
    graph = begun(storage, ASK, DONE)
    assert outcome_of(WAYS[way](graph, stop(), CONFIG)).reason == "cancelled"
    with pytest.raises(ThreadError, match="ended"):
        WAYS[way](graph, stop(), CONFIG)
    assert outcome_of(WAYS[way](graph, go_on(), CONFIG)).status == "success"


@every_way
@pytest.mark.parametrize("ask", [False, True])
def test_undo_takes_back_once(storage: SqliteStorage, ask: bool, way: str) -> None:
    taken_back = list[str]()

    def pay(to: str) -> str:
        """Pay somebody."""
        return "paid"

    def take_back(args: dict[str, Any], result: str) -> str:
        taken_back.append(args["to"])
        return "taken back"

    tool = StructuredTool.from_function(pay, metadata={"undo": take_back})
    graph = build_graph(ScriptedModel([call("pay", to="ada"), DONE]), [tool], storage=storage)
    graph.invoke(TASK, CONFIG)
    for _ in range(2):
        WAYS[way](graph, undo(ask=ask), CONFIG)
        for wait in graph.get_state(CONFIG).interrupts:
            WAYS[way](graph, Command(resume={wait.id: "approve"}), CONFIG)
        report = outcome_of(graph.get_state(CONFIG)).undo
        assert report is not None
        assert [one.said for one in report.undone] == ["taken back"]
    assert taken_back == ["ada"]


# With guards in an agent of LangChain.


def agent(saved: Any, *script: Any, **options: Any) -> Any:
    return create_agent(ScriptedModel([*script]), [look], middleware=[Guards(**options)], **saved)


def memory() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def interrupted(place: str) -> str:
    """Look somewhere, and be interrupted."""
    interrupt_process()
    return place


class Guarded(NamedTuple):
    script: list[Any]
    options: dict[str, Any]
    after: tuple[str, int] | None


GUARDED: dict[str, Guarded] = {
    "a limit": Guarded([*looks(3), DONE], {"limits": {"turns": 2}}, ("success", 4)),
    "an error": Guarded([ValueError("quota"), DONE], {}, ("success", 1)),
    "a question": Guarded([ASK], {}, None),
    "a success": Guarded([DONE], {}, ("success", 1)),
}
AGENT_WAYS = {name: way for name, way in GRAPH_WAYS.items() if name != "astream_events"}


@pytest.mark.parametrize("way", AGENT_WAYS)
@pytest.mark.parametrize("stopped_by", GUARDED)
def test_a_guarded_agent_goes_on(stopped_by: str, way: str) -> None:
    case = GUARDED[stopped_by]
    held = guarded(agent(memory(), *case.script, **case.options))
    held.invoke(TASK, CONFIG)
    before = held.get_state(CONFIG)
    for _ in range(2):
        AGENT_WAYS[way](held, go_on(id="a click"), CONFIG)
        state = held.get_state(CONFIG)
        if case.after is None:
            assert (state.config, state.interrupts) == (before.config, before.interrupts)
        else:
            outcome = outcome_of(state)
            assert (outcome.status, outcome.turns) == case.after


@pytest.mark.parametrize("way", AGENT_WAYS)
def test_a_guarded_agent_goes_on_once_by_one_click(way: str) -> None:
    held = guarded(agent(memory(), *looks(9), limits={"turns": 2}))
    held.invoke(TASK, CONFIG)
    for click in ("a", "a", "b", "a", "b"):
        AGENT_WAYS[way](held, go_on(turns=1, id=click), CONFIG)
    assert outcome_of(held.get_state(CONFIG)).turns == 4


@pytest.mark.parametrize("way", AGENT_WAYS)
def test_a_guarded_agent_says_what_it_cannot(way: str) -> None:
    held = guarded(agent(memory(), DONE))
    with pytest.raises(ThreadUnknown, match="'t'"):
        AGENT_WAYS[way](held, go_on(), CONFIG)
    held.invoke(TASK, CONFIG)
    for command in (undo(), stop()):
        with pytest.raises(SetupError, match="no undo"):
            AGENT_WAYS[way](held, command, CONFIG)
    with pytest.raises(SetupError, match="needs a thread"):
        AGENT_WAYS[way](guarded(agent({}, DONE)), go_on(), None)


@pytest.mark.parametrize("given", [go_on(), None], ids=["go_on", "None"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_an_agent_goes_on_after_a_kill(killed: dict[str, Path], tmp_path: Path, way: str, given: Any) -> None:
    shutil.copytree(killed["agent"], tmp_path, dirs_exist_ok=True)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        saved = {"checkpointer": storage.checkpointer, "store": storage.store}
        partly = call("finish_task", summary="The second look may have run.", outcome="partial")
        plain = agent(saved, partly)
        GRAPH_WAYS[way](plain if given is None else guarded(plain), given, CONFIG)
        outcome = outcome_of(plain.get_state(CONFIG))
        assert (outcome.status, outcome.turns) == ("success", 3)


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_with_plain_guards_a_message_begins_anew_after_a_limit(way: str) -> None:
    plain = agent(memory(), *looks(2), DONE, limits={"turns": 2})
    plain.invoke(TASK, CONFIG)
    assert outcome_of(plain.get_state(CONFIG)).reason == "turns"
    GRAPH_WAYS[way](plain, {"messages": [("user", "Go on.")]}, CONFIG)
    assert outcome_of(plain.get_state(CONFIG)).status == "success"


# In the graph of somebody else, that graph goes on.


@pytest.mark.parametrize("way", ["invoke", "stream", "batch"])
@pytest.mark.parametrize("command", [go_on(), undo(), stop()], ids=["go_on", "undo", "stop"])
def test_a_node_of_somebody_elses_graph_cannot_use_it(way: str, command: Any) -> None:
    inner = build_graph(ScriptedModel([DONE]))

    def node(state: MessagesState) -> Any:
        return GRAPH_WAYS[way](inner, command, None)

    outer = StateGraph(MessagesState).add_node("agent", node).add_edge(START, "agent").add_edge("agent", END)
    with pytest.raises(SetupError, match="in the graph of somebody else, continue that graph"):
        outer.compile(checkpointer=InMemorySaver()).invoke(TASK, CONFIG)


def test_somebody_elses_graph_goes_on_by_its_own_means() -> None:
    runs = list[str]()

    def work(place: str) -> str:
        """Work, and be interrupted the first time."""
        runs.append(place)
        if len(runs) == 1:
            interrupt_process()
        return place

    tool = StructuredTool.from_function(work, metadata={"idempotent": True})
    inner = build_graph(ScriptedModel([ASK, call("work", place="a"), DONE]), [tool])
    outer = StateGraph(MessagesState).add_node("agent", inner).add_edge(START, "agent").add_edge("agent", END)
    compiled = outer.compile(checkpointer=InMemorySaver(), store=InMemoryStore())
    (wait,) = compiled.invoke(TASK, CONFIG)["__interrupt__"]
    with pytest.raises(KeyboardInterrupt):
        compiled.invoke(Command(resume={wait.id: "blue"}), CONFIG)
    assert compiled.invoke(None, CONFIG)["messages"][-1].text == "Done."
    assert runs == ["a", "a"]
