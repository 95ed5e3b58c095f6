"""A run in parts: each goes on where it was broken off, and what another version has left begins anew."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from loopcheck import VERSION
from loopcheck.case import load_cases
from loopcheck.conduct import CASES, Part, read_lines, work
from loopcheck.sources.registry import SOURCES
from loopcheck.sources.task import Source, Task
from loopcheck.subjects import Subject
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


@pytest.mark.slow
def test_a_part_that_cannot_run_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    for part in (Part(Subject("nobody", "Nobody", packages=["nobody==1"]), CASES), Part(SMALL, "gone")):
        assert "not installed" in work(part, tmp_path)
    assert [line for file in tmp_path.iterdir() for line in read_lines(file)[1:]] == []


@pytest.mark.slow
def test_a_part_that_was_broken_off_is_gone_on_with(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = TINY.file(tmp_path)
    assert work(TINY, tmp_path) == ""
    whole = file.read_text()
    head, *runs = read_lines(file)
    assert [run["task"] for run in runs] == [task.name for task in TASKS]
    # Broken off in the middle of the second run.
    file.write_text(whole[: whole.index(json.dumps(runs[1])) + 20])
    capfd.readouterr()
    assert work(TINY, tmp_path) == ""
    assert file.read_text() == whole
    told = capfd.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in told[1:]] == [f"{task.name} ok" for task in TASKS[1:]]
    # What another version has left begins anew.
    for versions, kept in (({"loop": "1.0"}, True), ({"loop": "0.9"}, False)):
        lines = [{**head, "versions": versions}, *({**run, "calls": 99} for run in runs)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert work(TINY, tmp_path) == ""
        found = read_lines(file)
        assert (found[0], len(found), found[1]["calls"] == 99) == (head, len(lines), kept)


@pytest.mark.slow
def test_a_case_is_played_anew_when_its_version_is_another_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = {"suite": VERSION, "framework": "A small loop", "versions": {"loop": "1.0"}}
    marks: dict[str, dict[str, Any]] = {
        case.name: {"case": case.name, "version": case.version, "mark": "ok", "why": "before"}
        for case in load_cases()
    }
    marks["plain_answer"]["version"] = 99
    del marks["loop"]
    lines = [head, *marks.values()]
    (tmp_path / "loop.cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert work(Part(SMALL, CASES), tmp_path) == ""
    told = capfd.readouterr().err.splitlines()
    assert told[1:] == ["loop.cases: plain_answer ok", "loop.cases: loop fail"]
