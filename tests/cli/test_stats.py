"""The numbers of `signoff stats`: each figure from tasks written down by hand."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, PutOp

from signoff import SetupError, StorageError, ThreadError, build_graph, sqlite_storage
from signoff.graph.finish.recorded import EndFigures, Figures, NudgeFigures, RefusalFigures
from signoff.graph.foreign import FIGURES, OUTCOMES, place
from signoff.graph.outcome import Outcome
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import record
from signoff.stats import TaskRecord, rate, read_ended, stats
from signoff.stats.numbers import PARTS, REOPEN_SECONDS, reopened, sections
from signoff.storage.sqlite import SqliteStorage
from tests.support.interrupting import interrupt_process


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def figures(at: float = 100.0, began: float | None = None, **given: Any) -> Figures:
    found = Figures(
        at=at,
        began=at - 10 if began is None else began,
        model="small",
        talk=0,
        nudges={},
        refused={},
        end=EndFigures(status="success", reason="finish_task", turns=1),
        ends=[],
        resumed=0,
        cut_short=0,
        went_on=0,
        confirmed=False,
        rules={},
    )
    found.update(given)  # type: ignore[typeddict-item]  # the tests name fields as words
    return found


def task(at: float = 100.0, *, thread: str | None = "t", number: int = 0, **given: Any) -> TaskRecord:
    values: dict[str, Any] = {
        "status": "success",
        "reason": "finish_task",
        "claim": "done",
        "verified": "asserted",
        "turns": 3,
        "refusals": 0,
        "seconds_waiting": 0.0,
        "input_tokens": 100,
        "output_tokens": 10,
        "total_tokens": 110,
        "figures": figures(at),
        "rating": None,
        **given,
    }
    return TaskRecord(thread_id=thread, task=f"m{number or at}", at=at, **values)


def limit(at: float = 100.0, **given: Any) -> TaskRecord:
    return task(at, **{"status": "limit", "reason": "turns", "claim": None, "verified": None, **given})


def test_nothing_has_no_rates() -> None:
    found = stats([])
    assert (found["tasks"], found["exits"]["status"], found["sections"]) == (0, {}, [])
    for name in ("talk_only", "nudges", "refused", "accuracy"):
        assert found[name]["rate"] is None, name
    assert found["turns"] == {"successes": 0, "mean": None, "median": None, "p90": None, "most": None}


TURNS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "one": ([4], {"mean": 4.0, "median": 4, "p90": 4, "most": 4}),
    "two": ([3, 8], {"mean": 5.5, "median": 5.5, "p90": 8, "most": 8}),
    "ten: nine needed no more than the p90": (
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 100],
        {"mean": 14.5, "median": 5.5, "p90": 9, "most": 100},
    ),
}


@pytest.mark.parametrize("case", TURNS)
def test_turns_to_finish_are_those_of_successes(case: str) -> None:
    turns, wanted = TURNS[case]
    ended = [task(float(n), turns=n) for n in turns]
    assert stats([*ended, limit(turns=30)])["turns"] == {"successes": len(turns), **wanted}


def test_counts_are_added_up_over_tasks() -> None:
    first = figures(
        talk=2,
        nudges={"talked": NudgeFigures(given=2, back=1)},
        refused={"siblings": RefusalFigures(times=2, needless=1)},
        rules={"think": 3},
    )
    second = figures(
        nudges={"talked": NudgeFigures(given=1, back=1), "empty": NudgeFigures(given=1, back=0)},
        refused={"empty_summary": RefusalFigures(times=1, needless=1)},
        ends=[
            EndFigures(status="limit", reason="turns", turns=3),
            EndFigures(status="error", reason="x", turns=4),
        ],
        cut_short=1,
        rules={"think": 5, "turns": 1},
    )
    ended = [task(1.0, figures=first, turns=3), task(2.0, figures=second, turns=5, seconds_waiting=4.0)]
    found = stats(ended)
    assert found["talk_only"] == {"replies": 2, "turns": 8, "rate": 0.25, "tasks": 1}
    assert (found["nudges"]["given"], found["nudges"]["back_to_work"], found["nudges"]["rate"]) == (4, 2, 0.5)
    assert found["nudges"]["kinds"]["talked"] == {"given": 3, "back_to_work": 2, "rate": 0.6667}
    assert (found["refused"]["finishes"], found["refused"]["needless"]) == (3, 2)
    assert found["limits"] == {"reached": 1, "extended": 1, "cut_short": 1}
    assert found["waiting"] == {"tasks": 1, "seconds": 4.0, "mean_seconds": 4.0}
    assert found["tokens"] == {"input": 200, "output": 20, "total": 220, "mean": 110.0}
    assert found["rules"] == {"think": 8, "turns": 1}
    assert found["models"] == {"small": 2}


CHECKED = {"checks": RefusalFigures(times=3, needless=1)}
SENT = {"sent_back": RefusalFigures(times=1, needless=0)}
NOT_JUDGED = (0, 0, None)
# A task that ended, what it is as a finish that came too early, and as a run that did not end in time: how
# many, of how many that were judged, and by whom.
JUDGED: dict[str, tuple[TaskRecord, tuple[int, int, str | None], tuple[int, int, str | None]]] = {
    "nobody judged it": (task(), NOT_JUDGED, NOT_JUDGED),
    "its checks passed": (task(verified="verified"), (0, 1, "check"), (0, 1, "check")),
    "a person confirmed it": (task(figures=figures(confirmed=True)), (0, 1, "person"), (0, 1, "person")),
    "a person accepted what was refused": (
        task(verified="unverified"), (0, 1, "person"), (0, 1, "person"),
    ),
    "rated 5": (task(rating=5), (0, 1, "rating"), (0, 1, "rating")),
    "rated 2": (task(rating=2), (1, 1, "rating"), NOT_JUDGED),
    "rated 2 although its checks passed": (
        task(rating=2, verified="verified"), (1, 1, "rating"), NOT_JUDGED,
    ),
    "checks refused it twice, once more needlessly, and then nothing judged it": (
        task(figures=figures(refused=CHECKED)), (2, 2, "check"), NOT_JUDGED,
    ),
    "a person sent it back, nobody judged the next": (
        task(figures=figures(refused=SENT)), (1, 1, "person"), NOT_JUDGED,
    ),
    "a limit": (limit(), NOT_JUDGED, NOT_JUDGED),
    "a limit, rated 4": (limit(rating=4), NOT_JUDGED, (1, 1, "rating")),
    "a limit, rated 1": (limit(rating=1), NOT_JUDGED, NOT_JUDGED),
    "a limit, then done as it was, by its own word": (
        task(figures=figures(cut_short=1)), NOT_JUDGED, NOT_JUDGED,
    ),
    "a limit, then done as it was, by its checks": (
        task(verified="verified", figures=figures(cut_short=1)), (0, 1, "check"), (1, 1, "check"),
    ),
    "it went on, by its own word": (task(figures=figures(went_on=3)), NOT_JUDGED, NOT_JUDGED),
    "it went on, rated 5": (task(rating=5, figures=figures(went_on=3)), (0, 1, "rating"), (1, 1, "rating")),
    "an honest end": (task(claim="blocked", rating=1), NOT_JUDGED, NOT_JUDGED),
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


SOON, LATE = 100 + REOPEN_SECONDS, 111 + REOPEN_SECONDS
REOPENED: dict[str, tuple[list[TaskRecord], list[str]]] = {
    "a success alone": ([task()], []),
    "rated 2": ([task(rating=2)], ["rated low"]),
    "rated 3": ([task(rating=3)], []),
    "the next task of the thread began soon after": ([task(), task(SOON)], ["next task"]),
    "it began later": ([task(), task(LATE)], []),
    "it is of another thread": ([task(), task(SOON, thread="u")], []),
    "both ran without a thread": ([task(thread=None), task(SOON, thread=None)], []),
    "a person said that it was done": ([task(rating=5), task(SOON)], []),
    "a person said that it was not, and went on": ([task(rating=1), task(SOON)], ["rated low"]),
    "a limit is not reopened": ([limit(), task(SOON)], []),
    "a low rating of a limit says nothing about finishes": ([limit(rating=1)], []),
    "an honest end is not reopened": ([task(claim="blocked"), task(SOON)], []),
    "the next task ended with an error": (
        [task(), task(SOON, status="error", reason="model_error", claim=None)],
        ["next task"],
    ),
    "the tasks come in any order": ([task(SOON), task()], ["next task"]),
}


@pytest.mark.parametrize("case", REOPENED)
def test_what_counts_as_reopened(case: str) -> None:
    ended, whys = REOPENED[case]
    assert list(reopened(ended).values()) == whys
    accepted = sum(one.accepted for one in ended)
    wanted = {"accepted": accepted, "not_reopened": accepted - len(whys)}
    found = stats(ended)["accuracy"]
    assert {name: found[name] for name in wanted} == wanted


def test_since_leaves_out_what_ended_before_but_not_what_reopened_it() -> None:
    found = stats([task(100.0), task(200.0), task(300.0)], since=150.0)
    assert (found["tasks"], found["reopened"]["tasks"]) == (2, 1)


SIGNS: dict[str, tuple[TaskRecord, bool, str]] = {
    "words only": (task(figures=figures(talk=1)), False, "How this ends"),
    "a limit although done": (task(figures=figures(cut_short=1)), False, "How this ends"),
    "failed siblings": (
        task(figures=figures(refused={"siblings": RefusalFigures(times=1, needless=0)})),
        False,
        "Look at the results of your work before you finish",
    ),
    "an empty summary": (
        task(figures=figures(refused={"empty_summary": RefusalFigures(times=1, needless=0)})),
        False,
        "the description of finish_task",
    ),
    "failed checks": (
        task(figures=figures(refused={"checks": RefusalFigures(times=1, needless=0)})),
        False,
        "Before you call finish_task, ask yourself",
    ),
    "sent back": (
        task(figures=figures(refused={"sent_back": RefusalFigures(times=1, needless=0)})),
        False,
        "Before you call finish_task, ask yourself",
    ),
    "reopened": (task(), True, "Before you call finish_task, ask yourself"),
    "out of turns": (limit(), False, "the reminder near the limit"),
}


@pytest.mark.parametrize("case", SIGNS)
def test_a_sign_speaks_of_one_part_of_the_prompt(case: str) -> None:
    ended, again, part = SIGNS[case]
    assert [row["section"] for row in sections([(ended, again)])] == [part]


def test_the_part_of_the_most_tasks_comes_first() -> None:
    talkative = task(figures=figures(talk=9))
    rows = sections([(talkative, False), (limit(), False), (limit(), False)])
    assert [(row["section"], row["tasks"]) for row in rows] == [
        ("the reminder near the limit", 2),
        ("How this ends", 1),
    ]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_stands_in_the_texts(part: str) -> None:
    field, begins = PARTS[part]
    name, _, entry = field.partition(".")
    text = getattr(DEFAULT_TEXTS, name)
    assert begins in (text[entry] if entry else text)


# The store: what is written by runs, read, and rated.


def ended_outcome(thread: str, number: int, **given: Any) -> Outcome:
    values: dict[str, Any] = {"status": "success", "reason": "finish_task", "claim": "done", **given}
    return Outcome(thread_id=thread, task=f"m{number}", turns=1 + number % 12, **values)


def put(store: BaseStore, thread: str, number: int, at: float | None = None, **given: Any) -> None:
    outcome = ended_outcome(thread, number, **given)
    when = float(number) if at is None else at
    end = EndFigures(status=outcome.status, reason=outcome.reason, turns=outcome.turns)
    found = dict(figures(when, end=end))
    store.batch([record(outcome), PutOp(*place(FIGURES, thread, outcome.task), found)])


def test_a_run_records_its_figures_beside_its_outcome(storage: SqliteStorage) -> None:
    model = ScriptedModel(["I will do it.", call("finish_task", summary="All of it.")])
    graph = build_graph(model, storage=storage)
    graph.invoke({"messages": [("user", "do it")]}, {"configurable": {"thread_id": "a.b/c"}})
    (found,) = read_ended(storage.store)
    assert (found.thread_id, found.status, found.turns) == ("a.b/c", "success", 2)
    assert found.figures["nudges"] == {"talked": {"given": 1, "back": 1}}
    assert found.figures["model"] == "scripted"
    assert found.began <= found.at <= time.time()


def test_a_task_that_was_cut_short_by_a_message_has_figures_too(storage: SqliteStorage) -> None:
    def crash() -> str:
        """Crash."""
        interrupt_process()
        return "never heard"

    graph = build_graph(
        ScriptedModel(["hm", call("crash"), call("finish_task", summary="x")]), [crash], storage=storage
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": [("user", "do it")]}, config)
    graph.invoke({"messages": [("user", "do it")]}, config)
    first, second = read_ended(storage.store)
    assert (first.reason, second.reason) == ("superseded", "finish_task")
    assert first.figures["nudges"] == {"talked": {"given": 1, "back": 1}}


def test_threads_are_told_apart_by_their_whole_name(storage: SqliteStorage) -> None:
    for thread in ("a", "ab", "a.b", "a%", "A"):
        put(storage.store, thread, 1)
    assert [found.thread_id for found in read_ended(storage.store, "a")] == ["a"]
    assert [found.thread_id for found in read_ended(storage.store, "a%")] == ["a%"]
    assert len(read_ended(storage.store)) == 5


def test_a_rating_is_of_the_last_task_or_of_the_one_that_is_named(storage: SqliteStorage) -> None:
    for number in (1, 2, 3):
        put(storage.store, "t", number)
    assert rate(storage.store, "t", 5).task == "m3"
    assert rate(storage.store, "t", 4, task=1).task == "m1"
    assert rate(storage.store, "t", 2, task=1).task == "m1"
    assert [found.rating for found in read_ended(storage.store)] == [2, None, 5]
    assert stats(read_ended(storage.store))["ratings"] == {
        "count": 2,
        "mean": 3.5,
        "stars": {"1": 0, "2": 1, "3": 0, "4": 0, "5": 1},
    }


@pytest.mark.parametrize(
    ("thread", "stars", "number", "error", "said"),
    [
        ("t", 0, None, SetupError, "from 1 to 5, not 0"),
        ("t", 6, None, SetupError, "from 1 to 5, not 6"),
        ("t", 5, 2, SetupError, r"1 task\(s\) of thread 't' have ended; there is no task 2"),
        ("t", 5, 0, SetupError, "there is no task 0"),
        ("other", 5, None, ThreadError, "No task of thread 'other' has ended"),
    ],
)
def test_a_rating_that_fits_nothing_is_refused(
    storage: SqliteStorage, thread: str, stars: int, number: int | None, error: type[Exception], said: str
) -> None:
    put(storage.store, "t", 1)
    with pytest.raises(error, match=said):
        rate(storage.store, thread, stars, number)
    assert [found.rating for found in read_ended(storage.store)] == [None]


def test_a_foreign_entry_is_named_as_such(storage: SqliteStorage) -> None:
    for sort in (OUTCOMES, FIGURES):
        storage.store.put(("signoff", sort, "t"), "m1", {"something": "else"})
    with pytest.raises(StorageError, match="cannot be read"):
        read_ended(storage.store)


@pytest.mark.thorough
def test_ten_thousand_outcomes_are_read_in_two_seconds(storage: SqliteStorage, figure: Any) -> None:
    fill(storage.store, 10_000)
    begun = time.process_time()
    found = stats(read_ended(storage.store))
    seconds = time.process_time() - begun
    assert (found["tasks"], found["threads"]) == (10_000, 2_500)
    assert seconds < 2, f"{seconds:.1f} s of CPU time"
    figure(f"stats of 10,000 outcomes: {seconds:.2f} s of CPU time")


def fill(store: BaseStore, count: int) -> None:
    """So many tasks, four on each thread, an hour between them."""
    for first in range(0, count, 1000):
        ops: list[PutOp] = []
        for number in range(first, first + 1000):
            outcome = ended_outcome(f"thread-{number // 4}", number, summary="What was done. " * 20)
            found = figures(
                number * 3600.0, nudges={"talked": NudgeFigures(given=1, back=1)}, rules={"think": 4}
            )
            ops += [record(outcome), PutOp(*place(FIGURES, outcome.thread_id, outcome.task), dict(found))]
        store.batch(ops)


def test_the_numbers_are_json() -> None:
    ended = [task(1.0), limit(2.0), task(3.0, rating=1)]
    assert json.loads(json.dumps(stats(ended))) == stats(ended)
