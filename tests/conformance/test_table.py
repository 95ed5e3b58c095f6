"""Loopcheck's results: shares with their confidence, as a table, as JSON, as a picture and in words."""

import json
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conformance_page import PAGE, PICTURE, SAMPLE, page
from loopcheck import VERSION
from loopcheck.case import load_cases
from loopcheck.conduct import CASES, Part
from loopcheck.driver import judge_case
from loopcheck.explain import explain
from loopcheck.faults import FAULTS, KILLS, NOTHING
from loopcheck.observed import Message, ModelCall, Observed, Report, StepStart
from loopcheck.picture import draw
from loopcheck.play import TaskRun
from loopcheck.process import Hello
from loopcheck.replies import Manner
from loopcheck.results import Apart, Column, Results, Share, gather
from loopcheck.subjects import Subject
from loopcheck.table import MARKS, PROMISES, write_case_table, write_table


def run(fault: str = NOTHING, **told: Any) -> TaskRun:
    task = f"airline {FAULTS.index(fault) + 1}"
    return TaskRun("one", "tau2", task, 1, fault, **{"ended": True, "solved": True, **told})


RIGHT, TWICE = run(), run(KILLS[1], twice=["book_flight"], why="an effect took place too often")
NOT_CLAIMED = run(KILLS[0], claimed=False, ended=False, solved=False, why="crash: it has no storage")
RESULTS = Results(
    "2026-11-22",
    [1, 2],
    False,
    [
        Column(
            "one",
            "One",
            {"one": "1.0"},
            {"promise": ("ok", "success", 1), "loop": ("fail", "<it> did not end", 2)},
            [RIGHT, TWICE, NOT_CLAIMED],
        ),
        Column("two", "Two", absent="not installed"),
        Column("three", "Three", {"three": "3.1"}, {"promise": ("n/a", "no", 1)}, [], "it died."),
    ],
)


# From R. G. Newcombe, "Two-sided confidence intervals for the single proportion", 1998, method 3.
@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 1 - 0.1611, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_of_a_share_is_wilson_s(right: int, of: int, low: float, high: float) -> None:
    assert Share(right, of).bounds == pytest.approx((low, high), abs=0.00005)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (Share(9, 10), "9/10 (60 to 98 %)"),
        (Share(0, 0, 3), "n/a"),
        (Share(970, 970), "970/970 (99.6 to 100 %)"),
        (Share(0, 3000), "0/3000 (0 to 0.1 %)"),
        (Share(53, 54), "53/54 (90 to 99.7 %)"),
        (Share(4, 4), "4/4 (51 to 100 %)"),
        (Share(100_000, 100_000), "100000/100000 (99.9 to 100 %)"),
        (RESULTS.columns[0].share_of_runs(), "1/2 (9 to 91 %)"),
        (RESULTS.columns[0].share_of_runs(fault=KILLS[0]), "n/a"),
        (RESULTS.columns[0].share_of_runs(source="bfcl"), "n/a"),
        (RESULTS.columns[0].share_of_cases(["promise", "loop", "gone"]), "1/2 (9 to 91 %)"),
        (RESULTS.columns[2].share_of_cases(["promise"]), "n/a"),
    ],
)
def test_a_share_counts_what_is_claimed(share: Share, told: str) -> None:
    assert share.text == told


@pytest.mark.parametrize(
    ("told", "right", "wrongly"),
    [
        ({}, True, False),
        ({"ended": False}, False, False),
        ({"solved": False}, False, True),
        ({"twice": ["pay"]}, False, True),
        ({"lost": ["pay"]}, False, True),
        ({"claimed": False, "solved": False}, False, False),
    ],
)
def test_a_run_is_right_when_it_ended_is_solved_and_nothing_is_lost_or_done_twice(
    told: dict[str, Any], right: bool, wrongly: bool
) -> None:
    assert (run(**told).right, run(**told).wrongly) == (right, wrongly)


def test_the_table_has_a_row_a_promise_and_a_column_a_subject() -> None:
    lines = write_table(RESULTS, load_cases()).splitlines()
    assert lines[:2] == ["| promise | One 1.0 | Three 3.1 |", "| --- | --: | --: |"]
    assert lines[2] == "| **Tasks under faults** | | |"
    assert [line.split(" | ")[0].strip("| ") for line in lines[3:16]] == list(PROMISES.values())
    assert list(PROMISES) == list(FAULTS)
    assert lines[3].endswith("| 1/1 (21 to 100 %) | n/a |")
    for row in (
        "| *tau2: all of these* | 1/2 (9 to 91 %) | n/a |",
        "| **All tasks** | **1/2 (9 to 91 %)** | **n/a** |",
        "| Said that it is done, wrongly | 1 | 0 |",
        "| An effect took place too often | 1 | 0 |",
        "| Unit cases: Ending | 1/1 (21 to 100 %) | n/a |",
        "| Unit cases: Limits | 0/1 (0 to 79 %) | n/a |",
    ):
        assert row in lines
    assert not any("Crashes" in line for line in lines)
    # What ran in part stands in a column, and the rest is told.
    assert lines[-3:-1] == ["Two: not installed.", "Three: it died."]
    # What was chosen from the cases is no share of all of them.
    left = sorted({case.name for case in load_cases()} - {"promise"})
    assert lines[-1] == f"One leaves out {len(left)} of the unit cases ({', '.join(left[:5])}, …)."


def test_what_a_subject_leaves_out_of_what_others_played_is_told() -> None:
    every = {case.name: ("ok", "success", case.version) for case in load_cases()}
    elsewhere = replace(RIGHT, source="bfcl")
    whole = Column("one", "One", {}, every, [RIGHT, TWICE, NOT_CLAIMED, elsewhere])
    some = {name: cell for name, cell in every.items() if name != "loop"}
    partly = Column("two", "Two", {}, some, [RIGHT, replace(NOT_CLAIMED, claimed=True)])
    found = Results("2026-11-22", [1], False, [whole, partly])
    versions = {case.name: case.version for case in load_cases()}
    told = "1 of the unit cases (loop), 1 run of tau2"
    assert found.list_gaps(versions) == {"Two": told}
    assert write_table(found, load_cases()).endswith(f"\n\nTwo leaves out {told}.")
    newer = {**versions, "promise": versions["promise"] + 1}
    assert found.list_gaps(newer)["One"] == "1 of the unit cases (promise)"


SENT = json.loads(json.dumps(RESULTS.document()))


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("subjects", 0, "runs", 0, 0), ["tau2"], "is not of the kind str"),
        (("subjects", 0, "runs", 0, 0), "mine", "there is no 'mine' here"),
        (("subjects", 0, "runs", 0, 1), "one", "is not of the kind int"),
        (("subjects", 0, "runs", 0, 1), 7, "there is no 7 here"),
        (("subjects", 0, "runs", 0, 3), "airline 3", "a run is in it twice"),
        (("subjects", 0, "runs", 1, 4, "claimed"), "no", "is not of the kind bool"),
        (("subjects", 0, "runs", 1, 4, "twice"), 5, "is not of the kind list"),
        (("subjects", 0, "runs", 1, 4, "lost"), [5], "is not of the kind str"),
        (("subjects", 1, "name"), "one", "a subject is in it twice"),
        (("seeds", 0), float("inf"), "is not of the kind int"),
        (("full",), "false", "is not of the kind bool"),
    ],
)
def test_what_others_send_is_checked(place: tuple[Any, ...], value: Any, why: str, tmp_path: Path) -> None:
    sent = deepcopy(SENT)
    *above, last = place
    inner = sent
    for step in above:
        inner = inner[step]
    inner[last] = value
    (tmp_path / "sent.json").write_text(json.dumps(sent))
    with pytest.raises(ValueError, match=re.escape(why)):
        Results.read(tmp_path / "sent.json")


def test_the_cases_have_a_row_each_by_theme() -> None:
    lines = write_case_table(RESULTS, load_cases()).splitlines()
    assert lines[:3] == ["| case | One | Three |", "| --- | :-: | :-: |", "| **Ending** | | |"]
    promises = {case.name: case.promise for case in load_cases()}
    assert f"| {promises['promise']} | ✓ | n/a |" in lines
    assert f"| {promises['loop']} | ✗ |  |" in lines
    assert len(lines) == 2 + len(promises) + len({case.theme for case in load_cases()})
    assert set(MARKS) == {"ok", "fail", "n/a"}


def test_results_are_read_as_they_were_saved(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    RESULTS.save(file)
    found = Results.read(file)
    assert found == RESULTS
    assert found.document() == RESULTS.document() == json.loads(file.read_text())
    assert (found.suite, found.sources) == (VERSION, ["tau2"])
    # A run that is right is a line of its name; of another one all is told.
    short, twice, _ = found.document()["subjects"][0]["runs"]
    assert short == ["tau2", 1, NOTHING, "airline 1"]
    assert twice[4]["twice"] == ["book_flight"]


CASES_ONLY = Results("2026-11-23", [], False, [Column("two", "Two", {}, {"promise": ("ok", ".", 1)})])
ONE = Results("2026-11-22", [1], False, [Column("one", "One", {}, {"promise": ("ok", ".", 1)}, [RIGHT])])


def test_results_of_others_stand_beside_these() -> None:
    for found in (ONE.beside(CASES_ONLY), CASES_ONLY.beside(ONE)):
        assert {column.name for column in found.columns} == {"one", "two"}
        assert (found.day, found.seeds, found.full) == ("2026-11-23", [1], False)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (ONE, "both contain a subject 'one'"),
        (replace(CASES_ONLY, suite="0.9"), f"they come from versions {VERSION} and 0.9"),
        (
            replace(CASES_ONLY, columns=[Column("two", "Two", {}, {"promise": ("ok", ".", 2)})]),
            "different versions of the case 'promise'",
        ),
        (replace(ONE, seeds=[2], columns=[Column("two", "Two", runs=[RIGHT])]), "they have different seeds"),
        (replace(ONE, full=True, columns=[Column("two", "Two", runs=[RIGHT])]), "they have different seeds"),
    ],
)
def test_results_that_are_not_to_be_compared_stand_in_no_table(other: Results, why: str) -> None:
    with pytest.raises(Apart, match=re.escape(why)):
        ONE.beside(other)


@pytest.mark.parametrize(
    ("column", "fails"),
    [
        (
            Column("a", "A", {}, {"promise": ("ok", ".", 1), "loop": ("n/a", ".", 1)}, [RIGHT, NOT_CLAIMED]),
            False,
        ),
        (Column("a", "A", {}, {"promise": ("fail", ".", 1)}), True),
        (Column("a", "A", {}, {}, [TWICE]), True),
        (Column("a", "A", {}, {}, [RIGHT], "it died"), True),
    ],
)
def test_a_subject_fails_that_fails_in_what_it_claims(column: Column, fails: bool) -> None:
    assert column.fails is fails


def test_where_nothing_ran_the_reasons_are_told_without_a_table() -> None:
    found = Results("2026-11-22", [], False, [Column("two", "Two | 2", absent="not installed")])
    assert write_table(found, load_cases()) == "Two \\| 2: not installed."


def test_whatever_a_subject_says_can_be_saved(tmp_path: Path) -> None:
    odd = Column("one", "One", {}, {"promise": ("fail", "half a character: \ud83d", 1)})
    Results("2026-11-22", [], False, [odd]).save(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").columns == [odd]


def test_what_another_suite_has_left_is_not_gathered(tmp_path: Path) -> None:
    part = Part(Subject("one", "One"), CASES)
    for suite, found in ((VERSION, {"promise"}), ("0.9", set())):
        head = {"suite": suite, "framework": "One", "versions": {"one": "1.0"}}
        mark = {"case": "promise", "version": 1, "mark": "ok", "why": ""}
        (tmp_path / "one.cases.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(mark)}\n")
        column = gather([part], tmp_path, {"one": "it died"}, "2026-11-22").columns[0]
        assert (set(column.cases), column.absent) == (found, "it died")


def test_the_picture_has_a_panel_a_fault_and_a_line_a_subject() -> None:
    text = draw(RESULTS)
    assert text.count('class="head"') == 3
    assert [text.count(f">{told}</text>") for told in ("1/1", "0/1", "n/a")] == [1, 1, 1]
    assert text.count(">One</text>") == 3
    assert ">Two</text>" not in text
    assert "&lt;" in draw(Results("", [1], False, [Column("a", "<b>", {}, {}, [RIGHT])]))


def test_a_case_is_explained_event_by_event() -> None:
    [case] = [case for case in load_cases() if case.name == "promise"]
    question = ModelCall((Message("user", "Do the work."),), text="I will.")
    cell = judge_case(case, Observed((StepStart("say", "Do the work."), question, Report("success", "ok"))))
    text = explain(case, Hello("One", {"one": "1.0"}, Manner({"any": {"text": "$text"}}), {}), cell)
    for line in (
        f"Right: {case.right}",
        "One 1.0",
        f"    ✗ {cell.why}",
        "      outside          say Do the work.",
        "      model is shown   user: Do the work.",
        "      model says       I will.",
        "      the run says     success: ok",
    ):
        assert line in text.splitlines()


# What was recorded.

# Words end no task; a finish beside a read is believed; an agent in a tool has no bound above it.
GUARDS_MISS = {"plain_answer", "blind_finish", "recursive_delegation"}


def test_the_recorded_results_hold_every_case_in_its_version() -> None:
    found = Results.read(SAMPLE)
    assert (found.suite, found.columns[0].name) == (VERSION, "signoff")
    versions = {case.name: case.version for case in load_cases()}
    there = [column for column in found.columns if not column.absent]
    assert len(there) >= 10
    for column in there:
        assert {name: version for name, (_, _, version) in column.cases.items()} == versions, column.name
        assert {run.fault for run in column.runs} == set(FAULTS), column.name


@pytest.mark.parametrize("name", ["langchain-guarded", "deepagents-guarded"])
def test_guards_are_right_in_all_that_create_agent_claims_but_for_those_that_are_named(name: str) -> None:
    columns = {column.name: column.cases for column in Results.read(SAMPLE).columns}
    claimed = {case for case, (mark, _, _) in columns["langchain"].items() if mark != "n/a"}
    right = {case for case, (mark, _, _) in columns[name].items() if mark == "ok"}
    not_claimed = {case for case, (mark, _, _) in columns[name].items() if mark == "n/a"}
    assert claimed - right - not_claimed <= GUARDS_MISS
    assert len(claimed & right) >= 45


def test_the_docs_show_the_recorded_results() -> None:
    assert PAGE.read_text() == page()
    assert PICTURE.read_text() == draw(Results.read(SAMPLE))
