"""Going on with a thread, whatever stopped it: `resume`, `fork`, `undo` and `pause`."""

import json

import pytest

from signoff import sqlite_storage
from signoff.session import request_pause
from tests.support.benches.cli import (
    Bench,
    bare,
    first_offered,
    offered,
    one_sentence,
    steps,
    undone_elsewhere,
    words_of,
)
from tests.support.benches.cli_steps import ASK, DONE, EDIT, LOOK


def test_a_limit_is_extended_by_as_many_turns_or_by_those_that_are_said(bench: Bench) -> None:
    bench.model(steps(LOOK, LOOK, LOOK, LOOK, DONE, LOOK, LOOK))
    on = first_offered(bench.run("Look", "--turns", "2").stdout) or []
    for words, code, reason, turns in ((["--turns", "1"], 3, "turns", 3), ([], 0, "finish_task", 5)):
        document = bench.json(*on, *words)
        outcome = document["outcome"]
        assert (document["exit_code"], outcome["reason"], outcome["turns"]) == (code, reason, turns)
    assert bench.json("run", "Again", "-t", "t1")["outcome"]["turns"] == 2, "the next task has its own"


# The script of a run, and a command that does not fit its end.
UNFIT: dict[str, tuple[str, list[str], list[str]]] = {
    "resume a success": (steps(DONE), ["resume", "t1"], ["signoff run --thread t1"]),
    "answer a limit": ("['a'] * 9", ["resume", "t1", "blue"], ["signoff run --thread t1"]),
    "pause what waits": (steps(ASK), ["pause", "t1"], ["'t1'"]),
    "pause what is not there": (steps(ASK), ["pause", "t2"], ["'t2'", "signoff threads"]),
    "undo what waits": (steps(EDIT, ASK), ["undo", "t1"], ["signoff resume"]),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_is_refused_with_the_command_that_does(bench: Bench, case: str) -> None:
    script, words, named = UNFIT[case]
    bench.model(script)
    bench.run("Do it", "--turns", "2")
    before = bench.json("show", "t1")
    one_sentence(bench(*words), *named)
    assert bench.json("show", "t1") == before


# After so many turns: what the file says in the end.
FORKS = {0: 9090, 2: 8080}


@pytest.mark.parametrize("at", FORKS)
def test_a_fork_after_so_many_turns_goes_its_own_way(bench: Bench, at: int) -> None:
    bench.run("Change it", "--turns", "7")
    bench("resume", "t1", "8080")
    original = bench.json("show", "t1")
    forked = bench.json("fork", "t1", "--to", "copy", "--at", str(at))
    assert (forked["thread_id"], forked["forked_from"]) == ("copy", "t1")
    copy = bench.json("show", "copy")
    assert (copy["status"], bench.turns("copy"), copy["settings"]) == ("stopped", at, original["settings"])
    bench.config.write_text("PORT = 3000\n")
    one_sentence(bench("resume", "copy", "blue"), "signoff resume")
    asked = bench.json(*bare(words_of(forked["resume"])))["question"]
    assert asked is None or bench("resume", "copy", "9090").exit_code == 0
    assert (bench.json("show", "copy")["status"], bench.turns("copy")) == ("success", 4)
    assert bench.config.read_text() == f"PORT = {FORKS[at]}\n"
    assert bench.json("show", "t1") == original


def test_a_point_or_a_name_that_no_fork_can_have(bench: Bench) -> None:
    bench.run()
    before = bench.json("show", "t1")
    for point in ("5", "-1", "", "\u0667", "9" * 10_000, "\x1b[31m"):
        one_sentence(bench("fork", "t1", f"--at={point}", "--to", "copy"))
    for name in ("t1", "", "x" * 501, "a\0b"):
        one_sentence(bench("fork", "t1", f"--to={name}"))
    assert bench.json("show", "t1") == before
    assert len(json.loads(bench("threads", "--json").stdout)) == 1


def test_what_was_undone_and_what_stands_is_told(bench: Bench) -> None:
    undone_elsewhere(bench)
    record = bench.json("show", "t1")["tasks"][-1]["outcome"]["undo"]
    assert [effect["said"] for effect in record["undone"]] == ["Removed from blue."]
    assert [effect["why"] for effect in record["standing"]] == ["no_undo"]
    shown = bench("show", "t1").stdout
    undone, standing = shown.index("deploy(target='blue') → Removed from blue."), shown.index("announce() (")
    assert shown.index("Undone:") < undone < shown.index("Not undone") < standing


def paused(bench: Bench, then: str) -> str:
    """A step of the model during which somebody asks for a pause, as `signoff pause` does."""
    ask = f"__import__({__name__!r}, fromlist=['x']).ask_for_a_pause({str(bench.database)!r})"
    return f"lambda m: ({ask}, {then})[1]"


def ask_for_a_pause(database: str) -> None:
    with sqlite_storage(database) as storage:
        request_pause(storage.store, "t1")


def test_a_pause_keeps_the_question_that_comes_meanwhile(bench: Bench) -> None:
    bench.model(steps(paused(bench, ASK), DONE))
    result = bench.run("x")
    assert (result.exit_code, result.stderr) == (4, "")
    assert (bench.json("show", "t1")["status"], bench.turns()) == ("paused", 1)
    on = next(iter(offered(result.stdout).values()))
    assert bare(on) == ["resume", "t1"]
    asked = bench(*on)
    assert asked.exit_code == 4
    assert (bench(*offered(asked.stdout)["Answer"]).exit_code, bench.turns()) == (0, 2)
