"""The stage of a subject: its model and tools over HTTP, and what is taken of what a subject says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from loopcheck.case import Case, load_cases
from loopcheck.driver import Script, judge_case, leave_out
from loopcheck.kit import KitWorld
from loopcheck.observed import Message, ModelCall, Observed, Report
from loopcheck.replies import Ask, Call, Delegate, Finish, Manner, Part, Reply, render
from loopcheck.stage import MOST_CALLS, MOST_RUNS, Stage
from loopcheck.subjects import list_subjects

MANNER = Manner(
    finish={
        "any": {"text": "$text"},
        "call": {"name": "done", "args": {"summary": "$text"}},
        "structured": {"text": "$json"},
    },
    ask={"name": "ask", "args": {"question": "$text", "default": "$default"}},
    delegate={"name": "$name", "args": {"task": "$text"}},
)


def reply(*parts: Part) -> Reply:
    return Reply(parts)


@pytest.mark.parametrize(
    ("said", "way", "text", "calls", "reason"),
    [
        (reply("Hello."), "any", "Hello.", [], "stop"),
        (reply(Finish("Done.")), "call", "", [("call_1", "done", '{"summary": "Done."}')], "tool_calls"),
        (reply(Finish("Done.", {"a": 1})), "structured", '{"a": 1}', [], "stop"),
        (reply(Ask("Why?")), "any", "", [("call_1", "ask", '{"question": "Why?"}')], "tool_calls"),
        (reply(Call("read", id="x", raw="{")), "any", "", [("x", "read", "{")], "tool_calls"),
        (reply(Delegate("aide", "Go.")), "any", "", [("call_1", "aide", '{"task": "Go."}')], "tool_calls"),
        (Reply((Finish("Done.", cut=True),), "length"), "any", "Don", [], "length"),
    ],
)
def test_a_reply_goes_over_the_wire_in_the_framework_s_manner(
    said: Reply, way: str, text: str, calls: list[Any], reason: str
) -> None:
    wire = render(said, MANNER, way, (f"call_{number}" for number in count(1)))
    sent = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in wire.calls]
    assert (wire.text, sent, wire.reason) == (text, calls, reason)


@contextmanager
def stage(*script: Reply, **more: Any) -> Iterator[Stage]:
    with Stage(Script(Case("x", "?", ".", script, (), **more)), KitWorld("after_write"), MANNER) as found:
        yield found


def post(url: str, body: Any) -> httpx.Response:
    return httpx.post(url, content=body if isinstance(body, bytes) else json.dumps(body), verify=False)


def ask(one: Stage, **more: Any) -> httpx.Response:
    return post(f"{one.url}/chat/completions", {"messages": [], **more})


def test_the_model_says_the_same_streamed_or_not() -> None:
    both = reply("Look.", Call("read", {"name": "a"}))
    with stage(both, both) as one:
        whole, streamed = ask(one).json()["choices"][0]["message"], ask(one, stream=True).text
    *lines, last = [text.removeprefix("data: ") for text in streamed.splitlines() if text]
    assert last == "[DONE]"
    deltas = [choice["delta"] for text in lines for choice in json.loads(text)["choices"]]
    calls = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole["content"]
    arguments = "".join(piece["arguments"] for piece in calls)
    assert arguments == whole["tool_calls"][0]["function"]["arguments"]


def test_what_calls_the_model_or_tools_for_ever_ends_the_run_and_fills_no_record() -> None:
    with stage() as one:
        statuses = [ask(one).status_code for _ in range(MOST_CALLS + 3)]
        assert (statuses, one.capped) == ([200] * MOST_CALLS + [400] * 3, True)
    assert len(one.seen) == MOST_CALLS + 1
    with stage() as one:
        statuses = [one.take_place("read", {"name": "a"})[0] for _ in range(MOST_RUNS + 1)]
        assert (statuses[0], statuses[-1], one.capped) == (200, 429, True)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 6000}, 400),
        ("/call/read", b"[" * 100_000, 400),
        ("/call/read", {"name": "a"}, 200),
        ("/call/pay", {"to": "ada"}, 422),
        ("/call/steal", {}, 404),
    ],
)
def test_what_cannot_be_answered_is_refused(path: str, body: Any, status: int) -> None:
    with stage() as one:
        answer = post(f"{one.tools_url}{path}", body)
    assert (answer.status_code, isinstance(answer.json(), dict)) == (status, True)


NAMED = {case.name: case for case in load_cases()}


def test_a_case_that_is_not_claimed_does_not_count() -> None:
    assert leave_out(NAMED["deadline"], {"crash": "it has no storage"}) is None
    cell = leave_out(NAMED["deadline"], {"deadline": "it waits for ever"})
    assert cell is not None
    assert (cell.mark, cell.why) == ("n/a", "deadline: it waits for ever")


@pytest.mark.parametrize(("forbids", "mark"), [("talk", "fail"), ("shape", "n/a")])
def test_a_reply_that_a_request_forbids_is_no_loss(forbids: str, mark: str) -> None:
    case = NAMED["structured_never"]
    shown = ModelCall((Message("user", case.steps[0].text),), forbids=frozenset([forbids]))
    assert judge_case(case, Observed((shown, Report("success")))).mark == mark


def test_every_subject_has_an_adapter_and_is_pinned() -> None:
    for subject in list_subjects():
        assert all("==" in package for package in subject.packages), subject.name
        assert subject.kind == "node" or subject.adapter.exists(), subject.name
