"""Going on with a thread, whatever stopped it: `resume`, `fork`, `undo` and `pause`."""

import json

import pytest

from signoff import sqlite_storage
from signoff.session import request_pause
from tests.support.benches.cli import (
    ASK,
    DONE,
    EDIT,
    LOOK,
    WRITE,
    Bench,
    bare,
    first_offered,
    offered,
    one_sentence,
    steps,
    undone_elsewhere,
    words_of,
)

# The options of each `resume` after two turns; the last exit code, the reason and all turns.
GRANTED: dict[str, tuple[list[list[str]], tuple[int, str, int]]] = {
    "as many as the limit, twice": ([[], []], (0, "finish_task", 5)),
    "just enough: a finish on the last turn": ([["--turns", "2"], ["--turns", "1"]], (0, "finish_task", 5)),
    "too few": ([["--turns", "1"]], (3, "turns", 3)),
}


@pytest.mark.parametrize("case", GRANTED)
def test_a_limit_is_extended(bench: Bench, case: str) -> None:
    granted, (code, reason, turns) = GRANTED[case]
    bench.model(steps(LOOK, LOOK, LOOK, LOOK, DONE, LOOK, LOOK))
    on = first_offered(bench.run("Look", "--turns", "2").stdout) or []
    for words in granted:
        document = bench.json(*on, *words)
    outcome = document["outcome"]
    assert (document["exit_code"], outcome["reason"], outcome["turns"]) == (code, reason, turns)
    second = bench.json("show", "t1")["tasks"][0]["turns"][1]["events"]
    assert [second[0]["kind"], second[-1]["kind"]] == ["call", "nudge"], "that it goes on is told there"
    if code == 0:
        assert bench.json("run", "Again", "-t", "t1")["outcome"]["turns"] == 2, "the next task has its own"


def test_an_error_is_tried_again(bench: Bench) -> None:
    bench.model(steps(LOOK, 'RuntimeError("gone")'))
    words = offered(bench.run().stdout)["Try again"]
    assert bench(*words).exit_code == 1, "the same model fails again"
    document = bench.json(*bare(words), "--model", bench.model(steps(LOOK, DONE)))
    assert (document["exit_code"], document["outcome"]["turns"]) == (0, 2)


# The script of a run, and a command that does not fit its end.
UNFIT: dict[str, tuple[str, list[str], list[str]]] = {
    "resume a success": (steps(DONE), ["resume", "t1"], ["signoff run --thread t1"]),
    "answer a limit": ("['a'] * 9", ["resume", "t1", "blue"], ["signoff run --thread t1"]),
    "pause what has ended": (steps(DONE), ["pause", "t1"], ["'t1'"]),
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


# Turn 2 asked and was answered with 8080, turn 3 changed the file, turn 4 finished: after so many turns, what
# the file says in the end.
FORKS = {0: 9090, 2: 8080, 4: 3000}


@pytest.mark.parametrize("at", FORKS)
def test_a_fork_after_so_many_turns_goes_its_own_way(bench: Bench, at: int) -> None:
    bench.run("Change it", "--turns", "7")
    bench("resume", "t1", "8080")
    original = bench.json("show", "t1")
    forked = bench.json("fork", "t1", "--to", "copy", "--at", str(at))
    assert (forked["thread_id"], forked["forked_from"]) == ("copy", "t1")
    copy = bench.json("show", "copy")
    assert (copy["status"], bench.turns("copy")) == ("success" if at == 4 else "stopped", at)
    assert copy["settings"] == original["settings"]
    bench.config.write_text("PORT = 3000\n")
    if at < 4:
        one_sentence(bench("resume", "copy", "blue"), "signoff resume")
        asked = bench.json(*bare(words_of(forked["resume"])))["question"]
        assert (asked is not None) == (at == 0)
    if at == 0:
        assert bench("resume", "copy", "9090").exit_code == 0
    assert (bench.json("show", "copy")["status"], bench.turns("copy")) == ("success", 4)
    assert bench.config.read_text() == f"PORT = {FORKS[at]}\n"
    assert bench.json("show", "t1") == original


def test_a_fork_at_a_question_says_that_it_waits_and_how_to_answer(bench: Bench) -> None:
    bench.run()
    for number in (1, 2):
        told = bench("fork", "t1").stdout
        assert told.startswith(f"Forked to t1-fork-{number}, ")
        assert "Which port?" in told
        words = words_of("signoff " + told.partition(": signoff ")[2])
        assert bench(*words[:-1], "9090").exit_code == 0
    document = bench.json("fork", "t1", "--to", "third")
    assert (document["waits_for"], document["question"]) == ("answer", "Which port?")


def test_a_point_or_a_name_that_no_fork_can_have(bench: Bench) -> None:
    bench.run()
    before = bench.json("show", "t1")
    points = ["5", "-1", "1.5", "", "1ef4f797-8335-6428-8001-8a1503f9b875", "' OR '1'='1", "a\0b", "\u0667"]
    for point in (*points, "9" * 10_000, "\x1b[31m"):
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


def test_edits_of_files_are_not_undone(bench: Bench) -> None:
    bench.model(steps(WRITE, EDIT, DONE))
    assert bench.run("Go", "--turns", "2").exit_code == 3
    undone = bench.json("undo", "t1")
    assert (undone["exit_code"], bench.config.read_text()) == (3, "PORT = 4000\n")
    assert (bench.workspace / "new.md").exists()
    standing = undone["outcome"]["undo"]["standing"]
    assert [effect["call"].partition("(")[0] for effect in standing] == ["edit_file", "write_file"]


def paused(bench: Bench, then: str) -> str:
    """A step of the model during which somebody asks for a pause, as `signoff pause` does."""
    ask = f"__import__({__name__!r}, fromlist=['x']).ask_for_a_pause({str(bench.database)!r})"
    return f"lambda m: ({ask}, {then})[1]"


def ask_for_a_pause(database: str) -> None:
    with sqlite_storage(database) as storage:
        request_pause(storage.store, "t1")


# The reply that comes meanwhile, the steps after it, how the run is shown, the turns in the end.
MEANWHILE: dict[str, tuple[str, list[str], list[str], int]] = {
    "a call": (LOOK, [DONE], ["--quiet"], 2),
    "a finish": (DONE, [], [], 1),
    "a question": (ASK, [DONE], [], 2),
}


@pytest.mark.parametrize("case", MEANWHILE)
def test_a_pause_keeps_the_reply_that_comes_meanwhile(bench: Bench, case: str) -> None:
    reply, rest, options, turns = MEANWHILE[case]
    bench.model(steps(paused(bench, reply), *rest))
    result = bench.run("x", *options)
    assert (result.exit_code, result.stderr) == (4, "")
    assert (bench.json("show", "t1")["status"], bench.turns()) == ("paused", 1)
    on = next(iter(offered(result.stdout).values()))
    assert bare(on) == ["resume", "t1"]
    after = bench(*on)
    if case == "a question":
        assert after.exit_code == 4
        after = bench(*offered(after.stdout)["Answer"])
    assert (after.exit_code, bench.turns()) == (0, turns)
