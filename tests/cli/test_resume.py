"""`signoff resume ANSWER`: an answer goes to what was shown, or is refused and changes nothing."""

from typing import Any

import pytest

from signoff.text import WAITS
from tests.support.benches.cli import Bench, bare, offered, one_sentence, steps, words_of
from tests.support.benches.cli_steps import ASK, DONE, EDIT, SAY, WRITE

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


APPROVED, REJECTED = "PORT = 4000\n", "PORT = 3000\n"
EDITED = '[{"type": "edit", "edited_action": {"name": "edit_file", "args": {"path": "a"}}}]'
# An answer to the call that edits the file; what the file holds then, and what the model is told. Those that
# every face takes are in tests/faces.
DECISIONS: dict[str, tuple[str, str, str]] = {
    "reject with a reason": ("reject: leave\nthe port", REJECTED, "leave\nthe port"),
    "decisions": ('{"decisions": [{"type": "reject", "message": "é \\ud800"}]}', REJECTED, "é \ufffd"),
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
    '[{"type": "approve"}, {"type": "approve"}]': "2 decisions",
    '[{"type": "maybe"}]': "'maybe'",
    "[" * 100_000: "nested",
    # No call is named, or others.
    "approve": "resume",
    EDITED: "resume",
    "approve@000000": "id",
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
    "read": False,
    "control": None,
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


# A finish that a person must confirm: granted by a yes, else sent back.


def test_a_finish_is_shown_with_both_commands_and_each_fits_once(bench: Bench) -> None:
    bench.model(steps(CLAIM, SAY, CLAIM))
    asked = bench.json("run", "Do it", "-t", "t1", "-w", str(bench.workspace))
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
