"""`signoff stats`: the figures, each from tasks written down by hand, and ratings."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import SetupError, Storage, ThreadError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.records import NudgeFigures, RefusalFigures, TaskRecord, rate, read_ended, stats
from tests.support.benches.cli import Bench

DAY = 86_400.0
FINISH = call("finish_task", summary="All of it.")


def _ended_once() -> TaskRecord:
    """What a run records that did nothing but finish."""
    store = InMemoryStore()
    graph = build_graph(ScriptedModel([FINISH]), checkpointer=InMemorySaver(), store=store)
    graph.invoke({"messages": [("user", "x")]}, {"configurable": {"thread_id": "t"}})
    (record,) = read_ended(store)
    return record


ENDED = _ended_once()


def task(at: float = 100.0, figures: Mapping[str, Any] = MappingProxyType({}), **fields: Any) -> TaskRecord:
    """A task that took ten seconds. figures: what is special about them."""
    changed: Any = {**ENDED.figures, "at": at, "began": at - 10, **figures}
    return replace(ENDED, task=f"m{at}", at=at, figures=changed, **fields)


def refused(kind: str, times: int = 1, needless: int = 0) -> dict[str, Any]:
    return {"refused": {kind: RefusalFigures(times=times, needless=needless)}}


def limit(at: float = 100.0, **fields: Any) -> TaskRecord:
    return task(at, **{"status": "limit", "reason": "turns", "claim": None, "verified": None, **fields})


def test_counts_are_added_up_over_tasks_and_turns_are_those_of_successes() -> None:
    assert stats([])["nudges"]["rate"] is None
    nudges = {"talked": NudgeFigures(given=1, back=1), "empty": NudgeFigures(given=1, back=0)}
    first = {"talk": 2, "nudges": {"talked": NudgeFigures(given=2, back=1)}, "rules": {"think": 3}}
    second = {"nudges": nudges, "cut_short": 1, "rules": {"think": 5, "turns": 1}}
    spent = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    tasks = [
        task(1.0, first | refused("siblings", 2, 1), turns=3, **spent),
        task(2.0, second | refused("empty_summary", 1, 1), turns=8, seconds_waiting=4.0, **spent),
    ]
    figures = stats(tasks)
    assert figures["talk_only"] == {"replies": 2, "turns": 11, "rate": 0.1818, "tasks": 1}
    assert figures["nudges"]["kinds"]["talked"] == {"given": 3, "back_to_work": 2, "rate": 0.6667}
    assert (figures["refused"]["finishes"], figures["refused"]["needless"]) == (3, 2)
    assert figures["waiting"] == {"tasks": 1, "seconds": 4.0, "mean_seconds": 4.0}
    assert figures["tokens"] == {"input": 200, "output": 20, "total": 220, "mean": 110.0}
    assert (figures["rules"], figures["models"]) == ({"think": 8, "turns": 1}, {"scripted": 2})
    shown = stats([*tasks, limit(turns=30)])["turns"]
    assert shown == {"successes": 2, "mean": 5.5, "median": 5.5, "p90": 8, "most": 8}


# A task that ended, what it is as a finish that came too early, and as a run that did not end in time: how
# many, of how many that were judged, and by whom.
Judged = tuple[int, int, str | None]
NOT: Judged = (0, 0, None)
JUDGED: dict[str, tuple[TaskRecord, Judged, Judged]] = {
    "nobody judged it": (task(), NOT, NOT),
    "its checks passed": (task(verified="verified"), (0, 1, "check"), (0, 1, "check")),
    "a person confirmed it": (task(figures={"confirmed": True}), (0, 1, "person"), (0, 1, "person")),
    "accepted though refused": (task(verified="unverified"), (0, 1, "person"), (0, 1, "person")),
    "rated 2 although its checks passed": (task(rating=2, verified="verified"), (1, 1, "rating"), NOT),
    "refused twice, once more needlessly": (task(figures=refused("checks", 3, 1)), (2, 2, "check"), NOT),
    "a person sent it back": (task(figures=refused("sent_back")), (1, 1, "person"), NOT),
    "a limit": (limit(), NOT, NOT),
    "a limit, rated 4": (limit(rating=4), NOT, (1, 1, "rating")),
    "a limit, then done": (task(rating=5, figures={"cut_short": 1}), (0, 1, "rating"), (1, 1, "rating")),
    "an honest end": (task(claim="blocked", rating=1), NOT, NOT),
}


@pytest.mark.parametrize("case", JUDGED)
def test_finishes_that_came_too_early_and_runs_that_did_not_end_in_time(case: str) -> None:
    ended, *wanted = JUDGED[case]
    figures = stats([ended])
    for name, (count, judged, by) in zip(("false_positives", "false_negatives"), wanted, strict=True):
        shown = figures[name]
        assert (shown["count"], shown["judged"]) == (count, judged), name
        assert shown["rate"] == (count / judged if judged else None), name
        assert [judge for judge, times in shown["judged_by"].items() if times] == ([by] if by else []), name


# Ten minutes are soon; a task begins ten seconds before it ends.
SOON, LATE = 110.0 + 600, 111.0 + 600
# Tasks, and how many of them were reopened: by a low rating, and by the next task.
REOPENED: dict[str, tuple[list[TaskRecord], int, int]] = {
    "rated 2": ([task(rating=2)], 1, 0),
    "rated 3": ([task(rating=3)], 0, 0),
    "the next task of the thread began soon after": ([task(SOON), task()], 0, 1),
    "it began later": ([task(), task(LATE)], 0, 0),
    "it is of another thread": ([task(), task(SOON, thread_id="u")], 0, 0),
    "a person said that it was done": ([task(rating=5), task(SOON)], 0, 0),
    "a person said that it was not, and went on": ([task(rating=1), task(SOON)], 1, 0),
    "an honest end is none": ([task(claim="blocked"), task(SOON)], 0, 0),
}


@pytest.mark.parametrize("case", REOPENED)
def test_what_counts_as_reopened(case: str) -> None:
    ended, rated, followed = REOPENED[case]
    figures = stats(ended)
    assert figures["reopened"] == {"tasks": rated + followed, "rated_low": rated, "next_task": followed}
    accepted = sum(record.accepted for record in ended)
    kept = (figures["accuracy"]["accepted"], figures["accuracy"]["not_reopened"])
    assert kept == (accepted, accepted - rated - followed)


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
def storage(bench: Bench) -> Iterator[Storage]:
    with sqlite_storage(bench.database) as opened:
        yield opened


def test_a_rating_is_of_the_last_task_or_of_the_one_that_is_named(storage: Storage) -> None:
    for thread in ("t", "t", "t", "t%"):
        ended(storage, thread, [FINISH])
    tasks = [record.task for record in read_ended(storage.store, "t")]
    assert rate(storage.store, "t", 5).task == tasks[2]
    assert rate(storage.store, "t", 4, task=1).task == rate(storage.store, "t", 2, task=1).task == tasks[0]
    wrong: list[tuple[str, int, int | None]] = [("t", 0, None), ("t", 6, None), ("t", 5, 4), ("t", 5, 0)]
    for thread, stars, number in [*wrong, ("other", 5, None)]:
        with pytest.raises(SetupError if thread == "t" else ThreadError):
            rate(storage.store, thread, stars, number)
    assert [record.rating for record in read_ended(storage.store, "t")] == [2, None, 5]
    assert [record.rating for record in read_ended(storage.store, "t%")] == [None]


@pytest.fixture
def three(bench: Bench, storage: Storage) -> Bench:
    """A bench with three tasks on two threads: now, an hour ago, ten days ago."""
    ended(storage, "old", ["hm", "I do it.", FINISH], 10 * DAY)
    ended(storage, "new", [FINISH], 3600)
    ended(storage, "new", [call("look")] * 5, turns=5)
    return bench


def test_which_tasks_are_counted(three: Bench) -> None:
    for words, tasks in (
        ([], 3),
        (["--thread", "old"], 1),
        (["--since", "2d"], 2),
        (["--since", " 30min "], 1),
        (["--since", "2100-01-01"], 0),
    ):
        assert three.json("stats", *words)["tasks"] == tasks
        assert str(tasks or "No task") in three("stats", *words).stdout


def test_a_rating_is_kept_and_the_table_says_what_the_json_says(three: Bench, storage: Storage) -> None:
    for item in storage.store.search((), limit=100):
        if "model" in item.value:
            storage.store.put(item.namespace, item.key, item.value | {"model": "\x1b]0;owned\x07"})
    assert three("stats", "--rate", "5", "--thread", "new").exit_code == 0
    rated = three.json("stats", "--rate", "1", "--thread", "new", "--task", "1")
    assert (rated["thread_id"], rated["rating"]) == ("new", 1)
    figures, shown = three.json("stats"), three("stats").stdout
    assert figures["ratings"]["stars"] == {"1": 1, "2": 0, "3": 0, "4": 0, "5": 1}
    assert figures["reopened"]["rated_low"] == 1
    for line in ("3 on 2 threads", "success 2 (67%)", "2 of 9 turns (22%)", "mean 3 (1★ 1 · 5★ 1)"):
        assert line in shown
    assert [row["section"] for row in figures["sections"] if f"“{row['section']}”" not in shown] == []
    assert ("owned" in shown, "\x1b" in shown) == (True, False)
