"""`signoff fork`: a copy of a thread, from any point of it, that goes its own way; the thread stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.benches.cli import Bench, bare, one_sentence, steps, words_of

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
LOOK = 'call("read_file", path="config.py")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
CONFIRM = 'call("finish_task", summary="Look at it.", requires_user_confirmation=True)'
SHELL = 'call("run_shell", command="echo ran >> log")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fork(bench: Bench, *words: str, to: str = "copy") -> dict[str, Any]:
    found = bench.json("fork", "t1", "--to", to, *words)
    assert (found["thread_id"], found["forked_from"]) == (to, "t1")
    assert bare(words_of(found["resume"]))[:2] == ["resume", to]
    return found


def thread(bench: Bench, thread_id: str) -> dict[str, Any]:
    return bench.json("show", thread_id)


def turns(bench: Bench, thread_id: str) -> int:
    return len(thread(bench, thread_id)["tasks"][-1]["turns"])


AFTER: dict[int, tuple[str, bool, str]] = {
    # turns → what the fork is at first, whether it asks again, what the file says in the end
    0: ("stopped", True, "PORT = 9090\n"),
    1: ("stopped", True, "PORT = 9090\n"),
    2: ("stopped", False, "PORT = 8080\n"),
    3: ("stopped", False, "PORT = 3000\n"),
    4: ("success", False, "PORT = 3000\n"),
}


@pytest.mark.parametrize("at", AFTER)
@pytest.mark.sample(2)
def test_after_so_many_turns(bench: Bench, at: int) -> None:
    """Turn 2 asked and was answered with 8080, turn 3 changed the file, turn 4 finished."""
    status, asks, config = AFTER[at]
    bench.run("Change it")
    bench("resume", "t1", "8080")
    original = thread(bench, "t1")
    fork(bench, "--at", str(at))
    bench.config.write_text("PORT = 3000\n")
    assert (thread(bench, "copy")["status"], turns(bench, "copy")) == (status, at)
    if at < 4:
        found = bench.json("resume", "copy")
        assert (found["question"] is not None) == asks
    if asks:
        assert bench("resume", "copy", "9090").exit_code == 0
    assert (thread(bench, "copy")["status"], turns(bench, "copy")) == ("success", 4)
    assert bench.config.read_text() == config
    assert thread(bench, "t1") == original


def test_without_a_point_it_is_a_copy_of_what_is_there_now(bench: Bench) -> None:
    bench.run("Change it")
    fork(bench)
    again = bench.json("resume", "copy")
    assert again["question"]["question"] == "Which port?"
    assert bench("resume", "copy", "9090").exit_code == 0
    assert thread(bench, "t1")["status"] == "waiting"
    bench.config.write_text("PORT = 3000\n")
    assert bench("resume", "t1", "8080").exit_code == 0
    assert bench.config.read_text() == "PORT = 8080\n"


@pytest.mark.thorough
def test_at_each_checkpoint_that_show_lists(bench: Bench) -> None:
    bench.model(steps(LOOK, '"Hm."', DONE))
    bench.run()
    original = thread(bench, "t1")
    (task,) = original["tasks"]
    saved = [step for turn in task["turns"] for step in turn["steps"]]
    assert len(saved) == 14
    for number, step in enumerate(saved):
        fork(bench, "--at", step["checkpoint_id"], to=f"copy{number}")
        found = thread(bench, f"copy{number}")
        if found["status"] != "success":
            assert bench("resume", f"copy{number}").exit_code == 0, step
        assert turns(bench, f"copy{number}") == 3, step
    assert thread(bench, "t1") == original


def script_of(kind: str) -> tuple[str, list[str]]:
    return {
        "success": (steps(LOOK, DONE), []),
        "limit": (f"[{LOOK}] * 9", ["--turns", "2"]),
        "error": (steps(LOOK, LOOK, "ValueError()"), []),
        "question": (steps(LOOK, 'call("ask_user", question="Which?")'), []),
        "approval": (steps(LOOK, EDIT, DONE), ["--approve", "write"]),
        "confirmation": (steps(LOOK, CONFIRM), []),
    }[kind]


def waiting(found: dict[str, Any]) -> list[Any]:
    """What a thread waits for, without the ids that a decision on it has to name: those are its own."""
    every = [found[name] for name in ("question", "approval", "confirmation")]
    return [one and {key: value for key, value in one.items() if key != "shown"} for one in every]


@pytest.mark.parametrize("kind", ["success", "limit", "error", "question", "approval", "confirmation"])
@pytest.mark.sample(2)
def test_of_a_thread_however_it_stands(bench: Bench, kind: str) -> None:
    """A fork of what has ended has ended, too; one of what waits goes on to wait for the same."""
    script, options = script_of(kind)
    bench.model(script)
    bench.run("Do it", *options)
    original = thread(bench, "t1")
    fork(bench)
    found = thread(bench, "copy")
    assert len(found["tasks"][0]["turns"]) == len(original["tasks"][0]["turns"])
    if original["outcome"]:
        assert (found["status"], found["outcome"]["status"]) == (kind, kind)
    else:
        assert bench("resume", "copy").exit_code == 4
        waits = waiting(thread(bench, "copy"))
        assert waits == waiting(original)
    fork(bench, "--at", "1", to="earlier")
    assert (thread(bench, "earlier")["status"], turns(bench, "earlier")) == ("stopped", 1)
    bench("resume", "earlier")
    assert thread(bench, "earlier")["status"] == original["status"]
    assert thread(bench, "t1") == original


@pytest.mark.parametrize(
    ("kind", "words"), [("limit", ["extend", "copy", "5"]), ("error", ["retry", "copy"])]
)
def test_of_what_has_ended_goes_on_like_the_thread_itself(bench: Bench, kind: str, words: list[str]) -> None:
    script, options = script_of(kind)
    bench.model(script)
    bench.run("Do it", *options)
    original = thread(bench, "t1")
    fork(bench)
    model = bench.model(steps(LOOK, LOOK, DONE))
    assert bench(*words, "--model", model).exit_code == 0
    assert (thread(bench, "copy")["outcome"]["turns"], thread(bench, "t1")) == (3, original)


def test_of_a_later_task_counts_the_turns_of_that_task(bench: Bench) -> None:
    bench.model(steps(DONE, LOOK, DONE))
    bench.run("The first")
    bench.run("The second")
    fork(bench, "--at", "1")
    told = [(task["words"], len(task["turns"])) for task in thread(bench, "copy")["tasks"]]
    assert told == [(["The first"], 1), (["The second"], 1)]
    assert bench("resume", "copy").exit_code == 0


def test_an_effect_that_has_taken_place_is_not_repeated(bench: Bench) -> None:
    bench.model(steps(f"[{SHELL}, {LOOK}]", DONE))
    bench.run()
    ran = bench.workspace / "log"
    (task,) = thread(bench, "t1")["tasks"]
    # The reply has come, its calls are still open.
    point = next(step for step in task["turns"][0]["steps"] if step["state"] == "call_llm")
    fork(bench, "--at", point["checkpoint_id"])
    assert bench("resume", "copy").exit_code == 0
    assert ran.read_text() == "ran\n"


def test_it_has_the_settings_of_its_thread(bench: Bench) -> None:
    bench.model(steps(LOOK, EDIT, DONE))
    bench.run("Do it", "--approve", "write", "--turns", "7")
    fork(bench, "--at", "1")
    assert thread(bench, "copy")["settings"] == thread(bench, "t1")["settings"]
    assert bench("resume", "copy", SIGNOFF_MODEL="gpt-none").exit_code == 4


def test_a_fork_at_a_question_says_that_it_waits_for_an_answer(bench: Bench) -> None:
    assert bench.run().exit_code == 4
    told = bench("fork", "t1", "--to", "other").stdout
    assert told.startswith("Forked to other, which waits for an answer: Which port?\nAnswer it with: signoff")
    found = bench.json("fork", "t1", "--to", "third")
    assert (found["waits_for"], found["question"]) == ("answer", "Which port?")
    assert bench("resume", "other", "9090").exit_code == 0
    assert "9090" in bench.config.read_text()


def test_a_fork_has_a_name_of_its_own_and_says_how_to_go_on(bench: Bench) -> None:
    bench.run()
    for number in (1, 2):
        told = bench("fork", "t1").stdout
        head = f"Forked to t1-fork-{number}, which waits for an answer: Which port?\nAnswer it with: "
        assert told.startswith(f"{head}signoff resume --database ")
        assert bench(*words_of(told.removeprefix(head))).exit_code == 0
    assert {row["thread_id"] for row in json.loads(bench("threads", "--json").stdout)} == {
        "t1", "t1-fork-1", "t1-fork-2"
    }  # fmt: skip


POINTS: dict[str, tuple[str, list[str]]] = {
    "beyond the end": ("5", ["has 2 turns", "there is no turn 5"]),
    "negative": ("-1", ["--at is '-1'", "number of turns"]),
    "a fraction": ("1.5", ["no checkpoint '1.5'", "signoff show --json"]),
    "words": ("the end", ["no checkpoint 'the end'"]),
    "nothing": ("", ["--at is ''"]),
    "an unknown checkpoint": ("1ef4f797-8335-6428-8001-8a1503f9b875", ["no checkpoint '1ef4f797"]),
    "SQL": ("' OR '1'='1", ["no checkpoint"]),
    "digits without end": ("9" * 10_000, ["--at is '999"]),
    "letters without end": ("x" * 10_000, ["--at is 'xxx"]),
    "NUL": ("a\0b", ["--at is 'a\\x00b'"]),
    "an escape": ("\x1b[31m", ["--at is"]),
    "other digits": ("\u0667", ["there is no turn 7"]),
}


@pytest.mark.parametrize("case", POINTS)
@pytest.mark.sample(4)
def test_a_point_that_is_none(bench: Bench, case: str) -> None:
    at, parts = POINTS[case]
    bench.run()
    before = thread(bench, "t1")
    one_sentence(bench("fork", "t1", f"--at={at}", "--to", "copy"), *parts)
    one_sentence(bench("show", "copy"), "no thread 'copy'")
    assert thread(bench, "t1") == before


@pytest.mark.parametrize(
    ("to", "told"),
    [("t1", "Thread 't1' already exists"), ("t2", "Thread 't2' already exists"),
     ("", "not empty and without NUL"), ("x" * 10_000, "at most 500 characters"), ("a\0b", "without NUL")],
)  # fmt: skip
@pytest.mark.sample(2)
def test_a_name_that_cannot_be_taken(bench: Bench, to: str, told: str) -> None:
    bench.run()
    bench.run(thread="t2")
    before = thread(bench, "t1"), thread(bench, "t2")
    one_sentence(bench("fork", "t1", f"--to={to}"), told)
    assert (thread(bench, "t1"), thread(bench, "t2")) == before
    assert len(json.loads(bench("threads", "--json").stdout)) == 2


@pytest.mark.parametrize("to", ["a/b/../c", 'it\'s "quoted"; --', "-x", "é 日本", "%", "x" * 500])
@pytest.mark.sample(2)
def test_a_name_is_any_text(bench: Bench, to: str) -> None:
    bench.run()
    assert json.loads(bench("fork", "t1", f"--to={to}", "--json").stdout)["thread_id"] == to
    assert bench("resume", "--", to).exit_code == 4
    assert bench("resume", "--", to, "8080").exit_code == 0
