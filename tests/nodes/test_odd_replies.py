"""Replies in every shape, and such as no provider or tool should give: all read alike, or are outcomes."""

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from pydantic import PrivateAttr

from signoff import Limits, Session, build_graph, outcome_of
from signoff.events import Nudged
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, THREAD, WRITE, assert_sendable, saved

Fields = dict[str, Any]
FINISHING: Fields = {"tool_calls": [{"name": "finish_task", "id": "f", "args": {"summary": "Done."}}]}
WRITTEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_is_written() -> None:
    WRITTEN.clear()


@tool
def write(text: str) -> str:
    """Write."""
    WRITTEN.append(text)
    return "written"


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
        sent = self.replies.pop(0) if self.replies else FINISHING
        return kind(**{"content": "", **sent}) if isinstance(sent, dict) else sent

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        generation: Any = ChatGeneration.model_construct(message=self._next(messages, AIMessage))
        return ChatResult.model_construct(generations=[generation], llm_output=None)

    def _stream(self, messages: list[BaseMessage], *rest: Any, **kw: Any) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=self._next(messages, AIMessageChunk))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))


def play(way: str, *replies: Any, sendable: bool = True) -> tuple[Any, Sends, Session]:
    """A task in which the model gives these replies, then finishes; "imported" puts the first one into the
    history, in place of the model. sendable: whether every prompt has to be one that providers take."""
    given: list[Any] = [HumanMessage("go")]
    rest = list(replies)
    if way == "imported":
        given.append(AIMessage(**{"content": "", **rest.pop(0)}))
    model = Sends(replies=rest)
    policy = {"streaming": "always" if way == "in pieces" else "never", "model_retries": None}
    graph = build_graph(model, [write], policy=policy, **saved())
    outcome = outcome_of(graph.invoke({"messages": given}, THREAD))
    for prompt in model._seen if sendable else ():
        assert_sendable(prompt)
    return outcome, model, Session(graph, "t")


def reminders(session: Session) -> list[str]:
    return [event.why for turn in session.history() for event in turn.events if isinstance(event, Nudged)]


# Shapes of a call.


def text(words: str) -> Fields:
    return {"type": "text", "text": words}


def use(number: int = 1, **more: Any) -> Fields:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "write", "input": {"text": "x"}, **more}


def raw_call(**more: Any) -> Fields:
    return {"function": {"name": "write", "arguments": '{"text": "x"}'}, **more}


CALL: Fields = {"name": "write", "id": "a", "args": {"text": "x"}}
FUNCTION: Fields = {"name": "write", "arguments": '{"text": "x"}'}
IN_EXTRAS: Fields = {"additional_kwargs": {"function_call": FUNCTION}}
THINKING: Fields = {"type": "thinking", "thinking": "hm", "signature": "s"}
ITEM: Fields = {"type": "function_call", "id": "fc_1", "call_id": "call_1", **FUNCTION}
THAT_WAS_READ: Fields = {"content": [ITEM], "tool_calls": [{**CALL, "id": "call_1"}]}
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
    "function_call": (IN_EXTRAS, 1),
    "raw tool_calls without ids": ({"additional_kwargs": {"tool_calls": [raw_call(), raw_call()]}}, 2),
    "a tool_use block": ({"content": [use()]}, 1),
    "a tool_use block as it was streamed": ({"content": [use(input={}, partial_json='{"text": "x"}')]}, 1),
    "tool_use blocks of one id": ({"content": [use(1), use(1)]}, 2),
    "a tool_call block": ({"content": [text("Now."), {"type": "tool_call", **CALL}]}, 1),
    "a function_call item": ({"content": [{"type": "reasoning", "id": "rs_1", "summary": []}, ITEM]}, 1),
    "a provider's own tools beside a call": ({"content": [*SERVER_TOOLS, text("Found."), use()]}, 1),
}


@pytest.mark.parametrize("way", ["imported", "in pieces"])
@pytest.mark.parametrize(("fields", "count"), SHAPES.values(), ids=SHAPES)
def test_every_shape_of_a_call_reads_the_same(fields: Fields, count: int, way: str) -> None:
    outcome, _, _ = play(way, fields)
    assert ["x"] * count == WRITTEN
    assert (outcome.status, outcome.turns, outcome.tool_calls, outcome.nudges) == ("success", 2, count, 0)


def test_a_call_keeps_the_id_of_its_provider_and_its_block_follows_where_it_gets_another() -> None:
    _, model, _ = play("whole", THAT_WAS_READ, THAT_WAS_READ)
    replies = [message for message in model._seen[-1] if isinstance(message, AIMessage)]
    ids = [message.tool_calls[0]["id"] for message in replies]
    assert [part["call_id"] for m in replies for part in m.content if isinstance(part, dict)] == ids
    assert (ids[0], len(set(ids)), WRITTEN) == ("call_1", 2, ["x", "x"])


# A reply without a call gets the reminder that fits; what its last word says decides over its calls.

COUNTED = {
    "input_tokens": 5,
    "output_tokens": 9,
    "total_tokens": 14,
    "output_token_details": {"reasoning": 9},
}
REFUSAL = {"type": "refusal", "refusal": "I cannot."}
CUT: Fields = {"finish_reason": "length"}
SPOKEN: dict[str, tuple[Fields, str]] = {
    "a thinking block": ({"content": [THINKING]}, "reasoning"),
    "reasoning_content": ({"additional_kwargs": {"reasoning_content": "hm"}}, "reasoning"),
    "thoughts in tags": ({"content": "<think>\nhm\n</think>\n\n"}, "reasoning"),
    "a tag that opens in the prompt": ({"content": "hm\n</think>"}, "reasoning"),
    "only a count of thoughts": ({"usage_metadata": COUNTED}, "reasoning"),
    "words": ({"content": "Done!"}, "talked"),
    "words that name the tag": ({"content": "Use <think> and </thinking> then."}, "talked"),
    "nothing": ({"content": ""}, "empty"),
    "a provider's own tools alone": ({"content": SERVER_TOOLS}, "empty"),
    "a refusal": ({"additional_kwargs": {"refusal": "I cannot."}}, "filtered"),
    "a refusal among blocks": ({"content": [REFUSAL]}, "filtered"),
    "cut in the middle of its thoughts": ({"content": "<think>hm", "response_metadata": CUT}, "truncated"),
}


@pytest.mark.parametrize(("fields", "why"), SPOKEN.values(), ids=SPOKEN)
def test_a_reply_without_a_call_gets_the_reminder_that_fits(fields: Fields, why: str) -> None:
    outcome, _, session = play("in pieces", fields)
    assert (outcome.status, reminders(session)) == ("success", [why])


def test_a_reply_that_the_provider_interrupted_is_sent_back_as_it_is() -> None:
    paused = {"content": SERVER_TOOLS[:1], "response_metadata": {"stop_reason": "pause_turn"}}
    outcome, model, _ = play("whole", *[paused] * 7, sendable=False)
    assert (outcome.status, outcome.nudges) == ("success", 0)
    # Its parts are one reply, which nothing may divide.
    assert [message.content for message in model._seen[-1][-7:]] == [SERVER_TOOLS[:1]] * 7


# The metadata, the summary that counts, the reminders; tests/providers has the words of all clients.
ENDS: dict[str, tuple[Fields, str, list[str]]] = {
    "no word": ({"finish_reason": ["x"], "status": None}, "Too early.", []),
    "cut": (CUT, "Done.", ["truncated"]),
    "filtered": ({"finish_reason": "SAFETY"}, "Done.", ["filtered"]),
    "a blocked prompt": ({"prompt_feedback": {"block_reason": "SAFETY"}}, "Done.", ["filtered"]),
    "broken off": ({"finish_reason": "error"}, "", []),
}


@pytest.mark.parametrize(("metadata", "summary", "why"), ENDS.values(), ids=ENDS)
def test_what_the_last_word_of_a_reply_means_for_its_calls(
    metadata: Fields, summary: str, why: list[str]
) -> None:
    """A finish counts if the work beside it runs."""
    calls = [CALL, {"name": "finish_task", "id": "b", "args": {"summary": "Too early."}}]
    outcome, _, session = play("whole", {"tool_calls": calls, "response_metadata": metadata})
    assert (["x"] if summary == "Too early." else []) == WRITTEN
    assert (outcome.summary or "", reminders(session)) == (summary, why)
    assert summary or outcome.reason == "model_error"


# Words of providers whose clients are not here, and odd ones.
RUN = "COMPLETE eos_token STOP FinishReason.STOP something"
NOT_RUN = """
abort repetition sensitive network_error MAX_TOKENS ERROR_LIMIT ERROR_TOXIC ERROR TIMEOUT USER_CANCEL
token_limit time_limit cancelled FinishReason.MAX_TOKENS FINISH_REASON_SAFETY
"""


@pytest.mark.parametrize("word", [*RUN.split(), *NOT_RUN.split()])
def test_so_do_the_words_of_others(word: str) -> None:
    play("whole", {"tool_calls": [CALL], "response_metadata": {"finish_reason": word}})
    assert (["x"] if word in RUN.split() else []) == WRITTEN


# Values at the edge: every field of a reply takes every value; the thread goes on, and can be read again.


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


ODD: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (None, -1, 2**70, float("nan"), b"\xff", {3}, ValueError("x"))),
    *(lambda value=value: value for value in ("\ud800", "a\0b", "x" * 100_000)),
    Wild,
    lambda: [None, 2**70, b"x", {"a": 1}, "\ud800", object()],
    lambda: {"": None, None: 1, 2: "x", "\ud800": object(), (1, 2): b"x"},
    lambda: nested(300, list),
    lambda: nested(5_000, dict),
]
WORK: Fields = {"name": "write", "args": {"text": "x"}, "id": "a", "type": "tool_call"}
PLACES: dict[str, Callable[[Any], Fields]] = {
    "content": lambda odd: {"content": odd},
    "a block": lambda odd: {"content": ["a", {"type": "text", "text": odd}, odd]},
    "additional_kwargs": lambda odd: {"additional_kwargs": odd},
    "response_metadata": lambda odd: {"response_metadata": odd},
    "the reason of the end": lambda odd: {"response_metadata": {"finish_reason": odd, "model_name": odd}},
    "usage": lambda odd: {"usage_metadata": odd},
    "the id": lambda odd: {"id": odd},
    "tool_calls": lambda odd: {"tool_calls": odd},
    "the id of a call": lambda odd: {"tool_calls": [{**WORK, "id": odd}]},
    "the arguments of a call": lambda odd: {"tool_calls": [{**WORK, "args": odd}]},
    "an argument": lambda odd: {"tool_calls": [{**WORK, "args": {"text": odd}}]},
    "a call that could not be read": lambda odd: {
        "invalid_tool_calls": [{"name": odd, "args": odd, "id": odd, "error": odd}]
    },
}


def odd_reply(**more: Any) -> AIMessage:
    """A reply past all checks, as `more` says."""
    fields = {"content": "Let me see.", "type": "ai", "tool_calls": [], "invalid_tool_calls": [], "id": "r"}
    usual: Fields = {"additional_kwargs": {}, "response_metadata": {}, "usage_metadata": None, "name": None}
    return Own.model_construct(**{**fields, **usual, **more})


def machine(model: Any, *middleware: Any, tools: Any = (write,)) -> Any:
    policy = {"streaming": "never", "model_retries": None}
    return build_graph(
        model, [*tools], middleware=middleware, limits=Limits(turns=4), policy=policy, **saved()
    )


def guards(model: Any, *middleware: Any, tools: Any = (write,)) -> Any:
    return create_agent(model, [*tools], middleware=[Guards(Limits(turns=4)), *middleware], **saved())


both_faces = pytest.mark.parametrize("face", [machine, guards], ids=["build_graph", "Guards"])


def check_stored(graph: Any, config: Any = THREAD) -> list[BaseMessage]:
    """What is stored is valid text in messages of LangChain's own."""
    messages: list[BaseMessage] = graph.get_state(config).values["messages"]
    for message in messages:
        assert type(message).__module__.startswith("langchain_core."), type(message)
        json.dumps(message.model_dump(exclude={"artifact"}), ensure_ascii=False, default=repr).encode()
    return messages


UNDER_GUARDS = ("content", "tool_calls")


@pytest.mark.parametrize(
    ("place", "face"), [*((place, machine) for place in PLACES), *((place, guards) for place in UNDER_GUARDS)]
)
def test_a_reply_with_any_value_at_any_place_is_an_outcome(place: str, face: Any) -> None:
    model = Sends(replies=[])
    graph = face(model)
    for at, odd in enumerate(ODD):
        config: Any = {"configurable": {"thread_id": str(at)}}
        model.replies[:] = [odd_reply(**PLACES[place](odd()))]
        state = graph.invoke(GO, config)
        # Two claims that are refused alike go to a person.
        assert "__interrupt__" in state or state["outcome"]["status"] in ("success", "limit", "error")
        check_stored(graph, config)
    model.replies.clear()
    assert graph.invoke(GO, config)["outcome"]["status"] == "success", "another task of such a thread"


COUNTS = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
# What a package gives, and what of it is in the thread.
KEPT: dict[str, tuple[Fields, Fields]] = {
    "extras": (
        {"additional_kwargs": {"a": object(), "b": [1, {2}], "c": 2**64, "d": 2**64 - 1}},
        {"additional_kwargs": {"b": [1], "d": 2**64 - 1}},
    ),
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
def test_a_reply_keeps_what_can_be_stored(fields: Fields, kept: Fields, face: Any) -> None:
    graph = face(Sends(replies=[odd_reply(**fields)]))
    graph.invoke(GO, THREAD)
    stored = next(message for message in check_stored(graph) if message.id == "r")
    assert {field: getattr(stored, field) for field in kept} == kept


def test_a_call_with_such_an_argument_does_not_run_and_the_one_beside_it_does() -> None:
    calls = [{**WORK, "args": {"text": odd}} for odd in (10**30, object(), b"x", float("inf"))]
    calls.append({**WORK, "id": "b"})
    graph = machine(Sends(replies=[odd_reply(tool_calls=calls)]))
    assert (graph.invoke(GO, THREAD)["outcome"]["status"], WRITTEN) == ("success", ["x"])


NO_REPLIES: dict[str, Any] = {
    "none": None,
    "another role": ChatMessage(content="hi", role="critic"),
    "a number for content": odd_reply(content=5),
}


@both_faces
@pytest.mark.parametrize("sent", NO_REPLIES.values(), ids=NO_REPLIES)
def test_what_is_no_reply_is_an_error_and_the_next_task_goes_on(sent: Any, face: Any) -> None:
    graph = face(Sends(replies=[sent]))
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "model_error"
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


# Marks of ours that somebody else sets, and values of middleware and tools.

FORGED = "forged"
MARKS: Fields = {
    **dict.fromkeys(("answer", "after", "nudge", "not_run", "order", "reply"), FORGED),
    **dict.fromkeys(("checked", "stopped", "estimated", "unknown", "confirmed", "ended"), FORGED),
    "cut": 0,
    "phase": 3,
}


@both_faces
def test_a_provider_sets_no_marks(face: Any) -> None:
    marks = {"signoff": MARKS, "signoff-0011223344556677": MARKS, "signoffs": "kept"}
    calls = [WORK, {**WORK, "id": "b", "name": "finish_task", "args": {"summary": "x"}}]
    odd = odd_reply(content="", tool_calls=calls, response_metadata=marks, additional_kwargs=dict(marks))
    graph = face(Sends(replies=[odd]))
    outcome = graph.invoke(GO, THREAD)["outcome"]
    assert (outcome["status"], outcome["turns"], WRITTEN) == ("success", 1, ["x"])
    stored = check_stored(graph)
    assert FORGED not in repr(stored)
    assert "signoffs" in repr(stored), "a name that only looks like ours"


def test_a_usage_below_zero_grants_nothing() -> None:
    counts = {"input_tokens": -(10**6), "output_tokens": 0, "total_tokens": -(10**6)}
    outcome = outcome_of(machine(Sends(replies=[odd_reply(usage_metadata=counts)])).invoke(GO, THREAD))
    assert (outcome.usage.total_tokens > 0, outcome.usage.estimated) == (True, True)


@both_faces
def test_a_reply_of_a_middleware_is_made_sound(face: Any) -> None:
    @wrap_model_call
    def changes(request: Any, handler: Callable[[Any], Any]) -> Any:
        answer = handler(request).result[0]
        answer.response_metadata.update(raw=10**30, signoff={"answer": FORGED})
        return Own(**{**dict(answer), "extra": 2**70, "additional_kwargs": {"raw": object()}})

    graph = face(ScriptedModel([WRITE, FINISH]), changes)
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    answer = next(message for message in check_stored(graph) if isinstance(message, AIMessage))
    assert ("raw" in answer.additional_kwargs, "raw" in answer.response_metadata) == (False, False)
    assert FORGED not in repr(answer)


@both_faces
def test_a_result_of_a_tool_sets_no_marks_either(face: Any) -> None:
    @tool
    def act(call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Act."""
        extras = {"x": object(), "signoff": {"not_run": FORGED}}
        return ToolMessage("acted", tool_call_id=call_id, additional_kwargs=extras, artifact=Wild())

    graph = face(ScriptedModel([call("act"), FINISH]), tools=[act])
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    assert FORGED not in repr(check_stored(graph))
