"""The prompt stays within its budget whatever a history holds, and nothing that waits or binds is lost. A
summary by a model serves when it can; whatever goes wrong with it, lines do."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langgraph.types import Command

from signoff import Graph, Limits, Outcome, build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.tools import workspace_tools
from tests.simulate.clock import VirtualClock
from tests.support.compacted import MARKED, asks_for_notes, summary_of, text_of, turns_shown
from tests.support.histories import ai, broken, done, malformed, user
from tests.support.plays import FINISH, THREAD, assert_sendable, saved

BUDGET = 4_000
TINY = 100
# Less than the system prompt: a prompt holds one turn, and every turn is summarised before the next one.
FIRST = "Remember: the word is heron."


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def notes(turns: int) -> list[Any]:
    return [call("note", text=f"{at} " + "x" * 400) for at in range(turns)]


def graph_of(model: ScriptedModel, *tools: Any, budget: int = BUDGET, **options: Any) -> Graph:
    policy = {"prompt_tokens": budget, "compaction": "lines", "texts": MARKED, **options.pop("policy", {})}
    options |= {} if "storage" in options else saved()
    return build_graph(model, [note, *tools], limits=Limits(turns=100), policy=policy, **options)


def invoke(graph: Graph, *words: str) -> dict[str, Any]:
    return graph.invoke({"messages": [("user", each) for each in words or (FIRST,)]}, THREAD)


def assert_fits(model: ScriptedModel) -> None:
    """Every prompt is one that a provider takes, is within the budget, and holds the task."""
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= BUDGET
        assert FIRST in [message.text for message in seen.messages]


def test_a_long_run_stays_within_the_budget_and_knows_its_task() -> None:
    with ScriptedModel([*notes(40), FINISH]) as model:
        result = invoke(graph_of(model))
    assert outcome_of(result).turns == 41
    assert sum(message.type == "tool" for message in result["messages"]) == 41, "the history is whole"
    assert_fits(model)
    last = summary_of(model.seen[-1].messages)
    assert re.search(r"- note\({'text': '\d\d xxx.*-> success: noted", last)
    assert len({summary_of(seen.messages) for seen in model.seen}) < 15, "the prefix stays for many turns"


def test_what_the_provider_counts_on_top_of_the_estimate_counts() -> None:
    """Tools, say, or a tokenizer with more tokens: 1,500 on top of every prompt."""
    shown: list[int] = []

    def counted(messages: list[BaseMessage]) -> Any:
        shown.append(tokens(messages) + 1_500)
        step = call("note", text=f"{len(shown)} " + "x" * 400)
        return reply(step, usage=(shown[-1], 10)) if len(shown) < 40 else FINISH

    invoke(graph_of(ScriptedModel(counted)))
    assert len(shown) == 40
    assert max(shown) <= BUDGET


# Histories of other programs.


def drawn(draw: random.Random) -> list[BaseMessage]:
    """Tasks, replies with all sorts of calls, and results that come late, twice or never."""

    def text() -> str:
        return draw.choice(["x", "word " * draw.randint(1, 60), "line\n" * draw.randint(1, 400)])

    history, waiting = list[BaseMessage](), list[str]()
    for at in range(draw.randint(1, 40)):
        args = {"text": text(), "thought": "hm", "question": "Which one?", "summary": "All of it."}
        names = draw.choices(["note", "think", "ask_user", "finish_task"], [2, 1, 1, 1], k=draw.randint(1, 4))
        calls = [(name, f"c{at}.{number}", args) for number, name in enumerate(names)]
        replies: list[BaseMessage] = [ai("I go on.", *calls), ai(text()), ai(), malformed("note", f"c{at}")]
        others: list[BaseMessage] = [user(text()), done("of no call", text()), SystemMessage("Be brief.")]
        (message,) = draw.choices([*replies, *others], [63, 5, 3, 4, 15, 3, 2])
        history.append(message)
        if isinstance(message, AIMessage):
            waiting += [str(made["id"]) for made in (*message.tool_calls, *message.invalid_tool_calls)]
        while waiting and draw.random() < 0.85:
            call_id = waiting.pop(0)
            history.append(done(call_id, text()) if draw.random() < 0.9 else broken(call_id))
    late = [done(call_id) for call_id in waiting if draw.random() < 0.5]
    return [*history, *late, user("The last.")]


DRAWN = [*range(4), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 200))]


@pytest.mark.parametrize("seed", DRAWN)
def test_a_prompt_of_any_history_is_sendable_and_within_its_budget(seed: int) -> None:
    draw = random.Random(seed)
    history, budget = drawn(draw), draw.choice([1_500, 3_000, 6_000])
    model = ScriptedModel(lambda _: FINISH)
    graph_of(model, budget=budget).invoke({"messages": history}, THREAD)
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= budget or turns_shown(seen.messages) <= 1
        assert "The last." in text_of(seen.messages)


# A last turn that alone is too large.


def long(text: str) -> str:
    """Return much."""
    return f"{text} begins " + f"{text} " * 8_000 + f"{text} ends"


def test_the_largest_results_of_the_last_turn_are_cut_and_kept_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = [call("long", text=name) for name in "abc"]
    with ScriptedModel([[*calls, call("note", text="short")], *notes(3), FINISH]) as model:
        history = invoke(graph_of(model, long, policy={"result_chars": 10**6}))["messages"]
    assert_fits(model)
    whole = [m.text for m in history if isinstance(m, ToolMessage) and m.name == "long"]
    second = [m for m in model.seen[1].messages if isinstance(m, ToolMessage)]
    cut = [message.text for message in second if message.name == "long"]
    for text, shown, name in zip(whole, cut, "abc", strict=True):
        assert (shown.startswith(f"{name} begins "), shown.endswith(f" {name} ends")) == (True, True)
        (place,) = re.findall(r"\S+\.txt", shown)
        assert Path(place).read_text("utf-8") == text
    assert second[-1].text == "noted short"
    assert "long(" in summary_of(model.seen[2].messages)


def test_what_was_cut_is_kept_where_the_model_can_read_it(tmp_path: Path) -> None:
    """With the tools of a workspace that is in the workspace."""

    def reads(messages: list[BaseMessage]) -> Any:
        (place,) = re.findall(r"\S+\.txt", messages[-1].text)
        return call("read_file", path=place)

    with ScriptedModel([call("long", text="a"), reads, FINISH]) as model:
        result = invoke(graph_of(model, long, *workspace_tools(tmp_path)))
    assert outcome_of(result).status == "success"
    assert "a begins a a" in model.seen[-1].messages[-1].text


# Whatever waits survives being summarised around, again and again, and a restart changes no prompt.


class Waiting(NamedTuple):
    """A control call or a wait between summarised turns. given: what answers each wait, in order. says: a
    result that the history then holds once. contract: what the last prompt says of it in the contract."""

    steps: list[Any]
    given: Sequence[str] = ()
    says: str = ""
    contract: str = ""
    approvals: dict[str, Any] | None = None


CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
VOID = [call("note", text=3), call("finish_task", summary="x", pending_issues=["the logo"])]
PAY = [*notes(3), call("pay", amount=3), *notes(3), FINISH]
WAITS: dict[str, Waiting] = {
    "a refused finish": Waiting(
        [*notes(3), call("finish_task", summary=""), *notes(3), FINISH], contract="did not count"
    ),
    "a question": Waiting(
        [*notes(3), call("ask_user", question="Which bird?"), *notes(3), FINISH], ["blue"], "blue"
    ),
    "an approval": Waiting(PAY, ["approve"], "paid 3", approvals={"pay": True}),
    "a confirmation": Waiting(
        [*notes(3), CONFIRM, *notes(3), CONFIRM],
        ["The title is wrong.", "yes"],
        "The title is wrong.",
        "The title is wrong.",
    ),
    "an approach": Waiting(
        [call("think", thought="hm", approach="by hand", status="begun"), *notes(3), FINISH],
        contract="by hand",
    ),
    "what a finish left open": Waiting([*notes(1), VOID, *notes(3), FINISH], contract="the logo"),
}


def drive(
    model: ScriptedModel, case: Waiting, file: Path, paid: list[int], *, by_step: bool
) -> dict[str, Any]:
    """Runs the case to its end, by the same graph or by a new one for each model call."""

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    given: Any = {"messages": [("user", FIRST)]}
    answers, result = iter(case.given), dict[str, Any]()
    while not result.get("outcome"):
        with sqlite_storage(file) as storage:
            graph = graph_of(model, pay, budget=TINY, storage=storage, approvals=case.approvals)
            while not result.get("outcome"):
                result = graph.invoke(given, THREAD, interrupt_before=["call_llm"] if by_step else None)
                waits = graph.get_state(THREAD).interrupts
                given = Command(resume={waits[0].id: next(answers)}) if waits else None
                if by_step:
                    break
    return result


def as_sent(message: BaseMessage) -> tuple[Any, ...]:
    """What a provider is sent of a message."""
    calls = getattr(message, "tool_calls", None)
    return message.type, message.content, calls, getattr(message, "tool_call_id", None)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] if at % 2 else []) for at, name in enumerate(WAITS)],
)
def test_it_survives_any_number_of_compactions_and_a_restart_changes_no_prompt(
    name: str, tmp_path: Path
) -> None:
    case, prompts = WAITS[name], []
    for by_step in (False, True):
        paid: list[int] = []
        # The same file for both: what is cut out of a result names a folder of its database.
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            storage.delete("t")
        with ScriptedModel(case.steps) as model:
            result = drive(model, case, tmp_path / "threads.sqlite", paid, by_step=by_step)
        outcome = outcome_of(result)
        assert (outcome.status, outcome.turns) == ("success", len(case.steps))
        results = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
        assert sum(case.says in text for text in results) == 1 or not case.says
        assert paid == [3] * (case.says == "paid 3")
        for seen in model.seen:
            assert_sendable(seen.messages)
            assert FIRST in [message.text for message in seen.messages]
            assert turns_shown(seen.messages) <= 1
        assert case.contract in text_of(model.seen[-1].messages).partition("CONTRACT")[2]
        prompts.append([[as_sent(message) for message in seen.messages] for seen in model.seen])
    assert prompts[0] == prompts[1]


def test_a_thought_of_an_earlier_task_binds_nobody() -> None:
    thought = call("think", thought="hm", approach="by hand", status="begun")
    model = ScriptedModel([thought, *notes(2), FINISH, *notes(3), FINISH])
    graph = graph_of(model, budget=TINY)
    invoke(graph)
    invoke(graph, "Next.")
    assert "by hand" not in text_of(model.seen[-1].messages).partition("CONTRACT")[2]


# A summary that a model writes.

NARROW = 3_000
TURNS = 31
NOTES = "The word is heron. Some notes were taken and nothing failed."


def page(number: int, size: int) -> str:
    """Read a page."""
    return f"{number} " + "x" * size


def script() -> list[Any]:
    return [reply(step, usage=(1_000, 10)) for step in (*notes(TURNS - 1), FINISH)]


def summarised(model: BaseChatModel, writer: Any, **options: Any) -> Graph:
    policy = {"compaction": writer, "prompt_tokens": NARROW, "texts": MARKED, **options.pop("policy", {})}
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
    """Its writer is shown the task, its notes so far, and once each turn that came after them."""
    writer = ScriptedModel(lambda _: reply(f"{NOTES} ({len(writer.seen)})", usage=(200, 20)))
    with ScriptedModel(script()) as model:
        outcome = run(summarised(model, writer))
    assert (outcome.status, outcome.turns) == ("success", TURNS)
    assert by_text(model)
    calls, folded = len(writer.seen), 0
    assert 1 < calls < 8
    assert outcome.usage.input_tokens == 1_000 * TURNS + 200 * calls
    for number, seen in enumerate(writer.seen):
        assert seen.tools == []
        material = seen.messages[1].text
        assert (FIRST in material, f"{NOTES} ({number})" in material) == (True, number > 0)
        shown = [int(found) for found in re.findall(r"- note\({'text': '(\d+) xxx", material)]
        assert shown == [*range(folded, folded + len(shown))]
        folded += len(shown)
    assert folded > TURNS // 2
    for seen in (*model.seen, *writer.seen):
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= NARROW


FAILURES: dict[str, Any] = {
    "it raises": ConnectionError("down"),
    "it is far too long": "x" * 200_000,
    "it is cut off": reply("The word is", finish_reason="length"),
    "it is text and a call": [NOTES, call("note", text="x")],
}


@pytest.mark.parametrize("name", FAILURES)
def test_whatever_goes_wrong_the_lines_serve(name: str) -> None:
    writer = ScriptedModel(lambda _: FAILURES[name], chunk_size=50)
    with ScriptedModel(script()) as model:
        outcome = run(summarised(model, writer))
    assert (outcome.status, outcome.turns) == ("success", TURNS)
    assert writer.seen
    assert writer.chunks_sent < 200 * len(writer.seen), "nobody waits for the end of a long one"
    assert by_lines(model)
    assert all(tokens(seen.messages) <= NARROW for seen in model.seen)


def test_a_text_that_takes_longer_than_a_minute_is_given_up() -> None:
    clock = VirtualClock()

    def slow(_: list[BaseMessage]) -> Any:
        clock.passes(61)
        return NOTES

    with clock.ticks(), ScriptedModel(script()) as model:
        outcome = run(summarised(model, ScriptedModel(slow, chunk_size=5)))
    assert outcome.status == "success"
    assert by_lines(model)


def test_its_words_are_not_streamed_as_a_reply() -> None:
    writer = ScriptedModel(lambda _: NOTES)
    with ScriptedModel(script()) as model:
        parts = summarised(model, writer).stream({"messages": [FIRST]}, THREAD, stream_mode="messages")
        streamed = "".join(chunk.text for chunk, _ in parts if isinstance(chunk, AIMessage))
    assert writer.seen
    assert "heron" not in streamed


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


def test_no_call_in_the_notes_runs_counts_or_ends_anything() -> None:
    model = ScriptedModel(own_words([NOTES, FINISH]))
    outcome, asked = run(summarised(model, "model")), requests(model)
    assert len(asked) > 1
    assert (outcome.status, outcome.turns) == ("success", len(model.seen) - len(asked))
    assert outcome.tool_calls == outcome.turns - 1
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


# Who writes, where nobody says who: by the window of the model, and the policy.
WHO: dict[str, tuple[int | None, dict[str, Any], bool]] = {
    "a model of a large window": (200_000, {}, True),
    "one of a small window": (8_000, {}, False),
    "one of a window that is unknown": (None, {}, False),
    "lines, where they are asked for": (200_000, {"compaction": "lines"}, False),
}


@pytest.mark.parametrize(("known", "policy", "writes"), WHO.values(), ids=WHO)
def test_who_writes_the_summary(known: int | None, policy: dict[str, Any], writes: bool) -> None:
    window = known or 200_000
    # Together more than fits: four characters are a token.
    left = iter([*[call("page", number=number, size=window // 4) for number in range(20)], FINISH])
    profile: Any = {"max_input_tokens": known} if known else None
    model = ScriptedModel(lambda messages: NOTES if asks_for_notes(messages) else next(left), profile=profile)
    policy = {"result_chars": 10**6, "texts": MARKED, **policy}
    assert run(build_graph(model, [page], limits=Limits(turns=40), policy=policy)).status == "success"
    assert summaries(model)
    assert bool(requests(model)) is writes
    turns = [seen.messages for seen in model.seen if not asks_for_notes(seen.messages)]
    assert max(map(tokens, turns)) <= window * 0.8
