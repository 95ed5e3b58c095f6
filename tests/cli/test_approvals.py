"""Approvals on the command line: what waits is told, only an answer that fits is delivered."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.benches.cli import Bench, offered, one_sentence, steps, words_of

WRITE = 'call("write_file", path="new.md", content="# New\\n")'
EDIT = 'call("edit_file", path="config.py", old="3000", new="4000")'
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'
DONE = 'call("finish_task", summary="All done.")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def waiting(bench: Bench, *calls: str, approve: str = "write") -> dict[str, Any]:
    """The document of a run that waits for approval of these calls of one reply."""
    bench.model(steps(f"[{', '.join(calls)}]", SAY, DONE))
    return bench.json("run", "Do it", "-t", "t1", "-w", str(bench.workspace), "--approve", approve)


def state(bench: Bench) -> tuple[Any, str, bool]:
    """All that an answer could change."""
    return bench.json("show", "t1"), bench.config.read_text(), (bench.workspace / "new.md").exists()


EDITED = {
    "type": "edit",
    "edited_action": {"name": "edit_file", "args": {"path": "config.py", "old": "3", "new": "5"}},
}

ANSWERS: dict[str, tuple[str, str, str]] = {
    "approve": ("approve", "PORT = 4000\n", "Edited config.py"),
    "in other words": (" Yes ", "PORT = 4000\n", "Edited config.py"),
    "reject": ("reject", "PORT = 3000\n", "rejected"),
    "reject with a reason": ("reject: leave\nthe port", "PORT = 3000\n", "leave\nthe port"),
    "no, and why": ("no, leave it", "PORT = 3000\n", "leave it"),
    "a list": ('[{"type": "approve"}]', "PORT = 4000\n", "Edited config.py"),
    "decisions": ('{"decisions": [{"type": "reject", "message": "é \\ud800"}]}', "PORT = 3000\n", "é \ufffd"),
    "edit": (json.dumps([EDITED]), "PORT = 5000\n", "changed the arguments"),
    "respond": ('{"type": "respond", "message": "I did it"}', "PORT = 3000\n", "I did it"),
    "an inbox": ('[{"type": "accept"}]', "PORT = 4000\n", "Edited config.py"),
}

MISFITS: dict[str, tuple[str, str]] = {
    "a typo": ("aprove", "'aprove' is not a decision"),
    "nothing": ("", "'' is not a decision"),
    "too many": ('[{"type": "approve"}, {"type": "approve"}]', "2 decisions for 1 calls"),
    "none": ("[]", "Nothing was answered"),
    "no type": ("[{}]", "is not a decision"),
    "unknown type": ('[{"type": "maybe"}]', "'maybe' is not a decision"),
    "edit of nothing": ('[{"type": "edit"}]', "edit needs edited_action"),
    "edit into another tool": (
        '[{"type": "edit", "edited_action": {"name": "run_shell", "args": {}}}]',
        "not the tool",
    ),
    "a number": ("[7]", "is not a decision"),
    "broken JSON": ('[{"type": ', "not valid JSON"),
    "a deep one": ("[" * 100_000, "nested too deeply"),
    "null": ('{"decisions": null}', "give one decision for each"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_decides(bench: Bench, case: str) -> None:
    answer, config, told = ANSWERS[case]
    asked = waiting(bench, EDIT)
    assert (asked["status"], asked["exit_code"], bench.config.read_text()) == ("waiting", 4, "PORT = 3000\n")
    ended = bench.json("resume", "t1", bench.decide(answer))
    assert (ended["exit_code"], bench.config.read_text()) == (0, config)
    assert told in ended["outcome"]["summary"]


@pytest.mark.parametrize("case", MISFITS)
def test_an_answer_that_does_not_fit_changes_nothing(bench: Bench, case: str) -> None:
    answer, told = MISFITS[case]
    waiting(bench, EDIT)
    before = state(bench)
    one_sentence(bench("resume", "t1", answer), told)
    assert state(bench) == before
    assert bench("resume", "t1", bench.decide()).exit_code == 0


def test_several_calls_are_decided_in_order(bench: Bench) -> None:
    asked = waiting(bench, EDIT, WRITE)
    assert [action["name"] for action in asked["approval"]["action_requests"]] == ["edit_file", "write_file"]
    one_sentence(bench("resume", "t1", '[{"type": "approve"}]'), "1 decisions for 2 calls")
    assert bench("resume", "t1", bench.decide('[{"type": "reject"}, {"type": "approve"}]')).exit_code == 0
    assert (bench.config.read_text(), (bench.workspace / "new.md").read_text()) == (
        "PORT = 3000\n",
        "# New\n",
    )


def test_what_waits_is_shown_with_the_commands_that_go_on(bench: Bench) -> None:
    waiting(bench, EDIT, WRITE)
    shown = bench("resume", "t1")
    assert shown.exit_code == 4
    told = [
        "Waiting for approval:",
        "1. edit_file  config.py",
        "- 3000",
        "+ 4000",
        "2. write_file  new.md",
        "+ # New",
    ]
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert [line for line in lines if line in told] == told
    commands = dict(line.split(": ", 1) for line in lines[-3:])
    assert list(commands) == ["Approve", "Reject", "Decide each"]
    assert bench(*words_of(commands["Decide each"])).exit_code == 0
    assert bench.config.read_text() == "PORT = 4000\n"


def test_threads_and_show_say_what_is_waited_for(bench: Bench) -> None:
    waiting(bench, EDIT)
    (row,) = json.loads(bench("threads", "--json").stdout)
    assert (row["status"], row["waits_for"], row["what"]) == ("waiting", "approval", "edit_file")
    assert "waiting for approval" in bench("threads").stdout
    assert bench("show", "t1").stdout.startswith("t1 · waiting for approval · ")
    found = bench.json("show", "t1")
    assert (found["question"], found["action"]) == (None, None)
    assert found["approval"]["action_requests"][0]["args"]["new"] == "4000"


def test_quiet_too_says_what_waits(bench: Bench) -> None:
    waiting(bench, EDIT)
    told = bench("resume", "t1", "--quiet").stdout.splitlines()
    assert told[:3] == ["edit_file  config.py", "  - 3000", "  + 4000"]
    assert told[3].startswith("Approve: signoff resume")


def test_a_message_to_a_thread_that_waits_rejects_the_calls(bench: Bench) -> None:
    waiting(bench, EDIT)
    result = bench("run", "approve of nothing", "--thread", "t1")
    assert result.exit_code == 0, result.output
    assert "your message rejects the calls" in result.stdout
    assert "approve of nothing" in result.stdout
    assert bench.config.read_text() == "PORT = 3000\n"


def test_the_policy_is_remembered_until_it_is_changed(bench: Bench) -> None:
    waiting(bench, EDIT)
    one_sentence(bench("run", "x", "-t", "t1", "--approve", "none"), "decide on them first")
    assert bench("resume", "t1", "reject").exit_code == 0
    again = bench.model(f"[{DONE}] * 2 + [{EDIT}] * 2 + [{DONE}]")
    assert bench("run", "Again", "-t", "t1", "--model", again).exit_code == 4
    assert bench("resume", "t1", "reject", "--json").exit_code == 4
    assert bench("resume", "t1", "reject").exit_code == 0
    assert bench.config.read_text() == "PORT = 3000\n"
    last = bench.model(f"[{DONE}] * 5 + [{EDIT}, {DONE}]")
    assert bench("run", "Again", "-t", "t1", "--model", last, "--approve", "none").exit_code == 0
    assert bench.config.read_text() == "PORT = 4000\n"


@pytest.mark.parametrize(
    ("approve", "asked"),
    [("write", True), ("edit_file", True), (" terminal , edit_file", True), ("read", False), ("none", False)],
)
def test_tools_and_kinds(bench: Bench, approve: str, asked: bool) -> None:
    found = waiting(bench, EDIT, approve=approve)
    assert (found["exit_code"], found["approval"] is not None) == (4 if asked else 0, asked)


@pytest.mark.parametrize(
    ("approve", "told"),
    [
        ("control", "cannot name control"),
        ("writes", "names 'writes'; use kinds (read, write, terminal)"),
        ("finish_task", "names 'finish_task'"),
        ("run_python", "names 'run_python'"),
        (" , ", "--approve is empty"),
    ],
)
def test_a_policy_that_names_what_is_not_there(bench: Bench, approve: str, told: str) -> None:
    one_sentence(bench.run("x", "--approve", approve), told)
    one_sentence(bench("show", "t1"), "no thread")


def test_hostile_arguments_are_shown_harmless_and_in_full(bench: Bench) -> None:
    evil = r"\x1b]0;x\x07\u202e" + "a" * 300 + r"\n\r$ ls\x1b[2K" + r"\n# end"
    waiting(bench, f'call("run_shell", command="{evil}", timeout=5)', approve="terminal")
    shown = bench("show", "t1").stdout
    assert not [character for character in shown if not character.isprintable() and character != "\n"]
    for part in ("run_shell", "timeout: 5", "a" * 300, "␍$ ls␛[2K", "$ # end"):
        assert part in shown


def test_all_that_would_run_is_printed(bench: Bench) -> None:
    wide = "x" * 50_000
    content = "".join(f"{number}\\n" for number in range(1000))
    waiting(bench, f'call("write_file", path="new.md", content="{content}{wide}")')
    shown = bench("show", "t1").stdout
    assert "".join(f"    + {number}\n" for number in range(1000)) in shown
    assert wide in shown
    assert "not shown" not in shown


ASK = 'call("ask_user", question="Delete all?")'
CLAIM = 'call("finish_task", summary="x", requires_user_confirmation=True)'
ENTERED_AGAIN = {
    "approve, then another call": ("Approve", EDIT),
    "approve, then the same call": ("Approve", WRITE),
    "approve, then a question": ("Approve", ASK),
    "approve, then a finish": ("Approve", CLAIM),
    "reject, then another call": ("Reject", EDIT),
    "each, then as many calls": ("Decide each", f"[{WRITE}, {EDIT}]"),
    "each, then a question": ("Decide each", ASK),
    "each, then a finish": ("Decide each", CLAIM),
}


class TestEnteredAgain:
    """What is printed beside the calls decides on exactly these calls, however often it is entered."""

    @pytest.mark.parametrize("case", ENTERED_AGAIN)
    def test_a_printed_command_fits_once(self, bench: Bench, case: str) -> None:
        label, step = ENTERED_AGAIN[case]
        bench.model(steps(f"[{WRITE}, {WRITE.replace('new', 'other')}]", step, DONE, DONE))
        bench.run("Do it", "--approve", "write")
        command = offered(bench("show", "t1").stdout)[label]
        bench(*command)
        before = state(bench)
        assert len(before[0]["tasks"][0]["turns"]) == 2
        one_sentence(bench(*command), "is not the id of what waits now")
        assert state(bench) == before

    @pytest.mark.parametrize("answer", ["approve", "yes", '[{"type": "approve"}]', json.dumps([EDITED])])
    def test_what_names_no_call_lets_nothing_run(self, bench: Bench, answer: str) -> None:
        waiting(bench, EDIT)
        before = state(bench)
        told = bench("resume", "t1", answer)
        one_sentence(told, "does not say which calls it is for", "signoff resume ")
        assert "@" not in told.stderr
        assert state(bench) == before

    @pytest.mark.parametrize("answer", ["approve@", "approve@000000", "reject@000000: why"])
    def test_what_names_others_is_refused(self, bench: Bench, answer: str) -> None:
        waiting(bench, EDIT)
        before = state(bench)
        one_sentence(bench("resume", "t1", answer), "does not fit")
        assert state(bench) == before

    def test_a_rejection_needs_no_name(self, bench: Bench) -> None:
        waiting(bench, EDIT)
        assert bench("resume", "t1", "reject").exit_code == 0
        assert bench.config.read_text() == "PORT = 3000\n"

    def test_calls_are_decided_by_their_ids_in_any_order(self, bench: Bench) -> None:
        asked = waiting(bench, EDIT, WRITE)["approval"]
        first, second = asked["call_ids"]
        given = [{"call_id": second, "type": "approve"}, {"call_id": first, "type": "reject"}]
        answer = json.dumps({"shown": asked["shown"], "decisions": given})
        assert bench("resume", "t1", answer).exit_code == 0
        assert bench.config.read_text() == "PORT = 3000\n"
        assert (bench.workspace / "new.md").exists()
