"""Words without a call, replies that are cut, and limits of every kind: a script, and how it ends."""

from itertools import count
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.types import Command
from pydantic import SecretStr

from signoff import Limits, Prices, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import (
    ASK,
    FINISH,
    GO,
    READ,
    THINK,
    WRITE,
    Bench,
    check,
    play,
)

ANSWER: Any = Command(resume="blue")
CUT_FINISH = call("finish_task", raw='{"summary": "Fixed a')
REFUSAL = reply("I cannot", finish_reason="content_filter")


def writes(number: int) -> list[Any]:
    """Calls that all differ."""
    return [call("write", text=str(at)) for at in range(number)]


def polling() -> dict[str, Any]:
    times = count()

    def poll() -> str:
        """Poll."""
        return f"{next(times)} %"

    return {"tools": [poll]}


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


TALK = {
    "an empty reply has its own reminder": play(["", FINISH], told="<empty>"),
    "a thought is no work": play(["a", THINK, "b"], limits={"talk_turns": 2}, reason="talk_turns", turns=3),
    "work does": play(["a", WRITE, "b", FINISH], limits={"talk_turns": 2}, ran="write"),
}

CUT = {
    "calls of a cut reply": play([reply(WRITE, finish_reason="length"), FINISH], told="<truncated>"),
    "a finish in it": play([reply("so", FINISH, finish_reason="length"), FINISH], turns=2, nudges=1),
    "a finish that is cut itself": play([reply(CUT_FINISH, finish_reason="length"), FINISH], nudges=1),
    "a finish before it": play([reply(FINISH, call("write", raw='{"te'), finish_reason="length")], turns=1),
    "arguments that are no JSON": play([call("write", raw='{"text": '), FINISH], told="<malformed> write"),
    "two in a row, and going on": play([REFUSAL, REFUSAL, REFUSAL, FINISH], then=go_on(), turns=4),
}

SAME_ID = call("write", text="a", id="0")
REPLIES = {
    "one id twice is two calls": play([SAME_ID, SAME_ID, FINISH], ran="write write"),
    "one id twice in a reply": play([[SAME_ID, call("write", text="b", id="0")], FINISH], ran="write write"),
    "no such tool": play([call("wirte"), FINISH], told=["<unknown> wirte", "<did_you_mean> write"]),
}

HANDED: dict[str, Any] = {"approvals": {"write": "hand_over"}, "limits": Limits(seconds=1500)}
TOO_LONG: Any = Command(resume={"output": "ok", "seconds": 1600})
TWO_CALLS = {"tool_calls": 2}
SPENT: dict[str, Any] = {"limits": TWO_CALLS, "ran": "write write", "reason": "tool_calls"}
PRICES = Prices(input=1, output=1)
PRICED = {"cost": 0.0002, "prices": PRICES}
LIMITS = {
    "an answer gets one more turn": play([ASK, FINISH], then=ANSWER, limits={"turns": 1}, turns=2),
    "as many calls as may run": play([*writes(2), FINISH], limits=TWO_CALLS, ran="write write", nudges=1),
    "one call more is refused": play([*writes(2), READ], **SPENT, turns=3, open_work=["read({})"]),
    "what is too much of a reply": play([[WRITE, WRITE, READ, READ]], **SPENT, open_work=["read({})"] * 2),
    "a finish after a refused call": play([[WRITE, WRITE, READ, FINISH]], **SPENT, claim=None, refusals=1),
    "the calls of a reply that costs too much are refused": play(
        [paid(WRITE), paid(READ, READ)], limits=PRICED, ran="write", reason="cost", open_work=["read({})"] * 2
    ),
    "what is left of a reply when the time is over is refused": play(
        [[WRITE, READ]], then=TOO_LONG, **HANDED, reason="seconds", open_work=["read({})"], told="<seconds>"
    ),
    "a result that changes": play([call("poll")] * 12 + [FINISH], options=polling, nudges=0),
    "the same work": play([WRITE] * 5, ran="write " * 5, reason="repeats", nudges=1, told="<repeating> 3"),
    "talk between": play([WRITE, "hm", WRITE, THINK] * 2 + [WRITE], ran="write " * 5, reason="repeats"),
    "two calls in turn": play([WRITE, READ] * 5, ran="write read " * 5, reason="repeats", nudges=1),
    "a finish after a row": play([WRITE] * 4 + [[WRITE, FINISH]], ran="write " * 5),
}


SCRIPTS = {**TALK, **CUT, **REPLIES, **LIMITS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name: str) -> None:
    check(SCRIPTS[name])


def test_the_context_sets_limits_and_prompt_for_one_run() -> None:
    model = ScriptedModel([WRITE, WRITE])
    graph = build_graph(model, Bench().tools, system_prompt="built")
    result = graph.invoke(GO, context={"tool_calls": 1, "system_prompt": "given"})
    assert (outcome_of(result).reason, outcome_of(result).tool_calls) == ("tool_calls", 1)
    assert model.seen[0].messages[0].text.startswith("given")


# The ladder that talk climbs.

CONTROLS = ["finish_task", "ask_user", "think"]
ANY: list[str | None] = ["required"]
NONE: list[str | None] = [None]
LADDER: dict[str, tuple[Any, list[Any], list[str | None]]] = {
    "four talks, then a call": ("balanced", ["a", "b", "c", "d", FINISH], NONE * 3 + ANY * 2),
    "a thought does not climb down": ("balanced", ["a", "b", "c", THINK, FINISH], NONE * 3 + ANY * 2),
    "work does": ("balanced", ["a", "b", "c", READ, FINISH], NONE * 3 + ANY + NONE),
    "strict requires a call from the start": ("strict", [READ, "a", FINISH], ANY * 3),
}


@pytest.mark.parametrize(("talk", "script", "choices"), LADDER.values(), ids=LADDER)
def test_the_ladder(talk: Any, script: list[Any], choices: list[str | None]) -> None:
    tools = Bench().tools
    with ScriptedModel(script) as model:
        graph = build_graph(model, tools, policy={"talk": talk})
        assert outcome_of(graph.invoke(GO)).status == "success"
    assert [seen.tool_choice for seen in model.seen] == choices
    offered = [*(tool.name for tool in tools), *CONTROLS]
    assert [seen.tool_names for seen in model.seen] == [offered] * len(script)


def test_after_four_replies_without_a_call_no_work_runs() -> None:
    refused = f"<controls_only> {', '.join(CONTROLS)}"
    check(play(["a", "b", "c", "d", [THINK, READ], FINISH], tool_calls=0, told=refused))


KEY = SecretStr("key")
NAMES = [{"type": "function", "name": name} for name in CONTROLS]
NESTED = [{"type": "function", "function": {"name": name}} for name in CONTROLS]
RESTRICTED: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "OpenAI's completions": (
        ChatOpenAI,
        {"api_key": KEY},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": NESTED}},
    ),
    "OpenAI's responses": (
        ChatOpenAI,
        {"api_key": KEY, "use_responses_api": True},
        {"type": "allowed_tools", "mode": "required", "tools": NAMES},
    ),
    "Anthropic": (ChatAnthropic, {"api_key": KEY}, {"type": "any"}),
    "Google": (ChatGoogleGenerativeAI, {"google_api_key": KEY}, CONTROLS),
}


@pytest.mark.parametrize(("client", "options", "choice"), RESTRICTED.values(), ids=RESTRICTED)
def test_the_last_step_restricts_the_choice_where_a_provider_can(
    client: Any, options: dict[str, Any], choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []

    def talks(*_: Any, **request: Any) -> ChatResult:
        requests.append(request)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("hm"))])

    # The provider's own client, but for the wire.
    monkeypatch.setattr(client, "_generate", talks)
    model = client(model="gemini-2.5-flash", **options)
    graph = build_graph(model, Bench().tools, policy={"streaming": "never"})
    assert outcome_of(graph.invoke(GO)).reason == "talk_turns"
    assert requests[-1]["tool_choice"] == choice
    assert all(request["tools"] == requests[0]["tools"] for request in requests)


# Talk that is put to the user like a question.

NATURAL: dict[str, Any] = {"policy": {"talk": "natural"}}
DIALOGUES = {
    "the turns end it": play(["a", "b"], then=ANSWER, reason="turns", limits={"turns": 2}, options=NATURAL),
    "talk for long": play([*"abcdefgh", FINISH], then=["go on"] * 8, waits="question " * 8, options=NATURAL),
    "a question": play([ASK, "So.", FINISH], then=[ANSWER, "no"], waits="question question", options=NATURAL),
    "where nobody can be asked it is reminded": play(["a", FINISH], saved=False, nudges=1, options=NATURAL),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue(name: str) -> None:
    check(DIALOGUES[name])


# What the driver does counts as working time: by its report, else from the hand-out to the answer.


def test_what_a_driver_reports_is_working_time() -> None:
    report: Any = Command(resume={"output": "ok", "seconds": 600})
    text: Any = Command(resume='{"output": "ok", "seconds": 600}')
    check(play(writes(3), then=[report, text, report], **HANDED, reason="seconds", tool_calls=3))
