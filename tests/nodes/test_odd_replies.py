"""Replies in every shape, and such as no provider or tool should give: all read alike, or are outcomes."""

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.types import Command
from pydantic import PrivateAttr

from signoff import (
    ControlTool,
    Limits,
    Session,
    build_graph,
    go_on,
    outcome_of,
    sqlite_storage,
    standard_controls,
)
from signoff.events import Nudged
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.plays import assert_sendable

Fields = dict[str, Any]
GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH: Fields = {"tool_calls": [{"name": "finish_task", "id": "f", "args": {"summary": "Done."}}]}
WRITTEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_is_written() -> None:
    WRITTEN.clear()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


class Sends(BaseChatModel):
    """Sends one after another of `replies`, whole or in pieces, then finishes. A reply is the fields of a
    message, or whatever else a careless package could give."""

    replies: list[Any]
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "sends"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _next(self, messages: list[BaseMessage], kind: type[BaseMessage]) -> Any:
        self._seen.append(messages)
        sent = self.replies.pop(0) if self.replies else FINISH
        return kind(**{"content": "", **sent}) if isinstance(sent, dict) else sent

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        generation: Any = ChatGeneration.model_construct(message=self._next(messages, AIMessage))
        return ChatResult.model_construct(generations=[generation], llm_output=None)

    def _stream(self, messages: list[BaseMessage], *rest: Any, **kw: Any) -> Iterator[ChatGenerationChunk]:
        sent = self._next(messages, AIMessageChunk)
        for message in sent if isinstance(sent, list) else [sent]:
            yield ChatGenerationChunk(message=message)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))


@tool
def write(text: str) -> str:
    """Write."""
    WRITTEN.append(text)
    return "written"


WAYS = ("imported", "whole", "in pieces")
every_way = pytest.mark.parametrize("way", WAYS)


def play(
    way: str, storage: SqliteStorage, *replies: Any, sendable: bool = True, **options: Any
) -> tuple[Any, Sends, Session]:
    """A task in which the model gives these replies, then finishes; "imported" puts the first one into the
    history, in place of the model. sendable: whether every prompt has to be one that providers take."""
    given: list[Any] = [HumanMessage("go")]
    rest = list(replies)
    if way == "imported":
        given.append(AIMessage(**{"content": "", **rest.pop(0)}))
    model, policy = Sends(replies=rest), {"streaming": "always" if way == "in pieces" else "never"}
    graph = build_graph(model, [write], storage=storage, **{"policy": policy, **options})
    outcome = outcome_of(graph.invoke({"messages": given}, THREAD))
    for prompt in model._seen if sendable else ():
        assert_sendable(prompt)
    return outcome, model, Session(graph, "t")


def reminders(session: Session) -> list[str]:
    return [event.why for turn in session.history() for event in turn.events if isinstance(event, Nudged)]


def text(words: str) -> Fields:
    return {"type": "text", "text": words}


def use(number: int = 1, **more: Any) -> Fields:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "write", "input": {"text": "x"}, **more}


def raw_call(**more: Any) -> Fields:
    return {"function": {"name": "write", "arguments": '{"text": "x"}'}, **more}


CALL: Fields = {"name": "write", "id": "a", "args": {"text": "x"}}
FUNCTION: Fields = {"name": "write", "arguments": '{"text": "x"}'}
THINKING: Fields = {"type": "thinking", "thinking": "hm", "signature": "s"}
ITEM: Fields = {"type": "function_call", "id": "fc_1", "call_id": "call_1", **FUNCTION}
SERVER_TOOLS: list[Fields] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "server_tool_call", "id": "ws_2", "name": "web_search", "args": {}},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
]
# The fields of the message, and how many calls of `write` it has.
SHAPES: dict[str, tuple[Fields, int]] = {
    "tool_calls": ({"tool_calls": [CALL]}, 1),
    "tool_calls and their raw form": (
        {"tool_calls": [CALL], "additional_kwargs": {"tool_calls": [raw_call(id="a", type="function")]}},
        1,
    ),
    "tool_calls, and once more as function_call": (
        {"tool_calls": [CALL], "additional_kwargs": {"function_call": FUNCTION}},
        1,
    ),
    "function_call": ({"additional_kwargs": {"function_call": FUNCTION}}, 1),
    "function_call beside words": ({"content": "So.", "additional_kwargs": {"function_call": FUNCTION}}, 1),
    "raw tool_calls": ({"additional_kwargs": {"tool_calls": [raw_call(id="a")]}}, 1),
    "raw tool_calls without ids": ({"additional_kwargs": {"tool_calls": [raw_call(), raw_call()]}}, 2),
    "a tool_use block": ({"content": [use()]}, 1),
    "a tool_use block as it was streamed": ({"content": [use(input={}, partial_json='{"text": "x"}')]}, 1),
    "a tool_use block without an id": ({"content": [use(id=None)]}, 1),
    "tool_use blocks with words between": ({"content": [text("a"), use(1), text("b"), use(2), use(3)]}, 3),
    "tool_use blocks of one id": ({"content": [use(1), use(1)]}, 2),
    "tool_use blocks without ids": ({"content": [use(id=""), use(id=None)]}, 2),
    "thoughts before a call": ({"content": [THINKING, use()]}, 1),
    "a tool_call block": ({"content": [text("Now."), {"type": "tool_call", **CALL}]}, 1),
    "a tool_call_chunk block": (
        {"content": [{"type": "tool_call_chunk", **CALL, "args": '{"text": "x"}'}]},
        1,
    ),
    "a function_call item": ({"content": [{"type": "reasoning", "id": "rs_1", "summary": []}, ITEM]}, 1),
    "a function_call item that was read": ({"content": [ITEM], "tool_calls": [{**CALL, "id": "call_1"}]}, 1),
    "function_call items": ({"content": [ITEM, {**ITEM, "id": "fc_2", "call_id": "call_2"}]}, 2),
    "a provider's own tools beside a call": ({"content": [*SERVER_TOOLS, text("Found."), use()]}, 1),
    "reasoning_content beside a call": (
        {"tool_calls": [CALL], "additional_kwargs": {"reasoning_content": "hm"}},
        1,
    ),
}  # fmt: skip


@every_way
@pytest.mark.parametrize(("fields", "count"), SHAPES.values(), ids=SHAPES)
def test_every_shape_of_a_call_reads_the_same(
    fields: Fields, count: int, way: str, storage: SqliteStorage
) -> None:
    outcome, _, _ = play(way, storage, fields)
    assert ["x"] * count == WRITTEN
    assert (outcome.status, outcome.turns, outcome.tool_calls, outcome.nudges) == ("success", 2, count, 0)


BAD_CALL = {"type": "invalid_tool_call", "id": "a", "name": "write", "args": '"{\\"text\\": \\"x\\"}"'}
UNREADABLE: dict[str, Fields] = {
    "an invalid call": {"invalid_tool_calls": [{**BAD_CALL, "error": "no object"}]},
    "an invalid_tool_call block": {"content": [BAD_CALL]},
    "arguments that are a list": {"tool_calls": [{"name": "write", "id": "a", "args": [1]}]},
}


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE)
def test_what_the_package_could_not_read_does_not_run(fields: Fields, storage: SqliteStorage) -> None:
    outcome, _, _ = play("whole", storage, fields)
    assert (outcome.status, outcome.tool_calls, WRITTEN) == ("success", 0, [])


@every_way
def test_a_call_keeps_the_id_of_its_provider_and_its_block_follows_where_it_gets_another(
    way: str, storage: SqliteStorage
) -> None:
    read = {"content": [ITEM], "tool_calls": [{**CALL, "id": "call_1"}]}
    _, model, _ = play(way, storage, read, read)
    replies = [message for message in model._seen[-1] if isinstance(message, AIMessage)]
    ids = [message.tool_calls[0]["id"] for message in replies]
    assert [part["call_id"] for m in replies for part in m.content if isinstance(part, dict)] == ids
    assert (ids[0], len(set(ids)), WRITTEN) == ("call_1", 2, ["x", "x"])


def test_an_old_history_with_a_function_call_and_ids_that_repeat_is_read(storage: SqliteStorage) -> None:
    called = AIMessage("", additional_kwargs={"function_call": FUNCTION})
    given = [HumanMessage("go"), called, FunctionMessage(content="written before", name="write")]
    model = Sends(replies=[])
    assert outcome_of(build_graph(model, storage=storage).invoke({"messages": given}, THREAD)).turns == 2
    (prompt,) = model._seen
    assert_sendable(prompt)
    assert [message.text for message in prompt if isinstance(message, ToolMessage)] == ["written before"]
    finishes = [
        AIMessage("", tool_calls=[{"name": "finish_task", "id": "1", "args": {"summary": summary}}])
        for summary in ("", "good")
    ]
    results = [ToolMessage("ok", tool_call_id="1") for _ in finishes]
    repeated: Any = [HumanMessage("go"), finishes[0], results[0], finishes[1], results[1]]
    outcome = outcome_of(build_graph(ScriptedModel([])).invoke({"messages": repeated}))
    assert (outcome.status, outcome.summary) == ("success", "good")


# A reply without a call gets the reminder that fits.

SPOKEN: dict[str, tuple[Fields, str]] = {
    "a thinking block": ({"content": [THINKING]}, "reasoning"),
    "a hidden thinking block": ({"content": [{"type": "redacted_thinking", "data": "x"}]}, "reasoning"),
    "a reasoning item": ({"content": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "reasoning"),
    "reasoning_content": ({"additional_kwargs": {"reasoning_content": "hm"}}, "reasoning"),
    "thoughts in tags": ({"content": "<think>\nhm\n</think>\n\n"}, "reasoning"),
    "a tag that opens in the prompt": ({"content": "hm\n</think>"}, "reasoning"),
    "a tag that never closes": ({"content": "<think>hm"}, "reasoning"),
    "only a count of thoughts": (
        {"usage_metadata": {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14,
                            "output_token_details": {"reasoning": 9}}},
        "reasoning",
    ),
    "words": ({"content": "Done!"}, "talked"),
    "words after thoughts": ({"content": "<think>hm</think>Done!"}, "talked"),
    "words that name the tag": ({"content": "Use <think> and </thinking> then."}, "talked"),
    "thoughts and words in blocks": (
        {"content": [{"type": "thinking", "thinking": "hm"}, text("So.")]},
        "talked",
    ),
    "nothing": ({"content": ""}, "empty"),
    "no blocks": ({"content": []}, "empty"),
    "empty words": ({"content": [text(" ")]}, "empty"),
    "a provider's own tools alone": ({"content": SERVER_TOOLS}, "empty"),
    "a refusal": ({"additional_kwargs": {"refusal": "I cannot."}}, "filtered"),
    "a refusal among blocks": ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "filtered"),
    "a refusal in a foreign block": (
        {"content": [{"type": "non_standard", "value": {"type": "refusal", "refusal": "No."}}]},
        "filtered",
    ),
    "cut in the middle of its thoughts": (
        {"content": "<think>hm", "response_metadata": {"finish_reason": "length"}},
        "truncated",
    ),
}  # fmt: skip


@every_way
@pytest.mark.parametrize(("fields", "why"), SPOKEN.values(), ids=SPOKEN)
def test_a_reply_without_a_call_gets_the_reminder_that_fits(
    fields: Fields, why: str, way: str, storage: SqliteStorage
) -> None:
    outcome, _, session = play(way, storage, fields)
    assert (outcome.status, reminders(session)) == ("success", [why])


def test_a_reply_that_the_provider_interrupted_is_sent_back_as_it_is(storage: SqliteStorage) -> None:
    paused = {"content": SERVER_TOOLS[:1], "response_metadata": {"stop_reason": "pause_turn"}}
    outcome, model, _ = play("whole", storage, *[paused] * 7, sendable=False)
    assert (outcome.status, outcome.nudges) == ("success", 0)
    # Its parts are one reply, which nothing may divide.
    assert [message.content for message in model._seen[-1][-7:]] == [SERVER_TOOLS[:1]] * 7


# What a provider's word for the end of a reply means for its calls.

ENDS: dict[str, list[Fields]] = {
    "runs": [
        *({"finish_reason": word} for word in ("stop", "tool_calls", "function_call", "STOP", "eos_token")),
        *({"finish_reason": word} for word in ("COMPLETE", "", None, 3, ["x"])),
        *({"stop_reason": word} for word in ("end_turn", "tool_use", "stop_sequence")),
        *({"stopReason": "end_turn"}, {"done_reason": "stop"}, {"status": "completed"}, {}),
        {"status": "completed", "incomplete_details": None},
        {"prompt_feedback": {"block_reason": 0}},
    ],
    "truncated": [
        *({"finish_reason": word} for word in ("length", "MAX_TOKENS")),
        {"finish_reason": "FinishReason.MAX_TOKENS"},
        {"finish_reason": "MALFORMED_FUNCTION_CALL"},
        *({"stop_reason": "max_tokens"}, {"stopReason": "max_tokens"}),
        *({"done_reason": "length"}, {"status": "incomplete"}),
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ],
    "no room": [{"finish_reason": "model_length"}, {"stop_reason": "model_context_window_exceeded"}],
    "filtered": [
        *({"finish_reason": word} for word in ("content_filter", "SAFETY", "RECITATION", "BLOCKLIST")),
        *({"finish_reason": word} for word in ("SPII", "PROHIBITED_CONTENT", "ERROR_TOXIC", "IMAGE_SAFETY")),
        *({"finish_reason": "sensitive"}, {"stop_reason": "refusal"}),
        *({"stopReason": word} for word in ("guardrail_intervened", "content_filtered")),
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        {"prompt_feedback": {"block_reason": "SAFETY"}},
    ],
    "broken off": [
        {"finish_reason": word}
        for word in ("error", "abort", "insufficient_system_resource", "network_error")
    ],
}


@pytest.mark.parametrize(
    ("meaning", "metadata"), [(meaning, row) for meaning, rows in ENDS.items() for row in rows], ids=str
)
def test_what_a_providers_word_for_the_end_means_for_its_calls(
    meaning: str, metadata: Fields, storage: SqliteStorage
) -> None:
    """A finish counts if the work beside it runs. Where there was no room, the prompt is made shorter."""
    calls = [CALL, {"name": "finish_task", "id": "b", "args": {"summary": "Too early."}}]
    given = {"tool_calls": calls, "response_metadata": metadata}
    policy = {"streaming": "never", "model_retries": None}
    outcome, _, session = play("whole", storage, given, policy=policy)
    if meaning == "broken off":
        assert (outcome.reason, WRITTEN) == ("model_error", [])
        assert not any(isinstance(m, AIMessage) and m.tool_calls for m in session.status().values["messages"])
        return
    runs = meaning == "runs"
    assert (WRITTEN, outcome.summary) == (["x"], "Too early.") if runs else ([], "Done.")
    assert reminders(session) == ([meaning] if meaning in ("truncated", "filtered") else [])


def test_a_word_that_comes_twice_in_a_stream_is_read_once(storage: SqliteStorage) -> None:
    length = {"finish_reason": "length"}
    piece: Any = {"name": "write", "args": '{"text": "x"}', "id": "a", "index": 0}
    chunks = [
        AIMessageChunk(content="", tool_call_chunks=[piece], response_metadata=length),
        AIMessageChunk(content="", response_metadata=length),
    ]
    outcome, _, session = play("in pieces", storage, chunks)
    assert (outcome.status, WRITTEN, reminders(session)) == ("success", [], ["truncated"])


# Values at the edge. Every field of a reply takes every value; the thread goes on, and can be read again.


class Own(AIMessage):
    """A provider's own kind of reply."""

    extra: object = None


class Wild:
    """Raises when it is read."""

    def __str__(self) -> str:
        raise RuntimeError("not to be read")

    __repr__ = __str__


def nested(depth: int, kind: type) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if kind is list else {"x": value}
    return value


def ring() -> Any:
    made: list[Any] = []
    made += [made, made]
    return made


def shared() -> Any:
    """As much as 2 to the 40th values, in hardly any memory."""
    value: Any = ["x"]
    for _ in range(40):
        value = [value, value]
    return value


ODD: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "below zero": lambda: -1,
    "beyond 64 bits": lambda: 2**70,
    "no number": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a half": lambda: 1.5,
    "bytes": lambda: b"\xff",
    "a tuple": lambda: (1, 2),
    "a set": lambda: {3},
    "a complex number": lambda: 1j,
    "an ellipsis": lambda: Ellipsis,
    "a type": lambda: object,
    "a date": lambda: datetime.date(2026, 1, 1),
    "an error": lambda: ValueError("x"),
    "an object": object,
    "an object that raises when it is read": Wild,
    "half a character": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "marks of direction": lambda: "\u202e",
    "a long text": lambda: "x" * 100_000,
    "a list of everything": lambda: [None, 2**70, b"x", {"a": 1}, "\ud800", object()],
    "a dict with odd keys": lambda: {"": None, None: 1, 2: "x", "\ud800": object(), (1, 2): b"x"},
    "lists in lists": lambda: nested(300, list),
    "dicts in dicts": lambda: nested(5_000, dict),
}
WITHOUT_END = {"a list that holds itself": ring, "as many values as atoms": shared}
WORK: Fields = {"name": "write", "args": {"text": "x"}, "id": "a", "type": "tool_call"}
PLACES: dict[str, Callable[[Any], Fields]] = {
    "content": lambda odd: {"content": odd},
    "a block": lambda odd: {"content": ["a", {"type": "text", "text": odd}, odd]},
    "a block of a call": lambda odd: {"content": [use(id=odd, name=odd, input=odd)]},
    "additional_kwargs": lambda odd: {"additional_kwargs": odd},
    "an extra": lambda odd: {"additional_kwargs": {"x": odd, "tool_calls": odd, "function_call": odd}},
    "a raw call": lambda odd: {"additional_kwargs": {"tool_calls": [{"id": odd, "function": odd}]}},
    "response_metadata": lambda odd: {"response_metadata": odd},
    "the reason of the end": lambda odd: {"response_metadata": {"finish_reason": odd, "model_name": odd}},
    "our own marks": lambda odd: {
        "response_metadata": {"signoff": odd}, "additional_kwargs": {"signoff": odd}
    },
    "usage": lambda odd: {"usage_metadata": odd},
    "a count": lambda odd: {"usage_metadata": {"input_tokens": 3, "output_tokens": odd, "total_tokens": 7}},
    "the id": lambda odd: {"id": odd},
    "the name": lambda odd: {"name": odd},
    "tool_calls": lambda odd: {"tool_calls": odd},
    "the name of a call": lambda odd: {"tool_calls": [{**WORK, "name": odd}]},
    "the id of a call": lambda odd: {"tool_calls": [{**WORK, "id": odd}]},
    "the arguments of a call": lambda odd: {"tool_calls": [{**WORK, "args": odd}]},
    "an argument": lambda odd: {"tool_calls": [{**WORK, "args": {"text": odd}}]},
    "an argument of a finish": lambda odd: {
        "tool_calls": [{**WORK, "name": "finish_task", "args": {"summary": odd, "pending_issues": odd}}]
    },
    "a call that could not be read": lambda odd: {
        "invalid_tool_calls": [{"name": odd, "args": odd, "id": odd, "error": odd}]
    },
    "a further field": lambda odd: {"extra": odd},
}  # fmt: skip


def odd_reply(**more: Any) -> AIMessage:
    """A reply past all checks, as `more` says."""
    fields = {"content": "Let me see.", "type": "ai", "tool_calls": [], "invalid_tool_calls": [], "id": "r"}
    usual: Fields = {"additional_kwargs": {}, "response_metadata": {}, "usage_metadata": None, "name": None}
    return Own.model_construct(**{**fields, **usual, **more})


def machine(model: Any, storage: SqliteStorage, *middleware: Any, tools: Any = (write,)) -> Any:
    policy = {"streaming": "never", "model_retries": None}
    limits = Limits(turns=4)
    return build_graph(
        model, list(tools), storage=storage, middleware=middleware, limits=limits, policy=policy
    )


def guards(model: Any, storage: SqliteStorage, *middleware: Any, tools: Any = (write,)) -> Any:
    saved: Any = {"checkpointer": storage.checkpointer, "store": storage.store}
    return create_agent(model, list(tools), middleware=[Guards(Limits(turns=4)), *middleware], **saved)


both_faces = pytest.mark.parametrize("face", [machine, guards], ids=["build_graph", "Guards"])


def check_stored(graph: Any, config: Any = THREAD) -> list[BaseMessage]:
    """What is stored is valid text in messages of LangChain's own."""
    messages: list[BaseMessage] = graph.get_state(config).values["messages"]
    for message in messages:
        assert type(message).__module__.startswith("langchain_core."), type(message)
        json.dumps(message.model_dump(exclude={"artifact"}), ensure_ascii=False, default=repr).encode()
    return messages


# Each takes seconds to be given up on.
ENDLESS = [
    pytest.param(place, WITHOUT_END, marks=pytest.mark.thorough) for place in ("content", "an argument")
]


@both_faces
@pytest.mark.parametrize(("place", "values"), [*((place, ODD) for place in PLACES), *ENDLESS])
def test_a_reply_with_any_value_at_any_place_is_an_outcome(
    place: str, values: dict[str, Callable[[], Any]], face: Any, storage: SqliteStorage
) -> None:
    model = Sends(replies=[])
    graph = face(model, storage)
    for name, odd in values.items():
        config = {"configurable": {"thread_id": name}}
        model.replies[:] = [odd_reply(**PLACES[place](odd()))]
        state = graph.invoke(GO, config)
        # Two claims that are refused alike go to a person.
        assert "__interrupt__" in state or state["outcome"]["status"] in ("success", "limit", "error"), name
        check_stored(graph, config)
    model.replies.clear()
    assert graph.invoke(GO, config)["outcome"]["status"] == "success", "another task of such a thread"


COUNTS = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
# What a package gives, and what of it is in the thread.
KEPT: dict[str, tuple[Fields, Fields]] = {
    "an object in extras": (
        {"additional_kwargs": {"a": object(), "b": [1, {2}]}},
        {"additional_kwargs": {"b": [1]}},
    ),
    "numbers around 64 bits": (
        {"additional_kwargs": {"a": 2**64, "b": 2**64 - 1}},
        {"additional_kwargs": {"b": 2**64 - 1}},
    ),
    "bytes": ({"additional_kwargs": {"a": b"\xff"}}, {"additional_kwargs": {"a": b"\xff"}}),
    "half a character": ({"content": "a\ud800b\0"}, {"content": "a\ufffdb\ufffd"}),
    "a part with an object": (
        {"content": ["a", {"type": "x", "x": object(), "y": 1}]},
        {"content": ["a", {"type": "x", "y": 1}]},
    ),
    "a detail below zero": (
        {"usage_metadata": {**COUNTS, "input_token_details": {"cache_read": -1, "audio": 2}, "x": 1j}},
        {"usage_metadata": {**COUNTS, "input_token_details": {"audio": 2}}},
    ),
}


@both_faces
@pytest.mark.parametrize(("fields", "kept"), KEPT.values(), ids=KEPT)
def test_a_reply_keeps_what_can_be_stored(
    fields: Fields, kept: Fields, face: Any, storage: SqliteStorage
) -> None:
    graph = face(Sends(replies=[odd_reply(**fields)]), storage)
    graph.invoke(GO, THREAD)
    stored = next(message for message in check_stored(graph) if message.id == "r")
    assert {field: getattr(stored, field) for field in kept} == kept


def test_a_call_with_such_an_argument_does_not_run_and_the_one_beside_it_does(storage: SqliteStorage) -> None:
    for odd in (10**30, object(), b"x", float("inf")):
        WRITTEN.clear()
        calls = [{**WORK, "args": {"text": odd}}, {**WORK, "id": "b"}]
        graph = machine(Sends(replies=[odd_reply(tool_calls=calls)]), storage)
        assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
        assert WRITTEN == ["x"]


NO_REPLIES: dict[str, Any] = {
    "none": None,
    "a text": "text",
    "another role": ChatMessage(content="hi", role="critic"),
    "a number for content": odd_reply(content=5),
}


@both_faces
@pytest.mark.parametrize("sent", NO_REPLIES.values(), ids=NO_REPLIES)
def test_what_is_no_reply_is_an_error_and_the_next_task_goes_on(
    sent: Any, face: Any, storage: SqliteStorage
) -> None:
    graph = face(Sends(replies=[sent]), storage)
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "model_error"
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


def test_a_panic_in_the_package_of_a_model_is_an_error(storage: SqliteStorage) -> None:
    class Panic(BaseException):
        """What an extension in Rust raises when it panics."""

    class Panicky(Sends):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            raise Panic("index out of bounds")

    outcome = machine(Panicky(replies=[]), storage).invoke(GO, THREAD)["outcome"]
    assert (outcome["reason"], "Panic: index" in outcome["error"]) == ("model_error", True)


# Marks of ours that somebody else sets, and values of middleware and tools.

FORGED = "forged"
MARKS: Fields = {
    **dict.fromkeys(("answer", "after", "nudge", "not_run", "order", "reply"), FORGED),
    **dict.fromkeys(("checked", "stopped", "estimated", "unknown", "confirmed", "ended"), FORGED),
    "cut": 0, "phase": 3,
}  # fmt: skip


@both_faces
@pytest.mark.parametrize("where", ["response_metadata", "additional_kwargs"])
def test_a_provider_sets_no_marks(where: str, face: Any, storage: SqliteStorage) -> None:
    marks = {"signoff": MARKS, "signoff-0011223344556677": MARKS, "signoffs": "kept"}
    calls = [WORK, {**WORK, "id": "b", "name": "finish_task", "args": {"summary": "x"}}]
    graph = face(Sends(replies=[odd_reply(content="", tool_calls=calls, **{where: marks})]), storage)
    outcome = graph.invoke(GO, THREAD)["outcome"]
    assert (outcome["status"], outcome["turns"], WRITTEN) == ("success", 1, ["x"])
    stored = check_stored(graph)
    assert FORGED not in repr(stored)
    assert getattr(next(message for message in stored if message.id == "r"), where)["signoffs"] == "kept"


def test_a_reply_that_claims_to_be_stopped_still_comes_to_a_limit(storage: SqliteStorage) -> None:
    talk = odd_reply(id=None, response_metadata={"signoff": {"stopped": True}})
    graph = build_graph(Sends(replies=[talk] * 50), storage=storage, policy={"streaming": "never"})
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "talk_turns"


def test_a_usage_below_zero_grants_nothing(storage: SqliteStorage) -> None:
    counts = {"input_tokens": -(10**6), "output_tokens": 0, "total_tokens": -(10**6)}
    outcome = outcome_of(
        machine(Sends(replies=[odd_reply(usage_metadata=counts)]), storage).invoke(GO, THREAD)
    )
    assert (outcome.usage.total_tokens > 0, outcome.usage.estimated) == (True, True)


class Changes(AgentMiddleware[Any, Any]):
    """Does this to the first reply."""

    def __init__(self, change: Callable[[AIMessage], Any]) -> None:
        super().__init__()
        self.changes = [change]

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        answer = handler(request).result[0]
        return self.changes.pop()(answer) if self.changes else answer


def in_place(answer: AIMessage) -> AIMessage:
    answer.additional_kwargs["raw"] = object()
    answer.response_metadata.update(raw=10**30, signoff={"answer": FORGED})
    return answer


CHANGES: dict[str, Callable[[AIMessage], Any]] = {
    "in place": in_place,
    "a copy": lambda answer: answer.model_copy(
        update={"additional_kwargs": {"raw": Wild()}, "more": object()}
    ),
    "one of its own": lambda answer: Own(
        content="Mine.", extra=2**70, response_metadata={"signoff": {"answer": FORGED}}
    ),
}  # fmt: skip


@both_faces
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_reply_of_a_middleware_is_made_sound(change: Any, face: Any, storage: SqliteStorage) -> None:
    model = ScriptedModel([call("write", text="x"), call("finish_task", summary="Done.")])
    graph = face(model, storage, Changes(change))
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    answer = next(message for message in check_stored(graph) if isinstance(message, AIMessage))
    assert ("raw" in answer.additional_kwargs, "raw" in answer.response_metadata) == (False, False)
    assert FORGED not in repr(answer)


def test_a_reply_that_was_cut_off_stays_so_when_a_middleware_copies_it(storage: SqliteStorage) -> None:
    script = [[call("finish_task", summary="Done."), call("write", text="x")]]
    copying = Changes(lambda answer: answer.model_copy(update={"content": "Copied."}))
    graph = build_graph(ScriptedModel(script), [write], storage=storage, middleware=[copying])
    messages = graph.invoke(GO, THREAD)["messages"]
    assert ("Copied." in [message.text for message in messages], WRITTEN) == (True, [])


OUTPUTS: dict[str, Callable[[], Fields]] = {
    "an artifact that is no number": lambda: {"artifact": float("nan")},
    "an artifact that raises when it is read": lambda: {"artifact": Wild()},
    "extras": lambda: {"additional_kwargs": {"x": object(), "signoff": {"not_run": FORGED}}},
    "no extras": lambda: {"additional_kwargs": None},
    "metadata": lambda: {"response_metadata": {"x": 10**30}},
    "an id": lambda: {"id": 7},
    "content": lambda: {"content": [{"type": "json", "json": 2**70}, {"type": "text", "text": "\ud800"}]},
    "a status": lambda: {"status": "x"},
}


@both_faces
@pytest.mark.parametrize("way", ["message", "command"])
@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_of_a_tool_is_made_sound(output: Any, way: str, face: Any, storage: SqliteStorage) -> None:
    @tool
    def act() -> Any:
        """Act."""
        fields = {"content": "acted", "type": "tool", "tool_call_id": "a", "status": "success", "id": None}
        more: Fields = {"additional_kwargs": {}, "response_metadata": {}, "artifact": None, "name": None}
        message = ToolMessage.model_construct(**{**fields, **more, **output()})
        return message if way == "message" else Command(update={"messages": [message]})

    asks = {"tool_calls": [{"name": "act", "args": {}, "id": "a"}]}
    graph = face(Sends(replies=[asks]), storage, tools=[act])
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    assert FORGED not in repr(check_stored(graph))


# What people do to a thread by hand.


def test_a_task_after_one_that_failed_without_a_reply_is_a_task_of_its_own(storage: SqliteStorage) -> None:
    work, finish = call("write", text="x"), call("finish_task", summary="All of it.")
    model = ScriptedModel([RuntimeError("down"), work, work, finish])
    graph = build_graph(model, [write], limits=Limits(turns=2), storage=storage)
    first, second, third = (outcome_of(graph.invoke(given, THREAD)) for given in (GO, GO, go_on(turns=5)))
    assert [outcome.reason for outcome in (first, second, third)] == ["model_error", "turns", "finish_task"]
    assert first.task != second.task == third.task
    assert outcome_of(graph.invoke({"messages": []}, THREAD)) == third, "there is no new task"


def asking(storage: SqliteStorage) -> Any:
    asks, finish = call("ask_user", question="Which?"), call("finish_task", summary="All of it.")
    graph = build_graph(ScriptedModel([asks, finish, finish]), storage=storage)
    graph.invoke(GO, THREAD)
    return graph


def test_a_message_by_an_update_is_an_answer_and_a_command_may_bring_a_message_too(
    storage: SqliteStorage,
) -> None:
    graph = asking(storage)
    graph.update_state(THREAD, {"messages": [("user", "blue")]})
    messages = graph.invoke(None, THREAD)["messages"]
    assert "blue" in [message.text for message in messages if message.type == "tool"]
    other: Any = {"configurable": {"thread_id": "other"}}
    graph = build_graph(ScriptedModel([call("ask_user", question="Which?")]), storage=storage)
    graph.invoke(GO, other)
    graph = build_graph(ScriptedModel([call("finish_task", summary="x")]), storage=storage)
    both: Any = Command(resume="blue", update={"messages": [("user", "also this")]})
    assert outcome_of(graph.invoke(both, other)).status == "success"


def test_a_thread_that_was_changed_by_hand_goes_on(storage: SqliteStorage) -> None:
    finish = call("finish_task", summary="All of it.")
    graph = build_graph(ScriptedModel([finish] * 3), storage=storage)
    first = outcome_of(graph.invoke(GO, THREAD))
    graph.invoke({"messages": [RemoveMessage(id="nothing")]}, THREAD)
    assert outcome_of(graph.get_state(THREAD).values)
    graph.update_state(THREAD, {"messages": [("user", "and that")]})
    second = outcome_of(graph.invoke(go_on(), THREAD))
    assert (second.status, second.task != first.task) == ("success", True)


CLAIMS: dict[str, tuple[Fields, list[str]]] = {
    "one issue as a text": ({"pending_issues": "the key"}, ["the key"]),
    "no as a text": ({"requires_user_confirmation": "false"}, []),
    "issues as null": ({"pending_issues": None}, []),
}


@pytest.mark.parametrize(("args", "issues"), CLAIMS.values(), ids=CLAIMS)
def test_arguments_of_a_finish_count_as_their_schema_reads_them(args: Fields, issues: list[str]) -> None:
    outcome = outcome_of(build_graph(ScriptedModel([call("finish_task", summary="x", **args)])).invoke(GO))
    assert (outcome.status, outcome.pending_issues) == ("success", issues)


@pytest.mark.parametrize(("claimed", "claim"), [({}, "done"), ({"outcome": "escalated"}, None)])
def test_a_finishing_tool_of_ones_own_needs_no_summary(claimed: Fields, claim: str | None) -> None:
    @tool
    def escalate(reason: str, outcome: str = "done") -> str:
        """Give the task to a person."""
        return reason

    controls = [*standard_controls(), ControlTool(escalate, "finish")]
    model = ScriptedModel([call("escalate", reason="too hard", **claimed)])
    outcome = outcome_of(build_graph(model, control_tools=controls).invoke(GO))
    assert (outcome.status, outcome.reason, outcome.claim) == ("success", "escalate", claim)
    assert "too hard" in outcome.summary


ROUTES: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda graph: graph.invoke(GO),
    "batch": lambda graph: graph.batch([GO])[0],
    "a chain": lambda graph: (RunnableLambda(lambda given: given) | graph).invoke(GO),
}


@pytest.mark.parametrize("run", ROUTES.values(), ids=ROUTES)
def test_no_way_to_call_the_graph_brings_a_limit_of_steps(run: Callable[[Any], Any]) -> None:
    script = [call("write", text="x")] * 12 + [call("finish_task", summary="x")]
    graph = build_graph(ScriptedModel(script), [write], limits=Limits(repeats=None))
    assert run(graph)["outcome"]["turns"] == 13


@pytest.mark.parametrize("thread", ["a.b/c", "ünï", "x" * 500, "'; DROP TABLE store"])
def test_any_text_is_the_id_of_a_thread(thread: str, storage: SqliteStorage) -> None:
    config: Any = {"configurable": {"thread_id": thread}}
    graph = build_graph(ScriptedModel([call("finish_task", summary="x")]), storage=storage)
    assert outcome_of(graph.invoke(GO, config)).status == "success"
    assert [row.thread_id for row in storage.threads()] == [thread]
