"""What providers and servers send and refuse beside the rule, by real clients: a task gets through."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product
from typing import Any

import pytest

from tests.support.providers.cases import SUMMARY, TALK, UNTIL_REQUIRED, finish, work
from tests.support.providers.clients import CLIENTS, Client
from tests.support.providers.playing import Playing, Way
from tests.support.providers.server import Answer
from tests.support.providers.strict import Check, require
from tests.support.replies import wire
from tests.support.replies.wire import Event, WireReply
from tests.support.servers.fake_provider import Body, Fault, sse

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    # Of Google's own client in an event loop.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    # langchain-anthropic leaves a forced choice out by itself while the model thinks.
    pytest.mark.filterwarnings("ignore:tool_choice is forced but thinking is enabled:UserWarning"),
]
BY_ROW = {client.row: client for client in CLIENTS}
OPENAI, ANTHROPIC = BY_ROW["OpenAI, chat completions"], BY_ROW["Anthropic"]
MISTRAL, OPENROUTER = BY_ROW["Mistral"], BY_ROW["OpenRouter"]
STREAMED: Sequence[Way] = ("build_graph, streamed", "Guards, streamed")
BOTH = replace(work("a", "b"), ids=("call_1", "call_2"), reason="tool_calls", size=7)


def stream(change: Callable[[list[Event]], list[Any]], done: bool = True) -> Fault:
    """The reply with two calls, as a server streams it that changes the events."""
    lines = [
        event if isinstance(event, str) else f"data: {json.dumps(event)}"
        for event in change(list(wire.openai_events(BOTH)))
    ]
    return sse(*lines, *(["data: [DONE]"] if done else []))


def with_calls(change: Callable[[Body], Body]) -> Callable[[list[Event]], list[Any]]:
    """Changes each piece of a call."""

    def changed(events: list[Event]) -> list[Any]:
        for delta in (choice["delta"] for event in events for choice in event["choices"]):
            if "tool_calls" in delta:
                delta["tool_calls"] = [change(piece) for piece in delta["tool_calls"]]
        return events

    return changed


def without_index(piece: Body) -> Body:
    return {key: piece[key] for key in piece if key != "index"}


def named_in_each(piece: Body) -> Body:
    return {**piece, "function": {"name": "write", **piece["function"]}}


def all_one_index(events: list[Event]) -> list[Any]:
    """Each call whole in one delta, as servers send them that give all the index 0."""
    calls = [
        {"index": 0, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, (name, arguments) in zip(BOTH.ids, BOTH.calls, strict=True)
    ]
    pieces = [wire.openai_events(replace(BOTH, calls=())) for _ in calls]
    deltas = [{**next(piece)} for piece in pieces]
    for delta, call in zip(deltas, calls, strict=True):
        delta["choices"] = [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]
    return [events[0], *deltas, *events[-2:]]


def with_comments(events: list[Event]) -> list[Any]:
    return [line for event in events for line in (": OPENROUTER PROCESSING", event)]


def with_choices(choices: list[Any] | None) -> Callable[[list[Event]], list[Any]]:
    return lambda events: [events[0], {**events[0], "choices": choices}, *events[1:]]


STREAMS = {
    "deltas without index": stream(with_calls(without_index)),
    "the name in each delta": stream(with_calls(named_in_each)),
    "all calls with one index": stream(all_one_index),
    "comments": stream(with_comments),
    "no choices": stream(with_choices([])),
    "null choices": stream(with_choices(None)),
    "no [DONE]": stream(lambda events: events, done=False),
}


def succeeds(playing: Playing, ran: list[str], nudges: int = 0) -> None:
    playing.say("Do it.")
    outcome = playing.outcome
    assert outcome["status"] == "success", (outcome["error"], playing.server.refused)
    # LangChain's own loop runs the calls of a reply side by side.
    assert (sorted(playing.ran), outcome["summary"], outcome["nudges"]) == (ran, SUMMARY, nudges)


@pytest.mark.parametrize(("name", "way"), list(product(STREAMS, STREAMED)))
def test_a_stream_beside_the_rule(name: str, way: Way) -> None:
    with Playing(OPENAI, way, [STREAMS[name], finish()]) as playing:
        succeeds(playing, ["a", "b"])


# The reply, what it runs, and how many reminders follow it.
REPLIES: dict[str, tuple[WireReply, list[str], int]] = {
    "tool_calls without a call": (replace(TALK, reason="tool_calls"), [], 1),
    "stop with a call": (replace(work("a"), reason="stop"), ["a"], 0),
    "a call as text": (WireReply('{"name": "write", "arguments": {"text": "a"}}'), [], 1),
    "a call in tags": (
        WireReply('<tool_call>{"name": "write", "arguments": {"text": "a"}}</tool_call>'),
        [],
        1,
    ),
    "Harmony's name": (
        replace(work("a"), calls=(("write<|channel|>commentary", '{"text": "a"}'),)),
        ["a"],
        0,
    ),
    "a content filter": (WireReply("I can", reason="content_filter"), [], 1),
}
EVERY_WAY: Sequence[Way] = (*STREAMED, "build_graph, whole")


@pytest.mark.parametrize(("name", "way"), list(product(REPLIES, EVERY_WAY)))
def test_a_reply_beside_the_rule(name: str, way: Way) -> None:
    reply, ran, nudges = REPLIES[name]
    with Playing(OPENAI, way, [reply, finish()]) as playing:
        succeeds(playing, ran, nudges)


def in_a_second() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)


def overload_in_the_stream() -> Fault:
    events = wire.anthropic_events(WireReply("I be"))
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    lines = [wire.named_sse(event).decode().rstrip() for event in [*events, error]]
    return sse(*lines)


def event(body: Body) -> Fault:
    return sse(f"data: {json.dumps(body)}", "data: [DONE]")


FAULTS: dict[str, tuple[Client, Callable[[], Fault]]] = {
    "Retry-After as a date": (OPENAI, lambda: Fault(429, {"error": {"message": "Too fast"}},
                                                    {"Retry-After": in_a_second()})),
    "529": (ANTHROPIC, lambda: Fault(529, {"type": "error", "error": {"type": "overloaded_error",
                                                                      "message": "Overloaded"}})),
    "overload in a stream": (ANTHROPIC, overload_in_the_stream),
    "an error first in a stream": (MISTRAL, lambda: event({"object": "error", "message": "Service tier "
                                                           "capacity exceeded", "code": "3505"})),
    "nothing in a stream": (OPENAI, lambda: sse("data: [DONE]")),
    "an event without choices": (OPENROUTER, lambda: event({"error": {"code": 502, "message": "no"}})),
    "a code that is a word": (OPENROUTER, lambda: event({"error": {"code": "server_error"}, "choices": []})),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes(name: str) -> None:
    client, fault = FAULTS[name]
    with Playing(client, "build_graph, streamed", [fault(), work("a"), finish()]) as playing:
        succeeds(playing, ["a"])
        assert playing.outcome["retries"] == 1


def test_nothing_in_a_stream_is_asked_for_once_more_under_guards() -> None:
    nothing = sse("data: [DONE]")
    with Playing(MISTRAL, "Guards, streamed", [nothing, work("a"), nothing, finish()]) as playing:
        succeeds(playing, ["a"])


def without_choice(check: Check) -> Check:
    """A provider that refuses a required call, as reasoning models do."""

    def checked(body: Body) -> None:
        choice = body.get("tool_choice", "auto")
        free = choice == "auto" or (isinstance(choice, dict) and choice.get("type") == "auto")
        require(
            free,
            "tool_choice is not supported by this model: Thinking mode does not support this tool_choice",
        )
        check(body)

    return checked


@pytest.mark.parametrize(
    ("row", "way"), list(product(["OpenAI, chat completions", "DeepSeek", "Mistral"], EVERY_WAY))
)
def test_a_refused_tool_choice_is_left_out(row: str, way: Way) -> None:
    client = replace(BY_ROW[row], check=without_choice(BY_ROW[row].check))
    answers: list[Answer] = [work("a"), *UNTIL_REQUIRED, finish()]
    with Playing(client, way, answers) as playing:
        succeeds(playing, ["a"], nudges=len(UNTIL_REQUIRED))
        assert len(playing.server.refused) == 1


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.row)
def test_a_system_message_in_the_middle(client: Client) -> None:
    with Playing(client, "build_graph, streamed", [work("a"), finish(), finish()]) as playing:
        succeeds(playing, ["a"])
        playing.tell("Speak French from now on.", "Say that you are done.")
        assert playing.outcome["status"] == "success", playing.server.refused
        assert playing.server.refused == []
