"""Replies as no provider should send them: whatever comes is an outcome, and the thread can be read again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import sqlite_storage
from tests.fuzz_replies import Bench, fuzz
from tests.support.faulty_replies import DONE, FINISH, USAGE, Sent

TALK = {"content": "Let me see."}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        yield Bench(storage)


def call_with(args: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"name": "act", "args": args, "id": "call_0"}]}


ONCE_BROKE: dict[str, Sent] = {
    "an id of half a character": Sent([{**FINISH, "id": "\ud800"}]),
    "an id that is a number": Sent([FINISH], assigned={"id": 2**70}),
    "an empty id": Sent([{**TALK, "id": ""}]),
    "a name of half a character": Sent([{**TALK, "name": "\ud800"}]),
    "a name that is a number": Sent([TALK], assigned={"name": -1}),
    "a model's name of half a character": Sent([{**FINISH, "response_metadata": {"model_name": "\ud800"}}]),
    "a model's name that is no text": Sent([{**FINISH, "response_metadata": {"model_name": b"\xff"}}]),
    "a usage with a part": Sent([TALK], assigned={"usage_metadata": {"total_tokens": None}}),
    "a usage that is a list": Sent([TALK], assigned={"usage_metadata": [[]]}),
    "a usage beyond what a database takes": Sent(
        [{**TALK, "usage_metadata": dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 2**70)}]
    ),
    "a usage marked as estimated by a word": Sent(
        [{**TALK, **USAGE, "response_metadata": {"signoff": {"estimated": "x"}}}]
    ),
    "arguments with keys that are no text": Sent([call_with({"what": {"": None, None: None}})]),
    "arguments that are no JSON": Sent([call_with({"what": object()})]),
    "an order of the calls that is none": Sent([{**TALK, "response_metadata": {"signoff": {"order": None}}}]),
    "a part of text without a text": Sent([{"content": [{"type": "text", "text": None}]}, TALK]),
    "a part of text that is a number": Sent([{"content": [{"type": "text", "text": 3}]}, FINISH]),
    "no content": Sent([TALK], assigned={"content": None}),
}


@pytest.mark.parametrize("way", ["invoke", "run", "step", "arun"])
@pytest.mark.parametrize("name", ONCE_BROKE)
@pytest.mark.sample(20)
def test_what_broke_once(bench: Bench, name: str, way: str) -> None:
    bench.play([ONCE_BROKE[name]], way)


def test_a_reply_that_claims_to_be_stopped_is_a_reply(bench: Bench) -> None:
    """Else a provider that always sends this would never come to a limit."""
    stopped = Sent([{**TALK, "response_metadata": {"signoff": {"stopped": True}}}])
    bench.play([stopped] * 50 + [DONE], "run")
    assert bench.figures["limit: talk_turns"] == 1


def test_usage_below_zero_grants_nothing(bench: Bench) -> None:
    counts = {"input_tokens": -(10**6), "output_tokens": 0, "total_tokens": -(10**6)}
    bench.play([Sent([{**TALK, "usage_metadata": counts}])], "run")
    assert bench.outcome.usage.total_tokens > 0
    assert bench.outcome.usage.estimated


def test_any_replies(bench: Bench) -> None:
    fuzz(bench, 40)


@pytest.mark.slow
@pytest.mark.thorough
def test_many_replies(bench: Bench, figure: Callable[[str], None]) -> None:
    fuzz(bench, 300)
    figure(f"fuzzed replies: {dict(bench.figures)}")
