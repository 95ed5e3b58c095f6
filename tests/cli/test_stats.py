"""`signoff stats`: the figures, each from tasks written down by hand, and ratings."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import SetupError, Storage, StorageError, Texts, ThreadError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.records import (
    EndFigures,
    NudgeFigures,
    RefusalFigures,
    TaskRecord,
    rate,
    read_ended,
    stats,
)
from tests.support.benches.cli import Bench
from tests.support.interrupting import interrupt_process

DAY = 86_400.0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def storage(bench: Bench) -> Iterator[Storage]:
    with sqlite_storage(bench.database) as opened:
        yield opened


def _ended_once() -> TaskRecord:
    """What a run records that did nothing but finish."""
    store = InMemoryStore()
    graph = build_graph(ScriptedModel([FINISH]), checkpointer=InMemorySaver(), store=store)
    graph.invoke({"messages": [("user", "x")]}, {"configurable": {"thread_id": "t"}})
    (found,) = read_ended(store)
    return found


FINISH = call("finish_task", summary="All of it.")
ENDED = _ended_once()


def task(at: float = 100.0, figures: Mapping[str, Any] = MappingProxyType({}), **given: Any) -> TaskRecord:
    """A task that took ten seconds. figures: what is special about them."""
    found: Any = {**ENDED.figures, "at": at, "began": at - 10, **figures}
    return replace(ENDED, task=f"m{at}", at=at, figures=found, **given)


def refused(kind: str, times: int = 1, needless: int = 0) -> dict[str, Any]:
    return {"refused": {kind: RefusalFigures(times=times, needless=needless)}}


def limit(at: float = 100.0, **given: Any) -> TaskRecord:
    return task(at, **{"status": "limit", "reason": "turns", "claim": None, "verified": None, **given})


def test_nothing_has_no_rates() -> None:
    found = stats([])
    assert (found["tasks"], found["exits"]["status"], found["sections"]) == (0, {}, [])
    rates = ("talk_only", "nudges", "refused", "accuracy")
    assert [name for name in rates if found[name]["rate"] is not None] == []
    assert found["turns"] == {"successes": 0, "mean": None, "median": None, "p90": None, "most": None}


def test_turns_to_finish_are_those_of_successes() -> None:
    for turns, mean, median, p90, most in (
        ([4], 4.0, 4, 4, 4),
        ([3, 8], 5.5, 5.5, 8, 8),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 100], 14.5, 5.5, 9, 100),
    ):
        found = stats([*(task(float(n), turns=n) for n in turns), limit(turns=30)])["turns"]
        shown = {"mean": mean, "median": median, "p90": p90, "most": most}
        assert found == {"successes": len(turns), **shown}


def test_counts_are_added_up_over_tasks() -> None:
    nudges = {"talked": NudgeFigures(given=1, back=1), "empty": NudgeFigures(given=1, back=0)}
    ends = [EndFigures(status=word, reason="x", turns=3) for word in ("limit", "error")]
    first = {"talk": 2, "nudges": {"talked": NudgeFigures(given=2, back=1)}, "rules": {"think": 3}}
    second = {"nudges": nudges, "ends": ends, "cut_short": 1, "rules": {"think": 5, "turns": 1}}
    spent = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    found = stats(
        [
            task(1.0, first | refused("siblings", 2, 1), turns=3, **spent),
            task(2.0, second | refused("empty_summary", 1, 1), turns=5, seconds_waiting=4.0, **spent),
        ]
    )
    assert json.loads(json.dumps(found)) == found
    assert found["talk_only"] == {"replies": 2, "turns": 8, "rate": 0.25, "tasks": 1}
    assert (found["nudges"]["given"], found["nudges"]["back_to_work"], found["nudges"]["rate"]) == (4, 2, 0.5)
    assert found["nudges"]["kinds"]["talked"] == {"given": 3, "back_to_work": 2, "rate": 0.6667}
    assert (found["refused"]["finishes"], found["refused"]["needless"]) == (3, 2)
    assert found["limits"] == {"reached": 1, "extended": 1, "cut_short": 1}
    assert found["waiting"] == {"tasks": 1, "seconds": 4.0, "mean_seconds": 4.0}
    assert found["tokens"] == {"input": 200, "output": 20, "total": 220, "mean": 110.0}
    assert (found["rules"], found["models"]) == ({"think": 8, "turns": 1}, {"scripted": 2})


# A task that ended, what it is as a finish that came too early, and as a run that did not end in time: how
# many, of how many that were judged, and by whom.
Judged = tuple[int, int, str | None]
NOT: Judged = (0, 0, None)
JUDGED: dict[str, tuple[TaskRecord, Judged, Judged]] = {
    "nobody judged it": (task(), NOT, NOT),
    "its checks passed": (task(verified="verified"), (0, 1, "check"), (0, 1, "check")),
    "a person confirmed it": (task(figures={"confirmed": True}), (0, 1, "person"), (0, 1, "person")),
    "accepted though refused": (task(verified="unverified"), (0, 1, "person"), (0, 1, "person")),
    "rated 5": (task(rating=5), (0, 1, "rating"), (0, 1, "rating")),
    "rated 2": (task(rating=2), (1, 1, "rating"), NOT),
    "rated 2 although its checks passed": (task(rating=2, verified="verified"), (1, 1, "rating"), NOT),
    "refused twice, once more needlessly": (task(figures=refused("checks", 3, 1)), (2, 2, "check"), NOT),
    "a person sent it back": (task(figures=refused("sent_back")), (1, 1, "person"), NOT),
    "a limit": (limit(), NOT, NOT),
    "a limit, rated 4": (limit(rating=4), NOT, (1, 1, "rating")),
    "a limit, rated 1": (limit(rating=1), NOT, NOT),
    "a limit, then done, by its own word": (task(figures={"cut_short": 1}), NOT, NOT),
    "a limit, then done, by its checks": (
        task(verified="verified", figures={"cut_short": 1}), (0, 1, "check"), (1, 1, "check"),
    ),
    "it went on, by its own word": (task(figures={"went_on": 3}), NOT, NOT),
    "it went on, rated 5": (task(rating=5, figures={"went_on": 3}), (0, 1, "rating"), (1, 1, "rating")),
    "an honest end": (task(claim="blocked", rating=1), NOT, NOT),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_finishes_that_came_too_early_and_runs_that_did_not_end_in_time(case: str) -> None:
    ended, *wanted = JUDGED[case]
    found = stats([ended])
    for name, (count, judged, by) in zip(("false_positives", "false_negatives"), wanted, strict=True):
        shown = found[name]
        assert (shown["count"], shown["judged"]) == (count, judged), name
        assert shown["rate"] == (count / judged if judged else None), name
        assert [judge for judge, times in shown["judged_by"].items() if times] == ([by] if by else []), name


def test_what_is_not_judged_is_counted_as_that() -> None:
    found = stats([task(1.0), task(2.0, rating=5), limit(3.0), task(4.0, claim="partial")])
    assert (found["false_positives"]["not_judged"], found["false_negatives"]["not_judged"]) == (1, 2)


# Ten minutes are soon; a task begins ten seconds before it ends.
SOON, LATE = 110.0 + 600, 111.0 + 600
FAILED: dict[str, Any] = {"status": "error", "reason": "model_error", "claim": None}
# Tasks, and how many of them were reopened: by a low rating, and by the next task.
REOPENED: dict[str, tuple[list[TaskRecord], int, int]] = {
    "a success alone": ([task()], 0, 0),
    "rated 2": ([task(rating=2)], 1, 0),
    "rated 3": ([task(rating=3)], 0, 0),
    "the next task of the thread began soon after": ([task(), task(SOON)], 0, 1),
    "it began later": ([task(), task(LATE)], 0, 0),
    "it is of another thread": ([task(), task(SOON, thread_id="u")], 0, 0),
    "both ran without a thread": ([task(thread_id=None), task(SOON, thread_id=None)], 0, 0),
    "a person said that it was done": ([task(rating=5), task(SOON)], 0, 0),
    "a person said that it was not, and went on": ([task(rating=1), task(SOON)], 1, 0),
    "a limit is not reopened": ([limit(), task(SOON)], 0, 0),
    "a low rating of a limit says nothing about finishes": ([limit(rating=1)], 0, 0),
    "an honest end is not reopened": ([task(claim="blocked"), task(SOON)], 0, 0),
    "the next task ended with an error": ([task(), task(SOON, **FAILED)], 0, 1),
    "the tasks come in any order": ([task(SOON), task()], 0, 1),
}


@pytest.mark.parametrize("case", REOPENED)
def test_what_counts_as_reopened(case: str) -> None:
    ended, rated, followed = REOPENED[case]
    found = stats(ended)
    assert found["reopened"] == {"tasks": rated + followed, "rated_low": rated, "next_task": followed}
    accepted = sum(one.accepted for one in ended)
    kept = (found["accuracy"]["accepted"], found["accuracy"]["not_reopened"])
    assert kept == (accepted, accepted - rated - followed)


def test_since_leaves_out_what_ended_before_but_not_what_reopened_it() -> None:
    found = stats([task(100.0), task(200.0), task(300.0)], since=150.0)
    assert (found["tasks"], found["reopened"]["tasks"]) == (2, 1)


# What went wrong in a task, and the part of the prompt that speaks of it.
SIGNS: dict[str, tuple[list[TaskRecord], str]] = {
    "words only": ([task(figures={"talk": 1})], "How this ends"),
    "a limit although done": ([task(figures={"cut_short": 1})], "How this ends"),
    "failed siblings": ([task(figures=refused("siblings"))], "Look at the results"),
    "an empty summary": ([task(figures=refused("empty_summary"))], "the description of"),
    "failed checks": ([task(figures=refused("checks"))], "Before you call"),
    "sent back": ([task(figures=refused("sent_back"))], "Before you call"),
    "reopened": ([task(), task(SOON)], "Before you call"),
    "out of turns": ([limit()], "the reminder near"),
}


@pytest.mark.parametrize("case", SIGNS)
def test_a_sign_speaks_of_one_part_of_the_prompt(case: str) -> None:
    ended, part = SIGNS[case]
    (row,) = stats(ended)["sections"]
    assert row["section"].startswith(part)
    assert part[:4] == "the " or row["section"] in Texts().system.replace("`", "")


def test_the_part_of_the_most_tasks_comes_first() -> None:
    rows = stats([task(1.0, figures={"talk": 9}), limit(2.0), limit(3.0)])["sections"]
    assert [row["tasks"] for row in rows] == [2, 1]


def ended(storage: Storage, thread: str, script: list[Any], ago: float = 0.0, **limits: int) -> None:
    """A task of this thread that ended so many seconds ago."""

    def look() -> str:
        """Look."""
        return "seen"

    graph = build_graph(ScriptedModel(script), [look], storage=storage, limits=limits)
    graph.invoke({"messages": [("user", "do it")]}, {"configurable": {"thread_id": thread}})
    for item in storage.store.search((), limit=100):
        if item.namespace[-1] == thread and "at" in item.value:
            moved = {name: item.value[name] - ago for name in ("at", "began")}
            storage.store.put(item.namespace, item.key, item.value | moved)


@pytest.fixture
def three(bench: Bench) -> Bench:
    """A bench with three tasks on two threads: now, an hour ago, ten days ago."""
    with sqlite_storage(bench.database) as storage:
        ended(storage, "old", ["hm", "I do it.", FINISH], 10 * DAY)
        ended(storage, "new", [FINISH], 3600)
        ended(storage, "new", [call("look")] * 5, turns=5)
    return bench


def test_a_run_records_its_figures_beside_its_outcome(storage: Storage) -> None:
    ended(storage, "a.b/c", ["I will do it.", FINISH])
    (found,) = read_ended(storage.store)
    assert (found.thread_id, found.status, found.turns) == ("a.b/c", "success", 2)
    assert (found.figures["nudges"], found.figures["model"]) == (
        {"talked": {"given": 1, "back": 1}},
        "scripted",
    )
    assert found.began <= found.at <= time.time()


def test_a_task_that_was_cut_short_by_a_message_has_figures_too(storage: Storage) -> None:
    def crash() -> str:
        """Crash."""
        interrupt_process()
        return "never heard"

    graph = build_graph(ScriptedModel(["hm", call("crash"), FINISH]), [crash], storage=storage)
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": [("user", "do it")]}, config)
    graph.invoke({"messages": [("user", "do it")]}, config)
    first, second = read_ended(storage.store)
    assert (first.reason, second.reason) == ("superseded", "finish_task")
    assert first.figures["nudges"] == {"talked": {"given": 1, "back": 1}}


def test_threads_are_told_apart_by_their_whole_name(storage: Storage, bench: Bench) -> None:
    for thread in ("a", "ab", "a.b", "a%", "A"):
        ended(storage, thread, [FINISH])
    for thread in ("a", "a%", "A"):
        assert [found.thread_id for found in read_ended(storage.store, thread)] == [thread]
        assert bench.json("stats", "--thread", thread)["tasks"] == 1
    assert bench.json("stats") == stats(read_ended(storage.store))


def test_a_rating_is_of_the_last_task_or_of_the_one_that_is_named(storage: Storage) -> None:
    for _ in range(3):
        ended(storage, "t", [FINISH])
    tasks = [found.task for found in read_ended(storage.store)]
    assert rate(storage.store, "t", 5).task == tasks[2]
    assert rate(storage.store, "t", 4, task=1).task == rate(storage.store, "t", 2, task=1).task == tasks[0]
    assert [found.rating for found in read_ended(storage.store)] == [2, None, 5]
    stars = {"1": 0, "2": 1, "3": 0, "4": 0, "5": 1}
    assert stats(read_ended(storage.store))["ratings"] == {"count": 2, "mean": 3.5, "stars": stars}
    for thread, given, number, error in (
        ("t", 0, None, SetupError),
        ("t", 6, None, SetupError),
        ("t", 5, 4, SetupError),
        ("t", 5, 0, SetupError),
        ("other", 5, None, ThreadError),
    ):
        with pytest.raises(error):
            rate(storage.store, thread, given, number)
    assert [found.rating for found in read_ended(storage.store)] == [2, None, 5]


def test_a_foreign_entry_is_named_as_such(storage: Storage) -> None:
    ended(storage, "t", [FINISH])
    for item in storage.store.search((), limit=100):
        storage.store.put(item.namespace, item.key, {"something": "else"})
    with pytest.raises(StorageError):
        read_ended(storage.store)


OPTIONS: dict[str, tuple[list[str], dict[str, int]]] = {
    "all": ([], {"tasks": 3, "threads": 2}),
    "of one thread": (["--thread", "old"], {"tasks": 1, "threads": 1}),
    "since a span": (["--since", "2d"], {"tasks": 2}),
    "since a short span": (["--since", " 30min "], {"tasks": 1}),
    "since a date": (["--since", "2020-01-31"], {"tasks": 3}),
    "since a moment elsewhere": (["--since", "2020-01-31T12:00:00+02:00"], {"tasks": 3}),
    "since the future": (["--since", "2100-01-01T12:00"], {"tasks": 0}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options(case: str, three: Bench) -> None:
    words, wanted = OPTIONS[case]
    found = three.json("stats", *words)
    assert {name: found[name] for name in wanted} == wanted
    assert str(wanted["tasks"] or "No task") in three("stats", *words).stdout


def test_a_rating_is_kept_and_the_table_says_what_the_json_says(three: Bench) -> None:
    assert three("stats", "--rate", "5", "--thread", "new").exit_code == 0
    rated = three.json("stats", "--rate", "1", "--thread", "new", "--task", "1")
    assert (rated["thread_id"], rated["rating"]) == ("new", 1)
    found, shown = three.json("stats"), three("stats").stdout
    assert found["ratings"]["stars"] == {"1": 1, "2": 0, "3": 0, "4": 0, "5": 1}
    assert found["reopened"]["rated_low"] == 1
    for line in (
        "3 on 2 threads",
        "success 2 (67%) · limit 1 (33%)",
        "mean 2 · median 2 · p90 3 · most 3",
        "2 of 9 turns (22%)",
        "2, mean 3 (1★ 1 · 5★ 1)",
    ):
        assert line in shown
    assert [row["section"] for row in found["sections"] if f"“{row['section']}”" not in shown] == []


def test_what_a_model_calls_itself_cannot_steer_the_terminal(bench: Bench, storage: Storage) -> None:
    ended(storage, "t", [FINISH])
    for item in storage.store.search((), limit=100):
        if "model" in item.value:
            storage.store.put(item.namespace, item.key, item.value | {"model": "\x1b]0;owned\x07"})
    shown = bench("stats").stdout
    assert ("owned" in shown, "\x1b" in shown) == (True, False)
