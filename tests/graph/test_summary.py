"""A summary that a model writes: it serves when it can, and whatever goes wrong with it, lines do."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from signoff import Graph, Limits, Outcome, build_graph, outcome_of
from signoff.models import ScriptedModel, TaggedText, call, reply
from tests.simulate.clock import VirtualClock
from tests.support.compacted import MARKED, asks_for_notes, summary_of, text_of
from tests.support.interrupting import interrupt_process
from tests.support.plays import FINISH, THREAD, assert_sendable, saved

BUDGET = 3_000
TURNS = 31
FIRST = "Remember: the word is heron."
NOTES = "The word is heron. Some notes were taken and nothing failed."
ROOMY: Any = {"max_input_tokens": 200_000}
SMALL: Any = {"max_input_tokens": 8_000}


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def page(number: int, size: int) -> str:
    """Read a page."""
    return f"{number} " + "x" * size


def script() -> list[Any]:
    work = [reply(call("note", text=f"{at} " + "x" * 400), usage=(1_000, 10)) for at in range(TURNS - 1)]
    return [*work, reply(FINISH, usage=(1_000, 10))]


def summarised(model: BaseChatModel, writer: Any, **options: Any) -> Graph:
    policy = {"compaction": writer, "prompt_tokens": BUDGET, "texts": MARKED, **options.pop("policy", {})}
    return build_graph(model, [note], limits=Limits(turns=2 * TURNS), policy=policy, **options)


def run(graph: Graph, **options: Any) -> Outcome[Any]:
    return outcome_of(graph.invoke({"messages": [("user", FIRST)]}, THREAD, **options))


def summaries(model: ScriptedModel) -> list[str]:
    """What stands for the older part, in each prompt that has it."""
    return [text for seen in model.seen if (text := summary_of(seen.messages))]


def by_lines(model: ScriptedModel) -> bool:
    """Whether every summary is made of lines, and none of a text."""
    texts = [text.partition("WORDS")[0] for text in summaries(model)]
    return bool(texts) and all("- note({'text': '" in text and "heron" not in text for text in texts)


def by_text(model: ScriptedModel) -> bool:
    texts = summaries(model)
    return bool(texts) and all(NOTES in text and "- note(" not in text for text in texts)


def test_a_good_text_stands_for_the_folded_turns() -> None:
    writer = ScriptedModel(lambda _: reply(NOTES, usage=(200, 20)))
    with ScriptedModel(script()) as model:
        outcome = run(summarised(model, writer))
    assert (outcome.status, outcome.turns) == ("success", TURNS)
    calls = len(writer.seen)
    assert 1 < calls < 8
    assert outcome.usage.model_dump(exclude={"estimated"}) == {
        "input_tokens": 1_000 * TURNS + 200 * calls,
        "output_tokens": 10 * TURNS + 20 * calls,
        "total_tokens": 1_010 * TURNS + 220 * calls,
    }
    assert by_text(model)
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= BUDGET


def test_the_writer_is_shown_the_task_the_notes_so_far_and_what_came_after() -> None:
    writer = ScriptedModel(lambda _: f"{NOTES} ({len(writer.seen)})")
    with ScriptedModel(script()) as model:
        run(summarised(model, writer))
    for number, seen in enumerate(writer.seen):
        assert seen.tools == []
        assert tokens(seen.messages) <= BUDGET
        material = seen.messages[1].text
        assert FIRST in material
        assert (f"{NOTES} ({number})" in material) is (number > 0)
    told = "\n".join(seen.messages[1].text for seen in writer.seen)
    folded = told.count("- note(")
    assert folded > TURNS // 2
    assert all(told.count(f"- note({{'text': '{number} xxx") == 1 for number in range(folded))


FAILURES: dict[str, Any] = {
    "it raises": ConnectionError("down"),
    "it is empty": "",
    "it is far too long": "x" * 200_000,
    "it is filtered": reply("Some", finish_reason="content_filter"),
    "it is cut off": reply("The word is", finish_reason="length"),
    "it is text and a call": [NOTES, call("note", text="x")],
    "it only thinks aloud": "<think>hm</think>",
}


@pytest.mark.parametrize("name", FAILURES)
def test_whatever_goes_wrong_the_lines_serve(name: str) -> None:
    writer = ScriptedModel(lambda _: FAILURES[name], chunk_size=500)
    with ScriptedModel(script()) as model:
        outcome = run(summarised(model, writer))
    assert (outcome.status, outcome.turns) == ("success", TURNS)
    assert writer.seen
    assert by_lines(model)
    assert all(tokens(seen.messages) <= BUDGET for seen in model.seen)


def test_a_text_that_is_far_too_long_is_not_waited_for() -> None:
    writer = ScriptedModel(lambda _: "x" * 200_000, chunk_size=10)
    with ScriptedModel(script()) as model:
        outcome = run(summarised(model, writer))
    assert writer.chunks_sent < 1_000 * len(writer.seen)
    assert outcome.usage.estimated


def test_a_text_that_takes_longer_than_a_minute_is_given_up() -> None:
    clock = VirtualClock()

    def slow(_: list[BaseMessage]) -> Any:
        clock.passes(61)
        return NOTES

    with clock.ticks(), ScriptedModel(script()) as model:
        outcome = run(summarised(model, ScriptedModel(slow, chunk_size=5)))
    assert outcome.status == "success"
    assert by_lines(model)


def test_one_failure_costs_one_text_and_no_more() -> None:
    def failing_once(_: list[BaseMessage]) -> Any:
        return ConnectionError("down") if len(writer.seen) == 2 else f"{NOTES} ({len(writer.seen)})"

    writer = ScriptedModel(failing_once)
    with ScriptedModel(script()) as model:
        run(summarised(model, writer))
    ways = [(f"{NOTES} (1)" in text, "- note(" in text) for text in summaries(model)]
    assert [way for way, _ in itertools.groupby(ways)][:3] == [(True, False), (True, True), (False, False)]
    assert "- note(" in writer.seen[2].messages[1].text


def test_a_stop_ends_the_text_at_once_and_the_lines_serve() -> None:
    control = RunControl()

    def stopped(_: list[BaseMessage]) -> Any:
        control.request_drain("stop")
        return NOTES * 10

    writer, model = ScriptedModel(stopped, chunk_size=5), ScriptedModel(script())
    graph = summarised(model, writer, **saved())
    with pytest.raises(GraphDrained):
        run(graph, control=control)
    assert writer.chunks_sent < 5
    assert outcome_of(graph.invoke(None, THREAD)).status == "success"
    first = summaries(model)[0].partition("WORDS")[0]
    assert "- note(" in first
    assert "heron" not in first


def test_interrupted_in_the_middle_of_the_text_nothing_is_lost() -> None:
    def interrupted(_: list[BaseMessage]) -> Any:
        interrupt_process()
        return NOTES

    storage = saved()
    model, writer = ScriptedModel(script()), ScriptedModel(lambda _: NOTES)
    with pytest.raises(KeyboardInterrupt):
        run(summarised(model, ScriptedModel(interrupted), **storage))
    result = summarised(model, writer, **storage).invoke(None, THREAD)
    assert outcome_of(result).turns == TURNS
    results = [message.text for message in result["messages"] if message.type == "tool"]
    assert [text.split()[1] for text in results[:-1]] == [str(number) for number in range(TURNS - 1)]
    assert by_text(model)


def test_its_words_are_not_streamed_as_a_reply() -> None:
    writer = ScriptedModel(lambda _: NOTES)
    with ScriptedModel(script()) as model:
        parts = summarised(model, writer).stream({"messages": [FIRST]}, THREAD, stream_mode="messages")
        streamed = "".join(chunk.text for chunk, _ in parts if isinstance(chunk, AIMessage))
    assert writer.seen
    assert "heron" not in streamed


def test_the_cost_is_that_of_its_own_task() -> None:
    writer = ScriptedModel(lambda _: reply(NOTES, usage=(200, 20)))
    model = ScriptedModel([*script(), reply(FINISH, usage=(1_000, 10))])
    graph = summarised(model, writer, **saved())
    first, before = run(graph).usage, len(writer.seen)
    second = run(graph).usage
    assert first.input_tokens == 1_000 * TURNS + 200 * before
    assert second.input_tokens == 1_000 + 200 * (len(writer.seen) - before)


# The model itself, on the prompt that it has.


def own_words(answer: Any) -> Callable[[list[BaseMessage]], Any]:
    """A model that works, and answers the request for notes with `answer`."""
    played: list[int] = []

    def step(messages: list[BaseMessage]) -> Any:
        if asks_for_notes(messages):
            return answer
        shown = [int(message.text.split()[1]) for message in messages if message.type == "tool"]
        played.append(max([*shown, len(played) - 1]) + 1)
        return script()[min(played[-1], TURNS - 1)]

    return step


def requests(model: ScriptedModel) -> list[int]:
    return [at for at, seen in enumerate(model.seen) if asks_for_notes(seen.messages)]


@pytest.mark.parametrize("streaming", ["always", "never"])
def test_the_model_is_asked_on_the_prompt_that_it_has_with_its_tools(streaming: str) -> None:
    counted = {"input_tokens": 700, "output_tokens": 20, "total_tokens": 720}
    usage: Any = {**counted, "input_token_details": {"cache_read": 600}}
    model = ScriptedModel(own_words(reply(NOTES, usage=usage)))
    outcome = run(summarised(model, "model", policy={"streaming": streaming}))
    asked = requests(model)
    assert len(asked) > 1
    for at in asked:
        before, notes = model.seen[at - 1], model.seen[at]
        assert notes.messages[: len(before.messages)] == before.messages
        assert notes.messages[-1].type == "human"
        assert (notes.tools, notes.tool_choice) == (before.tools, None)
        assert_sendable(notes.messages)
    assert by_text(model)
    turns = len(model.seen) - len(asked)
    assert (outcome.status, outcome.turns) == ("success", turns)
    assert outcome.usage.input_tokens == 1_000 * turns + 700 * len(asked)


CUT = InvalidToolCall(type="invalid_tool_call", name="note", args='{"te', id="c", error=None)
CALLS: dict[str, Any] = {
    "notes and a finish": [NOTES, FINISH],
    "work": [call("note", text="never")],
    "a call that is cut": AIMessage("", invalid_tool_calls=[CUT]),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_in_the_notes_runs_counts_or_ends_anything(name: str) -> None:
    model = ScriptedModel(own_words(CALLS[name]))
    graph = summarised(model, "model")
    result = graph.invoke({"messages": [("user", FIRST)]}, THREAD)
    outcome, asked = outcome_of(result), requests(model)
    assert len(asked) > 1
    assert (outcome.status, outcome.turns) == ("success", len(model.seen) - len(asked))
    assert outcome.tool_calls == outcome.turns - 1
    assert "never" not in text_of(result["messages"])
    assert by_lines(model)


@pytest.mark.parametrize(
    ("context", "asks"), [(None, False), (3_400, False), (200_000, True)], ids=["unknown", "small", "large"]
)
def test_where_the_prompt_no_longer_fits_the_lines_serve(context: int | None, asks: bool) -> None:
    """A result as large as the budget stands at its end."""
    work = [call("note", text=f"{at} " + "x" * 400) for at in range(5)]
    left = iter([*work, call("note", text="x" * 12_000), FINISH])
    profile: Any = {"max_input_tokens": context} if context else None
    model = ScriptedModel(lambda messages: NOTES if asks_for_notes(messages) else next(left), profile=profile)
    assert run(summarised(model, "model")).status == "success"
    assert bool(requests(model)) is asks
    assert (NOTES in summaries(model)[-1]) is asks


# Who writes, where nobody says who.
WHO: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "a model of a large window": (ROOMY, {}, True),
    "one of a small window": (SMALL, {}, False),
    "one of a window that is unknown": (None, {}, False),
    "lines, where they are asked for": (ROOMY, {"compaction": "lines"}, False),
    "a small one, where it is asked to": (SMALL, {"compaction": "model"}, True),
}


@pytest.mark.parametrize("name", WHO)
def test_who_writes_the_summary(name: str) -> None:
    profile, policy, writes = WHO[name]
    window = policy.get("prompt_tokens") or (profile or {}).get("max_input_tokens", 200_000)
    # Together more than fits: four characters are a token.
    size = window // 4
    left = iter([*[call("page", number=number, size=size) for number in range(20)], FINISH])
    model = ScriptedModel(lambda messages: NOTES if asks_for_notes(messages) else next(left), profile=profile)
    policy = {"result_chars": 10**6, "texts": MARKED, **policy}
    assert run(build_graph(model, [page], limits=Limits(turns=40), policy=policy)).status == "success"
    assert summaries(model)
    assert bool(requests(model)) is writes
    turns = [seen.messages for seen in model.seen if not asks_for_notes(seen.messages)]
    assert max(map(tokens, turns)) <= window * 0.8


def test_a_model_that_works_by_text_writes_it_as_plain_text() -> None:
    steps = iter([*[f'<CALL name="note">{{"text": "{at} {"x" * 400}"}}</CALL>' for at in range(20)]])
    done = "<PLAN>[FINALIZE] All of it.</PLAN>"
    inner = ScriptedModel(lambda shown: NOTES if asks_for_notes(shown) else next(steps, done), profile=ROOMY)
    assert run(summarised(TaggedText(inner), "model")).status == "success"
    notes = [inner.seen[at].messages for at in requests(inner)]
    assert notes
    assert not any("<PLAN>" in messages[0].text or "[FINALIZE]" in messages[-1].text for messages in notes)
