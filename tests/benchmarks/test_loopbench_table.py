"""LoopBench's results as a table, as JSON, as a picture and in words; and its command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.loopbench.driver import judged
from benchmarks.loopbench.explain import explain
from benchmarks.loopbench.observed import Observed, Sent, Shown, Stepped, Told
from benchmarks.loopbench.pages import PICTURE, TABLE, page, picture
from benchmarks.loopbench.pages import RESULTS as RECORDED
from benchmarks.loopbench.scenarios import SCENARIOS, THEMES
from benchmarks.loopbench.table import Column, Results, markdown, read, svg

ROOT = Path(__file__).parents[2]
RESULTS = Results(
    "2026-11-22",
    [
        Column("One", {"one": "1.0"}, {"promise": ("ok", "success"), "loop": ("fail", "<it> did not end")}),
        Column("Two", {}, {}, "not installed"),
    ],
)


def test_the_table_is_markdown_json_and_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(RESULTS.document()))
    assert read(file) == RESULTS
    lines = markdown(RESULTS, THEMES).splitlines()
    assert lines[0] == "| scenario | One 1.0 | Two |"
    assert lines[-3] == "| **right, of those that count** | 1 of 2 | not installed |"
    assert all(line.count(" |") == 3 for line in lines[:-2])
    assert "1/2" in svg(RESULTS, THEMES)


def test_the_command_shows_saved_results_and_refuses_an_unknown_name(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(RESULTS.document()))
    command = [sys.executable, "-m", "benchmarks.loopbench"]
    shown = subprocess.run([*command, "--read", file], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| 1 of 2 |" in shown.stdout
    refused = subprocess.run(
        [*command, "--only", "nobody"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "There is no framework 'nobody'" in " ".join(refused.stderr.split())


def test_a_scenario_is_explained_event_by_event() -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "promise")
    question = Shown((Sent("user", "Do the work."),), text="I will.")
    cell = judged(scenario, Observed((Stepped("say", "Do the work."), question, Told("success", "ok"))))
    text = explain(scenario, [(Column("One", {"one": "1.0"}, {}), [cell]), (RESULTS.columns[1], [])])
    for line in (
        scenario.right,
        "outside          say Do the work.",
        "model says       I will.",
        "not installed",
    ):
        assert line in text


def test_the_recorded_results_hold_every_scenario() -> None:
    found = read(ROOT / "benchmarks" / "loopbench" / "results.json")
    assert found.columns[0].title == "Signoff"
    names = {scenario.name for scenario in SCENARIOS}
    assert all(set(column.cells) == names for column in found.columns if not column.absent)


# Words end no task; `finish_alone=True` refuses a blind finish; an agent in a tool has no bound above it.
GUARDS_MISS = {"plain_answer", "blind_finish", "recursive_delegation"}


@pytest.mark.parametrize("title", ["create_agent with Guards", "deepagents with Guards"])
def test_guards_are_right_in_all_that_create_agent_claims_but_for_those_that_are_named(title: str) -> None:
    columns = {column.title: column.cells for column in read(RECORDED).columns}
    claimed = {name for name, (mark, _) in columns["LangChain create_agent"].items() if mark != "n/a"}
    right = {name for name, (mark, _) in columns[title].items() if mark == "ok"}
    not_claimed = {name for name, (mark, _) in columns[title].items() if mark == "n/a"}
    assert len(claimed - {"recursive_delegation"}) >= 47
    assert claimed - right - not_claimed <= GUARDS_MISS
    assert len(claimed & right) >= 45


def test_the_docs_show_the_recorded_results() -> None:
    assert TABLE.read_text() == page()
    assert PICTURE.read_text() == picture()
    recorded = read(RECORDED)
    # Ten frameworks, and two of them with guards.
    assert len(recorded.columns) == 12
    scenarios = {scenario.name for scenario in SCENARIOS}
    assert all(set(column.cells) == scenarios for column in recorded.columns)
    readme = (ROOT / "README.md").read_text()
    assert f"plays {len(SCENARIOS)} scenarios on ten frameworks" in readme
