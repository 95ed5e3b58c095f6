"""A summary that a model writes: it serves when it can, and whatever goes wrong with it, the lines do."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl, Runtime

from signoff import Limits, SetupError, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.history.task import Task
from signoff.graph.messages import is_reply
from signoff.graph.prompt.compaction import compact
from signoff.graph.texts import NOTE_DOWN
from signoff.models import ScriptedModel, call, reply
from signoff.models.tagged import TaggedText
from signoff.nodes.model.summary import Summarise, spent_more, write_summary
from signoff.nodes.node import NodeContext
from signoff.session.status import deps_of
from tests.support.histories import ai, assert_sendable, done, state, user
from tests.support.prepared import run_python

ASKED = NOTE_DOWN.split(":")[0]
FINISH = call("finish_task", summary="All of it.")
THREAD: Any = {"configurable": {"thread_id": "summarised"}}
BUDGET = 3_000
TURNS = 31
FIRST = "Remember: the word is heron."
NOTES = "The word is heron. Some notes were taken and nothing failed."
Way = Callable[..., dict[str, Any]]


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def script() -> list[Any]:
    work = [reply(call("note", text=f"{i} " + "x" * 400), usage=(1_000, 10)) for i in range(TURNS - 1)]
    return [*work, reply(call("finish_task", summary="All of it."), usage=(1_000, 10))]


def summarised(model: BaseChatModel, writer: Any, **settings: Any) -> Graph:
    return build_graph(
        model, [note], compaction=writer, prompt_tokens=BUDGET, limits=Limits(turns=2 * TURNS), **settings
    )


def invoke(graph: Graph, **settings: Any) -> dict[str, Any]:
    result: dict[str, Any] = graph.invoke({"messages": [("user", FIRST)]}, THREAD, **settings)
    return result


def ainvoke(graph: Graph, **settings: Any) -> dict[str, Any]:
    return asyncio.run(graph.ainvoke({"messages": [("user", FIRST)]}, THREAD, **settings))


both_ways = pytest.mark.parametrize("run", [invoke, ainvoke])


def usage_of(read: int, wrote: int) -> dict[str, Any]:
    return {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}


def summaries(model: ScriptedModel) -> list[str]:
    """The summary in each prompt that has one."""
    texts = [message.text for seen in model.seen for message in seen.messages[:4]]
    return [text for text in texts if text.startswith("The older part")]


@both_ways
def test_a_good_text_stands_for_the_folded_turns(run: Way) -> None:
    writer = ScriptedModel(lambda messages: reply(NOTES, usage=(200, 20)))
    with ScriptedModel(script()) as model:
        result = run(summarised(model, writer))
    assert result["outcome"]["status"] == "success"
    assert result["outcome"]["turns"] == TURNS == sum(is_reply(m) for m in result["messages"])
    calls = len(writer.seen)
    assert 1 < calls < 8
    assert result["outcome"]["usage"] == {
        **result["outcome"]["usage"],
        "input_tokens": 1_000 * TURNS + 200 * calls,
        "output_tokens": 10 * TURNS + 20 * calls,
        "total_tokens": 1_010 * TURNS + 220 * calls,
    }
    assert all(NOTES in text and "- note(" not in text for text in summaries(model))
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= BUDGET


@both_ways
def test_the_model_is_shown_the_task_the_notes_so_far_and_what_came_after(run: Way) -> None:
    writer = ScriptedModel(lambda messages: f"{NOTES} ({len(writer.seen)})")
    with ScriptedModel(script()) as model:
        run(summarised(model, writer))
    for number, seen in enumerate(writer.seen):
        assert seen.tools == []
        assert tokens(seen.messages) <= BUDGET
        system, material = (message.text for message in seen.messages)
        assert "without calling a tool" in system
        assert FIRST in material
        assert (f"{NOTES} ({number})" if number else "(none)") in material
    told = "\n".join(seen.messages[1].text for seen in writer.seen)
    summarised_turns = told.count("- note(")
    assert summarised_turns > TURNS // 2
    assert all(told.count(f"- note({{'text': '{number} xxx") == 1 for number in range(summarised_turns))


FAILURES: dict[str, Any] = {
    "it raises": ConnectionError("down"),
    "it is empty": "",
    "it is far too long": "x" * 200_000,
    "it is refused": reply(refusal="I would rather not."),
    "it is filtered": reply("Some", finish_reason="content_filter"),
    "it is cut off": reply("The word is", finish_reason="length"),
    "it is a call": [call("finish_task", summary="All of it.")],
    "it is text and a call": [NOTES, call("note", text="x")],
    "it only thinks aloud": "<think>hm</think>",
}


@pytest.mark.slow
@both_ways
@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
@pytest.mark.sample(6)
def test_whatever_goes_wrong_the_lines_serve(answer: Any, run: Way) -> None:
    writer = ScriptedModel(lambda messages: answer, chunk_size=500)
    with ScriptedModel(script()) as model:
        result = run(summarised(model, writer))
    assert result["outcome"]["status"] == "success"
    assert result["outcome"]["turns"] == TURNS
    assert writer.seen
    assert all("- note({'text': '" in text and "heron" not in text for text in summaries(model))
    for seen in model.seen:
        assert tokens(seen.messages) <= BUDGET


def test_a_text_that_is_far_too_long_is_not_waited_for() -> None:
    writer = ScriptedModel(lambda messages: "x" * 200_000, chunk_size=10)
    with ScriptedModel(script()) as model:
        outcome = invoke(summarised(model, writer))["outcome"]
    assert writer.chunks_sent < 1_000 * len(writer.seen)
    assert outcome["usage"]["estimated"]


@both_ways
def test_a_slow_model_is_given_up_on(run: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.nodes.model.summary.COMPACTION_SECONDS", 0.1)
    writer = ScriptedModel(lambda messages: NOTES, delay=0.05, chunk_size=1)
    with ScriptedModel(script()[-8:]) as model:
        result = run(build_graph(model, [note], compaction=writer, prompt_tokens=1_200))
    assert result["outcome"]["status"] == "success"
    assert writer.seen
    assert all("- note({'text': '" in text for text in summaries(model))


def test_one_failure_costs_one_text_and_no_more() -> None:
    def failing_once(messages: list[BaseMessage]) -> Any:
        return ConnectionError("down") if len(writer.seen) == 2 else f"{NOTES} ({len(writer.seen)})"

    writer = ScriptedModel(failing_once)
    with ScriptedModel(script()) as model:
        invoke(summarised(model, writer))
    ways = list(dict.fromkeys((f"{NOTES} (1)" in text, "- note(" in text) for text in summaries(model)))
    assert ways[:3] == [(True, False), (True, True), (False, False)], "text, text and lines, the next text"
    assert "- note(" in writer.seen[2].messages[1].text.partition("What came after")[0]


def test_nobody_who_stops_a_run_waits_for_a_summary() -> None:
    """A run that is asked to stop just then asks no model any more."""
    writer, control = ScriptedModel([]), RunControl()
    run = NodeContext(
        deps_of(summarised(ScriptedModel([]), writer)),
        {"configurable": {"__pregel_runtime": Runtime(control=control)}},
    )
    turns = [message for at in range(9) for message in (ai(("note", f"{at}")), done(f"{at}", "x" * 4_000))]
    now = state(user(), *turns)
    compaction = compact(now, run.reader(now), BUDGET, "", run.deps.texts)
    assert compaction is not None
    assert isinstance(next(write_summary(compaction, now, run, Task())), Summarise)
    control.request_drain("pause")
    with pytest.raises(StopIteration) as end:
        next(write_summary(compaction, now, run, Task()))
    summary, spent = end.value.value
    assert summary["lines"]
    assert (summary.get("text"), spent) == (None, None)


@both_ways
def test_a_stop_ends_the_text_at_once_and_the_lines_serve(run: Way, tmp_path: Path) -> None:
    control = RunControl()

    def stopped(messages: list[BaseMessage]) -> Any:
        control.request_drain("stop")
        return NOTES * 10

    writer = ScriptedModel(stopped, chunk_size=5)
    model = ScriptedModel(script())
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = summarised(model, writer, storage=storage)
        with pytest.raises(GraphDrained):
            run(graph, control=control)
        assert writer.chunks_sent < 5
        summary = graph.get_state(THREAD).values["digest"]
    assert summary["lines"]
    assert "text" not in summary


def test_its_words_are_not_streamed_as_a_reply() -> None:
    writer = ScriptedModel(lambda messages: NOTES)
    with ScriptedModel(script()) as model:
        graph = summarised(model, writer)
        parts = graph.stream({"messages": [FIRST]}, THREAD, stream_mode="messages")
        streamed = "".join(chunk.text for chunk, _ in parts if isinstance(chunk, AIMessage))
    assert writer.seen
    assert "heron" not in streamed


def test_the_cost_is_that_of_its_own_task(tmp_path: Path) -> None:
    writer = ScriptedModel(lambda messages: reply(NOTES, usage=(200, 20)))
    last = reply(call("finish_task", summary="Again."), usage=(1_000, 10))
    with (
        ScriptedModel([*script(), last]) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = summarised(model, writer, storage=storage)
        first = invoke(graph)["outcome"]["usage"]["input_tokens"]
        before = len(writer.seen)
        second = graph.invoke({"messages": [("user", "and now?")]}, THREAD)["outcome"]["usage"]
    assert first == 1_000 * TURNS + 200 * before
    assert second["input_tokens"] == 1_000 + 200 * (len(writer.seen) - before)


# The model itself, on the prompt that it has.


def own_words(answer: Any) -> Callable[[list[BaseMessage]], Any]:
    """A model that works, and answers the request for notes with `answer`."""

    def step(messages: list[BaseMessage]) -> Any:
        if messages[-1].text.startswith(ASKED):
            return answer
        done_already = [int(m.text.split()[1]) for m in messages if m.type == "tool"]
        number = max([*done_already, len(played) - 1]) + 1
        played.append(number)
        return script()[min(number, TURNS - 1)]

    played = list[int]()
    return step


def requests_for_notes(model: ScriptedModel) -> list[int]:
    return [at for at, seen in enumerate(model.seen) if seen.messages[-1].text.startswith(ASKED)]


@pytest.mark.parametrize("streaming", ["always", "auto", "never"])
@both_ways
def test_the_model_is_asked_on_the_prompt_that_it_has_with_its_tools(run: Way, streaming: Any) -> None:
    usage: Any = {**usage_of(700, 20), "input_token_details": {"cache_read": 600}}
    model = ScriptedModel(own_words(reply(NOTES, usage=usage)))
    result = run(summarised(model, "model", streaming=streaming))
    assert result["outcome"]["status"] == "success"
    asked = requests_for_notes(model)
    assert len(asked) > 1
    for at in asked:
        before, notes = model.seen[at - 1], model.seen[at]
        assert notes.messages[: len(before.messages)] == before.messages
        assert notes.messages[-1].type == "human"
        assert (notes.tools, notes.tool_choice) == (before.tools, None)
        assert_sendable(notes.messages)
    assert all(NOTES in text and "- note(" not in text for text in summaries(model))
    turns = len(model.seen) - len(asked)
    assert result["outcome"]["turns"] == turns == sum(is_reply(m) for m in result["messages"])
    assert result["outcome"]["usage"]["input_tokens"] == 1_000 * turns + 700 * len(asked)


CALLS: dict[str, Any] = {
    "a finish": [call("finish_task", summary="All of it.")],
    "notes and a finish": [NOTES, call("finish_task", summary="All of it.")],
    "work": [call("note", text="never")],
    "a question": [call("ask_user", question="May I?")],
    "a call that is cut": AIMessage(
        "",
        invalid_tool_calls=[
            InvalidToolCall(type="invalid_tool_call", name="note", args='{"te', id="c", error=None)
        ],
    ),
}


@both_ways
@pytest.mark.parametrize("answer", CALLS.values(), ids=CALLS)
@pytest.mark.sample(4)
def test_no_call_in_the_notes_runs_counts_or_ends_anything(answer: Any, run: Way) -> None:
    model = ScriptedModel(own_words(answer))
    result = run(summarised(model, "model"))
    asked = requests_for_notes(model)
    assert len(asked) > 1
    assert result["outcome"]["status"] == "success"
    assert result["outcome"]["turns"] == len(model.seen) - len(asked)
    assert result["outcome"]["tool_calls"] == result["outcome"]["turns"] - 1
    assert not any("never" in message.text for message in result["messages"])
    assert all("- note({'text': '" in text and "heron" not in text for text in summaries(model))


def test_what_the_notes_took_from_the_cache_counts_as_such() -> None:
    cost = spent_more(None, "t", 700, 20, estimated=False, cached=600)
    assert spent_more(cost, "t", 700, 20, estimated=False, cached=600)["cached_tokens"] == 1_200
    assert "cached_tokens" not in spent_more(None, "t", 700, 20, estimated=False)


@pytest.mark.parametrize(("context", "asks"), [(None, False), (3_400, False), (200_000, True)])
def test_where_the_prompt_no_longer_fits_the_lines_serve(context: int | None, asks: bool) -> None:
    """A result as large as the budget stands at its end."""
    work = [call("note", text=f"{i} " + "x" * 400) for i in range(5)]
    work += [call("note", text="x" * 12_000), FINISH]
    script = (step for step in work)

    def step(messages: list[BaseMessage]) -> Any:
        return NOTES if messages[-1].text.startswith(ASKED) else next(script)

    profile: Any = {"max_input_tokens": context} if context else None
    model = ScriptedModel(step, profile=profile)
    result = invoke(summarised(model, "model"))
    assert result["outcome"]["status"] == "success"
    assert bool(requests_for_notes(model)) is asks
    assert (NOTES in model.seen[-1].messages[3].text) is asks


# Who writes.

ROOMY: Any = {"max_input_tokens": 200_000}
SMALL: Any = {"max_input_tokens": 8_000}


@pytest.mark.parametrize(
    ("settings", "writes"),
    [
        ({"profile": ROOMY}, True),
        ({"profile": SMALL}, False),
        ({"profile": None}, False),
        ({"profile": ROOMY, "prompt_tokens": 8_000}, False),
        ({"profile": ROOMY, "compaction": "lines"}, False),
        ({"profile": SMALL, "compaction": "model"}, True),
        ({"profile": None, "compaction": ScriptedModel([])}, True),
    ],
)
def test_who_writes_the_summary(settings: dict[str, Any], writes: bool) -> None:
    model = ScriptedModel([], profile=settings.pop("profile"))
    assert (deps_of(build_graph(model, **settings)).own.summariser is not None) is writes


def test_a_model_that_works_by_text_writes_it_as_plain_text() -> None:
    inner = ScriptedModel([], profile=ROOMY)
    summariser = deps_of(build_graph(TaggedText(inner))).own.summariser
    assert isinstance(summariser, ScriptedModel)
    assert summariser.seen is inner.seen


def test_anything_else_is_refused() -> None:
    with pytest.raises(SetupError, match="compaction is 'brief'; pass 'model', 'lines' or a chat model"):
        build_graph(ScriptedModel([]), compaction="brief")  # type: ignore[arg-type]  # a mistake of the user


# A process that is killed while the model writes.

KILLED = f"""
import os, signal, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.graph.test_summary import *
def deadly(messages):
    print(len(model.seen), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
model = ScriptedModel(by_position)
with sqlite_storage(sys.argv[1]) as storage:
    invoke(summarised(model, ScriptedModel(deadly), storage=storage))
"""


def by_position(messages: list[BaseMessage]) -> Any:
    """The next step, by the number in the last note that is shown: it serves in any process."""
    shown = [m.tool_calls[0]["args"]["text"] for m in messages if is_reply(m)]
    return script()[int(shown[-1].split()[0]) + 1 if shown else 0]


@pytest.mark.slow
def test_killed_in_the_middle_of_the_text_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    child = run_python("-c", KILLED, file)
    assert (child.returncode, child.stderr) == (-signal.SIGKILL, "")
    turns = int(child.stdout)
    writer, model = ScriptedModel(lambda messages: NOTES), ScriptedModel(by_position)
    with sqlite_storage(file) as storage:
        graph = summarised(model, writer, storage=storage)
        stood = graph.get_state(THREAD).values
        assert sum(isinstance(message, AIMessage) for message in stood["messages"]) == turns
        assert not stood.get("digest")
        result = graph.invoke(None, THREAD)
    assert result["outcome"]["status"] == "success"
    assert result["outcome"]["turns"] == TURNS
    notes = [m.tool_calls[0]["args"].get("text", "") for m in result["messages"] if is_reply(m)]
    assert [text.split()[0] for text in notes[:-1]] == [str(number) for number in range(TURNS - 1)]
    assert NOTES in model.seen[0].messages[3].text
