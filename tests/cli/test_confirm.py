"""A finish that a person must confirm: told with both commands, granted by a yes, else sent back."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.benches.cli import Bench, offered, one_sentence, steps, words_of

CLAIM = 'call("finish_task", summary="The port is 4000.", {})'
ASKED = CLAIM.format("requires_user_confirmation=True")
ISSUES = CLAIM.format('pending_issues=["The README says 3000", "No tests"]')
SAY = 'lambda m: call("finish_task", summary=m[-1].text)'

FINISHES: dict[str, tuple[str, bool]] = {
    "asks for it": (ASKED, True),
    "done, but problems stay open": (ISSUES, True),
    "asks for it of what is partly done": (
        CLAIM.format('outcome="partial", requires_user_confirmation=True'),
        True,
    ),
    "does not ask": (CLAIM.format("requires_user_confirmation=False"), False),
    "honest: partly done, problems stay open": (
        CLAIM.format('outcome="partial", pending_issues=["x"]'),
        False,
    ),
}

YES = ["yes", " Yes. ", "ok", "approve", "confirmed", "true"]
NO = {
    "no": "(no feedback)",
    "The README\nsays 3000": "The README\nsays 3000",
    "-1": "-1",
    "yes, but the README": "yes, but the README",
    "é\ud800": "é\ufffd",
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def waiting(bench: Bench, claim: str = ASKED) -> dict[str, Any]:
    bench.model(steps(claim, SAY))
    return bench.json("run", "Do it", "-t", "t1", "-w", str(bench.workspace))


@pytest.mark.parametrize("case", FINISHES)
def test_which_finish_waits(bench: Bench, case: str) -> None:
    claim, waits = FINISHES[case]
    assert (waiting(bench, claim)["status"] == "waiting") == waits


def test_what_is_told(bench: Bench) -> None:
    found = waiting(bench, ISSUES)
    issues = ["The README says 3000", "No tests"]
    assert found["confirmation"] == {
        "summary": "The port is 4000.",
        "claim": "done",
        "pending_issues": issues,
    }
    confirm = words_of(found["resume"])[-1]
    assert (found["exit_code"], confirm.split("@")[0]) == (4, "yes")
    for shown in (bench("resume", "t1").stdout, bench("show", "t1").stdout):
        body = "  The port is 4000.\n  • The README says 3000\n  • No tests\n"
        assert f"Finished? Please confirm:\n{body}" in shown
        assert {label: words[-1] for label, words in offered(shown).items()} == {
            "Confirm": confirm, "Send back": "what is wrong"
        }  # fmt: skip
    assert bench("show", "t1").stdout.startswith("t1 · waiting for confirmation · ")


def test_the_printed_commands_confirm_or_send_back(bench: Bench) -> None:
    waiting(bench)
    commands = offered(bench("resume", "t1").stdout)
    sent_back = bench(*commands["Send back"])
    assert (
        sent_back.exit_code,
        "      A person did not accept this: what is wrong\n" in sent_back.stdout,
    ) == (
        0,
        True,
    )
    waiting_again = bench.model(f"[{SAY}, {SAY}, {ASKED}]")
    assert bench("run", "And more", "-t", "t1", "--model", waiting_again).exit_code == 4
    one_sentence(bench(*commands["Confirm"]), "is not the id of what waits now")
    done = bench(*offered(bench("resume", "t1").stdout)["Confirm"])
    assert (done.exit_code, "Asserted: done\n  The port is 4000.\n" in done.stdout) == (0, True)


@pytest.mark.parametrize("answer", YES)
def test_a_yes_ends_the_task_without_another_turn(bench: Bench, answer: str) -> None:
    waiting(bench)
    found = bench.json("resume", "t1", answer)
    assert (found["exit_code"], found["outcome"]["turns"]) == (0, 1)
    assert found["outcome"]["summary"] == "The port is 4000."


@pytest.mark.parametrize("answer", NO)
def test_anything_else_is_what_is_wrong(bench: Bench, answer: str) -> None:
    waiting(bench)
    found = bench.json("resume", "t1", "--", answer)
    assert (found["exit_code"], found["outcome"]["turns"]) == (0, 2)
    assert f"A person did not accept this: {NO[answer]}\n" in found["outcome"]["summary"]


@pytest.mark.parametrize("answer", ["", " ", "\n"])
def test_an_empty_answer_is_none(bench: Bench, answer: str) -> None:
    waiting(bench)
    before = bench.json("show", "t1")
    one_sentence(bench("resume", "t1", answer), "does not fit", "Answer yes, or say what is wrong")
    assert bench.json("show", "t1") == before


def test_a_message_sends_it_back(bench: Bench) -> None:
    waiting(bench)
    result = bench("run", "The README, too", "-t", "t1")
    assert result.exit_code == 0
    assert "The thread waits: your message sends the result back." in result.stdout
    assert "A person did not accept this: The README, too" in result.stdout


def test_quiet_too_says_both_commands(bench: Bench) -> None:
    waiting(bench)
    told = bench("resume", "t1", "--quiet").stdout.splitlines()
    assert told[0] == "The port is 4000."
    assert [line.partition(":")[0] for line in told[1:]] == ["Confirm", "Send back"]
