"""`python -m loopcheck`: what it prints, and what it refuses in a sentence, before it measures."""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopcheck import VERSION
from loopcheck.case import load_cases
from loopcheck.faults import NOTHING
from loopcheck.results import Column, Results
from loopcheck.sources.registry import SOURCES
from loopcheck.subjects import list_subjects
from tests.conformance.test_table import RESULTS
from tests.conformance.tiny import LOOP
from tests.support.prepared import run_python

pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[2] / "conformance"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show gone.json", "gone.json contains no results; name a file saved by `loopcheck run --json`."),
        ("show empty.json", "contains no results"),
        ("show list.json", "contains no results"),
        ("show other.json", "contains no results"),
        ("show lists.json", "contains no results"),
        ("show marks.json", "contains no results"),
        ("show faults.json", "contains no results"),
        (
            "show good.json good.json",
            "cannot be combined with the files before it: both contain a subject 'one'.",
        ),
        ("show cases.json --svg cases.svg", "These results have no task runs, so there is nothing to draw."),
        ("show good.json --svg gone/table.svg", "Cannot write to "),
        ("run --json gone/results.json", "Cannot write to "),
        ("run --json .", "Cannot write to "),
        ("run --command x --folder good.json/x", "Cannot keep results in "),
        ("run --command x --url http://localhost:8700", "not allowed with argument --command"),
        ("run --command x --only signoff", "not allowed with argument"),
        ("run --command '", "argument --command: No closing quotation: '"),
        ("run --command= --what cases", "argument --command: it is empty"),
        (
            "run --url localhost:8700",
            "'localhost:8700' is not the address of a subject; use http://HOST:PORT.",
        ),
        ("run --command x --name a/b", "a name consists of letters, digits, - and _, unlike 'a/b'"),
        (
            "real --model m --base-url here --command x",
            "'here' is not an address such as http://localhost:8000/v1",
        ),
        ("run --only nobody", "There is no subject 'nobody'; the subjects are: signoff, "),
        ("run --what luck", "argument --what: invalid choice: 'luck'"),
        ("run --jobs 0", "argument --jobs: a number above 0"),
        ("show older.json", "These are results of the suite's version 0.9, and this is"),
        ("explain nothing", "There is no case 'nothing'; the cases are: "),
        ("install --only nobody", "There is no subject 'nobody'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, words: str, told: str) -> None:
    for name, text in {"empty": "", "list": "[]", "other": "{}", "lists": '{"subjects": [[]]}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    RESULTS.save(tmp_path / "good.json")
    for name, right, wrong in (("marks", '"ok"', '"great"'), ("faults", f'"{NOTHING}"', '"luck"')):
        (tmp_path / f"{name}.json").write_text((tmp_path / "good.json").read_text().replace(right, wrong))
    replace(RESULTS, columns=[replace(one, runs=[]) for one in RESULTS.columns]).save(tmp_path / "cases.json")
    replace(RESULTS, suite="0.9").save(tmp_path / "older.json")
    paths = [tmp_path / word if ".json" in word or ".svg" in word else word for word in words.split()]
    done = run_python("-m", "loopcheck", *paths, cwd=SUITE)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_saved_results_are_shown_and_drawn(tmp_path: Path) -> None:
    RESULTS.save(tmp_path / "results.json")
    picture = tmp_path / "results.svg"
    done = run_python("-m", "loopcheck", "show", tmp_path / "results.json", "--svg", picture, cwd=SUITE)
    assert "| **All tasks** | **1/2 (9 to 91 %)** | **n/a** |" in done.stdout
    assert picture.read_text().startswith("<svg")


def test_what_there_is_is_listed() -> None:
    listed = run_python("-m", "loopcheck", "list", cwd=SUITE).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    assert names == [*(one.name for one in list_subjects()), *SOURCES, *(one.name for one in load_cases())]


def test_who_reads_only_the_beginning_is_no_error() -> None:
    listing = subprocess.Popen(
        [sys.executable, "-m", "loopcheck", "list"], cwd=SUITE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with listing:
        assert listing.stdout is not None
        listing.stdout.close()
        _, told = listing.communicate(timeout=60)
    assert (listing.returncode, told) == (0, b"")


def test_a_subject_of_one_s_own_is_run_and_explained(tmp_path: Path) -> None:
    own = ["--command", shlex.join(LOOP), "--name", "loop"]
    file = tmp_path / "results.json"
    more = ["--what", "cases", "--folder", str(tmp_path / "runs"), "--json", str(file)]
    done = run_python("-m", "loopcheck", "run", *own, *more, cwd=SUITE)
    assert done.stdout.startswith("| promise | A small loop 1.0 |\n")
    [column] = Results.read(file).columns
    assert (column.name, set(column.cases)) == ("loop", {case.name for case in load_cases()})
    assert column.cases["crash_after_effect"][0] == "ok"
    assert json.loads(file.read_text())["seeds"] == []
    told = run_python("-m", "loopcheck", "explain", "failed_sibling", *own, cwd=SUITE).stdout
    assert "A small loop 1.0\n    ✓ " in told


@pytest.mark.parametrize("words", ["run --what cases", "explain promise"])
def test_a_subject_that_does_not_serve_is_told(tmp_path: Path, words: str) -> None:
    own = ["--command", shlex.join([sys.executable, "-c", "exit('no sense')"]), "--name", "own"]
    more = ["--folder", str(tmp_path)] if words.startswith("run") else []
    done = run_python("-m", "loopcheck", *words.split(), *own, *more, cwd=SUITE)
    why = "own: it did not start: It ended with status 1 before it served. It printed last: no sense"
    assert (done.returncode, why in done.stdout) == (1, True)


@pytest.mark.parametrize(("more", "status"), [([], 0), (["--strict"], 1)])
def test_a_claim_that_fails_is_an_error_to_who_asks_for_it(
    done_before: Path, more: list[str], status: int
) -> None:
    own = ["--command", shlex.join(LOOP), "--name", "loop", "--what", "cases"]
    done = run_python("-m", "loopcheck", "run", *own, "--folder", done_before, *more, cwd=SUITE)
    assert (done.returncode, "loop.cases: 60 kept from an earlier run" in done.stderr) == (status, True)


def test_all_is_played_again_for_who_asks_for_it(done_before: Path) -> None:
    own = ["--command", shlex.join(LOOP), "--name", "loop", "--what", "cases", "--anew"]
    done = run_python("-m", "loopcheck", "run", *own, "--folder", done_before, cwd=SUITE)
    assert len(done.stderr.splitlines()) == len(load_cases())
    assert "loop.cases: failed_sibling ok" in done.stderr


@pytest.fixture
def done_before(tmp_path: Path) -> Path:
    """What a run of the small loop has left, in which each case failed."""
    head = {"suite": VERSION, "framework": "A small loop", "versions": {"loop": "1.0"}}
    marks = [{"case": one.name, "version": one.version, "mark": "fail", "why": "."} for one in load_cases()]
    (tmp_path / "loop.cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [head, *marks]))
    return tmp_path


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The package as it is installed in another project: without the repository around it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SUITE / "loopcheck", tmp_path / "site" / "loopcheck", ignore=ignored)
    return tmp_path / "site"


@pytest.mark.parametrize("words", ["run --what cases", "install", "install --sources", "explain promise"])
def test_the_package_alone_says_what_it_has(alone: Path, words: str) -> None:
    done = run_python("-m", "loopcheck", *words.split(), cwd=alone)
    assert (done.returncode, done.stdout) == (2, "")
    assert "The package alone has only the unit cases, for your own subject: pass --command" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_alone_plays_the_unit_cases(alone: Path) -> None:
    own = ["--command", shlex.join(LOOP)]
    assert "failed_sibling" in run_python("-m", "loopcheck", "list", cwd=alone).stdout
    assert "    ✓ " in run_python("-m", "loopcheck", "explain", "promise", *own, cwd=alone).stdout


def test_results_of_two_files_stand_side_by_side(tmp_path: Path) -> None:
    RESULTS.save(tmp_path / "ours.json")
    other = Column("four", "Four | <b>", {"four": "4.0"}, {"promise": ("ok", "success", 1)})
    replace(RESULTS, columns=[other]).save(tmp_path / "theirs.json")
    done = run_python("-m", "loopcheck", "show", tmp_path / "ours.json", tmp_path / "theirs.json", cwd=SUITE)
    assert done.stdout.startswith("| promise | One 1.0 | Three 3.1 | Four \\| &lt;b> 4.0 |\n")
