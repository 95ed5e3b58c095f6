"""The prompt of any history: sendable, within its budget, and made of the history and the state alone."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.foreign import keep_in
from signoff.graph.history.reader import CHARS, Reader, read_messages
from signoff.graph.history.replies import Reply
from signoff.graph.messages import is_reply
from signoff.graph.prompt.compaction import SMALLEST, bounded, compact, summary_parts, truncate
from signoff.graph.prompt.prompt import build_prompt, contract_text, last_turn, prompt_size
from signoff.graph.prompt.roles import as_sent
from signoff.graph.prompt.words import size_before, words_before
from signoff.graph.state import AgentState, HistorySummary
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models.tagged import current_status
from tests.support.histories import (
    CONTROLS,
    ai,
    assert_sendable,
    broken,
    done,
    malformed,
    nudged,
    state,
    user,
)

SYSTEM = "You work."


class Writer:
    """Writes a random history, the same for the same seed: tasks, replies with all sorts of calls, results
    that come late, twice or never, reminders, system messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.open: list[str] = []
        self.count = 0

    def history(self) -> list[BaseMessage]:
        found: list[BaseMessage] = []
        for _ in range(self.random.randint(1, 40)):
            found.append(self.message())
            while self.open and self.random.random() < 0.85:
                answer = (
                    done(self.open[0], self.text()) if self.random.random() < 0.9 else broken(self.open[0])
                )
                self.open.pop(0)
                found.append(answer)
        return [*found, *(done(call_id) for call_id in self.open)]

    def message(self) -> BaseMessage:
        ways: list[tuple[int, Callable[[], BaseMessage]]] = [
            (15, lambda: user(self.text())),
            (5, lambda: nudged(self.random.choice(["talked", "refused", "resumed", "tool"]))),
            (3, lambda: done("of no call", self.text())),
            (2, lambda: SystemMessage("Be brief.")),
            (5, lambda: ai(self.text())),
            (3, ai),
            (4, lambda: malformed("work", self.new_id())),
            (63, lambda: ai("I go on.", *(self.call() for _ in range(self.random.randint(1, 4))))),
        ]
        (way,) = self.random.choices([way for _, way in ways], [weight for weight, _ in ways])
        return way()

    def call(self) -> Any:
        name = self.random.choice(["work", "work", "think", "ask_user", "finish_task"])
        args = {
            "work": {"text": self.text()},
            "think": {"thought": self.text(), "approach": f"way {self.count}", "status": "on it"},
        }
        return (name, self.new_id(), args[name]) if name in args else (name, self.new_id())

    def new_id(self) -> str:
        self.count += 1
        self.open.append(f"c{self.count}")
        return self.open[-1]

    def text(self) -> str:
        long = "word " * self.random.randint(1, 60), "line\n" * self.random.randint(1, 400)
        return self.random.choice(["x", *long])


def folded_state(writer: Writer, messages: list[BaseMessage], budget: int) -> AgentState:
    """The state at the end of `messages`, summarised on the way wherever that was due."""
    summary: HistorySummary | None = None
    stops = sorted({len(messages), *(writer.random.randint(1, len(messages)) for _ in range(6))})
    for stop in stops:
        now = state(*messages[:stop], digest=summary)
        reader = read_messages(now, CONTROLS)
        if prompt_size(now, reader, SYSTEM, DEFAULT_TEXTS) > budget:
            compaction = compact(now, reader, budget, SYSTEM, DEFAULT_TEXTS)
            if compaction:
                compacted = next(
                    at for at, message in enumerate(messages) if message_id(at) == compaction.upto
                )
                assert not any(
                    reply.open(call) for reply in replies_upto(reader, compacted) for call in reply.calls
                )
                by_text = compaction.most > SMALLEST and writer.random.random() < 0.5
                text = "T" * writer.random.randint(1, max(1, compaction.most))
                summary = compaction.by_text(text) if by_text else compaction.by_lines()
    return state(*messages, digest=summary)


def message_id(at: int) -> str:
    """The id that `state` gives to the message at this position."""
    return f"m{at}"


def replies_upto(reader: Reader, position: int) -> list[Reply]:
    ids = {message_id(at) for at in range(position + 1)}
    return [reply for reply in reader.replies if reply.message.id in ids]


def view_of(now: AgentState, reader: Reader, budget: int, folder: Path) -> list[BaseMessage]:
    view = build_prompt(now, reader, SYSTEM, DEFAULT_TEXTS)
    return as_sent(truncate(view, last_turn(view), budget, lambda name: keep_in(folder, name)), DEFAULT_TEXTS)


@pytest.mark.parametrize("start", range(0, 400, 100))
@pytest.mark.slow
@pytest.mark.sample(1)
def test_a_prompt_of_any_history_is_sendable_and_within_its_budget(start: int, tmp_path: Path) -> None:
    exceptions = 0
    for seed in range(start, start + 100):
        writer = Writer(seed)
        messages = writer.history()
        budget = writer.random.choice([300, 600, 1200, 3000])
        now = folded_state(writer, messages, budget)
        reader = read_messages(now, CONTROLS)
        view = view_of(now, reader, budget, tmp_path)
        assert_sendable(view)
        assert view == view_of(now, read_messages(now, CONTROLS), budget, tmp_path)
        said = "\n".join(message.text for message in view)
        if size_before(reader, len(messages)) <= budget // 2 * CHARS:
            assert all(words.text in said for words in words_before(reader, len(messages)))
        if tokens(view) > budget:
            exceptions += 1
            assert_only_the_last_turn_is_left(view, now, budget)
    assert exceptions < 60, "most of these budgets can be kept"


def assert_only_the_last_turn_is_left(view: list[BaseMessage], now: AgentState, budget: int) -> None:
    last = view[last_turn(view) :]
    assert sum(map(is_reply, view)) <= 1
    assert all(len(m.text) <= SMALLEST + 10 for m in last if isinstance(m, ToolMessage))
    text, lines = summary_parts(now.get("digest"))
    summarised = sum(len(line) + 1 for line in (text, *lines)) // CHARS
    assert tokens(view) - summarised > budget - 20, "what is always kept does not fit by itself"


# The lines of the summary.


@pytest.mark.parametrize(
    ("lines", "room", "left"),
    [
        (["- a", "- b"], 8, ["- a", "- b"]),
        (["- a", "- b"], 7, ["- (1 older lines are not listed)", "- b"]),
        (["- a", "- b"], 0, ["- (2 older lines are not listed)"]),
        (["- (3 older lines are not listed)", "- a", "- b"], 4, ["- (4 older lines are not listed)", "- b"]),
        (["- (empty reply)", "- b"], 4, ["- (1 older lines are not listed)", "- b"]),
        ([], 0, []),
    ],
)
def test_the_oldest_lines_go_first_and_are_counted(lines: list[str], room: int, left: list[str]) -> None:
    assert bounded(lines, room) == left


def told(*messages: BaseMessage, budget: int = 200) -> str:
    """The summary of these messages, of which all but the last turn are summarised."""
    now = state(*messages, ai(("work", "last")), done("last", "y" * 1_000))
    compaction = compact(now, read_messages(now, CONTROLS), budget, SYSTEM, DEFAULT_TEXTS)
    assert compaction is not None
    return "\n".join(compaction.turn_lines())


def test_a_turn_is_told_in_one_line_without_what_people_said() -> None:
    lines = told(
        user("the first"), ai("Let me see.", ("work", "a")), done("a", "three\nbirds"), user("the second")
    )
    assert lines == '- "Let me see."; work({}) -> success: three birds'


# The contract.

REFUSED = ToolMessage("Refused: the summary is empty.", tool_call_id="f", status="error")
THOUGHT = {"thought": "hm", "approach": "by hand", "status": "begun"}
CONTRACTS: dict[str, tuple[list[BaseMessage], str]] = {
    "nothing": ([user(), ai(("work", "a")), done("a")], ""),
    "the last approach and the last status": (
        [
            user(),
            ai(("think", "a", THOUGHT)),
            done("a"),
            ai(("think", "b", {"thought": "so", "status": "half done"})),
            done("b"),
        ],
        "- your approach: by hand\n- your status: half done",
    ),
    "a thought of an earlier task binds nobody": (
        [
            user(),
            ai(("think", "a", THOUGHT)),
            done("a"),
            ai(("finish_task", "f")),
            done("f"),
            user("next"),
            ai("?"),
        ],
        "",
    ),
    "a refusal": (
        [user(), ai(("finish_task", "f", {"summary": ""})), REFUSED],
        "- a finish_task of yours did not count: Refused: the summary is empty.",
    ),
    "what a finish left open": (
        [user(), ai(("finish_task", "f", {"summary": "x", "pending_issues": ["the logo"]})), broken("f")],
        "- issues that you reported as open: the logo\n- a finish_task of yours did not count: it broke",
    ),
    "a reminder of a refusal": (
        [user(), ai(("finish_task", "f")), done("f"), nudged("refused")],
        "- a finish_task of yours did not count: go on",
    ),
}


@pytest.mark.parametrize(("messages", "lines"), CONTRACTS.values(), ids=CONTRACTS)
def test_the_contract_holds_what_binds(messages: list[BaseMessage], lines: str) -> None:
    now = state(*messages, ai(("work", "last")), done("last", "y" * 1_000))
    reader = read_messages(now, CONTROLS)
    compaction = compact(now, reader, 200, SYSTEM, DEFAULT_TEXTS)
    assert compaction is not None
    text = contract_text(compaction.contract, DEFAULT_TEXTS)
    assert text.partition("\n")[2] == lines


def test_the_tagged_protocol_reads_approach_and_status_from_it() -> None:
    work = [ai(("work", f"{at}")) if at % 2 else done(f"{at - 1}", "y" * 1_000) for at in range(1, 9)]
    now = state(user(), ai(("think", "a", THOUGHT)), done("a"), *work)
    compaction = compact(now, read_messages(now, CONTROLS), 200, SYSTEM, DEFAULT_TEXTS)
    assert compaction is not None
    later = state(*now["messages"], digest=compaction.by_lines())
    view = build_prompt(later, read_messages(later, CONTROLS), SYSTEM, DEFAULT_TEXTS)
    assert not any(call["name"] == "think" for m in view if isinstance(m, AIMessage) for call in m.tool_calls)
    assert current_status(view) == ("by hand", "begun")


# Cutting.


def test_only_the_largest_results_are_cut_and_only_in_the_last_turn(tmp_path: Path) -> None:
    block = {"type": "text", "text": "b" * 9_000}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    view = [
        user(),
        ai(("work", "a")),
        done("a", "before " * 2_000),
        ai(("work", "b"), ("work", "c"), ("work", "d")),
        done("b", "s" * 1_000),
        done("c", "l" * 9_000),
        ToolMessage([block, image], tool_call_id="d"),
    ]
    most = tokens(view) - 3_000
    made = truncate(view, last_turn(view), most, lambda name: keep_in(tmp_path, name))
    assert most - 20 <= tokens(made) <= most
    assert made[:5] == view[:5]
    assert len(made[5].text) < 4_000
    assert made[6].content[1] == image
    assert sorted(file.read_text("utf-8")[0] for file in tmp_path.iterdir()) == ["b", "l"]
    assert made == truncate(view, last_turn(view), most, lambda name: keep_in(tmp_path, name))


def test_a_result_keeps_its_ends_however_small_the_budget(tmp_path: Path) -> None:
    view = [user(), ai(("work", "a")), done("a", "begins " + "x" * 9_000 + " ends")]
    made = truncate(view, last_turn(view), 1, lambda name: keep_in(tmp_path, name))
    assert made[2].text.startswith("begins ")
    assert made[2].text.endswith(" ends")
    assert len(made[2].text) <= SMALLEST + 10
