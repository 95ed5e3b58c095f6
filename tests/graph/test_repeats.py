"""Repetitions: what counts as the same work again, on the pure functions."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from signoff.graph.history.reader import read_messages
from signoff.graph.history.task import current_task, read
from signoff.graph.limits import Limits
from signoff.graph.messages import not_run, nudge
from signoff.graph.rules import decide
from signoff.graph.state import AgentState
from tests.support.histories import CONTROLS, ai, broken, done, nudged, sent_back, state, user

KEPT = "a\n[... 9 characters left out; the full text is in /out/call_{id}-0123456789ab.txt ...]\nb"


def work(steps: str) -> list[BaseMessage]:
    """`A1` is a call of A with the result 1, `A1+B2` one reply with both, `.` talk, `t` and `u` thoughts, `?`
    an answered question, `!` a finish that a person sent back, `x` one that was refused."""
    found: list[BaseMessage] = []
    for at, step in enumerate(steps.split()):
        match step:
            case ".":
                found += [ai("hm"), nudged("talked")]
            case "t" | "u":
                found += [ai(("think", f"t{at}", {"thought": step})), done(f"t{at}")]
            case "?":
                found += [ai(("ask_user", f"q{at}")), done(f"q{at}")]
            case "!":
                found += [ai(("finish_task", f"f{at}")), sent_back(f"f{at}")]
            case "x":
                found += [ai(("finish_task", f"f{at}")), broken(f"f{at}")]
            case _:
                pairs = [(part[0], f"{part[0]}{at}", part[1]) for part in step.split("+")]
                found.append(ai(*((name, own) for name, own, _ in pairs)))
                found += [done(own, text) for _, own, text in pairs]
    return found


COUNTS = {
    "nothing": ("", 1),
    "once": ("A1", 1),
    "twice": ("A1 A1", 2),
    "five times": ("A1 A1 A1 A1 A1", 5),
    "polling that changes": ("A1 A2 A3 A4 A5", 1),
    "polling that has stopped changing": ("A1 A2 A3 A3 A3", 3),
    "another call between": ("A1 A1 B1", 1),
    "talk hides nothing": ("A1 . A1 . . A1", 3),
    "a thought hides nothing": ("A1 t A1 t t A1", 3),
    "the same thought again and again": ("A1 t t t t", 4),
    "other thoughts": ("t u u", 2),
    "two thoughts in turn": ("t u t u t u", 3),
    "work between thoughts": ("t A1 t B1 t C1 t", 1),
    "thoughts after repeated work": ("A1 A1 A1 t t", 3),
    "talk between the same thoughts": ("t . t . t", 3),
    "an answer begins thoughts anew": ("t t ? t", 1),
    "a refused finish hides nothing": ("A1 x A1 x A1", 3),
    "an answer begins anew": ("A1 A1 ? A1", 1),
    "a finish that was sent back begins anew": ("A1 A1 ! A1", 1),
    "a cycle of two": ("A1 B1 A1 B1 A1 B1", 3),
    "a cycle of two, not round yet": ("A1 B1 A1 B1 A1", 2),
    "a cycle of two with results that change": ("A1 B1 A1 B2 A1 B3", 1),
    "a cycle of three": ("A1 B1 C1 A1 B1 C1 A1 B1 C1", 3),
    "a cycle of four is none": ("A1 B1 C1 D1 A1 B1 C1 D1", 1),
    "a cycle after other work": ("C1 D1 A1 B1 A1 B1", 2),
    "one call of a cycle again is no round": ("A1 B1 A1 B1 B1", 2),
    "a batch": ("A1+B1 A1+B1 A1+B1", 3),
    "a batch in another order": ("A1+B1 B1+A1", 2),
    "a batch of which one result changes": ("A1+B1 A1+B2", 1),
    "half a batch is another": ("A1+B1 A1 A1+B1 B1", 1),
    "the same call twice in a batch is no row": ("A1+A1", 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_how_often_the_work_has_come_round(name: str) -> None:
    steps, count = COUNTS[name]
    assert read(state(user(), *work(steps)), CONTROLS).row.times == count


LOOK = ("look", "l", {"a": 1, "b": [2]})
PAIRS: dict[str, tuple[list[BaseMessage], list[BaseMessage], bool]] = {
    "arguments in another order": (
        [ai(LOOK), done("l")],
        [ai(("look", "m", {"b": [2], "a": 1})), done("m")],
        True,
    ),
    "another argument": ([ai(LOOK), done("l")], [ai(("look", "m", {"a": 1, "b": [3]})), done("m")], False),
    "a number as text": ([ai(LOOK), done("l")], [ai(("look", "m", {"a": "1", "b": [2]})), done("m")], False),
    "the same text as an error": ([ai(LOOK), done("l", "it broke")], [ai(LOOK), broken("l")], False),
    "two that are no tools": (
        [ai(LOOK), not_run("l", "look", "no such tool", "unknown")],
        [ai(LOOK), not_run("l", "look", "no such tool", "unknown")],
        True,
    ),
    "blocks": (
        [ai(LOOK), ToolMessage([{"type": "text", "text": "x"}], tool_call_id="l")],
        [ai(LOOK), ToolMessage([{"type": "text", "text": "y"}], tool_call_id="l")],
        False,
    ),
    "a long result, kept in two files": (
        [ai(LOOK), done("l", KEPT.format(id="l"))],
        [ai(LOOK), done("l", KEPT.format(id="m"))],
        True,
    ),
    "what a tool shows beside its result": (
        [ai(LOOK), done("l"), nudge("tool", "a picture")],
        [ai(LOOK), done("l"), nudge("tool", "another picture")],
        False,
    ),
    "the same shown": (
        [ai(LOOK), done("l"), nudge("tool", "a picture")],
        [ai(LOOK), done("l"), nudge("tool", "a picture")],
        True,
    ),
    "a call whose result is missing": ([ai(LOOK)], [ai(LOOK), done("l")], False),
    "gone on after an end": ([ai(LOOK), done("l"), nudged("resumed")], [ai(LOOK), done("l")], False),
    "another task": ([ai(LOOK), done("l")], [user("again"), ai(LOOK), done("l")], False),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_the_same(name: str) -> None:
    first, second, same = PAIRS[name]
    assert read(state(user(), *first, *second), CONTROLS).row.times == 1 + same


TELLING = {
    "at three of five": ("A1 A1 A1", Limits(), "repeating"),
    "not at two": ("A1 A1", Limits(), "think"),
    "once in a row": ("A1 A1 A1 told A1", Limits(), "think"),
    "again in another row": ("A1 A1 A1 told A1 B1 B1 B1", Limits(), "repeating"),
    "the limit after it": ("A1 A1 A1 told A1 A1", Limits(), "repeats"),
    "a cycle of two": ("A1 B1 A1 B1 A1 B1 told A1 B1 A1 B1", Limits(), "repeats"),
    "half way to a larger limit": ("A1 A1 A1 A1", Limits(repeats=8), "repeating"),
    "at a limit of two there is no time for it": ("A1 A1", Limits(repeats=2), "repeats"),
    "no limit, no reminder": ("A1 " * 9, Limits(repeats=None), "think"),
}


@pytest.mark.parametrize("name", TELLING)
def test_the_model_is_told_once_before_the_limit(name: str) -> None:
    steps, limits, rule = TELLING[name]
    messages: list[BaseMessage] = [user()]
    for part in steps.split(" told"):
        messages += [*work(part), nudged("repeating")]
    assert decide(read(state(*messages[:-1]), CONTROLS), limits)["rule"] == rule


def rounds(steps: Sequence[str]) -> int:
    """The same by trying: how often the last one, two or three steps stand at the end."""
    most = 1
    for period in (1, 2, 3):
        last, times = list(steps[-period:]), 1
        while len(steps) >= period * (times + 1) and list(steps[-period * (times + 1) :]) == last * (
            times + 1
        ):
            times += 1
        most = max(most, times)
    return most


@pytest.mark.parametrize("seed", range(12))
def test_a_long_reading_counts_as_a_fresh_one_does(seed: int) -> None:
    rng = random.Random(seed)
    steps = [rng.choice(["A1", "B1", "A2", "A1+B1"][: rng.randint(1, 4)]) for _ in range(40)]
    messages = state(user(), *work(" ".join(steps)))["messages"]
    reader, limits = None, Limits(repeats=4, tool_calls=30)
    for end in range(1, len(messages) + 1):
        known: Any = AgentState(messages=messages[:end])  # type: ignore[typeddict-item]  # parts only
        reader = read_messages(known, CONTROLS, reader)
        task, fresh = current_task(reader, known), read(known, CONTROLS)
        assert (task.row, task.used) == (fresh.row, fresh.used)
        assert decide(task, limits) == decide(fresh, limits)
        if not task.due and task.turns:
            assert task.row.times == rounds(steps[: task.turns])
