"""Channels of the user's own in the state: who may write them, what is stored, and that it is once."""

import asyncio
import operator
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NotRequired, Required

import pytest
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import MessagesState
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Overwrite
from pydantic import BaseModel
from typing_extensions import TypedDict

from signoff import (
    ControlTool,
    Effect,
    Session,
    SetupError,
    build_graph,
    current_outcome,
    go_on,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.studio import served
from signoff.models import ScriptedModel, call
from signoff.models.scripted import Step
from signoff.session.expiring import expire
from signoff.session.status import reading_graph
from tests.support.prepared import PreparedPython

ROOT = Path(__file__).parents[2]
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")


def longest(old: str, new: str) -> str:
    return max(old, new, key=len)


def extended(old: list[str], new: list[str]) -> list[str]:
    """A reducer that changes what it is given: in LangGraph it works all the same."""
    old.extend(new)
    return old


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]
    longest: NotRequired[Annotated[str, longest]]
    extended: Annotated[list[str], extended]
    name: str
    seen: NotRequired[list[AnyMessage]]


class Weight(BaseModel):
    kilos: int


class Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]  # it has no equality


# What the tools of these tests write, by the name that a script can say.
UPDATES: dict[str, Any] = {
    "a note": {"notes": ["a"]},
    "another": {"notes": ["b"], "name": "bob"},
    "a tuple": {"name": ("a", ("b",))},
    "messages": {"seen": [HumanMessage("seen", id="m")]},
    "bytes": {"name": b"raw"},
    "a new beginning": {"notes": Overwrite(["new"])},
    "extended": {"extended": ["x"]},
    "long": {"longest": "three"},
    "the outcome": {"outcome": {"status": "success"}, "notes": ["no"]},
    "an unknown channel": {"notez": ["no"]},
    "a wrong type": {"notes": 3},
    "a model": {"name": Weight(kilos=3)},
    "a model inside": {"name": [Weight(kilos=3)]},
    "a function": {"name": len},
    "an odd one": {"name": Odd()},
    "too large a number": {"name": 2**70},
    "to somewhere": {"name": "x"},
    "of the graph around it": {"name": "x"},
}


def write(*, kind: str = "write", name: str = "write", alone: bool = False) -> BaseTool:
    @tool(name)
    def body(what: str, runtime: ToolRuntime[Any, Any]) -> Any:
        """Write an update."""
        if alone:
            return Command(update=UPDATES[what])
        said = ToolMessage("written", tool_call_id=runtime.tool_call_id or "")
        goto = ["decide"] if what == "to somewhere" else ()
        graph = Command.PARENT if what == "of the graph around it" else None
        return Command(update={**UPDATES[what], "messages": [said]}, goto=goto, graph=graph)

    body.metadata = {"kind": kind}
    return body


def writes(*steps: Any, tools: Iterable[BaseTool] = (), schema: Any = Notes, **options: Any) -> Graph:
    """A graph whose model writes these updates, one call each, or several in one reply."""
    script: list[Step] = [
        [call("write", what=one) for one in step] if isinstance(step, tuple) else call("write", what=step)
        for step in steps
    ]
    given = [write(), *tools] if not tools else list(tools)
    return build_graph(ScriptedModel([*script, FINISH]), given, state_schema=schema, **options)


def saved() -> dict[str, Any]:
    return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}


def values(graph: Graph, way: str = "sync", **given: Any) -> dict[str, Any]:
    """The state after a run, without the messages."""
    asked = {"messages": [("user", "go")], **given}
    config = THREAD if graph.checkpointer else None
    result = graph.invoke(asked, config) if way == "sync" else asyncio.run(graph.ainvoke(asked, config))
    assert result["outcome"]["status"] == "success"
    return dict(result)


WRITTEN: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one call": (("a note",), {"notes": ["a"]}),
    "one after another": (("a note", "another"), {"notes": ["a", "b"], "name": "bob"}),
    "several in a reply": ((("a note", "another", "a note"),), {"notes": ["a", "b", "a"], "name": "bob"}),
    "a reducer without a value to begin with": (("long", "long"), {"longest": "three"}),
    "a reducer that changes its argument": ((("extended", "extended"), "extended"), {"extended": ["x"] * 3}),
    "a tuple is a list": (("a tuple",), {"name": ["a", ["b"]]}),
    "messages": (("messages",), {"seen": [HumanMessage("seen", id="m")]}),
    "bytes": (("bytes",), {"name": b"raw"}),
    "past the reducer": (("a note", "a new beginning", "a note"), {"notes": ["new", "a"]}),
    "past it, among others": ((("a note", "a new beginning", "a note"),), {"notes": ["new", "a"]}),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", ["write", "read"])
@pytest.mark.parametrize("case", WRITTEN)
def test_a_tool_writes_by_a_command(case: str, kind: str, way: str) -> None:
    """Calls that read run beside each other; what they write is joined in their order."""
    steps, wanted = WRITTEN[case]
    graph = writes(*steps, tools=[write(kind=kind)], **saved())
    found = values(graph, way)
    assert {key: found[key] for key in wanted} == wanted
    state = graph.get_state(THREAD).values
    assert {key: state[key] for key in wanted} == wanted
    assert {message.status for message in state["messages"] if message.type == "tool"} == {"success"}


def test_without_a_saver_a_channel_may_hold_anything() -> None:
    found = values(writes("a tuple", "a model"))
    assert found["name"] == Weight(kilos=3)


NOT_WRITTEN: dict[str, str] = {
    "the outcome": "'outcome' is no channel that a tool may write. There are: notes, longest, extended, name",
    "an unknown channel": "'notez' is no channel that a tool may write",
    "a wrong type": "'notes' cannot take it: TypeError",
    "a model": "a value of type Weight cannot be stored as it is; pass plain values",
    "a model inside": "a value of type list cannot be stored as it is",
    "a function": "'name' cannot take it: TypeError",
    "an odd one": "'name' cannot take it",
    "too large a number": "'name' cannot take it",
    "to somewhere": "cannot apply (Command): it has a goto, and the machine alone says what comes next",
    "of the graph around it": "cannot apply (Command): it is for the graph around this one (graph=…)",
}


@pytest.mark.parametrize("kind", ["write", "read"])
@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_what_cannot_be_written_is_an_error_that_the_model_reads(case: str, kind: str) -> None:
    graph = writes("a note", case, "a note", tools=[write(kind=kind)], **saved())
    found = values(graph)
    results = [message for message in found["messages"] if message.type == "tool"][:3]
    assert [one.status for one in results] == ["success", "error", "success"]
    assert NOT_WRITTEN[case] in results[1].text
    assert (found["notes"], found.get("name")) == (["a", "a"], None)


def test_a_command_without_a_result_says_what_was_written() -> None:
    found = values(writes("another", tools=[write(alone=True)]))
    assert found["notes"] == ["b"]
    assert next(m.text for m in found["messages"] if m.type == "tool") == "Written to the state: notes, name."


def test_without_a_schema_a_tool_writes_messages_alone() -> None:
    found = values(writes("a note", schema=None))
    assert "notes" not in found
    assert "cannot apply (Command)" in next(m.text for m in found["messages"] if m.type == "tool")


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_input_writes_them_and_tools_read_them(way: str) -> None:
    seen: list[Any] = []

    @tool
    def look(
        state: Annotated[dict[str, Any], InjectedState],
        notes: Annotated[list[str], InjectedState("notes")],
        runtime: ToolRuntime[Any, Any],
    ) -> str:
        """Look at the state."""
        seen.append((state["notes"], notes, runtime.state["notes"], runtime.state.get("name")))
        return "seen"

    model = ScriptedModel([call("look"), FINISH])
    graph = build_graph(model, [look], state_schema=Notes, **saved())
    found = values(graph, way, notes=["given"], name="ann")
    assert seen == [(["given"], ["given"], ["given"], "ann")]
    assert (found["notes"], found["name"]) == (["given"], "ann")


def test_they_live_through_tasks_and_input_goes_by_the_reducer() -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH]), state_schema=Notes, **saved())
    values(graph, notes=["one"], name="ann")
    found = values(graph, notes=["two"])
    assert (found["notes"], found["name"]) == (["one", "two"], "ann")


def test_an_input_with_an_unknown_key_is_refused() -> None:
    graph = build_graph(ScriptedModel([FINISH]), state_schema=Notes)
    with pytest.raises(SetupError, match="'notez', which this graph does not know; it takes messages, notes"):
        graph.invoke({"messages": [("user", "go")], "notez": ["x"]})


REFUSED_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "what a reducer cannot add": ({"notes": 3}, "'notes' is 3, .*cannot take .TypeError: can only conc"),
    "none, for a reducer": ({"notes": None}, "'notes' is None, .*cannot take"),
    "what does not go with what is there": ({"longest": 7}, "'longest' is 7, .*cannot take"),
    "a function": ({"name": len}, "a value of type builtin_function_or_method cannot be stored .*; pass pla"),
    "too large a number": ({"name": 2**70}, "a value of type int cannot be stored .Integer exceeds"),
    "what comes back as another type": ({"name": Weight(kilos=3)}, "of type Weight cannot be stored as it"),
    "half a character": ({"name": "\ud800"}, "of type str cannot be stored as it is"),
    "beside others that are right": ({"name": "ann", "notes": 3}, "'notes' is 3, .*cannot take"),
}


@pytest.mark.parametrize("form", ["an input", "a command", "a command of pairs"])
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", REFUSED_INPUTS)
def test_a_value_that_its_channel_cannot_take_is_refused_before_anything_is_saved(
    case: str, way: str, form: str, tmp_path: Path
) -> None:
    """LangGraph saves an input first: the thread could not even be read any more."""
    given, says = REFUSED_INPUTS[case]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(ScriptedModel([FINISH, FINISH]), state_schema=Notes, storage=storage)
        values(graph, notes=["one"], longest="three")
        before = graph.get_state(THREAD)
        asked: Any = {"messages": [("user", "go")], **given}
        if form != "an input":
            update = asked if form == "a command" else list(asked.items())
            asked = Command(update=update, goto="compress")
        with pytest.raises(SetupError, match=says) as raised:
            _ = graph.invoke(asked, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(asked, THREAD))
        assert "\n" not in str(raised.value)
        assert graph.get_state(THREAD) == before
        assert values(graph, way, notes=["two"])["notes"] == ["one", "two"]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_without_a_saver_a_reducer_is_asked_first_too(way: str) -> None:
    with pytest.raises(SetupError, match=r"'notes' is 3, .*cannot take"):
        values(writes(), way, notes=3)


TAKEN_INPUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a new beginning": ({"notes": Overwrite(["new"])}, {"notes": ["new"]}),
    "a new beginning, as a server sends it": ({"notes": {"__overwrite__": ["new"]}}, {"notes": ["new"]}),
    "a tuple is a list": ({"name": ("a", ("b",))}, {"name": ["a", ["b"]]}),
    "messages": ({"seen": [HumanMessage("seen", id="m")]}, {"seen": [HumanMessage("seen", id="m")]}),
    "a reducer that changes its argument": ({"extended": ["x"]}, {"extended": ["x"]}),
}


@pytest.mark.parametrize("case", TAKEN_INPUTS)
def test_what_a_channel_can_take_is_written_once(case: str) -> None:
    given, wanted = TAKEN_INPUTS[case]
    graph = build_graph(ScriptedModel([FINISH, FINISH]), state_schema=Notes, **saved())
    values(graph, notes=["one"])
    found = values(graph, **given)
    assert {key: found[key] for key in wanted} == wanted


def test_of_a_saver_of_the_users_own_its_own_types_are_taken() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(Weight.__module__, "Weight")])
    saver = InMemorySaver(serde=serde)
    graph = build_graph(ScriptedModel([FINISH]), state_schema=Notes, checkpointer=saver)
    values(graph, name=Weight(kilos=3))
    assert graph.get_state(THREAD).values["name"] == Weight(kilos=3)


class Message(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


class Shadows(TypedDict):
    outcome: str


class Shadows2(MessagesState):
    task: str


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (Shadows, r"has the channel 'outcome', which is the machine's .*rename yours"),
        (Shadows2, "has the channel 'task', which is the machine's"),
        (Message, "gives 'messages' a reducer of its own"),
        (dict, "pass a TypedDict"),
        (Weight, "pass a TypedDict"),
        ({"notes": list}, "pass a TypedDict"),
    ],
)
def test_a_schema_that_cannot_be_one_is_refused_when_the_graph_is_built(schema: Any, says: str) -> None:
    with pytest.raises(SetupError, match=says) as raised:
        build_graph(ScriptedModel([]), state_schema=schema)
    assert "\n" not in str(raised.value)


class OmitFromSchema:
    """LangChain's mark, as its package defines it."""

    def __init__(self, input: bool = True, output: bool = True) -> None:
        self.input, self.output = input, output


class LangChainState(TypedDict):
    """The AgentState of LangChain, whose package is not installed here: see its middleware/types.py."""

    messages: Required[Annotated[list[AnyMessage], add_messages]]
    jump_to: NotRequired[Annotated[str | None, EphemeralValue, OmitFromSchema()]]
    structured_response: NotRequired[Annotated[Any, OmitFromSchema(input=True, output=False)]]


class Own(LangChainState):
    notes: Annotated[list[str], operator.add]
    hidden: NotRequired[Annotated[str, OmitFromSchema()]]
    remaining: NotRequired[RemainingSteps]


def test_of_langchains_state_only_what_is_added_counts() -> None:
    graph = build_graph(ScriptedModel([FINISH]), state_schema=Own)
    assert set(graph.get_input_jsonschema()["properties"]) == {"messages", "notes"}
    assert set(graph.get_output_jsonschema()["properties"]) == {"messages", "outcome", "notes"}
    assert {"notes", "hidden"} <= set(graph.channels)
    assert not {"jump_to", "structured_response"} & set(graph.channels)
    assert values(graph, notes=["a"])["notes"] == ["a"]


def test_the_input_of_a_chat_stays_a_chat() -> None:
    taken = build_graph(ScriptedModel([]), state_schema=Notes).get_input_jsonschema()
    assert taken["required"] == ["messages"]
    assert list(taken["properties"]) == ["messages", "notes", "longest", "extended", "name", "seen"]


async def test_a_server_shows_them() -> None:
    graph = served(writes("a note", "another"))
    graph = graph.copy(update={"checkpointer": InMemorySaver(), "store": InMemoryStore()})
    result = await graph.ainvoke({"messages": [("user", "go")]}, THREAD)
    assert (result["notes"], result["name"]) == (["a", "b"], "bob")
    state = await graph.aget_state(THREAD)
    assert (state.values["notes"], "task" in state.values) == (["a", "b"], False)


def test_what_a_finishing_tool_writes_is_written_once() -> None:
    @tool
    def sign(runtime: ToolRuntime[Any, Any]) -> Any:
        """Sign."""
        said = ToolMessage("signed", tool_call_id=runtime.tool_call_id or "")
        return Command(update={"notes": ["signed"], "messages": [said]})

    model = ScriptedModel([call("sign")])
    controls = [ControlTool(sign, Effect.FINISH)]
    graph = build_graph(model, control_tools=controls, state_schema=Notes, **saved())
    assert values(graph)["notes"] == ["signed"]


class Plans(MessagesState):
    todos: NotRequired[list[Any]]


@pytest.mark.parametrize(("schema", "kept"), [(Plans, True), (Notes, False)])
def test_a_graph_without_the_middleware_keeps_its_channel_by_declaring_it(
    schema: Any, kept: bool, tmp_path: Path
) -> None:
    todos = [{"content": "look", "status": "pending"}]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        script = ScriptedModel([call("write_todos", todos=todos), FINISH])
        planning = build_graph(script, middleware=[TodoListMiddleware()], storage=storage)
        values(planning)
        values(build_graph(ScriptedModel([FINISH]), state_schema=schema, storage=storage))
        assert planning.get_state(THREAD).values.get("todos") == (todos if kept else None)
        assert any(one.values.get("todos") == todos for one in planning.get_state_history(THREAD))


# Killed when the journal has "done" and LangGraph has not saved the step: the update is in the journal alone.
KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.drop_in.test_state_schema import THREAD, killed_graph, sqlite_storage
with sqlite_storage(sys.argv[1]) as storage:
    batch = storage.store.batch

    def kill_after(ops):
        ops = list(ops)
        done = batch(ops)
        if any((getattr(op, "value", None) or {{}}).get("status") == "done" for op in ops):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    storage.store.batch = kill_after
    killed_graph(storage, sys.argv[2]).invoke({{"messages": [("user", "go")]}}, THREAD)
"""


def killed_graph(storage: Any, what: str) -> Graph:
    def script(messages: list[Any]) -> Any:
        said = [message for message in messages if message.type == "tool"]
        return FINISH if said else call("write", what=what)

    return build_graph(ScriptedModel(script), [write()], state_schema=Notes, storage=storage)


@pytest.mark.parametrize("then", ["goes on", "a new task"])
@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("another", {"notes": ["b"], "name": "bob"}),
        ("messages", {"seen": [HumanMessage("seen", id="m")]}),
        ("a tuple", {"name": ["a", ["b"]]}),
    ],
)
def test_killed_before_it_is_saved_an_update_is_written_once(
    what: str, wanted: dict[str, Any], then: str, tmp_path: Path
) -> None:
    file = tmp_path / "threads.sqlite"
    with PreparedPython(["-c", KILLED, file, what]) as process:
        assert process.wait() == -signal.SIGKILL
    with sqlite_storage(file) as storage:
        graph = killed_graph(storage, what)
        state = graph.get_state(THREAD)
        assert current_outcome(state.values) is None
        assert not {key for key in wanted if state.values.get(key)}
        result = graph.invoke(
            go_on(state) if then == "goes on" else {"messages": [("user", "again")]}, THREAD
        )
        assert {key: result[key] for key in wanted} == wanted
        assert result["outcome"]["status"] == "success"
        assert next(m.text for m in result["messages"] if m.type == "tool") == "written"


def test_a_fork_has_the_same_values(tmp_path: Path) -> None:
    """By a graph that knows the channels and by one that only reads: reducers are not applied again."""
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = writes("a note", "long", "extended", "messages", storage=storage)
        wanted = values(graph, notes=["given"], name="ann")
        for by in (graph, reading_graph(storage, "t")):
            target = f"by {type(by).__name__} {by is graph}"
            Session(by, "t").fork(None, target)
            place: Any = {"configurable": {"thread_id": target}}
            found = graph.get_state(place).values
            for key in ("notes", "longest", "extended", "name", "seen"):
                assert found[key] == wanted[key], key


def test_a_question_that_expires_leaves_them_as_they_are(tmp_path: Path) -> None:
    ask = call("ask_user", question="Which?", default_answer="blue", deadline_seconds=60)
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(ScriptedModel([ask, FINISH]), state_schema=Notes, storage=storage)
        graph.invoke({"messages": [("user", "go")], "notes": ["a"]}, THREAD)
        assert expire(reading_graph(storage, "t"), "t", 2e10) is not None
        assert graph.get_state(THREAD).values["notes"] == ["a"]
