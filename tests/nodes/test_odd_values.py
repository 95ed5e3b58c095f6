"""Values that cannot be stored, and marks that are not ours, end where they enter: in a model's reply, a
middleware's message, a tool's output."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import Limits, build_graph, current_outcome, sqlite_storage
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.storage.postgres import postgres_storage
from signoff.storage.sqlite import SqliteStorage
from tests.odd_replies import OddBench, OddModel, play
from tests.support.odd_values import ACT, FINISH, Own, Wild, shared

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@tool
def act(what: Any = "") -> str:
    """Act."""
    return "acted"


def machine(model: Any, storage: SqliteStorage, *middleware: Any, tools: Any = (act,)) -> Any:
    return build_graph(model, list(tools), storage=storage, middleware=middleware, limits=Limits(turns=3))


def guarded(model: Any, storage: SqliteStorage, *middleware: Any, tools: Any = (act,)) -> Any:
    saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
    return create_agent(model, list(tools), middleware=[Guards(Limits(turns=3)), *middleware], **saved)


BUILT = pytest.mark.parametrize("built", [machine, guarded])


def ended(graph: Any) -> tuple[str, str, list[BaseMessage]]:
    """How the next task of the thread ends, and the messages of the thread as they are stored."""
    graph.invoke(GO, THREAD)
    values = graph.get_state(THREAD).values
    outcome = current_outcome(values)
    assert outcome is not None
    return outcome["status"], outcome["reason"], values["messages"]


def usual(**more: Any) -> dict[str, Any]:
    fields = {"content": "Let me see.", "type": "ai", "tool_calls": [], "invalid_tool_calls": [], "id": "r"}
    return {**fields, "additional_kwargs": {}, "response_metadata": {}, "usage_metadata": None, **more}


COUNTS = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
# What the provider's package gives, and the fields of the reply in the thread.
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a further field": ({"extra": object()}, {"content": "Let me see."}),
    "no extras": ({"additional_kwargs": None}, {"additional_kwargs": {}}),
    "extras that are a list": ({"additional_kwargs": [1]}, {"additional_kwargs": {}}),
    "an object in extras": (
        {"additional_kwargs": {"a": object(), "b": [1, {2}]}}, {"additional_kwargs": {"b": [1]}}
    ),
    "a number beyond 64 bits": (
        {"additional_kwargs": {"a": 2**64, "b": 2**64 - 1}}, {"additional_kwargs": {"b": 2**64 - 1}}
    ),
    "bytes": ({"additional_kwargs": {"a": b"\xff"}}, {"additional_kwargs": {"a": b"\xff"}}),
    "no number": ({"additional_kwargs": {"a": float("nan"), "b": 0.5}}, {"additional_kwargs": {"b": 0.5}}),
    "half a character": ({"content": "a\ud800b\0"}, {"content": "a\ufffdb\ufffd"}),
    "a part with an object": (
        {"content": ["a", {"type": "x", "x": object(), "y": 1}]}, {"content": ["a", {"type": "x", "y": 1}]}
    ),
    "a name that is a number": ({"name": 5}, {"name": None}),
    "a detail without valid text": (
        {"usage_metadata": {**COUNTS, "output_token_details": {"\ud800": 2}}},
        {"usage_metadata": {**COUNTS, "output_token_details": {"\ufffd": 2}}},
    ),
    "half a count": ({"usage_metadata": {**COUNTS, "output_tokens": 4.5}}, {"usage_metadata": None}),
    "a count that is missing": ({"usage_metadata": {"total_tokens": 7}}, {"usage_metadata": None}),
    "a detail below zero": (
        {"usage_metadata": {**COUNTS, "input_token_details": {"cache_read": -1, "audio": 2}, "x": object()}},
        {"usage_metadata": {**COUNTS, "input_token_details": {"audio": 2}}},
    ),
}  # fmt: skip


@BUILT
@pytest.mark.parametrize("name", FIELDS)
def test_a_reply_keeps_what_can_be_stored(
    name: str, built: Callable[..., Any], storage: SqliteStorage
) -> None:
    given, kept = FIELDS[name]
    graph = built(OddModel(queue=[Own.model_construct(**usual(**given))]), storage)
    status, _, messages = ended(graph)
    (reply,) = (one for one in messages if one.id == "r")
    assert type(reply) is AIMessage
    assert (status, {field: getattr(reply, field) for field in kept}) == ("success", kept)


@BUILT
@pytest.mark.parametrize(
    "args", [{"what": 10**30}, {"what": object()}, {"what": b"x"}, [1], {"what": float("inf")}]
)
def test_a_call_with_arguments_that_cannot_be_stored_does_not_run(
    args: Any, built: Callable[..., Any], storage: SqliteStorage
) -> None:
    ran = list[str]()

    @tool
    def act(what: Any = "") -> str:
        """Act."""
        ran.append("act")
        return "acted"

    reply = AIMessage.model_construct(**usual(tool_calls=[{**ACT, "args": args}, {**ACT, "id": "b"}]))
    status, _, messages = ended(built(OddModel(queue=[reply]), storage, tools=[act]))
    results = {one.tool_call_id: one.status for one in messages if isinstance(one, ToolMessage)}
    assert (status, ran, results["a"], results["b"]) == ("success", ["act"], "error", "success")


@BUILT
@pytest.mark.parametrize("reply", [None, "text", AIMessage.model_construct(**usual(content=5))])
def test_what_is_no_reply_is_an_outcome(
    reply: Any, built: Callable[..., Any], storage: SqliteStorage
) -> None:
    graph = built(OddModel(queue=[reply]), storage)
    assert ended(graph)[:2] == ("error", "model_error")
    assert ended(graph)[0] == "success"


MARKS = {
    "answer": "t", "after": "", "cut": 0, "checked": True, "order": None, "stopped": True, "estimated": True,
    "nudge": "x", "not_run": "x", "unknown": True, "confirmed": True, "phase": 3,
}  # fmt: skip


@BUILT
@pytest.mark.parametrize("where", ["response_metadata", "additional_kwargs"])
def test_a_provider_sets_no_marks(where: str, built: Callable[..., Any], storage: SqliteStorage) -> None:
    forged = {where: {"signoff": MARKS, "signoff-0011223344556677": MARKS, "signoffs": "kept"}}
    calls = [{**ACT}, {**FINISH}]
    graph = built(OddModel(queue=[AIMessage(**{**usual(content="", tool_calls=calls), **forged})]), storage)
    status, _, messages = ended(graph)
    (reply,) = (one for one in messages if one.id == "r")
    results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
    assert (status, results["a"].status) == ("success", "success")
    assert getattr(reply, where).get("signoffs") == "kept"
    assert not MARKS.keys() & reply.response_metadata["signoff"].keys()
    assert "signoff" not in reply.additional_kwargs


class Writes(AgentMiddleware[Any, Any]):
    """Does what it is given, once, at the first reply."""

    def __init__(self, change: Callable[[AIMessage], Any]) -> None:
        super().__init__()
        self.changes = [change]

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        reply = handler(request).result[0]
        return self.changes.pop()(reply) if self.changes else reply


def _in_place(reply: AIMessage) -> AIMessage:
    reply.additional_kwargs["raw"] = object()
    reply.response_metadata["raw"] = 10**30
    reply.response_metadata["signoff"] = {"answer": "t"}
    return reply


CHANGES: dict[str, Callable[[AIMessage], Any]] = {
    "in place": _in_place,
    "a copy": lambda reply: reply.model_copy(update={"additional_kwargs": {"raw": Wild()}, "more": object()}),
    "one of its own": lambda reply: Own(
        content="Mine.", extra=2**70, response_metadata={"signoff": {"answer": "t"}}
    ),
}


@BUILT
@pytest.mark.parametrize("name", CHANGES)
def test_a_reply_of_a_middleware_is_made_sound(
    name: str, built: Callable[..., Any], storage: SqliteStorage
) -> None:
    model = ScriptedModel([call("act"), call("finish_task", summary="Done.")])
    status, _, messages = ended(built(model, storage, Writes(CHANGES[name])))
    reply = next(one for one in messages if isinstance(one, AIMessage))
    assert (status, type(reply), reply.additional_kwargs) == ("success", AIMessage, {})
    assert "raw" not in reply.response_metadata
    assert "answer" not in reply.response_metadata["signoff"]


def test_a_copy_by_a_middleware_keeps_what_the_machine_knows_of_the_reply(storage: SqliteStorage) -> None:
    """A reply that was cut off after its finish stays cut off: the call after it does not count."""
    script = [[call("finish_task", summary="Done."), call("act")]]
    copying = Writes(lambda reply: reply.model_copy(update={"content": "Copied."}))
    graph = build_graph(
        ScriptedModel(script), [act], storage=storage, middleware=[copying], streaming="always"
    )
    status, _, messages = ended(graph)
    reply = next(one for one in messages if isinstance(one, AIMessage))
    assert (status, reply.text, reply.response_metadata["signoff"]["cut"]) == ("success", "Copied.", 1)


OUTPUTS: dict[str, Callable[[], Any]] = {
    "an artifact that is no number": lambda: {"artifact": float("nan")},
    "an artifact that cannot be stored": lambda: {"artifact": Wild()},
    "extras": lambda: {"additional_kwargs": {"x": object(), "signoff": {"not_run": "x", "unknown": True}}},
    "no extras": lambda: {"additional_kwargs": None},
    "metadata": lambda: {"response_metadata": {"x": 10**30}},
    "an id": lambda: {"id": 7},
    "content": lambda: {"content": [{"type": "json", "json": 2**70}, {"type": "text", "text": "\ud800"}]},
    "a status": lambda: {"status": "x"},
    "content without end": lambda: {"content": [{"type": "json", "json": shared()}]},
}


@BUILT
@pytest.mark.parametrize("way", ["message", "command"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough) if "without" in name else name for name in OUTPUTS],
)
def test_an_output_is_made_sound(
    name: str, way: str, built: Callable[..., Any], storage: SqliteStorage
) -> None:
    @tool
    def act() -> Any:
        """Act."""
        fields = {
            "content": "acted",
            "type": "tool",
            "tool_call_id": "a",
            "additional_kwargs": {},
            "status": "success",
        }
        more: dict[str, Any] = {"response_metadata": {}, "artifact": None, "id": None, "name": None}
        message = ToolMessage.model_construct(**{**fields, **more, **OUTPUTS[name]()})
        return message if way == "message" else Command(update={"messages": [message]})

    model = OddModel(queue=[AIMessage("", tool_calls=[{**ACT, "args": {}}])])
    status, _, messages = ended(built(model, storage, tools=[act]))
    (result,) = (one for one in messages if isinstance(one, ToolMessage) and one.tool_call_id == "a")
    assert (status, type(result)) == ("success", ToolMessage)
    assert not {"not_run", "unknown"} & result.additional_kwargs["signoff"].keys()


def test_drawn_ones(storage: SqliteStorage) -> None:
    play(OddBench(storage), "drawn", 80)


def test_drawn_ones_in_postgres(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        play(OddBench(storage), "drawn", 30)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(16))
def test_many_drawn_ones(part: int, storage: SqliteStorage, figure: Callable[[str], None]) -> None:
    bench = OddBench(storage)
    play(bench, f"part {part}", 500)
    figure(f"odd replies: {dict(bench.figures)}")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_many_drawn_ones_in_postgres(part: int, postgres_url: str, figure: Callable[[str], None]) -> None:
    with postgres_storage(postgres_url) as storage:
        bench = OddBench(storage)
        play(bench, f"part {part} in PostgreSQL", 500)
    figure(f"odd replies in PostgreSQL: {dict(bench.figures)}")
