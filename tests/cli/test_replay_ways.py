"""`signoff replay --to-test`, and `--model --from`: a thread as a test; another model goes on with it."""

from pathlib import Path
from typing import Any

import pytest

from signoff.session.as_test import why_it_fails
from tests.support.benches.cli import Bench, one_sentence, steps

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
LIST = 'call("list_files")'
WRITE = 'call("write_file", path="new.txt", content="new")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="8080")'
ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'
NOT_RECORDED = "This call is not among those that were recorded"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with a thread that looked, asked, changed the file and finished."""
    bench = Bench(tmp_path)
    bench.run("Change the port")
    bench("resume", "t1", "8080")
    return bench


def test_a_thread_is_written_as_a_test_that_passes(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "test_t1.py"
    result = bench("replay", "t1", "--to-test", str(file))
    assert (result.exit_code, result.stdout) == (
        0,
        f"Written to {file}; it passes. Look before you share it: it holds what was said and done.\n",
    )
    assert why_it_fails(file.read_text("utf-8")) == ""
    assert bench("replay", "t1", "--to-test", "-").stdout == file.read_text("utf-8")


def test_a_redaction_of_ones_own_is_named_like_a_graph(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def redact(text):\n    return text.replace('config', 'secret')\n")
    written = bench("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact").stdout
    assert "config.py" not in written
    assert "secret.py" in written


@pytest.mark.parametrize(("body", "why"), [("return None", "returned None"), ("1 / 0", "ZeroDivisionError")])
def test_a_redaction_that_fails_is_told_in_a_sentence(
    bench: Bench, tmp_path: Path, body: str, why: str
) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"def redact(text):\n    {body}\n")
    result = bench("replay", "t1", "--to-test", "-", "--redact", f"{own}:redact")
    one_sentence(result, "The redaction function", why)


def other(bench: Bench, *script: str, options: tuple[str, ...] = (), at: str = "2") -> dict[str, Any]:
    model = bench.model(steps(LOOK, *script))
    return bench.json("replay", "t1", "--model", model, "--from", at, *options)


def results(bench: Bench) -> list[tuple[str, bool, str]]:
    found = [event for event in bench.told("t1-fork-1") if event["kind"] == "call"]
    return [(event["name"], event["ok"], event["result"]) for event in found]


def test_another_model_goes_on_from_a_turn_on_what_was_recorded(bench: Bench) -> None:
    bench.config.write_text("PORT = 1\n")
    found = other(bench, EDIT, ASK, LIST, DONE)
    assert found["right"]["thread_id"] == "t1-fork-1"
    assert (found["differ_at"], found["left"]["status"], found["right"]["status"]) == (
        2,
        "success",
        "success",
    )
    assert len(found["right"]["turns"]) == 5
    recorded = [event for event in bench.told("t1") if event["kind"] == "call"]
    look, edit, listed = results(bench)
    assert (look[2], edit[2]) == tuple(event["result"] for event in recorded)
    assert (listed[1], listed[2].startswith(NOT_RECORDED)) == (False, True)
    assert bench.config.read_text() == "PORT = 1\n", "nothing ran"
    assert bench.turns("t1") == 4, "the thread stays"


@pytest.mark.parametrize(
    ("running", "listed", "written"), [("recorded", False, False), ("run", True, False), ("all", True, True)]
)
def test_which_calls_run_that_were_not_recorded(
    bench: Bench, running: str, listed: bool, written: bool
) -> None:
    other(bench, LIST, WRITE, DONE, options=("--tools", running))
    _, reads, writes = results(bench)
    assert (reads[1], writes[1]) == (listed, written)
    assert (bench.workspace / "new.txt").exists() is written


def test_a_result_is_given_once_and_another_question_is_not_answered(bench: Bench) -> None:
    asks = 'call("ask_user", question="Which host?")'
    found = other(bench, EDIT, EDIT, asks, DONE)
    _, first, second = results(bench)
    assert (first[1], second[1]) == (True, False)
    assert (found["right"]["status"], len(found["right"]["turns"])) == ("waiting", 4)


def test_a_person_is_asked_only_about_calls_that_run(bench: Bench) -> None:
    found = other(bench, EDIT, WRITE, DONE, options=("--tools", "all", "--approve", "write"))
    assert found["right"]["status"] == "waiting"
    model = bench.model(steps(LOOK, EDIT, WRITE, DONE))
    quiet = bench.json("replay", "t1", "--model", model, "--from", "2", "--approve", "write")
    assert quiet["right"]["status"] == "success"


def test_both_ways_stand_beside_each_other(bench: Bench) -> None:
    model = bench.model(steps(LOOK, DONE))
    told = bench("replay", "t1", "--model", model, "--from", "2").stdout
    head, *lines = told.splitlines()
    assert head.split() == ["t1", "t1-fork-1"]
    assert "turn 2 ≠  ask_user(" in told
    assert [line.split() for line in lines if line.startswith("turns")] == [["turns", "4", "2"]]


def test_bad_input_is_told_in_a_sentence(bench: Bench) -> None:
    model = bench.model(steps(DONE))
    one_sentence(bench("replay", "t1", "--model", model), "pass both")
    one_sentence(bench("replay", "t1", "--from", "2"), "pass both")
    one_sentence(bench("replay", "t1", "--model", model, "--from", "5"), "has 4 turns")
    one_sentence(bench("replay", "t1", "--model", "scripted:no.py", "--from", "2"), "There is no file")
    one_sentence(
        bench("replay", "t1", "--model", model, "--from", "2", "--tools", "x"), "recorded, run or all"
    )
    one_sentence(bench("replay", "t1", "--tools", "run"), "add --model NAME --from N")
    one_sentence(bench("replay", "t1", "--redact", "a:b"), "add --to-test FILE")
    assert "leave out --json" in bench("replay", "t1", "--to-test", "-", "--json").stderr
    one_sentence(bench("replay", "t1", "--to-test", "/nowhere/test.py"), "Cannot write to /nowhere/test.py")
    threads = bench("threads", "--json").stdout
    assert threads.count('"thread_id"') == 1, "no fork was left"
