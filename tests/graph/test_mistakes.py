"""The mistakes that users make: each ends in one clear sentence, when the graph is built or called."""

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

import signoff
from signoff import (
    ControlTool,
    Effect,
    Limits,
    Session,
    SetupError,
    StorageError,
    Texts,
    build_graph,
    current_outcome,
    extend,
    go_on,
    postgres_storage,
    retry,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.errors import SignoffError
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage

GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="Done.")


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def undescribed(a: int) -> int:
    return a


@tool
def look() -> str:
    """Look."""
    return "x"


class Toolkit:
    """A class that holds tools."""


class Answer(BaseModel):
    text: str


class Folder:
    checkpointer, store = InMemorySaver(), "no store"


def model() -> ScriptedModel:
    return ScriptedModel([FINISH])


def sentence(told: pytest.ExceptionInfo[Exception]) -> str:
    """The message, when it is one clear sentence, or two: it begins, ends, and holds no links or lines."""
    said = str(told.value)
    assert len(said) < 400, said
    assert "\n" not in said
    assert "http" not in said
    assert said.rstrip("`").endswith((".", "}}", "]"))
    return said


# Keywords of build_graph, and what the sentence says.
BUILT: dict[str, tuple[dict[str, Any], str]] = {
    "tools: a function": ({"tools": add}, r"tools= is the function add, not a list; write tools=\["),
    "tools: a tool": ({"tools": look}, "tools= is .*, not a list"),
    "tools: a dict": ({"tools": {"add": add}}, "tools= is .*, not a list"),
    "tools: a text": ({"tools": "add"}, "tools= is 'add', not a list"),
    "tools: a class": ({"tools": Toolkit}, "tools= is the class Toolkit, not a list"),
    "tools: a number": ({"tools": 3}, "tools= is 3, not a list"),
    "tools: None in the list": ({"tools": [add, None]}, "tools= holds None"),
    "tools: a name in the list": ({"tools": ["add"]}, "tools= holds 'add'"),
    "tools: a list in the list": ({"tools": [[add]]}, r"tools= holds \["),
    "tools: a class in the list": ({"tools": [Toolkit]}, "tools= holds the class Toolkit"),
    "tools: a schema in the list": ({"tools": [Answer]}, "tools= holds the class Answer"),
    "tools: a tool's class in the list": ({"tools": [StructuredTool]}, "the class StructuredTool"),
    "tools: an object in the list": ({"tools": [Toolkit()]}, "cannot be a tool"),
    "tools: a number in the list": ({"tools": [5]}, "5 cannot be a tool"),
    "tools: no docstring": ({"tools": [undescribed]}, "'undescribed' cannot be a tool .* docstring"),
    "model: a bare name": ({"model": "gpt"}, "'gpt'; write 'provider:model' .* such as 'openai:gpt'"),
    "model: a slip": ({"model": "antropic:x"}, "such as 'anthropic:x', or pass a chat model"),
    "model: a provider alone": ({"model": "openai:"}, "names no model: write it as 'openai:model'"),
    "model_retries: a number": ({"model_retries": 3}, "model_retries= is 3; write model_retries=ModelR"),
    "fallbacks: a single one": ({"fallbacks": model()}, "fallbacks= is ScriptedModel, not a list; write"),
    "fallbacks: a name alone": ({"fallbacks": "openai:gpt"}, "fallbacks= is 'openai:gpt', not a list"),
    "fallbacks: no model": ({"fallbacks": [add]}, "the function add is not a chat model"),
    "model: a class": (
        {"model": ScriptedModel},
        r"the class ScriptedModel; pass an instance of it: ScriptedM",
    ),
    "model: None": ({"model": None}, "None is not a chat model"),
    "model: a function": ({"model": add}, "the function add is not a chat model"),
    "model: cannot call tools": ({"model": FakeListChatModel(responses=["x"])}, "cannot call tools"),
    "checks: a function": ({"checks": add}, "checks= is .*; pass a list"),
    "checks: a command": ({"checks": "pytest -q"}, "checks= is 'pytest -q'; pass a list"),
    "checks: None": ({"checks": None}, "checks= is None; pass a list"),
    "checks: a dict": ({"checks": {"tests": add}}, "pass a list"),
    "checks: None in the list": ({"checks": [None]}, "neither a function nor a command"),
    "checks_folder: a number": ({"checks_folder": 3}, "pass the path of a folder"),
    "checks_folder: none there": ({"checks_folder": "/nowhere/at/all"}, "is not a folder"),
    "check_seconds: a text": ({"check_seconds": "60"}, "check_seconds is '60'; pass a number above 0"),
    "check_seconds: None": ({"check_seconds": None}, "check_seconds is None"),
    "approvals: a list": ({"approvals": ["write"]}, "approvals is .*; pass a mapping"),
    "approvals: a kind": ({"approvals": "write"}, "approvals is 'write'; pass a mapping"),
    "approvals: True": ({"approvals": True}, "approvals is True; pass a mapping"),
    "hand_over: a kind": (
        {"hand_over": "terminal"},
        r"hand_over= is 'terminal', not a list; write hand_over=\[",
    ),
    "hand_over: a function": ({"hand_over": add}, "hand_over= is the function add, not a list"),
    "hand_over: a function in the list": ({"hand_over": [add]}, "neither a tool of this graph nor a kind"),
    "hand_over: a misspelt kind": ({"hand_over": ["termnal"]}, r"\['termnal'\]"),
    "system_prompt: a number": ({"system_prompt": 3}, "system_prompt= is 3; pass text"),
    "system_prompt: a list": ({"system_prompt": ["Be kind."]}, "pass text"),
    "response_format: an instance": ({"response_format": Answer(text="x")}, "pass a pydantic model"),
    "response_format: a text": ({"response_format": "Answer"}, "pass a pydantic model"),
    "response_format: a list": ({"response_format": [Answer]}, "pass a pydantic model"),
    "limits: a number": ({"limits": 3}, r"limits= is 3; write limits=Limits\(turns=30\)"),
    "limits: the class": ({"limits": Limits}, "limits= is the class Limits"),
    "limits: a misspelt name": ({"limits": {"turn": 3}}, "Limits: there is no 'turn'; there are turns, "),
    "limits: a wrong value": ({"limits": {"turns": "many"}}, "Limits: turns: .* valid integer"),
    "limits: names that are no text": ({"limits": {3: 3}}, "limits= is"),
    "storage: a file": ({"storage": "x.sqlite"}, r"write `with sqlite_storage\('x\.sqlite'\) as storage:`"),
    "storage: a path": ({"storage": Path("x.sqlite")}, r"write `with sqlite_storage\('x\.sqlite'\)"),
    "storage: an address": (
        {"storage": "postgresql://a:secret@h/d"},
        r"`with postgres_storage\(url\) as storage:`",
    ),
    "storage: a function": ({"storage": sqlite_storage}, "the function sqlite_storage, no storage"),
    "storage: not entered": ({"storage": sqlite_storage("x.sqlite")}, "storage= has not been opened"),
    "storage: a saver": (
        {"storage": InMemorySaver()},
        r"a saver \(InMemorySaver\); pass it as checkpointer=",
    ),
    "storage: a store": ({"storage": InMemoryStore()}, "no storage"),
    "storage: a class": ({"storage": SqliteStorage}, "the class SqliteStorage, no storage"),
    "storage: halves that are none": ({"storage": Folder()}, "no storage"),
    "storage: twice": ({"storage": Folder(), "store": InMemoryStore()}, "not both"),
    "checkpointer: a class": (
        {"checkpointer": InMemorySaver},
        r"the class InMemorySaver; pass an instance of it, such as InMemorySaver\(\)",
    ),
    "checkpointer: a file": ({"checkpointer": "x.sqlite"}, "checkpointer= is 'x.sqlite'; pass an instance"),
    "checkpointer: not entered": ({"checkpointer": SqliteSaver.from_conn_string("x")}, "has not been opened"),
    "checkpointer: a store": ({"checkpointer": InMemoryStore()}, "pass an instance of LangGraph's Base"),
    "checkpointer: a storage": ({"checkpointer": Folder()}, "a whole storage; pass it as storage="),
    "store: a class": ({"store": InMemoryStore}, "the class InMemoryStore; pass an instance"),
    "store: a dict": ({"store": {}}, "store= is {}; pass an instance of LangGraph's BaseStore"),
    "store: a saver": ({"store": InMemorySaver()}, "pass an instance of LangGraph's BaseStore"),
    "control_tools: a function": ({"control_tools": add}, "the function add, not a list"),
    "control_tools: one": ({"control_tools": ControlTool(look, Effect.FINISH)}, "not a list"),
    "control_tools: a tool": ({"control_tools": [look]}, r"write ControlTool\(tool, Effect\.FINISH\)"),
    "texts: a dict": ({"texts": {}}, r"texts= is {}; pass Texts\(…\)"),
    "texts: the class": ({"texts": Texts}, "the class Texts"),
    "compaction: a typo": ({"compaction": "line"}, "compaction is 'line'; pass"),
    "compaction: a class": ({"compaction": ScriptedModel}, "pass 'model', 'lines' or a chat model"),
    "talk: a typo": ({"talk": "strickt"}, "talk is 'strickt'; use one of: strict, balanced, natural"),
    "talk: None": ({"talk": None}, "talk is None; use one of"),
    "unknown_outcomes: a typo": ({"unknown_outcomes": "aks"}, "is 'aks'; use one of: tell, ask"),
    "rounds: a text": ({"rounds": "false"}, "rounds is 'false'; pass True or False"),
    "prompt_tokens: a text": ({"prompt_tokens": "8k"}, "prompt_tokens is '8k'; pass a whole number above 0"),
    "prompt_tokens: True": ({"prompt_tokens": True}, "prompt_tokens is True"),
    "model_seconds: a text": ({"model_seconds": "5"}, "model_seconds is '5'; pass a number above 0, or None"),
    "tool_seconds: below 0": ({"tool_seconds": -1}, "tool_seconds is -1; pass a number above 0, or None"),
    "result_chars: a text": ({"result_chars": "9"}, "result_chars is '9'; pass a whole number above 0."),
}


@pytest.mark.parametrize("name", BUILT)
def test_it_is_told_when_the_graph_is_built(name: str) -> None:
    given, says = BUILT[name]
    with pytest.raises(SetupError) as told:
        build_graph(**{"model": model(), **given})
    said = sentence(told)
    assert re.search(says, said), said
    assert "secret" not in said


def test_nothing_was_made_by_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that was meant as a storage is no file afterwards."""
    monkeypatch.chdir(tmp_path)
    for given, _ in BUILT.values():
        with pytest.raises(SetupError):
            build_graph(**{"model": model(), **given})
    assert [*tmp_path.iterdir()] == []


TAKEN: dict[str, dict[str, Any]] = {
    "limits as a mapping": {"limits": {"turns": 3}},
    "no tools": {"tools": None},
    "tools as a generator": {"tools": (each for each in [add])},
    "tools as a tuple": {"tools": (add, look)},
    "no system prompt": {"system_prompt": None},
    "nothing handed over": {"hand_over": None},
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_meant_is_taken(name: str) -> None:
    graph = build_graph(**{"model": model(), **TAKEN[name]})
    assert graph.invoke(GO)["outcome"]["status"] == "success"


def test_a_mapping_of_limits_limits() -> None:
    graph = build_graph(ScriptedModel([call("add", a=1, b=n) for n in range(2)]), [add], limits={"turns": 2})
    assert graph.invoke(GO)["outcome"]["reason"] == "turns"


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


# Every way to call a graph: of input, configuration and context.
WAYS: dict[str, Callable[[Graph, Any, Any, Any], Any]] = {
    "invoke": lambda graph, given, config, context: graph.invoke(given, config, context=context),
    "ainvoke": lambda graph, *given: asyncio.run(graph.ainvoke(*given[:2], context=given[2])),
    "stream": lambda graph, *given: [*graph.stream(*given[:2], context=given[2])],
    "astream": lambda graph, *given: asyncio.run(_all(graph.astream(*given[:2], context=given[2]))),
    "batch": lambda graph, *given: graph.batch([given[0]], given[1], context=given[2]),
}
every_way = pytest.mark.parametrize("way", WAYS)
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Called(NamedTuple):
    says: str
    given: Any = GO
    config: Any = THREAD
    context: Any = None


NO_THREAD = r"This graph saves its threads, and `configurable` names none"
MISSPELT = NO_THREAD + r" \(it has '{}'\); write config={{"
NO_MESSAGE = r"The input holds something that is not a message \("
UNNAMED: dict[str, Called] = {
    "no configuration": Called(NO_THREAD, config=None),
    "an empty one": Called(NO_THREAD, config={}),
    "nothing in it": Called(NO_THREAD, config={"configurable": {}}),
    "threadid": Called(MISSPELT.format("threadid"), config={"configurable": {"threadid": "t"}}),
    "thread-id": Called(MISSPELT.format("thread-id"), config={"configurable": {"thread-id": "t"}}),
    "threadId": Called(MISSPELT.format("threadId"), config={"configurable": {"threadId": "t"}}),
    "thread": Called(MISSPELT.format("thread"), config={"configurable": {"thread": "t"}}),
    "None": Called("A thread id must be valid text.*not None", config={"configurable": {"thread_id": None}}),
    "a checkpoint alone": Called(NO_THREAD, config={"configurable": {"checkpoint_id": "1"}}),
    "a number": Called("A thread id must be valid text.*not 7", config={"configurable": {"thread_id": 7}}),
    "a UUID": Called("A thread id must be.*not UUID", config={"configurable": {"thread_id": uuid4()}}),
}
SHAPES: dict[str, Called] = {
    "beside `configurable`": Called("stands beside `configurable`, not in it", config={"thread_id": "t"}),
    "a text as configuration": Called("config is 't'; write config=", config="t"),
    "a text in it": Called(r"config\['configurable'\] is 't'", config={"configurable": "t"}),
    "None in it": Called(r"config\['configurable'\] is None", config={"configurable": None}),
}
CALLED: dict[str, Called] = {
    "an unknown name in the context": Called("there is no 'turnz'; there are .*turns", context={"turnz": 3}),
    "a value that does not fit": Called("Context: turns: .*valid integer", context={"turns": "three"}),
    "a prompt that is a number": Called(
        "Context: system_prompt: .*valid string", context={"system_prompt": 3}
    ),
    "a text as context": Called("context is 'x'; pass a mapping", context="x"),
    "a list as context": Called(r"context is \[1\]; pass a mapping", context=[1]),
    "limits as context": Called("context is .*; pass a mapping", context=object()),
    "a text as input": Called(r'The input is \'go\'; pass {"messages"', given="go"),
    "a list as input": Called(r"The input is \['go'\]; pass", given=["go"]),
    "a number as input": Called("The input is 3; pass", given=3),
    "a message as input": Called("The input is HumanMessage", given=HumanMessage("go")),
    "a misspelt key": Called("The input has 'message' and no 'messages'; pass", given={"message": ["go"]}),
    "None as messages": Called("The messages of the input are None; pass", given={"messages": None}),
    "a number as messages": Called(NO_MESSAGE + ".*'int'", given={"messages": 3}),
    "a number among them": Called(NO_MESSAGE, given={"messages": ["go", 3]}),
    "None among them": Called(NO_MESSAGE, given={"messages": [None]}),
    "a message without words": Called(NO_MESSAGE + ".*'content'", given={"messages": [{"role": "user"}]}),
    "an unknown role": Called(
        NO_MESSAGE + ".*robot", given={"messages": [{"role": "robot", "content": "x"}]}
    ),
    "words that are a number": Called(NO_MESSAGE + ".*valid string", given={"messages": [("user", 3)]}),
    "three parts of a message": Called(NO_MESSAGE, given={"messages": [("user", "a", "b")]}),
    "no message in an update": Called(NO_MESSAGE, given=Command(update={"messages": [3]})),
}


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that saves its threads, for calls that begin none."""
    with sqlite_storage(tmp_path_factory.mktemp("mistakes") / "threads.sqlite") as opened:
        yield build_graph(model(), [add], storage=opened)


@pytest.fixture(scope="module")
def plain() -> Graph:
    """A graph without a checkpointer, for calls that begin nothing."""
    return build_graph(model(), [add])


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@every_way
@pytest.mark.parametrize("name", [*UNNAMED, *SHAPES, *CALLED])
def test_it_is_told_when_the_graph_is_called(name: str, way: str, saving: Graph) -> None:
    if way == "batch" and name in SHAPES:
        pytest.skip("LangChain reads the configurations of a batch before any graph does")
    mistake = {**UNNAMED, **SHAPES, **CALLED}[name]
    with pytest.raises(SetupError) as told:
        WAYS[way](saving, mistake.given, mistake.config, mistake.context)
    said = sentence(told)
    assert re.search(mistake.says, said), said
    assert saving.get_state(THREAD).values == {}


@every_way
@pytest.mark.parametrize("name", CALLED)
def test_so_it_is_without_a_storage(name: str, way: str, plain: Graph) -> None:
    mistake = CALLED[name]
    with pytest.raises(SetupError) as told:
        WAYS[way](plain, mistake.given, None, mistake.context)
    assert re.search(mistake.says, sentence(told))


@every_way
def test_there_must_be_something_to_go_on_with(way: str, saving: Graph, plain: Graph) -> None:
    with pytest.raises(SignoffError, match="There is no thread 't'; start it with a task") as told:
        WAYS[way](saving, None, THREAD, None)
    sentence(told)
    with pytest.raises(SetupError, match="Without a checkpointer there is nothing to go on with; pass"):
        WAYS[way](plain, None, None, None)


@every_way
def test_without_a_storage_no_thread_need_be_named(way: str) -> None:
    for config in (None, {}, {"configurable": {"threadid": "t"}}):
        assert WAYS[way](build_graph(model(), [add]), GO, config, None)


# Every way to look at a thread, or to write to it.
LOOKS: dict[str, Callable[[Graph, Any], Any]] = {
    "get_state": lambda graph, config: graph.get_state(config),
    "aget_state": lambda graph, config: asyncio.run(graph.aget_state(config)),
    "get_state_history": lambda graph, config: graph.get_state_history(config),
    "aget_state_history": lambda graph, config: graph.aget_state_history(config),
    "update_state": lambda graph, config: graph.update_state(config, {"messages": ["x"]}),
    "aupdate_state": lambda graph, config: asyncio.run(graph.aupdate_state(config, {"messages": ["x"]})),
}


@pytest.mark.parametrize("look_at", LOOKS)
@pytest.mark.parametrize("name", [*UNNAMED, *SHAPES])
def test_it_is_told_when_a_thread_is_looked_at(name: str, look_at: str, saving: Graph) -> None:
    mistake = {**UNNAMED, **SHAPES}[name]
    with pytest.raises(SetupError) as told:
        LOOKS[look_at](saving, mistake.config)
    assert re.search(mistake.says, sentence(told))


def closed(folder: Path) -> Graph:
    """A graph whose storage was closed."""
    with sqlite_storage(folder / "threads.sqlite") as opened:
        return build_graph(model(), [add], storage=opened)


def session(graph: Graph) -> Session:
    return Session(graph, "t")


def called(way: str, graph: Graph) -> Any:
    return WAYS[way](graph, GO, THREAD, None)


AFTERWARDS: dict[str, Callable[[Graph], Any]] = {
    **{name: partial(called, name) for name in WAYS},
    "get_state": lambda graph: graph.get_state(THREAD),
    "aget_state": lambda graph: asyncio.run(graph.aget_state(THREAD)),
    "get_state_history": lambda graph: [*graph.get_state_history(THREAD)],
    "aget_state_history": lambda graph: asyncio.run(_all(graph.aget_state_history(THREAD))),
    "update_state": lambda graph: graph.update_state(THREAD, {"messages": ["x"]}),
    "aupdate_state": lambda graph: asyncio.run(graph.aupdate_state(THREAD, {"messages": ["x"]})),
    "Session.run": lambda graph: session(graph).run("go"),
    "Session.arun": lambda graph: asyncio.run(session(graph).arun("go")),
    "Session.step": lambda graph: session(graph).step("go"),
    "Session.astep": lambda graph: asyncio.run(session(graph).astep("go")),
    "Session.events": lambda graph: [*session(graph).events("go")],
    "Session.resume": lambda graph: session(graph).resume("yes"),
    "Session.stop": lambda graph: session(graph).stop(),
    "Session.history": lambda graph: session(graph).history(),
    "Session.fork": lambda graph: session(graph).fork(at=1),
    "expire": lambda graph: signoff.expire(graph, "t"),
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_a_graph_whose_storage_was_closed_says_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="The storage of this graph is closed: its `with` block") as told:
        AFTERWARDS[name](closed(tmp_path))
    sentence(told)


def test_so_does_one_with_langgraphs_own_saver() -> None:
    with SqliteSaver.from_conn_string(":memory:") as saver:
        graph = build_graph(model(), checkpointer=saver)
    with pytest.raises(StorageError, match="The storage of this graph is closed"):
        graph.invoke(GO, THREAD)


SESSIONS: dict[str, tuple[Callable[[Graph], Any], str]] = {
    "a number as id": (lambda graph: Session(graph, 7), "A thread id must be valid text.*not 7"),  # type: ignore[arg-type]  # the mistake
    "no id": (lambda graph: Session(graph, None), "A thread id must be valid text.*not None"),  # type: ignore[arg-type]  # the mistake
    "a configuration as id": (lambda graph: Session(graph, THREAD), "A thread id must be valid text"),
    "no graph": (lambda _: Session("graph", "t"), "was not made by build_graph"),  # type: ignore[arg-type]  # the mistake
    "a model": (lambda _: Session(model(), "t"), "was not made by build_graph"),  # type: ignore[arg-type]  # the mistake
    "the function": (lambda _: Session(build_graph, "t"), "was not made by build_graph"),  # type: ignore[arg-type]  # the mistake
    "no storage": (lambda _: Session(build_graph(model()), "t"), "build the graph with storage="),
    "a text as context": (lambda graph: Session(graph, "t", context="x"), "context is 'x'; pass a mapping"),
    "a list as configuration": (lambda graph: Session(graph, "t", config=[]), r"config is \[\]"),  # type: ignore[arg-type]  # the mistake
    "on_pending: a typo": (
        lambda graph: Session(graph, "t", on_pending="supercede"),  # type: ignore[arg-type]  # the mistake
        "on_pending is 'supercede'; use one of",
    ),
    "an unknown name in the context": (
        lambda graph: Session(graph, "t", context={"turnz": 3}).run("go"),
        "there is no 'turnz'; there are",
    ),
    "a value that does not fit": (
        lambda graph: Session(graph, "t", context={"turns": "x"}).run("go"),
        "Context: turns: ",
    ),
}
TASKS: dict[str, tuple[Any, str]] = {
    "a number": (3, "3 is not a valid task"),
    "an empty text": (" ", "The task is empty"),
    "no messages": ([], "The messages hold no task"),
    "a number among them": ([3], r"\[3\] is not a valid task"),
    "an empty dict": ({}, "{} is not a valid task"),
    "an input without messages": ({"messages": 3}, "3 is not a valid task"),
}
MOVES: dict[str, Callable[[Session, Any], Any]] = {
    "run": lambda session, task: session.run(task),
    "arun": lambda session, task: asyncio.run(session.arun(task)),
    "step": lambda session, task: session.step(task),
    "events": lambda session, task: [*session.events(task)],
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_says_what_it_needs(name: str, saving: Graph) -> None:
    mistake, says = SESSIONS[name]
    with pytest.raises(SetupError, match=says):
        mistake(saving)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", TASKS)
def test_a_session_says_what_a_task_is(name: str, move: str, saving: Graph) -> None:
    task, says = TASKS[name]
    with pytest.raises(SetupError, match=says) as told:
        MOVES[move](Session(saving, "t"), task)
    sentence(told)


@pytest.mark.parametrize("move", MOVES)
def test_the_input_of_a_graph_is_a_task_too(move: str, storage: SqliteStorage) -> None:
    graph = build_graph(model(), [add], storage=storage)
    MOVES[move](Session(graph, "t"), GO)
    ended = current_outcome(graph.get_state(THREAD).values)
    assert ended is not None
    assert ended["status"] == "success"


def ended(storage: SqliteStorage) -> Any:
    """The state of a thread that ended at a limit."""
    graph = build_graph(ScriptedModel([call("add", a=1, b=1)]), [add], storage=storage, limits={"turns": 1})
    graph.invoke(GO, THREAD)
    return graph.get_state(THREAD)


GOING_ON: dict[str, tuple[Callable[[Any], Any], str]] = {
    "extend by a text": (lambda state: extend(state.values, turns="3"), "by a whole number of turns"),  # type: ignore[arg-type]  # the mistake
    "extend by none": (lambda state: extend(state.values, turns=0), "at least 1 turn"),
    "extend a text": (lambda _: extend("t", turns=3), "pass graph.get_state"),  # type: ignore[arg-type]  # the mistake
    "retry a text": (lambda _: retry("t"), "pass graph.get_state"),  # type: ignore[arg-type]  # the mistake
    "go on with the values": (lambda state: go_on(state.values), "the snapshot of graph.get_state"),
    "the outcome of a snapshot": (current_outcome, "graph.get_state.*values"),
}


@pytest.mark.parametrize("name", GOING_ON)
def test_going_on_says_what_it_takes(name: str, storage: SqliteStorage) -> None:
    mistake, says = GOING_ON[name]
    with pytest.raises(SetupError, match=says):
        mistake(ended(storage))


def test_a_snapshot_is_as_good_as_its_values(storage: SqliteStorage) -> None:
    state = ended(storage)
    taken, same = extend(state, turns=3).update, extend(state.values, turns=3).update
    assert isinstance(taken, dict)
    assert isinstance(same, dict)
    assert taken["extra"] == same["extra"]


OPENED: dict[str, tuple[Callable[[], Any], str]] = {
    "a number for a path": (lambda: sqlite_storage(3), "takes the path of a file, not 3"),  # type: ignore[arg-type]  # the mistake
    "PostgreSQL's address": (
        lambda: sqlite_storage("postgresql://h/d"),
        r"use postgres_storage\(url\)",
    ),
    "a file for an address": (
        lambda: postgres_storage("x.sqlite"),
        "not the address of a PostgreSQL database",
    ),
    "a folder": (lambda: sqlite_storage("/"), r"\(it is a folder\); pass the path of a file"),
}


@pytest.mark.parametrize("name", OPENED)
def test_opening_says_what_it_takes(name: str) -> None:
    opens, says = OPENED[name]
    with pytest.raises(SignoffError, match=says), opens():
        pass


class Custom(BaseTool):
    """A tool of one's own, whose class is not its instance."""

    name: str = "custom"
    description: str = "Does it."

    def _run(self) -> str:
        return "x"


def test_an_instance_works_where_its_class_does_not() -> None:
    with pytest.raises(SetupError, match="the class Custom; pass an instance"):
        build_graph(model(), [Custom])
    assert build_graph(model(), [Custom()]).invoke(GO)["outcome"]["status"] == "success"
