"""Words without a call, replies that are cut, and limits of every kind: a script, and how it ends."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
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

from signoff import Limits, Prices, Question, Session, SetupError, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call, reply
from tests.support.interrupting import interrupt_process
from tests.support.plays import (
    ASK,
    FAIL,
    FINISH,
    GO,
    READ,
    TEXTS,
    THINK,
    THREAD,
    WRITE,
    Bench,
    check,
    play,
    results,
    saved,
)

ANSWER: Any = Command(resume="blue")
CUT_FINISH = call("finish_task", raw='{"summary": "Fixed a')
REFUSAL = reply("I cannot", finish_reason="content_filter")


def writes(number: int, **usage: Any) -> list[Any]:
    """Calls that all differ."""
    return [reply(call("write", text=str(at)), **usage) for at in range(number)]


def slow() -> str:
    """Take more time than there is."""
    time.sleep(1.2)
    return "done"


def polling() -> Any:
    times = count()

    def poll() -> str:
        """Poll."""
        return f"{next(times)} %"

    return poll


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


TALK = {
    "an empty reply has its own reminder": play(["", FINISH], told="<empty>"),
    "a thought does not count as work": play(
        ["a", THINK, "b"], limits={"talk_turns": 2}, reason="talk_turns", turns=3
    ),
    "work does": play(["a", WRITE, "b", FINISH], limits={"talk_turns": 2}, ran="write"),
}

CUT = {
    "calls of a cut reply never run": play(
        [reply(WRITE, finish_reason="length"), FINISH], told="<truncated>"
    ),
    "nor does a finish in it count": play(
        [reply("so", FINISH, finish_reason="length"), FINISH], turns=2, nudges=1
    ),
    "nor one that is cut itself": play(
        [reply(CUT_FINISH, finish_reason="length"), FINISH], turns=2, nudges=1
    ),
    "nor one after a call that does not run": play([reply(WRITE, FINISH, finish_reason="length"), FINISH]),
    "a finish that was whole before a call was cut counts": play(
        [reply(FINISH, call("write", raw='{"te'), finish_reason="length")], turns=1
    ),
    "cut words": play([reply("so I", finish_reason="length"), FINISH], told="<truncated>"),
    "arguments that are no JSON": play([call("write", raw='{"text": '), FINISH], told="<malformed> write"),
    "one refusal by a filter": play([REFUSAL, FINISH], told="<filtered>"),
    "two in a row": play([REFUSAL, REFUSAL], reason="content_filter", turns=2),
    "two in a row count anew after going on": play(
        [REFUSAL, REFUSAL, REFUSAL, FINISH], then=go_on(), turns=4
    ),
}

REPLIES = {
    "one id twice is two calls": play([call("write", text="a", id="0")] * 2 + [FINISH], ran="write write"),
    "one id twice in a reply is two calls": play(
        [[call("write", text="a", id="0"), call("write", text="b", id="0")], FINISH], ran="write write"
    ),
    "no id at all": play([call("write", text="a", id=""), FINISH], ran="write"),
    "more calls than one reply may have": play(
        [[READ] * 4, FINISH], limits={"calls_per_reply": 2}, ran="read read", told="<too_many> 2 read"
    ),
    "half characters": play(
        [["so \ud800", call("write", raw='{"text": "\\ud800"}')], FINISH], ran="write", told="wrote \ufffd"
    ),
    "arguments that do not fit": play([call("write", words="x"), FINISH], told="<invalid> write text"),
    "a tool that does not exist": play(
        [call("wirte"), FINISH], told=["<unknown> wirte", "<did_you_mean> write"]
    ),
    "a tool that raises": play([FAIL, FINISH], ran="fail", told=["ValueError", "no luck"]),
    "reads and a write keep their order": play(
        [[READ, READ, WRITE, READ], FINISH], ran="read read write read"
    ),
}

HANDED: dict[str, Any] = {"approvals": {"write": "hand_over"}, "limits": Limits(seconds=1500)}
TOO_LONG: Any = Command(resume={"output": "ok", "seconds": 1600})
TWO_CALLS = {"tool_calls": 2}
PRICES = Prices(input=1, output=1)
PRICED = {"cost": 0.0002, "prices": PRICES}
SIX_REPLIES = {"cost": 0.0006, "prices": PRICES}
LIMITS = {
    "an answer gets one more turn": play([ASK, FINISH], then=ANSWER, limits={"turns": 1}, turns=2),
    "as many calls as may run, then a finish": play(
        [*writes(2), FINISH], limits=TWO_CALLS, ran="write write", tool_calls=2, nudges=1
    ),
    "one call more is refused and open": play(
        [*writes(2), READ],
        limits=TWO_CALLS,
        ran="write write",
        reason="tool_calls",
        turns=3,
        open_work=["read({})"],
    ),
    "what is too much of one reply is refused": play(
        [[WRITE, WRITE, READ, READ]],
        limits=TWO_CALLS,
        ran="write write",
        reason="tool_calls",
        open_work=["read({})"] * 2,
    ),
    "reads that run side by side, too": play(
        [[call("read", n=at) for at in range(5)]], limits=TWO_CALLS, ran="read read", reason="tool_calls"
    ),
    "a finish after a refused call is void": play(
        [[WRITE, WRITE, READ, FINISH]],
        limits=TWO_CALLS,
        ran="write write",
        reason="tool_calls",
        claim=None,
        refusals=1,
    ),
    "calls that cannot run cost nothing": play(
        [call("nothing"), call("write", n=1), WRITE, FINISH], limits=TWO_CALLS, ran="write"
    ),
    "tokens are judged between turns": play(
        writes(3, usage=(90, 10)),
        limits={"tokens": 300},
        ran="write " * 3,
        reason="tokens",
        turns=3,
        tool_calls=3,
    ),
    "near the tokens it is told": play(
        [*writes(5, usage=(90, 10)), paid(FINISH)],
        limits={"tokens": 600},
        ran="write " * 5,
        told="100 tokens",
    ),
    "a finish on the last token": play([paid(WRITE), paid(FINISH)], limits={"tokens": 200}, ran="write"),
    "an answer gets no more tokens": play(
        [paid(ASK)], then=ANSWER, limits={"tokens": 100}, reason="tokens", turns=1
    ),
    "the calls of a reply that costs too much are refused": play(
        [paid(WRITE), paid(READ, READ)], limits=PRICED, ran="write", reason="cost", open_work=["read({})"] * 2
    ),
    "in the last sixth of the cost it is told": play(
        [*writes(5, usage=(90, 10)), paid(FINISH)], limits=SIX_REPLIES, ran="write " * 5, told="<near_limit>"
    ),
    "and not before": play(
        [*writes(4, usage=(90, 10)), FINISH], limits=SIX_REPLIES, ran="write " * 4, nudges=0
    ),
    "a finish on the last cent": play([paid(WRITE), paid(FINISH)], limits=PRICED, ran="write"),
    "prices alone limit nothing": play([paid(WRITE), paid(FINISH)], limits={"prices": PRICES}, ran="write"),
    "what is left of a reply when the time is over is refused": play(
        [[WRITE, READ]], then=TOO_LONG, **HANDED, reason="seconds", open_work=["read({})"], told="<seconds>"
    ),
    "a result that changes is no repetition": play(
        [call("poll")] * 12 + [FINISH], options=lambda: {"tools": [polling()]}, nudges=0
    ),
    "the same work again and again": play(
        [WRITE] * 5, ran="write " * 5, reason="repeats", turns=5, nudges=1, told="<repeating> 3"
    ),
    "talk and thoughts between change nothing": play(
        [WRITE, "hm", WRITE, THINK, WRITE, "hm", WRITE, THINK, WRITE], ran="write " * 5, reason="repeats"
    ),
    "two calls in turn": play([WRITE, READ] * 5, ran="write read " * 5, reason="repeats", nudges=1),
    "three calls in turn": play([WRITE, READ, FAIL] * 5, ran="write read fail " * 5, reason="repeats"),
    "a batch again and again": play([[WRITE, READ]] * 5, ran="write read " * 5, reason="repeats"),
    "a call that does not exist, again and again": play([call("nothing")] * 5, reason="repeats"),
    "told in time, it does something else": play(
        [WRITE] * 3 + [READ, FINISH], ran="write write write read", nudges=1
    ),
    "a finish after a row": play([WRITE] * 4 + [[WRITE, FINISH]], ran="write " * 5),
    "told of the row, then of the turns": play(
        [WRITE] * 4, limits={"turns": 4}, ran="write " * 4, reason="turns", nudges=2, told="<near_limit>"
    ),
}


SCRIPTS = {**TALK, **CUT, **REPLIES, **LIMITS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name: str) -> None:
    check(SCRIPTS[name])


# Going on after a limit: what of it the programs of the door do not show.

GRANTED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "tokens": (writes(2, usage=(90, 10)), {"tokens": 200}),
    "cost": (writes(2, usage=(90, 10)), PRICED),
    "seconds": ([[call("slow"), call("slow")]], {"seconds": 1.1}),
    "repeats": ([WRITE, WRITE], {"repeats": 2}),
}


@pytest.mark.parametrize("reason", GRANTED)
def test_going_on_grants_the_whole_amount_once_more_and_no_more(reason: str) -> None:
    script, limits = GRANTED[reason]
    model = ScriptedModel([*script, *script])
    graph = build_graph(model, [*Bench().tools, slow], limits=limits, **saved())
    first = outcome_of(graph.invoke(GO, THREAD))
    second = outcome_of(graph.invoke(go_on(turns=9), THREAD))
    assert (first.reason, second.reason, second.task) == (reason, reason, first.task)
    assert (second.turns, second.tool_calls) == (2 * first.turns, 2 * first.tool_calls)


@dataclass(frozen=True)
class Extended:
    """What the model says before it works without an end; what happens whenever the task waits or has ended:
    an answer, a number of turns, or a graph built anew with other limits; and its turns at each end."""

    says: Sequence[Any]
    moves: Sequence[str | int | Limits]
    ends: Sequence[int]
    limits: Limits = field(default_factory=lambda: Limits(turns=2))
    reason: str = "turns"


W, ASKS = "work", call("ask_user", question="Which one?")
CLAIM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
BEYOND, ANSWERS = [W, ASKS, ASKS, ASKS, W], ["The red one."] * 3
EXTENDED = {
    "at the limit": Extended([], [2], [2, 4]),
    "beyond it, by answers": Extended(BEYOND, [*ANSWERS, 2], [5, 7]),
    "by less than it is beyond": Extended(BEYOND, [*ANSWERS, 1, 2], [5, 6, 8]),
    "beyond what was granted": Extended(
        [*BEYOND, W, ASKS, ASKS, W], [*ANSWERS, 2, "red", "red", 2], [5, 9, 11]
    ),
    "a finish that was sent back": Extended([W, CLAIM, W], ["no: the title is wrong", 2], [3, 5]),
    "an answer within the granted turns": Extended([*BEYOND, ASKS], [*ANSWERS, 2, "red"], [5, 7]),
    "an answer on the last granted turn": Extended([*BEYOND, W, ASKS], [*ANSWERS, 2, "red"], [5, 8]),
    "under a lower limit": Extended([], [Limits(turns=1), 2], [4, 6], Limits(turns=4)),
    "then under a lower limit": Extended(
        [W] * 5 + [ASKS], [3, Limits(turns=1), "red"], [4, 7], Limits(turns=4)
    ),
    "then under a higher limit": Extended([*BEYOND, ASKS], [*ANSWERS, 2, Limits(turns=9), "red"], [5, 11]),
    "before the turns were reached": Extended([W], [2, 2], [2, 4, 6], Limits(turns=9, tokens=20), "tokens"),
    "beyond, after another limit": Extended(
        [W, ASKS, ASKS], ["red", "red", 2], [3, 5], Limits(turns=2, tokens=30)
    ),
    "after another limit that left a granted turn": Extended(
        BEYOND, [*ANSWERS, 4, 2], [5, 8, 11], Limits(turns=2, tool_calls=2)
    ),
}


@pytest.mark.parametrize("name", EXTENDED)
def test_so_many_turns_are_left_as_were_granted(name: str) -> None:
    case, storage = EXTENDED[name], saved()
    said = iter(case.says)

    def script(seen: Sequence[Any]) -> Any:
        step = next(said, W)
        return reply(call("write", text=str(len(seen))) if step == W else step, usage=(9, 1))

    def built(limits: Limits) -> Any:
        return build_graph(ScriptedModel(script), Bench().tools, limits=limits, **storage)

    graph = built(case.limits)
    ends = [graph.invoke(GO, THREAD)["outcome"]]
    for move in case.moves:
        if isinstance(move, Limits):
            graph = built(move)
        else:
            given: Any = Command(resume=move) if isinstance(move, str) else go_on(turns=move)
            ends.append(graph.invoke(given, THREAD)["outcome"])
    assert [end["turns"] for end in ends if end] == case.ends
    assert (ends[-1]["status"], ends[-1]["reason"]) == ("limit", case.reason)


def test_a_call_that_has_started_is_not_refused_by_a_limit_that_came_later() -> None:
    def pay() -> str:
        """Pay, and be killed."""
        interrupt_process()
        return "never heard"

    model = ScriptedModel([WRITE, [call("pay"), call("pay")]])
    graph = build_graph(model, [*Bench().tools, pay], policy={"texts": TEXTS}, **saved())
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    result = graph.invoke(go_on(), THREAD, context={"tool_calls": 1})
    assert results(result) == ["wrote x", "<unknown_outcome> pay", "<tool_calls>"]
    assert outcome_of(result).reason == "tool_calls"


def test_the_context_sets_limits_and_prompt_for_one_run() -> None:
    model = ScriptedModel([WRITE, WRITE])
    graph = build_graph(model, Bench().tools, system_prompt="built")
    result = graph.invoke(GO, context={"tool_calls": 1, "system_prompt": "given"})
    assert (outcome_of(result).reason, outcome_of(result).tool_calls) == ("tool_calls", 1)
    assert model.seen[0].messages[0].text.startswith("given")


def test_a_cost_for_one_run_needs_the_prices_of_the_graph() -> None:
    with pytest.raises(SetupError, match="price"):
        build_graph(ScriptedModel([FINISH])).invoke(GO, context={"cost": 1.0})
    priced = {"prices": Prices(input=1, output=1)}
    graph = build_graph(ScriptedModel([paid(WRITE)]), Bench().tools, limits=priced)
    assert outcome_of(graph.invoke(GO, context={"cost": 0.0001})).reason == "cost"


def test_a_wrong_limit_of_a_run_is_refused_by_its_name() -> None:
    with pytest.raises(SetupError, match="turns"):
        build_graph(ScriptedModel([])).invoke(GO, context={"turns": 0})


# The ladder that talk climbs.

CONTROLS = ["finish_task", "ask_user", "think"]
ANY: list[str | None] = ["required"]
NONE: list[str | None] = [None]
LADDER: dict[str, tuple[Any, list[Any], list[str | None]]] = {
    "four talks, then a call": ("balanced", ["a", "b", "c", "d", FINISH], NONE * 3 + ANY * 2),
    "a thought does not climb down": ("balanced", ["a", "b", "c", THINK, FINISH], NONE * 3 + ANY * 2),
    "work does": ("balanced", ["a", "b", "c", READ, FINISH], NONE * 3 + ANY + NONE),
    "but not where it does not run": ("balanced", ["a", "b", "c", "d", READ, FINISH], NONE * 3 + ANY * 3),
    "strict requires a call from the start": ("strict", [READ, "a", FINISH], ANY * 3),
}


@pytest.mark.parametrize("name", LADDER)
def test_the_ladder(name: str) -> None:
    talk, script, choices = LADDER[name]
    tools = Bench().tools
    with ScriptedModel(script) as model:
        graph = build_graph(model, tools, policy={"talk": talk})
        assert outcome_of(graph.invoke(GO)).status == "success"
    assert [seen.tool_choice for seen in model.seen] == choices
    offered = [*(tool.name for tool in tools), *CONTROLS]
    assert [seen.tool_names for seen in model.seen] == [offered] * len(script)


@pytest.mark.parametrize(
    "last", [READ, [call("think", thought="x"), READ]], ids=["work", "a thought and work"]
)
def test_after_four_replies_without_a_call_no_work_runs(last: Any) -> None:
    refused = [f"<controls_only> {', '.join(CONTROLS)}"]
    check(play(["a", "b", "c", "d", last, FINISH], tool_calls=0, told=refused))


def test_after_an_answer_work_runs_again() -> None:
    script = ["a", "b", "c", "d", ASK, READ, FINISH]
    played = check(play(script, then=ANSWER, ran="read"))
    assert [seen.tool_choice for seen in played.model.seen] == [None] * 3 + ["required"] * 2 + [None] * 2


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
    "a server of its protocol": (
        ChatOpenAI,
        {"api_key": KEY, "base_url": "http://127.0.0.1:9/v1"},
        "required",
    ),
    "Anthropic": (ChatAnthropic, {"api_key": KEY}, {"type": "any"}),
    "Google": (ChatGoogleGenerativeAI, {"google_api_key": KEY}, CONTROLS),
}


@pytest.mark.parametrize("name", RESTRICTED)
def test_the_last_step_restricts_the_choice_where_a_provider_can(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, options, choice = RESTRICTED[name]
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


class NoChoice(ScriptedModel):
    """A model whose package knows no `tool_choice`."""

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **options: Any) -> Any:
        if tool_choice is not None:
            raise ValueError("no tool_choice")
        return super().bind_tools(tools, **options)


class Refuses(ScriptedModel):
    """A provider that refuses requests with a `tool_choice`."""

    def _stream(self, *args: Any, **options: Any) -> Any:
        if options.get("tool_choice"):
            raise ValueError("400: 'tool_choice' is not supported by this server")
        return super()._stream(*args, **options)


@pytest.mark.parametrize("kind", [NoChoice, Refuses])
def test_where_no_call_can_be_required_the_same_tools_are_offered(kind: type[ScriptedModel]) -> None:
    with kind(["a", "b", "c", "d", FINISH]) as model:
        outcome = outcome_of(build_graph(model, Bench().tools).invoke(GO))
    assert (outcome.status, outcome.turns) == ("success", 5)
    assert {len(seen.tools) for seen in model.seen} == {6}
    assert model.seen[-1].tool_choice is None


@pytest.mark.parametrize("talk", ["loud", "", None, 3])
def test_another_way_to_take_talk_is_refused(talk: Any) -> None:
    with pytest.raises(SetupError, match="talk"):
        build_graph(ScriptedModel([]), policy={"talk": talk})


# Talk that is put to the user like a question.

NATURAL: dict[str, Any] = {"policy": {"talk": "natural"}}
DIALOGUES = {
    "the turns end it": play(
        ["a", "b"], then=ANSWER, reason="turns", last_text="b", limits={"turns": 2}, options=NATURAL
    ),
    "to talk for long is legal": play(
        [*map(str, range(12)), FINISH], sent=["hi", *["go on"] * 12], waits="question " * 12, options=NATURAL
    ),
    "a question is a question still": play(
        [ASK, "So that.", FINISH], sent=["hi", ANSWER, "fine"], waits="question question", options=NATURAL
    ),
    "where nobody can be asked it is reminded": play(["a", FINISH], saved=False, nudges=1, options=NATURAL),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue(name: str) -> None:
    check(DIALOGUES[name])


def test_what_is_said_in_a_dialogue_is_the_question_and_stands_in_one_task() -> None:
    model = ScriptedModel(["Hello?", "It is here.", FINISH])
    session = Session(build_graph(model, **saved(), **NATURAL), "t")
    first, second = session.run("hi"), session.resume("Where is it?")
    assert isinstance(first, Question)
    assert isinstance(second, Question)
    assert (first.text, second.text) == ("Hello?", "It is here.")
    session.run("Thank you.")
    persons = [message.text for message in model.seen[-1].messages if message.type == "human"]
    assert persons == ["hi", "Where is it?", "Thank you."]
    assert [turn.text for turn in session.history()] == ["Hello?", "It is here.", ""]
    assert len({turn.task for turn in session.history()}) == 1


# What the driver does counts as working time: by its report, else from the hand-out to the answer.

REPORTED: dict[str, Any] = {
    "a document": {"output": "ok", "seconds": 600},
    "text, as from a command line": '{"output": "ok", "seconds": 600}',
}


@pytest.mark.parametrize("name", REPORTED)
def test_what_a_driver_reports_is_working_time(name: str) -> None:
    answers: list[Any] = [Command(resume=REPORTED[name])] * 3
    case = play(writes(3), then=answers, **HANDED, reason="seconds", tool_calls=3)
    assert check(case).result["outcome"]["seconds_active"] >= 1800


@pytest.mark.parametrize("seconds", ["5", True, -1, None], ids=repr)
def test_what_is_no_number_of_seconds_is_not_counted(seconds: Any) -> None:
    answer: Any = Command(resume={"output": "ok", "seconds": seconds})
    played = check(play([WRITE, FINISH], then=answer, **HANDED))
    assert played.result["outcome"]["seconds_active"] < 60


def test_what_stood_while_no_session_ran_it_was_waiting() -> None:
    graph = build_graph(ScriptedModel([WRITE, FINISH]), Bench().tools, **saved(), **HANDED)
    Session(graph, "t").run("go")
    time.sleep(0.2)
    Session(graph, "t").resume("ok")
    assert outcome_of(graph.get_state(THREAD)).seconds_waiting >= 0.2


def test_between_a_sessions_hand_out_and_its_answer_somebody_worked() -> None:
    graph = build_graph(ScriptedModel([WRITE, FINISH]), Bench().tools, **saved(), **HANDED)
    session = Session(graph, "t")
    session.run("go")
    time.sleep(0.2)
    session.resume("ok")
    assert outcome_of(graph.get_state(THREAD)).seconds_active >= 0.2
