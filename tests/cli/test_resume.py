"""`signoff resume ANSWER`: an answer goes to what was shown, or is refused and changes nothing."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from signoff.text import WAITS
from tests.support.benches.cli import (
    ASK,
    DONE,
    EDIT,
    SAY,
    WRITE,
    Bench,
    bare,
    offered,
    one_sentence,
    steps,
    words_of,
)

OTHER = 'call("write_file", path="other.md", content="# New\\n")'
CLAIM = (
    'call("finish_task", summary="It is 4000.", pending_issues=["No tests"], requires_user_confirmation=True)'
)


def waiting(bench: Bench, *calls: str, approve: str = "write") -> dict[str, Any]:
    """The document of a run that waits for a decision on these calls of one reply."""
    bench.model(steps(f"[{', '.join(calls)}]", SAY, DONE))
    return bench.json("run", "Do it", "-t", "t1", "-w", str(bench.workspace), "--approve", approve)


def state(bench: Bench) -> tuple[Any, str, list[str]]:
    """All that an answer could change."""
    files = [file.name for file in bench.workspace.iterdir()]
    return bench.json("show", "t1"), bench.config.read_text(), files


ARGS = {"path": "config.py", "old": "3", "new": "5"}
EDITED = json.dumps([{"type": "edit", "edited_action": {"name": "edit_file", "args": ARGS}}])
APPROVED, REJECTED = "PORT = 4000\n", "PORT = 3000\n"
# An answer to the call that edits the file; what the file holds then, and what the model is told.
DECISIONS: dict[str, tuple[str, str, str]] = {
    "approve": ("approve", APPROVED, "Edited config.py"),
    "reject with a reason": ("reject: leave\nthe port", REJECTED, "leave\nthe port"),
    "no, and why": ("no, leave it", REJECTED, "leave it"),
    "decisions": ('{"decisions": [{"type": "reject", "message": "é \\ud800"}]}', REJECTED, "é \ufffd"),
    "edit": (EDITED, "PORT = 5000\n", "Edited config.py"),
    "respond": ('{"type": "respond", "message": "I did it"}', REJECTED, "I did it"),
    "an inbox": ('[{"type": "accept"}]', APPROVED, "Edited config.py"),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_an_answer_decides_on_a_call(bench: Bench, case: str) -> None:
    answer, config, told = DECISIONS[case]
    asked = waiting(bench, EDIT)
    assert (asked["status"], asked["exit_code"], bench.config.read_text()) == ("waiting", 4, REJECTED)
    ended = bench.json("resume", "t1", bench.decide(answer))
    assert (ended["exit_code"], bench.config.read_text()) == (0, config)
    assert told in ended["outcome"]["summary"]


# Answers that do not fit, and what the refusal names. How each is read, the door shows.
MISFITS: dict[str, str] = {
    "aprove": "'aprove'",
    "": "''",
    '[{"type": "approve"}, {"type": "approve"}]': "2 decisions",
    '[{"type": "maybe"}]': "'maybe'",
    '[{"type": "edit", "edited_action": {"args": {"path": NaN}}}]': "NaN",
    '[{"type": ': "JSON",
    "[" * 100_000: "nested",
    # No call is named, or others.
    "approve": "resume",
    "yes": "resume",
    EDITED: "resume",
    "approve@": "id",
    "approve@000000": "id",
    "reject@000000: why": "id",
    "approve@{shown}: but not now": "approve",
}


def test_one_that_does_not_fit_changes_nothing(bench: Bench) -> None:
    shown = waiting(bench, EDIT)["approval"]["shown"]
    before = state(bench)
    for answer, named in MISFITS.items():
        refused = bench("resume", "t1", answer.replace("{shown}", shown))
        one_sentence(refused, named)
        assert shown not in refused.stderr, "an id is shown with what it stands for"
        assert state(bench) == before
    assert bench("resume", "t1", "reject").exit_code == 0, "a rejection needs no id"
    assert bench.config.read_text() == REJECTED


def test_several_calls_are_decided_in_order_or_by_their_ids(bench: Bench) -> None:
    asked = waiting(bench, EDIT, WRITE)["approval"]
    assert [action["name"] for action in asked["action_requests"]] == ["edit_file", "write_file"]
    for answer in ('[{"type": "approve"}]', "approve: x", 'edit: {"path": "x"}'):
        one_sentence(bench("resume", "t1", bench.decide(answer)))
    first, second = asked["call_ids"]
    by_ids = [{"call_id": second, "type": "approve"}, {"call_id": first, "type": "reject"}]
    for decisions in ([{"type": "reject"}, {"type": "approve"}], by_ids):
        fork = bench.json("fork", "t1")["thread_id"]
        shown = bench.json("resume", fork)["approval"]["shown"]
        answer = json.dumps({"shown": shown, "decisions": decisions})
        assert bench("resume", fork, answer).exit_code == 0
        assert (bench.config.read_text(), (bench.workspace / "new.md").exists()) == (REJECTED, True)
        (bench.workspace / "new.md").unlink()


def test_what_waits_is_shown_in_full_with_the_commands_that_decide(bench: Bench) -> None:
    numbers = "".join(f"{number}\\n" for number in range(1000))
    waiting(bench, EDIT, f'call("write_file", path="new.md", content="{numbers}{"x" * 50_000}")')
    shown = bench("resume", "t1")
    assert (shown.exit_code, bench("show", "t1").stdout[:28]) == (4, "t1 · waiting for approval · ")
    lines = [line.strip() for line in shown.stdout.splitlines()]
    wanted = [f"{WAITS['approval'].title}:", "1. edit_file  config.py", "- 3000", "+ 4000"]
    wanted += ["2. write_file  new.md", *(f"+ {number}" for number in range(1000))]
    assert [line for line in lines if line in wanted] == wanted
    assert "x" * 50_000 in shown.stdout
    quiet = bench("resume", "t1", "--quiet").stdout
    assert quiet.startswith("1. edit_file  config.py\n")
    commands = offered(quiet)
    assert list(commands) == ["Approve", "Reject", "Decide each"]
    assert commands == offered(shown.stdout)
    assert bench(*commands["Decide each"]).exit_code == 0
    assert bench.config.read_text() == APPROVED


def test_hostile_arguments_are_shown_harmless_and_in_full(bench: Bench) -> None:
    evil = r"\x1b]0;x\x07\u202e" + "a" * 300 + r"\n\r$ ls\x1b[2K" + r"\n# end"
    waiting(bench, f'call("run_shell", command="{evil}", timeout=5)', approve="terminal")
    shown = bench("show", "t1").stdout
    assert not [character for character in shown if not character.isprintable() and character != "\n"]
    for part in ("run_shell", "timeout: 5", "a" * 300, "␍$ ls␛[2K", "$ # end"):
        assert part in shown


# The printed command that is entered twice, and the step of the model after it.
ENTERED_AGAIN = {
    "approve, then the same call": ("Approve", WRITE),
    "each, then as many calls": ("Decide each", f"[{WRITE}, {EDIT}]"),
    "each, then a finish": ("Decide each", CLAIM),
}


@pytest.mark.parametrize("case", ENTERED_AGAIN)
def test_a_printed_command_decides_once(bench: Bench, case: str) -> None:
    label, step = ENTERED_AGAIN[case]
    bench.model(steps(f"[{WRITE}, {OTHER}]", step, DONE, DONE))
    bench.run("Do it", "--approve", "write")
    command = offered(bench("show", "t1").stdout)[label]
    bench(*command)
    before = state(bench)
    assert len(before[0]["tasks"][0]["turns"]) == 2
    one_sentence(bench(*command))
    assert state(bench) == before


# What --approve names, and whether the edit is asked about; None: it is refused.
POLICIES: dict[str, bool | None] = {
    "edit_file": True,
    " terminal , edit_file": True,
    "read": False,
    "none": False,
    "control": None,
    "finish_task": None,
    "run_python": None,
    " , ": None,
}


@pytest.mark.parametrize("policy", POLICIES)
def test_which_calls_are_asked_about(bench: Bench, policy: str) -> None:
    asks = POLICIES[policy]
    if asks is None:
        one_sentence(bench.run("x", "--approve", policy), "--approve", policy.strip(" ,"))
        one_sentence(bench("show", "t1"), "t1")
    else:
        assert (waiting(bench, EDIT, approve=policy)["approval"] is not None) is asks


def test_the_policy_is_remembered_until_it_is_changed(bench: Bench) -> None:
    waiting(bench, EDIT)
    one_sentence(bench("run", "x", "-t", "t1", "--approve", "none"), "--approve")
    assert bench("resume", "t1", "reject").exit_code == 0
    again = bench.model(f"[{DONE}] * 2 + [{EDIT}, {DONE}]")
    assert bench("run", "Again", "-t", "t1", "--model", again).exit_code == 4
    assert bench("resume", "t1", "reject").exit_code == 0
    last = bench.model(f"[{DONE}] * 4 + [{EDIT}, {DONE}]")
    assert bench("run", "Again", "-t", "t1", "--model", last, "--approve", "none").exit_code == 0
    assert bench.config.read_text() == APPROVED


# A finish that a person must confirm: granted by a yes, else sent back.


def claimed(bench: Bench) -> dict[str, Any]:
    bench.model(steps(CLAIM, SAY, CLAIM))
    return bench.json("run", "Do it", "-t", "t1", "-w", str(bench.workspace))


def test_a_finish_is_shown_with_both_commands_and_each_fits_once(bench: Bench) -> None:
    asked = claimed(bench)
    (finish,) = asked["approval"]["action_requests"]
    assert finish["args"]["pending_issues"] == ["No tests"]
    shown = bench("show", "t1").stdout
    assert shown.startswith("t1 · waiting for confirmation · ")
    assert f"{WAITS['confirmation'].title}:\n  It is 4000.\n  • No tests\n" in shown
    quiet = bench("resume", "t1", "--quiet").stdout
    assert quiet.startswith("It is 4000.\n")
    commands = offered(shown)
    assert commands == offered(quiet)
    assert words_of(asked["resume"]) == commands["Confirm"]
    assert [bare(words)[-1] for words in commands.values()] == ["yes", "what is wrong"]
    assert "what is wrong" in bench(*commands["Send back"]).stdout
    assert bench("run", "And more", "-t", "t1").exit_code == 4
    one_sentence(bench(*commands["Confirm"]), "id")
    assert bench(*offered(bench("resume", "t1").stdout)["Confirm"]).exit_code == 0


# An answer, and whether it is a yes, which ends the task without another turn.
ANSWERS: Mapping[str, bool] = {
    **dict.fromkeys((" Yes. ", "approve"), True),
    **dict.fromkeys(("no", "The README\nsays 3000", "-1", "yes, but the README", "é\ud800"), False),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_yes_ends_the_task_and_anything_else_is_what_is_wrong(bench: Bench, answer: str) -> None:
    is_yes = ANSWERS[answer]
    claimed(bench)
    before = state(bench)
    one_sentence(bench("resume", "t1", " \n"))
    assert state(bench) == before
    ended = bench.json("resume", "t1", "--", answer)
    assert (ended["exit_code"], ended["outcome"]["turns"]) == (0, 1 if is_yes else 2)
    told = "It is 4000." if is_yes else answer.replace("\ud800", "\ufffd")
    assert answer == "no" or told in ended["outcome"]["summary"]


def test_a_question_is_asked_again_until_it_is_answered(bench: Bench) -> None:
    asked = bench.json("run", "Change it", "-t", "t1", "-w", str(bench.workspace))
    question = asked["question"]
    assert (question["question"], question["options"]) == ("Which port?", ["8080", "9090"])
    assert bench.json("resume", "t1")["question"] == question
    *rest, _ = words_of(asked["resume"])
    assert bench(*rest, "2").exit_code == 0
    assert bench.config.read_text() == "PORT = 9090\n", "the second of its options"


MESSAGES: dict[str, tuple[str, str]] = {
    "answers a question": (ASK, "9090"),
    "rejects calls": (EDIT, "approve of nothing"),
    "sends a finish back": (CLAIM, "The README, too"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_to_a_thread_that_waits(bench: Bench, case: str) -> None:
    step, message = MESSAGES[case]
    bench.model(steps(step, DONE))
    bench.run("Do it", "--approve", "write")
    result = bench("run", message, "-t", "t1")
    assert (result.exit_code, "your message" in result.stdout) == (0, True)
    assert bench.config.read_text() == REJECTED
    for shown in (result.stdout, bench("show", "t1").stdout):
        assert shown.count(message) == 1, "it is told once"
