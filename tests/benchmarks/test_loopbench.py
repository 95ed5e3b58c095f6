"""LoopBench: its scenarios are well formed, and its parts do what they say."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.loopbench.driver import judged, missing
from benchmarks.loopbench.observed import Observed, Ran, Sent, Shown, Told
from benchmarks.loopbench.peers import Peer
from benchmarks.loopbench.replies import Ask, Call, Delegate, Finish, Manner, Reply, call, render, reply
from benchmarks.loopbench.scenario import FEATURES, Role, Scenario
from benchmarks.loopbench.scenarios import SCENARIOS, THEMES
from benchmarks.loopbench.server import MOST_CALLS, ModelServer

MANNER = Manner(
    finish={
        "any": {"text": "$text"},
        "call": {"name": "done", "args": {"summary": "$text"}},
        "structured": {"text": "$json"},
    },
    ask={"name": "ask", "args": {"question": "$text", "default": "$default"}},
    delegate={"name": "$name", "args": {"task": "$text"}},
)
each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))


def parts(scenario: Scenario) -> list[Any]:
    below = [(*role.script, role.then) for role in scenario.roles]
    scripts = [(*scenario.script, scenario.then), *below]
    return [part for script in scripts for said in script for part in said.parts]


@each
def test_a_scenario_asks_one_question_and_says_what_is_right(scenario: Scenario) -> None:
    assert scenario.question.endswith("?")
    assert scenario.question.count("?") == 1
    assert scenario.right.endswith(".")


@each
def test_a_scenario_uses_only_the_tools_of_its_setup(scenario: Scenario) -> None:
    called = {part.name for part in parts(scenario) if isinstance(part, Call)}
    assert called - {"erase"} <= set(scenario.setup.tools)
    assert set(scenario.setup.approve) <= set(scenario.setup.tools)


@each
def test_a_scenario_names_the_features_that_it_uses(scenario: Scenario) -> None:
    setup, needs = scenario.setup, set(scenario.needs)
    used = {
        "ask": setup.asks or any(isinstance(part, Ask) for part in parts(scenario)),
        "approval": bool(setup.approve),
        "structured": setup.finish == "structured",
        "finish_call": setup.finish == "call",
        "turn_limit": setup.turns is not None,
        "call_limit": setup.tool_calls is not None,
        "gate": bool(setup.gate),
        "crash": any(step.kill for step in scenario.steps),
        "durable_wait": any(step.fresh for step in scenario.steps),
        "one_runner": any(step.at_once > 1 for step in scenario.steps),
        "deadline": any(step.do == "expire" for step in scenario.steps),
        "stop": any(step.stop for step in scenario.steps),
        "children": bool(setup.helpers),
        "child_limit": setup.helper_turns is not None,
        "tree_limit": setup.tree_turns is not None,
        "child_wait": bool(setup.helpers and setup.approve),
        "child_durable": bool(setup.helpers) and any(step.fresh for step in scenario.steps),
        "recursion": setup.recursive,
        "edit": any(one["type"] == "edit" for step in scenario.steps for one in step.decisions),
    }
    assert set(used) == set(FEATURES)
    assert needs == {name for name, is_used in used.items() if is_used}


@each
def test_every_sub_agent_of_a_scenario_has_a_script_of_its_own(scenario: Scenario) -> None:
    tasks = {part.task for part in parts(scenario) if isinstance(part, Delegate)}
    called = {part.name for part in parts(scenario) if isinstance(part, Delegate)}
    assert tasks == {role.task for role in scenario.roles}
    assert called == set(scenario.setup.helpers)
    assert bool(scenario.roles) == scenario.thread.startswith("https://")


def test_the_scenarios_have_names_of_their_own() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names) >= 30
    assert sum(map(len, THEMES.values())) == len(names)


def ids() -> Iterator[str]:
    return (f"call_{number}" for number in count(1))


@pytest.mark.parametrize(
    ("said", "way", "text", "calls", "reason"),
    [
        (reply("Hello."), "any", "Hello.", [], "stop"),
        (reply(Finish("Done.")), "any", "Done.", [], "stop"),
        (reply(Finish("Done.")), "call", "", [("call_1", "done", '{"summary": "Done."}')], "tool_calls"),
        (reply(Finish("Done.", {"a": 1})), "structured", '{"a": 1}', [], "stop"),
        (reply(Ask("Why?")), "any", "", [("call_1", "ask", '{"question": "Why?"}')], "tool_calls"),
        (reply(call("read", id="x", raw="{")), "any", "", [("x", "read", "{")], "tool_calls"),
        (reply(Delegate("aide", "Go.")), "any", "", [("call_1", "aide", '{"task": "Go."}')], "tool_calls"),
        (Reply((Finish("Done.", cut=True),), "length"), "any", "Don", [], "length"),
        (reply(), "any", "", [], "stop"),
    ],
)
def test_a_reply_goes_over_the_wire_in_the_framework_s_manner(
    said: Reply, way: str, text: str, calls: list[Any], reason: str
) -> None:
    wire = render(said, MANNER, way, ids())
    found = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in wire.calls]
    assert (wire.text, found, wire.reason) == (text, calls, reason)


CALL = Sent("assistant", calls=(("a", "read", "{}"), ("b", "read", "{}")))


@pytest.mark.parametrize(
    ("messages", "dangling"),
    [
        ((CALL, Sent("tool", answers="a"), Sent("tool", answers="b")), []),
        ((CALL, Sent("tool", answers="a"), Sent("user", "Stop.")), ["b"]),
        ((CALL, Sent("tool", answers="b")), ["a"]),
        ((CALL, Sent("user", "Stop."), Sent("tool", answers="a"), Sent("tool", answers="b")), ["a", "b"]),
        ((Sent("user", "Go."),), []),
    ],
)
def test_a_call_dangles_when_no_result_follows_it(messages: tuple[Sent, ...], dangling: list[str]) -> None:
    assert Shown(messages).dangling == dangling


def test_what_happened_is_told_in_a_line() -> None:
    run = Ran("pay", {"to": "ada", "amount": 5})
    seen = Observed((Shown(), run, run, Told("approval"), Told("success")))
    assert seen.told() == "approval → success; 1 model call; pay(ada, 5) (x2)"


def post(url: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scenario_of(*script: Reply, **more: Any) -> Scenario:
    return Scenario("x", "?", ".", SCENARIOS[0].judge, script, **more)


def streamed(text: str) -> dict[str, Any]:
    """The message that a stream's pieces make up."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    deltas = [choice["delta"] for line in lines[:-1] for choice in json.loads(line)["choices"]]
    calls = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    words = "".join(delta.get("content") or "" for delta in deltas)
    return {"content": words, "arguments": "".join(piece["arguments"] for piece in calls)}


def test_the_model_says_the_same_streamed_or_not() -> None:
    said = reply("Look.", call("read", name="a"))
    with ModelServer(scenario_of(said, said), MANNER) as server:
        whole = json.loads(post(server.url, {"messages": []})[1])["choices"][0]["message"]
        pieces = streamed(post(server.url, {"messages": [], "stream": True})[1])
    arguments = whole["tool_calls"][0]["function"]["arguments"]
    assert pieces == {"content": whole["content"], "arguments": arguments}


@pytest.mark.parametrize(("by_history", "second"), [(True, "one"), (False, "two")])
def test_the_model_goes_by_its_history_or_by_its_calls(by_history: bool, second: str) -> None:
    with ModelServer(scenario_of(reply("one"), reply("two"), by_history=by_history), MANNER) as server:
        said = [json.loads(post(server.url, {"messages": []})[1]) for _ in range(2)]
    assert [one["choices"][0]["message"]["content"] for one in said] == ["one", second]


READS = Role(
    "Read it.", (reply(call("read", name="a")),), reply("below"), cornered=reply("I may call nothing")
)


@pytest.mark.parametrize(
    ("told", "more", "says"),
    [
        ("Do it.", {"tools": [{"type": "function"}]}, "above"),
        ('{"request": "Read it."}', {"tools": [{"type": "function"}]}, None),
        ("Read it.", {}, "I may call nothing"),
        ("Read it.", {"tools": [{"type": "function"}], "tool_choice": "none"}, "I may call nothing"),
    ],
)
def test_the_model_knows_a_sub_agent_by_its_task(told: str, more: dict[str, Any], says: str | None) -> None:
    scenario = scenario_of(reply("above"), roles=(READS,), by_history=True)
    with ModelServer(scenario, MANNER) as server:
        body = {"messages": [{"role": "system", "content": "Be good."}, {"role": "user", "content": told}]}
        said = json.loads(post(server.url, body | more)[1])["choices"][0]["message"]
    assert said["content"] == says
    assert [shown.who for _, shown in server.seen] == ["Read it." if "Read it." in told else ""]


def test_a_sub_agent_that_is_not_told_its_task_any_more_is_known_by_its_calls() -> None:
    scenario = scenario_of(reply("above"), roles=(READS,), by_history=True)
    more = {"tools": [{"type": "function"}]}
    with ModelServer(scenario, MANNER) as server:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "Read it."}], **more}
        said = json.loads(post(server.url, body)[1])["choices"][0]["message"]
        answer = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "quiet"}
        said = json.loads(post(server.url, {"messages": [said, answer], **more})[1])["choices"][0]["message"]
    assert said["content"] == "below"


def test_what_a_model_was_told_since_its_first_words_is_known() -> None:
    shown = Shown((Sent("user", "Go."), Sent("assistant", "Yes."), Sent("tool", "It failed.", answers="a")))
    assert (shown.told_first, shown.told_since) == ("Go.", "It failed.")


STRICT = [{"type": "function", "function": {"name": "read", "strict": True}}]


@pytest.mark.parametrize(
    ("body", "forbids"),
    [
        ({}, set()),
        ({"tool_choice": "auto"}, set()),
        ({"tool_choice": "required"}, {"talk"}),
        ({"tools": STRICT}, {"shape"}),
        ({"response_format": {"type": "json_schema", "json_schema": {"strict": True}}}, {"shape"}),
    ],
)
def test_the_record_says_what_a_request_forbids(body: dict[str, Any], forbids: set[str]) -> None:
    with ModelServer(scenario_of(reply(call("read", name="a"))), MANNER) as server:
        post(server.url, {"messages": [], **body})
    assert [shown.forbids for _, shown in server.seen] == [forbids]


def test_a_model_that_is_called_for_ever_ends_the_run() -> None:
    with ModelServer(scenario_of(), MANNER) as server:
        found = [post(server.url, {"messages": []})[0] for _ in range(MOST_CALLS + 1)]
        assert server.capped
    assert found == [200] * MOST_CALLS + [400]


def test_the_model_refuses_what_does_not_fit_its_context() -> None:
    with ModelServer(scenario_of(), MANNER) as server:
        status, said = post(server.url, {"messages": [{"role": "user", "content": "x" * 1_000_000}]})
    assert (status, json.loads(said)["error"]["code"]) == (400, "context_length_exceeded")


def named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def test_a_scenario_that_is_not_claimed_does_not_count() -> None:
    assert missing(named("deadline"), {"crash": "it has no storage"}) is None
    cell = missing(named("deadline"), {"deadline": "it waits for ever"})
    assert cell is not None
    assert (cell.mark, cell.why) == ("n/a", "deadline: it waits for ever")


@pytest.mark.parametrize(
    ("name", "forbids", "mark"),
    [
        ("promise", (), "fail"),
        ("promise", ("talk",), "n/a"),
        ("structured_never", ("talk",), "fail"),
        ("structured_never", ("shape",), "n/a"),
        ("filtered", ("talk", "shape"), "fail"),
    ],
)
def test_a_reply_that_a_request_forbids_is_no_loss(name: str, forbids: tuple[str, ...], mark: str) -> None:
    seen = Observed((Shown(forbids=frozenset(forbids)), Told("success")))
    assert judged(named(name), seen).mark == mark


def test_a_framework_that_is_not_installed_is_no_error() -> None:
    assert Peer("nobody", "Nobody", ["nobody==1"]).problem
