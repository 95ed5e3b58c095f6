"""`python -m loopcheck`: what it prints, and what it refuses before it measures."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopcheck import VERSION
from loopcheck.bench import Bench
from loopcheck.case import load_cases
from loopcheck.driver import NEEDS_A_COMMAND, run_case
from loopcheck.results import Results
from tests.conformance.test_results import RESULTS
from tests.conformance.tiny import LOOP, SUITE

pytestmark = pytest.mark.slow

OWN = ["--command", shlex.join(LOOP), "--name", "loop"]


def run(*words: str | Path, cwd: Path = SUITE) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loopcheck", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("words", "told"),
    [("show gone.json", "gone.json"), ("run --command '", "--command"), ("explain nothing", "'nothing'")],
)
def test_what_cannot_be_done_is_refused(words: str, told: str) -> None:
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert (told in done.stderr, "Traceback" in done.stderr) == (True, False)


def test_saved_results_are_shown_side_by_side_and_drawn(tmp_path: Path) -> None:
    RESULTS.save(tmp_path / "ours.json")
    other = replace(RESULTS.columns[2], name="four", title="Four | <b>", absent="")
    replace(RESULTS, columns=[other]).save(tmp_path / "theirs.json")
    done = run("show", tmp_path / "ours.json", tmp_path / "theirs.json", "--svg", tmp_path / "results.svg")
    assert "| **All tasks** | **1/2 (9 to 91 %)** | **n/a** | **n/a** |" in done.stdout
    assert ("Four \\| &lt;b>" in done.stdout, (tmp_path / "results.svg").exists()) == (True, True)


def test_a_subject_of_one_s_own_is_run_and_explained(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = run("run", *OWN, "--what", "cases", "--folder", tmp_path / "runs", "--json", file)
    assert done.stdout.startswith("| promise | A small loop 1.0 |\n")
    (column,) = Results.read(file).columns
    assert (column.name, set(column.cases)) == ("loop", {case.name for case in load_cases()})
    assert column.cases["crash_after_effect"][0] == "ok"
    assert "    ✓ " in run("explain", "failed_sibling", *OWN).stdout


def test_a_claim_that_fails_is_an_error_to_who_asks_for_it(tmp_path: Path) -> None:
    head = {"suite": VERSION, "framework": "A small loop", "versions": {"loop": "1.0"}}
    marks = [{"case": one.name, "version": one.version, "mark": "fail", "why": "."} for one in load_cases()]
    (tmp_path / "loop.cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [head, *marks]))
    known: list[str | Path] = ["run", *OWN, "--what", "cases", "--folder", tmp_path]
    assert [run(*known).returncode, run(*known, "--strict").returncode] == [0, 1]


def test_the_package_alone_plays_the_unit_cases_and_no_more(tmp_path: Path) -> None:
    """As it is installed in another project: without the repository around it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SUITE / "loopcheck", tmp_path / "loopcheck", ignore=ignored)
    refused = run("run", "--what", "cases", cwd=tmp_path)
    assert (refused.returncode, refused.stdout, "--command" in refused.stderr) == (2, "", True)
    assert "    ✓ " in run("explain", "promise", *OWN, cwd=tmp_path).stdout


def test_a_subject_that_runs_already_is_not_killed() -> None:
    port = "19999"
    with subprocess.Popen(LOOP, env={**os.environ, "LOOPCHECK_PORT": port}) as process:
        try:
            with Bench([], f"http://127.0.0.1:{port}") as bench:
                names = ("crash_before_reply", "failed_sibling")
                cells = {one.name: run_case(bench, one) for one in load_cases() if one.name in names}
            assert process.poll() is None
        finally:
            process.kill()
    assert (cells["crash_before_reply"].mark, cells["crash_before_reply"].why) == ("n/a", NEEDS_A_COMMAND)
    assert cells["failed_sibling"].mark == "ok"
