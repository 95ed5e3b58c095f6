"""Results of Loopcheck: who is right, shares and their bounds, what may be compared, what was recorded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conformance_page import PAGE, PICTURE, SAMPLE, page
from loopcheck import VERSION
from loopcheck.case import load_cases
from loopcheck.faults import FAULTS, KILLS, NOTHING
from loopcheck.picture import draw
from loopcheck.play import TaskRun
from loopcheck.results import Apart, Column, Results, Share

DAY = "2026-11-22"


def run(fault: str = NOTHING, **told: Any) -> TaskRun:
    task = f"airline {FAULTS.index(fault) + 1}"
    return TaskRun("one", "tau2", task, 1, fault, **{"ended": True, "solved": True, **told})


RIGHT, TWICE = run(), run(KILLS[1], twice=["book_flight"], why="an effect took place too often")
NOT_CLAIMED = run(KILLS[0], claimed=False, ended=False, solved=False, why="crash: it has no storage")
MARKS = {"promise": ("ok", "success", 1), "loop": ("fail", "<it> did not end", 2)}
ONE = Column("one", "One", {"one": "1.0"}, MARKS, [RIGHT, TWICE, NOT_CLAIMED])
RESULTS = Results(
    DAY,
    [1, 2],
    False,
    [
        ONE,
        Column("two", "Two", absent="not installed"),
        Column("three", "Three", {"three": "3.1"}, {"promise": ("n/a", "no", 1)}, [], "it died."),
    ],
)


# From R. G. Newcombe, "Two-sided confidence intervals for the single proportion", 1998, method 3.
@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (20, 20, 1 - 0.1611, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_interval_of_a_share_is_wilson_s(right: int, of: int, low: float, high: float) -> None:
    assert Share(right, of).bounds == pytest.approx((low, high), abs=0.00005)


def test_a_share_counts_what_is_claimed() -> None:
    cases = ONE.share_of_cases(["promise", "loop", "gone"])
    texts = [share.text for share in (Share(9, 10), Share(0, 0, 3), ONE.share_of_runs(), cases)]
    assert texts == ["9/10 (60 to 98 %)", "n/a", "1/2 (9 to 91 %)", "1/2 (9 to 91 %)"]


# What is told of a run; whether it is right, and whether it wrongly says that it ended well.
TOLD: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "solved": ({}, True, False),
    "it did not end": ({"ended": False}, False, False),
    "not solved": ({"solved": False}, False, True),
    "an effect twice": ({"twice": ["pay"]}, False, True),
    "not claimed": ({"claimed": False, "solved": False}, False, False),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_run_is_right_when_it_ended_is_solved_and_nothing_is_lost_or_done_twice(case: str) -> None:
    told, right, wrongly = TOLD[case]
    assert (run(**told).right, run(**told).wrongly) == (right, wrongly)


def test_a_subject_fails_in_what_it_claims_or_when_it_died() -> None:
    assert not replace(ONE, cases={"promise": ("ok", ".", 1)}, runs=[RIGHT, NOT_CLAIMED]).fails
    assert replace(ONE, cases={}, runs=[TWICE]).fails
    assert replace(ONE, cases={}, runs=[RIGHT], absent="it died").fails


def test_results_are_read_as_they_were_saved(tmp_path: Path) -> None:
    odd = Column("odd", "Odd", {}, {"promise": ("fail", "half a character: \ud83d", 1)})
    results = replace(RESULTS, columns=[*RESULTS.columns, odd])
    results.save(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


# A place in what others send, and what does not belong there.
UNFIT: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a source": (("subjects", 0, "runs", 0, 0), "mine"),
    "a seed": (("subjects", 0, "runs", 0, 3), "airline 3"),
    "a name twice": (("subjects", 1, "name"), "one"),
    "no number": (("seeds", 0), float("inf")),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_others_send_is_checked(case: str, tmp_path: Path) -> None:
    (*above, last), value = UNFIT[case]
    inner = sent = json.loads(json.dumps(RESULTS.document()))
    for step in above:
        inner = inner[step]
    inner[last] = value
    (tmp_path / "sent.json").write_text(json.dumps(sent))
    with pytest.raises(ValueError):  # noqa: PT011  it says of what kind what is wrong
        Results.read(tmp_path / "sent.json")


OTHER = Results("2026-11-23", [], False, [Column("two", "Two", {}, {"promise": ("ok", ".", 1)})])
OURS = Results(DAY, [1], False, [replace(ONE, runs=[RIGHT])])


def test_results_of_others_stand_beside_these() -> None:
    both = OTHER.beside(OURS)
    assert {column.name for column in both.columns} == {"one", "two"}
    assert (both.day, both.seeds, both.full) == ("2026-11-23", [1], False)


APART = {
    "the same subject": OURS,
    "another suite": replace(OTHER, suite="0.9"),
    "another version of a case": replace(
        OTHER, columns=[Column("two", "Two", {}, {"promise": ("ok", ".", 2)})]
    ),
    "other seeds": replace(OTHER, seeds=[2], columns=[Column("two", "Two", runs=[RIGHT])]),
}


@pytest.mark.parametrize("case", APART)
def test_results_that_are_not_to_be_compared_stand_in_no_table(case: str) -> None:
    with pytest.raises(Apart):
        OURS.beside(APART[case])


# What was recorded.

# Words end no task; a finish beside a read is believed; an agent in a tool has no bound above it.
GUARDS_MISS = {"plain_answer", "blind_finish", "recursive_delegation"}
RECORDED = {column.name: column for column in Results.read(SAMPLE).columns}


def test_the_recorded_results_hold_every_case_in_its_version() -> None:
    versions = {case.name: case.version for case in load_cases()}
    there = [column for column in RECORDED.values() if not column.absent]
    assert (Results.read(SAMPLE).suite, there[0].name, len(there) >= 10) == (VERSION, "signoff", True)
    for column in there:
        assert {name: version for name, (_, _, version) in column.cases.items()} == versions, column.name
        assert {run.fault for run in column.runs} == set(FAULTS), column.name


@pytest.mark.parametrize("name", ["langchain-guarded", "deepagents-guarded"])
def test_guards_are_right_in_all_that_create_agent_claims_but_for_those_that_are_named(name: str) -> None:
    claimed = {case for case, (mark, _, _) in RECORDED["langchain"].cases.items() if mark != "n/a"}
    failed = {case for case, (mark, _, _) in RECORDED[name].cases.items() if mark == "fail"}
    assert claimed & failed <= GUARDS_MISS


def test_the_docs_show_the_recorded_results() -> None:
    assert PAGE.read_text() == page()
    assert PICTURE.read_text() == draw(Results.read(SAMPLE))
