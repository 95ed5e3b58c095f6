"""The prompt stays within its budget whatever a history holds, and nothing that waits or binds is lost."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langgraph.types import Command

from signoff import Graph, Limits, build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from signoff.tools import workspace_tools
from tests.support.compacted import MARKED, summary_of, text_of, turns_shown
from tests.support.histories import ai, broken, done, malformed, user
from tests.support.plays import FINISH, THREAD, assert_sendable, saved

BUDGET = 4_000
TINY = 100
# Less than the system prompt: a prompt holds one turn, and every turn is summarised before the next one.
FIRST = "Remember: the word is heron."


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def notes(turns: int, usage: Any = None) -> list[Any]:
    return [reply(call("note", text=f"{at} " + "x" * 400), usage=usage) for at in range(turns)]


def graph_of(model: ScriptedModel, *tools: Any, budget: int = BUDGET, **options: Any) -> Graph:
    policy = {"prompt_tokens": budget, "compaction": "lines", "texts": MARKED, **options.pop("policy", {})}
    options |= {} if "storage" in options else saved()
    return build_graph(model, [note, *tools], limits=Limits(turns=100), policy=policy, **options)


def invoke(graph: Graph, *words: str) -> dict[str, Any]:
    return graph.invoke({"messages": [("user", each) for each in words or (FIRST,)]}, THREAD)


def assert_fits(model: ScriptedModel, budget: int = BUDGET, first: str = FIRST) -> None:
    """Every prompt is one that a provider takes, is within the budget, and holds the task."""
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert tokens(seen.messages) <= budget
        assert first in [message.text for message in seen.messages]


USAGES: dict[str, Any] = {
    "the provider counts": None,
    "it does not": False,
    "it counts more than can be": (80_000, 20),
}


@pytest.mark.parametrize("name", USAGES)
def test_a_long_run_stays_within_the_budget_and_knows_its_task(name: str) -> None:
    with ScriptedModel([*notes(40, USAGES[name]), FINISH]) as model:
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


def test_a_turn_is_told_in_one_line_without_what_people_said() -> None:
    history = [user("the first"), ai("Let me see.", ("note", "a", {"text": "b"})), done("a", "three\nbirds")]
    model = ScriptedModel([FINISH])
    given = [*history, user("the second"), ai(("note", "c", {"text": "d"})), done("c", "y" * 3_000)]
    graph_of(model, budget=1_000).invoke({"messages": given}, THREAD)
    summary = summary_of(model.seen[0].messages).partition("WORDS")[0]
    assert summary.split("\n")[1] == "- \"Let me see.\"; note({'text': 'b'}) -> success: three birds"
    assert "the first" not in summary


# Histories of other programs.


ARGUMENTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "note": lambda text: {"text": text},
    "think": lambda text: {"thought": text, "status": "on it"},
    "ask_user": lambda text: {"question": "Which one?"},
    "finish_task": lambda text: {"summary": "All of it."},
}


def drawn(draw: random.Random) -> list[BaseMessage]:
    """Tasks, replies with all sorts of calls, and results that come late, twice or never."""

    def text() -> str:
        return draw.choice(["x", "word " * draw.randint(1, 60), "line\n" * draw.randint(1, 400)])

    history, waiting = list[BaseMessage](), list[str]()
    for at in range(draw.randint(1, 40)):
        names = draw.choices([*ARGUMENTS], [2, 1, 1, 1], k=draw.randint(1, 4))
        calls = [(name, f"c{at}.{number}", ARGUMENTS[name](text())) for number, name in enumerate(names)]
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


DRAWN = [*range(25), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(25, 400))]


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


def test_a_summary_whose_last_message_was_removed_is_made_anew() -> None:
    with ScriptedModel([*notes(30), call("ask_user", question="Go on?"), *notes(2), FINISH]) as model:
        graph = graph_of(model)
        (wait,) = invoke(graph)["__interrupt__"]
        values = graph.get_state(THREAD).values
        for removed in [message.id for message in values["messages"][1:40]]:
            gone = {"messages": [{"role": "remove", "content": "", "id": removed}]}
            graph.update_state(THREAD, gone, "ask_user")
        result = graph.invoke(None, THREAD)
        for wait in result.get("__interrupt__", ()):
            result = graph.invoke(Command(resume={wait.id: "yes"}), THREAD)
    assert outcome_of(result).status == "success"
    assert_fits(model)


# A last turn that alone is too large.


def long(text: str) -> str:
    """Return much."""
    return f"{text} begins " + f"{text} " * 8_000 + f"{text} ends"


def short() -> str:
    """Return little."""
    return "short result"


def test_the_largest_results_of_the_last_turn_are_cut_and_kept_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = [call("long", text=name) for name in "abc"]
    with ScriptedModel([[*calls, call("short")], *notes(3), FINISH]) as model:
        history = invoke(graph_of(model, long, short, policy={"result_chars": 10**6}))["messages"]
    assert_fits(model)
    whole = [m.text for m in history if isinstance(m, ToolMessage) and m.name == "long"]
    second = [m for m in model.seen[1].messages if isinstance(m, ToolMessage)]
    cut = [message.text for message in second if message.name == "long"]
    for text, shown, name in zip(whole, cut, "abc", strict=True):
        assert (shown.startswith(f"{name} begins "), shown.endswith(f" {name} ends")) == (True, True)
        (place,) = re.findall(r"\S+\.txt", shown)
        assert Path(place).read_text("utf-8") == text
    assert second[-1].text == "short result"
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
    "a rejection": Waiting(PAY, ["no, too dear"], "too dear", approvals={"pay": True}),
    "a hand-over": Waiting(PAY, ["3 paid"], "3 paid", approvals={"pay": "hand_over"}),
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


@pytest.mark.slow
@pytest.mark.parametrize("name", WAITS)
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
