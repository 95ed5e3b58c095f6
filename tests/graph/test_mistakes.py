"""The mistakes that users make: each is an error of ours that names what is wrong, and nothing has run."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from signoff import (
    Check,
    ControlTool,
    Graph,
    Limits,
    LoopPolicy,
    Prices,
    Session,
    SetupError,
    SignoffError,
    StorageError,
    Texts,
    ThreadUnknown,
    build_graph,
    go_on,
    outcome_of,
    postgres_storage,
    sqlite_storage,
    standard_controls,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, TaggedTexts, call
from signoff.records import rate
from signoff.session import expire, request_pause
from signoff.workers import drive, pause, submit

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def undescribed(a: int) -> int:
    return a


@tool
def look() -> str:
    """Look."""
    return "x"


def look_with(**metadata: Any) -> BaseTool:
    return look.model_copy(update={"metadata": metadata})


def look_named(name: str) -> BaseTool:
    return look.model_copy(update={"name": name})


class Toolkit:
    """A class that holds tools."""


class Answer(BaseModel):
    text: str


class Unresolved(TypedDict):
    x: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  the mistake


class Own(TypedDict):
    outcome: str


class Turns(BaseModel):
    turns: int = 3


class Custom(BaseTool):
    """A tool of one's own, whose class is not its instance."""

    name: str = "custom"
    description: str = "Does it."

    def _run(self) -> str:
        return "x"


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


class Halves:
    checkpointer, store = InMemorySaver(), "no store"


class Both:
    checkpointer, store = InMemorySaver(), InMemoryStore()


APPROVE: dict[str, Any] = {"allowed_decisions": ["approve"]}


def yields(*_: Any) -> Iterator[bool]:
    yield True


def model() -> ScriptedModel:
    return ScriptedModel([call("finish_task", summary="Done.")])


def raises(wrong: Callable[[], Any], names: str, error: type[SignoffError] = SetupError) -> None:
    """The property of all errors: a clear sentence, or two, that names the thing, without links or lines."""
    with pytest.raises(SignoffError) as raised:
        wrong()
    said = str(raised.value)
    assert type(raised.value) is error, repr(raised.value)
    assert not names or re.search(rf"(?<!\w){re.escape(names)}(?!\w)", said, re.IGNORECASE), said
    assert len(said) < 400
    assert "\n" not in said
    assert "http" not in said
    assert "secret" not in said
    assert said.rstrip("`").endswith((".", "}}", "]"))


# Every argument of build_graph refuses every kind of value that it does not take.
KINDS: dict[str, Any] = {
    "a number": 3,
    "a text": "x y",
    "a function": add,
    "a class": Toolkit,
    "a list": ["x"],
    "a mapping": {3: 3},
    "an instance": Toolkit(),
    "True": True,
    "None": None,
}
TAKES = {
    "system_prompt": {"a text"},
    "checks": {"a list"},
    "approvals": {"a function"},
    "storage": {"a text"},
    # As in LangGraph: the checkpointer of the graph around it.
    "checkpointer": {"True"},
}


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (argument, kind)
        for argument in inspect.signature(build_graph).parameters
        for kind in KINDS
        if kind not in TAKES.get(argument, ()) and (kind != "None" or argument == "model")
    ],
)
def test_a_value_of_another_kind_is_told_when_the_graph_is_built(argument: str, kind: str) -> None:
    options: dict[str, Any] = {"model": model(), argument: KINDS[kind]}
    raises(lambda: build_graph(**options), argument)


# Values that look right. Where a message names a part of the argument, that stands behind its name.
BUILT: dict[str, dict[str, Any]] = {
    "tools": {
        "None in the list": [add, None],
        "a list in the list": [[add]],
        "a class in the list": [Custom],
        "an empty mapping in the list": [{}],
        "a mapping that is no provider tool": [{"name": "x"}],
        "a tool alone": look,
    },
    "tools: tool": {
        "an object in the list": [Toolkit()],
        "the name of a control tool": [look_named("finish_task")],
        "a name that is empty": [look_named("")],
        "a name of a lambda": [look_named("<lambda>")],
        "a name with a letter that providers refuse": [look_named("grün")],
        "a name that is too long": [look_named("x" * 129)],
        "a name with a line end": [look_named("a\n")],
    },
    "tools: web_search": {"two of the provider with one name": [{"type": "web_search"}] * 2},
    "tools: undescribed": {"no docstring": [undescribed]},
    "tools: add": {"two with one name": [add, add]},
    "tools: kind": {"a kind that does not exist": [look_with(kind="sometimes")]},
    "tools: hand_over": {"a text": [look_with(hand_over="yes")]},
    "tools: seconds": {"a text": [look_with(seconds="9")], "without an end": [look_with(seconds=inf)]},
    "tools: idempotent": {"a text": [look_with(idempotent="no")]},
    "model": {
        "a bare name": "gpt",
        "a provider with a slip": "antropic:x",
        "a provider alone": "openai:",
        "no provider": ":x",
        "half a character": "\ud800:x",
        "empty": "",
        "a class": ScriptedModel,
        "one that cannot call tools": FakeListChatModel(responses=["x"]),
    },
    "middleware": {
        "a class": [AgentMiddleware],
        "one alone": AgentMiddleware(),
        "a tool": [look],
        "two with one name": [AgentMiddleware(), AgentMiddleware()],
    },
    "limits": {"the class": Limits},
    "limits: turn": {"a name with a slip": {"turn": 3}},
    "response_format": {
        "an instance": Answer(text="x"),
        "a mapping of nothing": {"a": 1},
        "a broken schema": {"type": "nothing"},
        "a reference to nothing": {"$ref": "#/nowhere"},
        "a list's type": list[int],
        "a union": Answer | None,
        "any type": Any,
        "an unknown type": Unresolved,
    },
    "checks": {"a check alone": Check("true")},
    "checks: check": {
        "None": [None],
        "a class": [Toolkit],
        "an empty command": [" "],
        "a command with NUL": ["a\0b"],
        "half a character": ["\ud800"],
        "an unknown parameter": [lambda x: True],
    },
    "checks: yields": {"a generator": [yields]},
    "approvals": {
        "hand_over alone": "hand_over",
        "a generator": yields,
        "a function of three parameters": lambda a, b, c: True,
        "no tool at all": {"nothing": False},
        "a control tool": {"ask_user": True},
        "a function as name": {add: True},
        "a kind with a slip": {"termnal": "hand_over"},
    },
    "approvals: write": {
        "an unknown word": {"write": "handover"},
        "None": {"write": None},
        "no decision": {"write": []},
        "a class": {"write": dict},
    },
    "approvals: aprove": {"an unknown decision": {"write": ["aprove"]}},
    "approvals: handover": {"an unknown key": {"write": APPROVE | {"handover": True}}},
    "approvals: hand_over": {"a text": {"write": APPROVE | {"hand_over": "yes"}}},
    "control_tools": {"one alone": ControlTool(look, "finish"), "a tool": [look], "a class": [ControlTool]},
    "control_tools: control tool": {"none": [], "none that finishes": standard_controls()[1:]},
    "control_tools: control tools": {"each twice": standard_controls() * 2},
    "storage": {
        "empty": "",
        "blank": " ",
        "NUL": "a\0b",
        "bytes": b"x.sqlite",
        "not entered": SqliteSaver.from_conn_string("x"),
        "a saver": InMemorySaver(),
        "a class": Both,
        "halves that are none": Halves(),
    },
    "storage: checkpointer": {"in memory": ":memory:"},
    "storage: redis": {"another database": "redis://a:secret@h/d"},
    "storage: sqlite": {"an address of SQLAlchemy": "sqlite:///x.sqlite"},
    "checkpointer": {
        "a class": InMemorySaver,
        "not entered": SqliteSaver.from_conn_string("x"),
        "a store": InMemoryStore(),
        "a whole storage": Both(),
    },
    "store": {"a class": InMemoryStore, "a saver": InMemorySaver()},
    "context_schema": {"an instance": Answer(text="x"), "an unknown type": Unresolved},
    "context_schema: turns": {"a field of Signoff's": Turns},
    "state_schema": {"a model": Answer, "an unknown type": Unresolved},
    "state_schema: outcome": {"a channel of Signoff's": Own},
    "name": {
        "empty": "",
        "too long": "x" * 65,
        "a slash": "a/b",
        "a line end": "a\n",
        "NUL": "a\0",
        "half a character": "\ud800",
    },
    "policy": {"the class": LoopPolicy, "limits": Limits()},
    "policy: tlak": {"a name with a slip": {"tlak": 1}},
    "policy: texts": {"a mapping": {"texts": {}}, "the class": {"texts": Texts}},
    "policy: model_retries": {"a number": {"model_retries": 3}},
    "policy: compaction": {"a slip": {"compaction": "line"}, "a class": {"compaction": ScriptedModel}},
    "policy: talk": {"a slip": {"talk": "strickt"}, "None": {"talk": None}},
    "policy: streaming": {"True": {"streaming": True}},
    "policy: unknown_outcomes": {"a slip": {"unknown_outcomes": "aks"}},
    "policy: on_failure": {"a slip": {"on_failure": "undu"}},
    # Names of other libraries, and of earlier days: the message says what to write.
    "interrupt_on: approvals": {"LangChain's": {"pay": True}},
    "interrupt_before: interrupt_before": {"LangGraph's": ["x"]},
    "prompt: system_prompt": {"LangGraph's": "Be kind."},
    "debug: debug": {"LangGraph's": True},
    "cache: AnthropicPromptCachingMiddleware": {"a middleware": "auto"},
    "fallbacks: ModelFallbackMiddleware": {"a middleware": [model()]},
    "tool: tool": {"a slip": [add]},
}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in BUILT for name in BUILT[group]])
def test_a_wrong_argument_is_told_when_the_graph_is_built(
    group: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argument, _, names = group.partition(": ")
    options: dict[str, Any] = {"model": model(), argument: BUILT[group][name]}
    raises(lambda: build_graph(**options), names or argument)
    assert [*tmp_path.iterdir()] == [], "what was no path of a database is no file afterwards"


def test_a_storage_and_a_half_of_one_do_not_go_together() -> None:
    raises(lambda: build_graph(model(), storage=Both(), checkpointer=InMemorySaver()), "checkpointer")  # type: ignore[arg-type]
    raises(lambda: build_graph(model(), storage=Both(), store=InMemoryStore()), "store")  # type: ignore[arg-type]


NO_NUMBERS = {"inf": inf, "nan": nan, "-1": -1, "0": 0, "True": True, "a list": [], "a text": "many"}
NUMBERS = [
    (settings, name)
    for settings in (Limits, LoopPolicy)
    for name, field in settings.model_fields.items()
    if re.search(r"\b(int|float)\b", repr(field.annotation))
]


@pytest.mark.parametrize("wrong", NO_NUMBERS)
@pytest.mark.parametrize(("settings", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_no_number_is_infinite_negative_or_a_flag(settings: Any, name: str, wrong: str) -> None:
    raises(lambda: settings(**{name: NO_NUMBERS[wrong]}), name)
    argument: dict[str, Any] = {"limits" if settings is Limits else "policy": {name: NO_NUMBERS[wrong]}}
    raises(lambda: build_graph(model(), **argument), name)
    # `context` offers the limits of a run, and of the policy what a run may choose.
    if settings is Limits:
        raises(lambda: build_graph(model()).invoke(GO, context={name: NO_NUMBERS[wrong]}), name)


def test_the_numbers_of_all_settings_are_looked_at() -> None:
    assert {"turns", "tokens", "cost", "model_seconds", "parallel"} < {name for _, name in NUMBERS}
    assert len(NUMBERS) > 15


# What is told where it is made or opened: what the message names, and the mistake, which is the ignored type.
MADE: dict[str, tuple[str, Callable[[], Any]]] = {
    "a check's folder that is a number": ("folder", lambda: Check("true", folder=3)),  # type: ignore[arg-type]
    "a check's folder that is not there": ("/nowhere/at", lambda: Check("true", folder="/nowhere/at")),
    "a check's folder for a function": ("folder", lambda: Check(add, folder=".")),
    "a check's seconds as a text": ("seconds", lambda: Check("true", seconds="60")),  # type: ignore[arg-type]
    "a check's seconds as None": ("seconds", lambda: Check("true", seconds=None)),  # type: ignore[arg-type]
    "no check": ("check", lambda: Check(3)),  # type: ignore[arg-type]
    "rounds as a text": ("rounds", lambda: standard_controls(rounds="no")),  # type: ignore[arg-type]
    "an answer that there is not": ("answer", lambda: standard_controls(answer="all")),  # type: ignore[arg-type]
    "an alias alone": ("aliases", lambda: standard_controls(aliases="done")),
    "an effect with a slip": ("effect", lambda: ControlTool(look, "finnish")),  # type: ignore[arg-type]
    "a function as a control tool": ("tool", lambda: ControlTool(add, "finish")),  # type: ignore[arg-type]
    "one repetition": ("repeats", lambda: Limits(repeats=1)),
    "prices below zero": ("input", lambda: Limits(prices={"input": -1, "output": 1})),
    "half of the prices": ("output", lambda: Prices(input=1)),  # type: ignore[call-arg]
    "the second of two wrong limits": ("tokens", lambda: Limits(turns=0, tokens=0)),
    "more turns by a text": ("turns", lambda: go_on(turns="3")),  # type: ignore[arg-type]
    "no more turns": ("1", lambda: go_on(turns=0)),
    "a database's path that is a number": ("path", lambda: sqlite_storage(3)),  # type: ignore[arg-type]
    "PostgreSQL's address for a path": ("postgres_storage", lambda: sqlite_storage("postgresql://h/d")),
    "guards with rounds": ("rounds", lambda: Guards(control_tools=standard_controls(rounds=True))),
    "guards with an answer": ("answer", lambda: Guards(control_tools=standard_controls(answer="none"))),
    "guards that stream": ("streaming", lambda: Guards(policy={"streaming": "never"})),
    "guards with a time limit": ("tool_seconds", lambda: Guards(policy=LoopPolicy(tool_seconds=3))),
    "guards with a slip": ("tlak", lambda: Guards(policy={"tlak": 1})),
    "guards with a tool as control tool": ("control_tools", lambda: Guards(control_tools=[look])),  # type: ignore[list-item]
    "guards with one check": ("checks", lambda: Guards(checks="true")),
}


@pytest.mark.parametrize("name", MADE)
def test_it_is_told_where_it_is_made(name: str) -> None:
    names, make = MADE[name]
    raises(make, names)


def opened(storage: Any) -> None:
    with storage:
        pass


@pytest.mark.parametrize(
    ("names", "build"),
    [
        ("/", lambda: build_graph(model(), storage="/")),
        ("/", lambda: opened(sqlite_storage("/"))),
        ("PostgreSQL", lambda: build_graph(model(), storage="postgresql://")),
        ("PostgreSQL", lambda: opened(postgres_storage("x.sqlite"))),
    ],
    ids=["a folder", "a folder, opened", "half an address", "a file for an address"],
)
def test_a_database_that_cannot_be_is_an_error_of_the_storage(names: str, build: Callable[[], Any]) -> None:
    raises(build, names, StorageError)


# Braces in texts of the user's own: what could not be filled in, and the text that is named.
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "JSON": ("nudges['talked']", {"nudges": {"talked": 'Call {"name": "finish_task"}'}}),
    "JSON in a text with nothing to fill in": ("system", {"system": 'Call {"a": 1}'}),
    "a brace alone": ("think", {"think": "a { b"}),
    "a brace that closes": ("results['ended']", {"results": {"ended": "}"}}),
    "a name of another text": ("refusals['tool']", {"refusals": {"tool": "{names}"}}),
    "no name": ("amounts['turns']", {"amounts": {"turns": "{}"}}),
    "a place": ("amounts['turns']", {"amounts": {"turns": "{0}"}}),
    "an attribute": ("refusals['tool']", {"refusals": {"tool": "{name.upper}"}}),
    "an item": ("refusals['tool']", {"refusals": {"tool": "{name[0]}"}}),
    "a name inside of a format": ("refusals['tool']", {"refusals": {"tool": "{name:{width}}"}}),
    "a format that does not fit": ("results['timeout']", {"results": {"timeout": "{seconds:d}"}}),
    "a number": ("history_summary", {"history_summary": 3}),
    "None": ("nudges['talked']", {"nudges": {"talked": None}}),
    "half a character": ("system", {"system": "a\ud800"}),
    "a name that no text has": ("nudges['taked']", {"nudges": {"taked": "x"}}),
    "what was undone is not told": ("undone", {"nudges": {"resumed_undone": "Just go on."}}),
    "which result was undone is not told": ("calls", {"results": {"undone": "[undone: {{calls}}]"}}),
    "what people said is not told": ("words", {"words": {"said": "- somebody spoke"}}),
    "no mapping": ("results", {"results": "x"}),
}
TAGGED = {
    "JSON": ("principles", {"principles": 'Say {"a": 1}. {constitution}'}),
    "a format that does not fit": ("older", {"older": "{count:s}"}),
    "a name of another text": ("current", {"current": "{plan}"}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_could_not_be_filled_in_is_told_when_it_is_made(name: str) -> None:
    names, texts = TEXTS[name]
    with pytest.raises(SetupError, match=re.escape(names)):
        Texts(**texts)


@pytest.mark.parametrize("name", TAGGED)
def test_so_is_one_of_the_text_protocol(name: str) -> None:
    names, texts = TAGGED[name]
    with pytest.raises(SetupError, match=names):
        TaggedTexts(**texts)


# How a graph is called.


class Called(NamedTuple):
    """What the message names; input, configuration and context of the call."""

    names: str
    given: Any = GO
    config: Any = THREAD
    context: Any = None


def _named(thread_id: Any) -> Any:
    return {"configurable": {"thread_id": thread_id}}


NO_IDS: dict[str, Any] = {
    "empty": "",
    "NUL": "a\0b",
    "half a character": "a\ud800b",
    "a number": 7,
    "True": True,
    "a list": ["a"],
    "bytes": b"a",
    "a mapping": {"a": 1},
    "None": None,
    "a UUID": uuid4(),
    "not printable": Unprintable(),
    "very long": ["x" * 1_000] * 1_000,
}
SHAPES: dict[str, Called] = {
    "no configuration": Called("configurable", config=None),
    "an empty configuration": Called("configurable", config={}),
    "a configuration that names nothing": Called("configurable", config={"configurable": {}}),
    "a checkpoint alone": Called("configurable", config={"configurable": {"checkpoint_id": "1"}}),
    **{
        f"the id as {name}": Called(f"'{name}'", config={"configurable": {name: "t"}})
        for name in ("threadid", "thread-id", "threadId", "thread")
    },
    "the id beside `configurable`": Called("configurable", config={"thread_id": "t"}),
    "a text as configuration": Called("config", config="t"),
    "a text in the configuration": Called("config['configurable']", config={"configurable": "t"}),
    "None in the configuration": Called("config['configurable']", config={"configurable": None}),
}
IDS = {f"an id that is {name}": Called("thread id", config=_named(wrong)) for name, wrong in NO_IDS.items()}
INPUTS: dict[str, Called] = {
    "an unknown name in the context": Called("turnz", context={"turnz": 3}),
    "a value of the context that does not fit": Called("turns", context={"turns": "three"}),
    "a prompt that is a number": Called("system_prompt", context={"system_prompt": 3}),
    "a text as context": Called("context", context="x"),
    "a list as context": Called("context", context=[1]),
    "an object as context": Called("context", context=object()),
    "a text as input": Called("input", given="go"),
    "a list as input": Called("input", given=["go"]),
    "a number as input": Called("input", given=3),
    "a message as input": Called("input", given=HumanMessage("go")),
    "a key of the input with a slip": Called("'message'", given={"message": ["go"]}),
    "None as messages": Called("messages", given={"messages": None}),
    "a number as messages": Called("message", given={"messages": 3}),
    "a number among the messages": Called("message", given={"messages": ["go", 3]}),
    "None among the messages": Called("message", given={"messages": [None]}),
    "a message without words": Called("content", given={"messages": [{"role": "user"}]}),
    "an unknown role": Called("robot", given={"messages": [{"role": "robot", "content": "x"}]}),
    "words that are a number": Called("message", given={"messages": [("user", 3)]}),
    "three parts of a message": Called("message", given={"messages": [("user", "a", "b")]}),
    "an update that starts nothing": Called("starts nothing", given=Command(update={"messages": [3]})),
    "an update with a slip": Called("starts nothing", given=Command(update={"goon": {}})),
    "two instructions at once": Called("starts nothing", given=Command(update={"go_on": {}, "undo": {}})),
    "a state in the middle": Called("states", given=Command(goto="finish")),
}
CALLED = SHAPES | IDS | INPUTS

WAYS: dict[str, Callable[[Graph, Called], Any]] = {
    "invoke": lambda graph, how: graph.invoke(how.given, how.config, context=how.context),
    "stream": lambda graph, how: [*graph.stream(how.given, how.config, context=how.context)],
    "batch": lambda graph, how: graph.batch([how.given], how.config, context=how.context),
}


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that saves its threads, for calls that begin none."""
    with sqlite_storage(tmp_path_factory.mktemp("mistakes") / "threads.sqlite") as storage:
        yield build_graph(model(), [add], storage=storage)


# LangChain reads the configurations of a batch before any graph does.
@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way in WAYS for name in CALLED if way != "batch" or name not in SHAPES]
)
def test_a_wrong_call_is_told_and_begins_no_thread(way: str, name: str, saving: Graph) -> None:
    mistake = CALLED[name]
    raises(lambda: WAYS[way](saving, mistake), mistake.names)
    assert saving.get_state(THREAD).values == {}


@pytest.mark.parametrize("name", INPUTS)
def test_so_it_is_without_a_storage(name: str) -> None:
    mistake = INPUTS[name]._replace(config=None)
    raises(lambda: WAYS["invoke"](build_graph(model(), [add]), mistake), mistake.names)


def test_there_must_be_something_to_go_on_with(saving: Graph) -> None:
    raises(lambda: saving.invoke(None, THREAD), "'t'", ThreadUnknown)
    raises(lambda: build_graph(model()).invoke(None), "checkpointer")


# Every other way to name a thread.
LOOKS: dict[str, Callable[[Graph, Any], Any]] = {
    "get_state": lambda graph, config: graph.get_state(config),
    "get_state_history": lambda graph, config: [*graph.get_state_history(config)],
    "update_state": lambda graph, config: graph.update_state(config, {"messages": ["x"]}),
}
BY_ID: dict[str, Callable[[Graph, Any], Any]] = {
    "Session": Session,
    "fork": lambda graph, thread_id: Session(graph, "t").fork(None, thread_id),
    "expire": expire,
    "request_pause": lambda graph, thread_id: request_pause(graph.store, thread_id),  # type: ignore[arg-type]
    "rate": lambda graph, thread_id: rate(graph.store, thread_id, 5),  # type: ignore[arg-type]
    "drive": drive,
    "with_config": lambda graph, thread_id: graph.with_config(_named(thread_id)).invoke(GO),
}


@pytest.mark.parametrize("way", LOOKS)
@pytest.mark.parametrize("name", SHAPES | IDS)
def test_a_thread_that_is_not_named_is_not_looked_at(name: str, way: str, saving: Graph) -> None:
    raises(lambda: LOOKS[way](saving, CALLED[name].config), CALLED[name].names)


# To fork to None is to have a new id chosen.
@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way in BY_ID for name in NO_IDS if (way, name) != ("fork", "None")]
)
def test_what_is_no_id_is_refused_by_every_way_in(way: str, name: str, saving: Graph) -> None:
    raises(lambda: BY_ID[way](saving, NO_IDS[name]), "thread id")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NO_IDS if name != "None"])
def test_workers_refuse_it_too(name: str, postgres_url: str) -> None:
    wrong = NO_IDS[name]
    with postgres_storage(postgres_url) as storage:
        raises(lambda: submit(storage, "do it", wrong), "thread id")
        raises(lambda: pause(storage, wrong), "thread id")
        raises(lambda: build_graph(model(), storage=storage).invoke(GO, _named(wrong)), "thread id")
        assert [*storage.threads()] == []


def in_context(**context: Any) -> Callable[[Graph], Any]:
    return lambda graph: Session(graph, "t", context=context).run("go")


# The ignored types are the mistakes.
SESSIONS: dict[str, tuple[str, Callable[[Graph], Any]]] = {
    "no graph": ("build_graph", lambda _: Session("graph", "t")),  # type: ignore[arg-type]
    "a model": ("build_graph", lambda _: Session(model(), "t")),  # type: ignore[arg-type]
    "the function": ("build_graph", lambda _: Session(build_graph, "t")),  # type: ignore[arg-type]
    "no storage": ("storage", lambda _: Session(build_graph(model()), "t")),
    "a text as context": ("context", lambda graph: Session(graph, "t", context="x")),
    "a list as configuration": ("config", lambda graph: Session(graph, "t", config=[])),  # type: ignore[arg-type]
    "on_pending with a slip": ("on_pending", lambda graph: Session(graph, "t", on_pending="supercede")),  # type: ignore[arg-type]
    "an unknown name in the context": ("turnz", in_context(turnz=3)),
    "a value that does not fit": ("turns", in_context(turns="x")),
}
TASKS: dict[str, tuple[str, Any]] = {
    "a number": ("task", 3),
    "an empty text": ("task", " "),
    "no messages": ("task", []),
    "a number among the messages": ("task", [3]),
    "an empty mapping": ("task", {}),
    "an input without messages": ("task", {"messages": 3}),
}
MOVES: dict[str, Callable[[Session, Any], Any]] = {
    "run": lambda session, task: session.run(task),
    "step": lambda session, task: session.step(task),
    "events": lambda session, task: [*session.events(task)],
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_says_what_it_needs(name: str, saving: Graph) -> None:
    names, mistake = SESSIONS[name]
    raises(lambda: mistake(saving), names)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", TASKS)
def test_a_session_says_what_a_task_is(name: str, move: str, saving: Graph) -> None:
    names, task = TASKS[name]
    raises(lambda: MOVES[move](Session(saving, "t"), task), names)


@pytest.mark.parametrize("move", MOVES)
def test_the_input_of_a_graph_is_a_task_too(move: str) -> None:
    graph = build_graph(model(), checkpointer=InMemorySaver(), store=InMemoryStore())
    MOVES[move](Session(graph, "t"), GO)
    assert outcome_of(graph.get_state(THREAD)).status == "success"


# What is done with a graph whose storage was closed.
AFTERWARDS: dict[str, Callable[[Graph], Any]] = {
    "invoke": lambda graph: graph.invoke(GO, THREAD),
    "stream": lambda graph: [*graph.stream(GO, THREAD)],
    "get_state": lambda graph: graph.get_state(THREAD),
    "get_state_history": lambda graph: [*graph.get_state_history(THREAD)],
    "update_state": lambda graph: graph.update_state(THREAD, {"messages": ["x"]}),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke(GO, THREAD)),
    "Session.run": lambda graph: Session(graph, "t").run("go"),
    "Session.step": lambda graph: Session(graph, "t").step("go"),
    "Session.events": lambda graph: [*Session(graph, "t").events("go")],
    "Session.resume": lambda graph: Session(graph, "t").resume("yes"),
    "Session.stop": lambda graph: Session(graph, "t").stop(),
    "Session.history": lambda graph: Session(graph, "t").history(),
    "Session.fork": lambda graph: Session(graph, "t").fork(at=1),
    "expire": lambda graph: expire(graph, "t"),
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_a_graph_whose_storage_was_closed_says_so(name: str, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(model(), [add], storage=storage)
    raises(lambda: AFTERWARDS[name](graph), "", StorageError)


def test_so_does_one_with_langgraphs_own_saver() -> None:
    with SqliteSaver.from_conn_string(":memory:") as saver:
        graph = build_graph(model(), checkpointer=saver)
    raises(lambda: graph.invoke(GO, THREAD), "", StorageError)


# What is meant is taken.
TAKEN: dict[str, dict[str, Any]] = {
    "limits as a mapping": {"limits": {"turns": 3}},
    "no tools": {"tools": None},
    "tools as a generator": {"tools": (each for each in [add])},
    "tools as a tuple": {"tools": (add, look)},
    "a tool of one's own class": {"tools": [Custom()]},
    "no system prompt": {"system_prompt": None},
    "no checks": {"checks": None},
    "a whole policy": {"policy": LoopPolicy(talk="strict", tool_seconds=3)},
    "a mapping as policy": {"policy": {"tool_seconds": None, "model_retries": None}},
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_meant_is_taken(name: str) -> None:
    graph = build_graph(**{"model": model(), **TAKEN[name]})
    assert outcome_of(graph.invoke(GO)).status == "success"


@pytest.mark.parametrize("config", [None, {}, {"configurable": {"threadid": "t"}}, _named(None)], ids=str)
def test_without_a_storage_no_thread_need_be_named(config: Any) -> None:
    assert outcome_of(build_graph(model()).invoke(GO, config)).status == "success"


@pytest.mark.parametrize("good", ["a", " ", "a/b", "é 日本", "x" * 600, "\U0001f600"])
def test_any_other_text_is_an_id(good: str, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(model(), storage=storage)
        assert outcome_of(graph.invoke(GO, _named(good))).thread_id == good
        assert [row.thread_id for row in storage.threads()] == [good]
