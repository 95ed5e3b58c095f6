"""What is run, in parts: each goes on where it was broken off, and a seed always plays the same."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from loopcheck import VERSION
from loopcheck.case import load_cases
from loopcheck.conduct import CASES, Part, draw_tasks, list_parts, read_lines, work
from loopcheck.results import gather
from loopcheck.sources.registry import SOURCES
from loopcheck.sources.task import Source, Task
from loopcheck.subjects import Subject
from loopcheck.table import write_case_table, write_table
from tests.conformance.tiny import LOOP, SOURCE, TASKS

SMALL = Subject("loop", "A loop", "given", given=LOOP)
TINY = Part(SMALL, SOURCE.name, seed=3, full=True)


def _gone() -> list[Task]:
    raise ModuleNotFoundError("No module named 'gone'")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    there = cast(dict[str, Source], SOURCES)
    monkeypatch.setitem(there, SOURCE.name, SOURCE)
    monkeypatch.setitem(there, "gone", Source("gone", "Gone", (), "MIT", "https://example.org", _gone))


def test_parts_are_a_subject_on_the_cases_and_on_each_source_with_each_seed() -> None:
    other = Subject("other", "Other")
    found = list_parts([SMALL, other], [CASES, "tiny", "gone"], [1, 2], full=False)
    assert [part.name for part in found[:5]] == [
        "loop.cases",
        "loop.tiny.1",
        "loop.tiny.2",
        "loop.gone.1",
        "loop.gone.2",
    ]
    assert [part.name.partition(".")[0] for part in found] == ["loop"] * 5 + ["other"] * 5
    assert TINY.name == "loop.tiny.3.full"


def test_a_sample_is_part_of_all_that_a_seed_plays() -> None:
    whole = draw_tasks("tiny", 3, full=True)
    assert [task for task, _ in whole] == list(TASKS)
    assert all(one in whole for one in draw_tasks("tiny", 3, full=False))


@pytest.mark.parametrize(
    ("subject", "what", "why"),
    [
        (Subject("nobody", "Nobody", packages=["nobody==1"]), CASES, "not installed"),
        (SMALL, "gone", "gone is not installed (No module named 'gone'); run `loopcheck install`"),
    ],
)
@pytest.mark.slow
def test_a_part_that_cannot_run_says_why(tmp_path: Path, subject: Subject, what: str, why: str) -> None:
    assert work(Part(subject, what), tmp_path) == why


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """What a part has left when it is done."""
    assert work(TINY, tmp_path) == ""
    return tmp_path / f"{TINY.name}.jsonl"


@pytest.mark.slow
def test_a_part_that_was_broken_off_is_gone_on_with(done: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = done.read_text()
    assert [one["task"] for one in read_lines(done)[1:]] == [task.name for task in TASKS]
    capfd.readouterr()
    # Broken off in the middle of the second line.
    cut = whole.index("\n", whole.index("\n") + 1) + 20
    done.write_text(whole[:cut])
    assert work(TINY, done.parent) == ""
    assert done.read_text() == whole
    told = capfd.readouterr().err.splitlines()
    kept = "kept from an earlier run; --anew runs them again"
    assert told == [f"{TINY.name}: 1 {kept}", *(f"{TINY.name}: {task.name} ok" for task in TASKS[1:])]
    assert work(TINY, done.parent) == ""
    assert capfd.readouterr().err == f"{TINY.name}: {len(TASKS)} {kept}\n"


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"suite": "0.9"}, {"versions": {"loop": "0.9"}}, {"framework": "Other"}])
def test_what_another_version_has_left_begins_anew(done: Path, changed: dict[str, Any]) -> None:
    head, *runs = read_lines(done)
    lines = [{**head, **changed}, *({**run, "calls": 99} for run in runs)]
    done.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert work(TINY, done.parent) == ""
    found = read_lines(done)
    assert (found[0], len(found)) == (head, len(lines))
    assert 99 not in [run["calls"] for run in found[1:]]


@pytest.mark.slow
def test_a_case_is_played_anew_when_its_version_is_another_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = {"suite": VERSION, "framework": "A small loop", "versions": {"loop": "1.0"}}
    lines = [
        {"case": one.name, "version": one.version, "mark": "ok", "why": "before"} for one in load_cases()
    ]
    by_name = {one["case"]: one for one in lines}
    by_name["plain_answer"]["version"] = 99
    lines.remove(by_name["loop"])
    file = tmp_path / "loop.cases.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in [head, *lines]))
    assert work(Part(SMALL, CASES), tmp_path) == ""
    told = capfd.readouterr().err.splitlines()
    assert told[1:] == ["loop.cases: plain_answer ok", "loop.cases: loop fail"]
    column = gather([Part(SMALL, CASES)], tmp_path, {}, "2026-11-22").columns[0]
    assert column.cases["plain_answer"][2] == 1
    assert len(column.cases) == len(load_cases())


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_table_twice(tmp_path: Path) -> None:
    found = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        whole = list_parts([SMALL], [CASES, "tiny"], [1, 2], full=True)
        assert [work(part, folder) for part in whole] == [""] * 3
        results = gather(whole, folder, {}, "2026-11-22")
        found.append(
            (write_table(results, load_cases()), write_case_table(results, load_cases()), results.document())
        )
    assert found[0] == found[1]
    assert "| **All tasks** | **6/6 (61 to 100 %)** |" in found[0][0]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, 0),
        ("", 0),
        ('{"a": 1}\n{"b": 2}\n', 2),
        ('{"a": 1}\n{"b": 2}', 2),
        ('{"a": 1}\n{"b": ', 1),
        ('{"a": 1}\n{"b": 2}\n{', 2),
    ],
)
def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path, text: str | None, kept: int) -> None:
    file = tmp_path / "part.jsonl"
    if text is not None:
        file.write_text(text)
    assert read_lines(file) == [{"a": 1}, {"b": 2}][:kept]
    assert text is None or file.read_text() == text
