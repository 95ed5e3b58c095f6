"""The mistakes that users make: each is an error of ours that names what is wrong, and nothing has run."""

import inspect
import operator
import re
from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AnyMessage
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
    outcome_of,
    postgres_storage,
    sqlite_storage,
    standard_controls,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.records import rate
from signoff.session import request_pause
from signoff.workers import drive

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


class Reduces(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


class Clashes(TypedDict):
    decision: str


def bringing(**attributes: Any) -> AgentMiddleware[Any, Any, Any]:
    """A middleware with these attributes."""
    brings: Any = type("Brings", (AgentMiddleware,), attributes)
    made: AgentMiddleware[Any, Any, Any] = brings()
    return made


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
    "a class": Toolkit,
    "None": None,
}


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (argument, kind)
        for argument in inspect.signature(build_graph).parameters
        for kind in KINDS
        if kind != "None" or argument == "model"
    ],
)
def test_a_value_of_another_kind_is_told_when_the_graph_is_built(argument: str, kind: str) -> None:
    options: dict[str, Any] = {"model": model(), argument: KINDS[kind]}
    raises(lambda: build_graph(**options), argument)


# Values that look right. Where a message names a part of the argument, that stands behind its name.
BUILT: dict[str, dict[str, Any]] = {
    "tools": {
        "a class in the list": [Custom],
        "a tool alone": look,
    },
    "tools: tool": {
        "an object in the list": [Toolkit()],
        "the name of a control tool": [look_named("finish_task")],
        "a name of a lambda": [look_named("<lambda>")],
    },
    "tools: undescribed": {"no docstring": [undescribed]},
    "tools: add": {"two with one name": [add, add]},
    "tools: kind": {"a kind that does not exist": [look_with(kind="sometimes")]},
    "tools: seconds": {"a text": [look_with(seconds="9")], "without an end": [look_with(seconds=inf)]},
    "model": {
        "a bare name": "gpt",
        "a provider with a slip": "antropic:x",
        "a class": ScriptedModel,
        "one that cannot call tools": FakeListChatModel(responses=["x"]),
    },
    "middleware": {
        "one alone": AgentMiddleware(),
        "two with one name": [AgentMiddleware(), AgentMiddleware()],
    },
    "limits: turn": {"a name with a slip": {"turn": 3}},
    "response_format": {
        "an instance": Answer(text="x"),
        "a broken schema": {"type": "nothing"},
        "a union": Answer | None,
    },
    "checks: check": {
        "a class": [Toolkit],
        "an unknown parameter": [lambda x: True],
    },
    "checks: yields": {"a generator": [yields]},
    "approvals": {
        "hand_over alone": "hand_over",
        "a function of three parameters": lambda a, b, c: True,
        "a control tool": {"ask_user": True},
        "a kind with a slip": {"termnal": "hand_over"},
    },
    "approvals: write": {"an unknown word": {"write": "handover"}, "no decision": {"write": []}},
    "approvals: handover": {"an unknown key": {"write": APPROVE | {"handover": True}}},
    "control_tools": {"one alone": ControlTool(look, "finish"), "a tool": [look]},
    "control_tools: control tool": {"none that finishes": standard_controls()[1:]},
    "control_tools: control tools": {"each twice": standard_controls() * 2},
    "storage": {"empty": "", "not entered": SqliteSaver.from_conn_string("x"), "a saver": InMemorySaver()},
    "storage: checkpointer": {"in memory": ":memory:"},
    "storage: redis": {"another database": "redis://a:secret@h/d"},
    "storage: sqlite": {"an address of SQLAlchemy": "sqlite:///x.sqlite"},
    "checkpointer": {"not entered": SqliteSaver.from_conn_string("x")},
    "store": {"a saver": InMemorySaver()},
    "system_prompt: dynamic_prompt": {"a function": lambda state: ""},
    "tools: look": {"one of the provider with the name of a tool": [look, {"type": "x", "name": "look"}]},
    "interrupt_on: approvals": {"a person's decisions, as in deepagents": {"look": True}},
    "transformers": {"LangChain's": []},
    "approval: approvals": {"a slip": {}},
    **{f"{name}: policy": {"a field of the policy": None} for name in LoopPolicy.model_fields},
    "context_schema": {"an unknown type": Unresolved},
    "context_schema: turns": {"a field of Signoff's": Turns},
    "state_schema": {"a model": Answer},
    "state_schema: outcome": {"a channel of Signoff's": Own},
    "state_schema: messages": {"a reducer for the history": Reduces},
    "middleware: decision": {"a channel of the machine's": [bringing(state_schema=Clashes)]},
    "middleware: look": {"a tool twice": [bringing(tools=[look, look])]},
    "policy: tlak": {"a name with a slip": {"tlak": 1}},
    "cache: AnthropicPromptCachingMiddleware": {"a middleware": "auto"},
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


NUMBERS = [
    (settings, name)
    for settings in (Limits, LoopPolicy)
    for name, field in settings.model_fields.items()
    if re.search(r"\b(int|float)\b", repr(field.annotation))
]


@pytest.mark.parametrize(("settings", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_no_number_is_infinite_negative_or_a_flag(settings: Any, name: str) -> None:
    for wrong in (nan, -1, True):
        raises(lambda wrong=wrong: settings(**{name: wrong}), name)  # type: ignore[misc]
    argument: dict[str, Any] = {"limits" if settings is Limits else "policy": {name: -1}}
    raises(lambda: build_graph(model(), **argument), name)
    # `context` offers the limits of a run, and of the policy what a run may choose.
    if settings is Limits:
        raises(lambda: build_graph(model()).invoke(GO, context={name: -1}), name)


# What is told where it is made or opened: what the message names, and the mistake, which is the ignored type.
MADE: dict[str, tuple[str, Callable[[], Any]]] = {
    "a check's folder that is not there": ("/nowhere/at", lambda: Check("true", folder="/nowhere/at")),
    "a check's folder for a function": ("folder", lambda: Check(add, folder=".")),
    "a check's seconds as a text": ("seconds", lambda: Check("true", seconds="60")),  # type: ignore[arg-type]
    "an answer that there is not": ("answer", lambda: standard_controls(answer="all")),  # type: ignore[arg-type]
    "an effect with a slip": ("effect", lambda: ControlTool(look, "finnish")),  # type: ignore[arg-type]
    "one repetition": ("repeats", lambda: Limits(repeats=1)),
    "half of the prices": ("output", lambda: Prices(input=1)),  # type: ignore[call-arg]
    "PostgreSQL's address for a path": ("postgres_storage", lambda: sqlite_storage("postgresql://h/d")),
    "guards with rounds": ("rounds", lambda: Guards(control_tools=standard_controls(rounds=True))),
    "guards that stream": ("streaming", lambda: Guards(policy={"streaming": "never"})),
}


@pytest.mark.parametrize(("names", "make"), MADE.values(), ids=MADE)
def test_it_is_told_where_it_is_made(names: str, make: Callable[[], Any]) -> None:
    raises(make, names)


def opened(storage: Any) -> None:
    with storage:
        pass


def test_a_database_that_cannot_be_is_an_error_of_the_storage() -> None:
    raises(lambda: build_graph(model(), storage="/"), "/", StorageError)
    raises(lambda: opened(sqlite_storage("/")), "/", StorageError)
    raises(lambda: build_graph(model(), storage="postgresql://"), "PostgreSQL", StorageError)
    raises(lambda: opened(postgres_storage("x.sqlite")), "PostgreSQL", StorageError)


# Braces in texts of the user's own: what could not be filled in, and the text that is named.
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "JSON": ("nudges['talked']", {"nudges": {"talked": 'Call {"name": "finish_task"}'}}),
    "a format that does not fit": ("results['timeout']", {"results": {"timeout": "{seconds:d}"}}),
    "a name that no text has": ("nudges['taked']", {"nudges": {"taked": "x"}}),
    "what was undone is not told": ("undone", {"nudges": {"resumed_undone": "Just go on."}}),
    "what people said is not told": ("words", {"words": {"said": "- somebody spoke"}}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_could_not_be_filled_in_is_told_when_it_is_made(name: str) -> None:
    names, texts = TEXTS[name]
    with pytest.raises(SetupError, match=re.escape(names)):
        Texts(**texts)


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
    "None": None,
    "not printable": Unprintable(),
    "very long": ["x" * 1_000] * 1_000,
}
SHAPES: dict[str, Called] = {
    "no configuration": Called("configurable", config=None),
    **{
        f"the id as {name}": Called(f"'{name}'", config={"configurable": {name: "t"}})
        for name in ("threadid", "thread-id", "threadId", "thread")
    },
    "the id beside `configurable`": Called("configurable", config={"thread_id": "t"}),
}
IDS = {f"an id that is {name}": Called("thread id", config=_named(wrong)) for name, wrong in NO_IDS.items()}
INPUTS: dict[str, Called] = {
    "an unknown name in the context": Called("turnz", context={"turnz": 3}),
    "a prompt that is a number": Called("system_prompt", context={"system_prompt": 3}),
    "a text as context": Called("context", context="x"),
    "a text as input": Called("input", given="go"),
    "a key of the input with a slip": Called("'message'", given={"message": ["go"]}),
    "an unknown role": Called("robot", given={"messages": [{"role": "robot", "content": "x"}]}),
    "an update with a slip": Called("starts nothing", given=Command(update={"goon": {}})),
    "a state in the middle": Called("states", given=Command(goto="finish")),
}


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that saves its threads, for calls that begin none."""
    with sqlite_storage(tmp_path_factory.mktemp("mistakes") / "threads.sqlite") as storage:
        yield build_graph(model(), [add], storage=storage)


@pytest.mark.parametrize("name", SHAPES | IDS | INPUTS)
def test_a_wrong_call_is_told_and_begins_no_thread(name: str, saving: Graph) -> None:
    mistake = (SHAPES | IDS | INPUTS)[name]
    raises(lambda: saving.invoke(mistake.given, mistake.config, context=mistake.context), mistake.names)
    assert saving.get_state(THREAD).values == {}


def test_there_must_be_something_to_go_on_with(saving: Graph) -> None:
    raises(lambda: saving.invoke(None, THREAD), "'t'", ThreadUnknown)
    raises(lambda: build_graph(model()).invoke(None), "checkpointer")


# Every other way to name a thread.
BY_CONFIG: dict[str, Callable[[Graph, Any], Any]] = {
    "stream": lambda graph, config: [*graph.stream(GO, config)],
    "get_state": lambda graph, config: graph.get_state(config),
    "get_state_history": lambda graph, config: [*graph.get_state_history(config)],
    "update_state": lambda graph, config: graph.update_state(config, {"messages": ["x"]}),
}
BY_ID: dict[str, Callable[[Graph, Any], Any]] = {
    "batch": lambda graph, thread_id: graph.batch([GO], _named(thread_id)),
    "Session": Session,
    "fork": lambda graph, thread_id: Session(graph, "t").fork(None, thread_id),
    "request_pause": lambda graph, thread_id: request_pause(graph.store, thread_id),  # type: ignore[arg-type]
    "rate": lambda graph, thread_id: rate(graph.store, thread_id, 5),  # type: ignore[arg-type]
    "drive": drive,
}


@pytest.mark.parametrize("way", BY_CONFIG)
def test_a_thread_that_is_not_named_is_not_looked_at(way: str, saving: Graph) -> None:
    for mistake in (SHAPES | IDS).values():
        raises(lambda config=mistake.config: BY_CONFIG[way](saving, config), mistake.names)  # type: ignore[misc]


@pytest.mark.parametrize("way", BY_ID)
def test_what_is_no_id_is_refused_by_every_way_in(way: str, saving: Graph) -> None:
    for wrong in NO_IDS.values():
        # To fork to None is to have a new id chosen.
        if (way, wrong) != ("fork", None):
            raises(lambda wrong=wrong: BY_ID[way](saving, wrong), "thread id")  # type: ignore[misc]


# The ignored types are the mistakes.
SESSIONS: dict[str, tuple[str, Callable[[Graph], Any]]] = {
    "no graph": ("build_graph", lambda _: Session("graph", "t")),  # type: ignore[arg-type]
    "no storage": ("storage", lambda _: Session(build_graph(model()), "t")),
    "a text as context": ("context", lambda graph: Session(graph, "t", context="x")),
    "on_pending with a slip": ("on_pending", lambda graph: Session(graph, "t", on_pending="supercede")),  # type: ignore[arg-type]
    "a number as task": ("task", lambda graph: Session(graph, "t").run(3)),  # type: ignore[arg-type]
    "an empty task": ("task", lambda graph: Session(graph, "t").step(" ")),
}


@pytest.mark.parametrize(("names", "mistake"), SESSIONS.values(), ids=SESSIONS)
def test_a_session_says_what_it_needs(names: str, mistake: Callable[[Graph], Any], saving: Graph) -> None:
    raises(lambda: mistake(saving), names)


def test_a_graph_whose_storage_was_closed_says_so(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(model(), [add], storage=storage)
    with SqliteSaver.from_conn_string(":memory:") as saver:
        other = build_graph(model(), checkpointer=saver)
    raises(lambda: graph.invoke(GO, THREAD), "", StorageError)
    raises(lambda: other.invoke(GO, THREAD), "", StorageError)
    raises(lambda: Session(graph, "t").run("go"), "", StorageError)


def test_tools_may_come_one_by_one_and_be_of_ones_own_class() -> None:
    tools: Any = (each for each in (add, Custom()))
    graph = build_graph(model(), tools)
    assert outcome_of(graph.invoke(GO)).status == "success"


@pytest.mark.parametrize("config", [None, {}, {"configurable": {"threadid": "t"}}, _named(None)], ids=str)
def test_without_a_storage_no_thread_need_be_named(config: Any) -> None:
    assert outcome_of(build_graph(model()).invoke(GO, config)).status == "success"
    # Also in LangGraph's newer form.
    assert build_graph(model()).invoke(GO, config, version="v2").value["outcome"]["status"] == "success"


@pytest.mark.parametrize("good", ["a/b", "é 日本", "x" * 512])
def test_any_other_text_is_an_id(good: str, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(model(), storage=storage)
        assert outcome_of(graph.invoke(GO, _named(good))).thread_id == good
        assert [row.thread_id for row in storage.threads()] == [good]
