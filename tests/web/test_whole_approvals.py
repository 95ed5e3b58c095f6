"""What a person is asked to approve is drawn whole on the page; the record of past calls keeps its bounds."""

from collections.abc import Mapping
from typing import Any

import pytest

from signoff.events import CallFinished
from signoff.session.decisions import Action, AnyWaiting, Approval, PendingCall, Question
from signoff.session.history import Turn
from signoff.web.render import RenderedThread, Stand
from tests.support.benches.page import TASK, Node, read, run_of

LINES = [f"echo step {number}" for number in range(1_000)]
SCRIPT = "\n".join(LINES)
LONG_NAME = "a_tool_with_a_name_" + "_".join(f"part{number}" for number in range(40))
ASKED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "a script of many lines": ("run_shell", {"command": SCRIPT}),
    "code of many lines": ("run_python", {"code": SCRIPT}),
    "a file of many lines": ("write_file", {"path": "a.sh", "content": SCRIPT}),
    "a change of many lines": ("edit_file", {"path": "a.sh", "old": "x", "new": SCRIPT}),
    "a change far from another": (
        "edit_file",
        {"old": f"a\n{SCRIPT[:3000]}\nb", "new": f"A\n{SCRIPT[:3000]}\nB"},
    ),
    "many arguments": ("send_mail", {f"to{number}": line for number, line in enumerate(LINES[:60])}),
    "an argument of many lines": ("send_mail", {"text": SCRIPT}),
    "a long line": ("send_mail", {"text": " ".join(LINES)}),
    "a long name": (LONG_NAME, {"to": "all"}),
    "a long name of an argument": ("send_mail", {LONG_NAME: "all"}),
}


def asked(waiting: AnyWaiting) -> Node:
    return read(RenderedThread().parts(run_of(waiting=waiting), Stand())["ask"])


@pytest.mark.parametrize("case", ASKED)
def test_all_of_a_call_is_shown(case: str) -> None:
    name, args = ASKED[case]
    several = (PendingCall(name, args), *[PendingCall("list_files", {})] * 30)
    for waiting in (Approval("i", several), Action("i", name, args, unknown=True)):
        place = asked(waiting).one(class_="asked")
        assert place.all(class_="left-out") == []
        words = place.text
        assert name in words
        for key, value in args.items():
            for line in str(value).split("\n"):
                assert line in words
            assert key in words or key in ("command", "code", "content", "old", "new")


def test_all_of_a_question_and_of_a_claim_is_shown() -> None:
    options = tuple(f"the option {number}" for number in range(90))
    for waiting, texts in (
        (Question("i", SCRIPT, options, "c", SCRIPT.replace("\n", " ")), (*LINES, *options)),
        (
            Approval(
                "i",
                (
                    PendingCall(
                        "finish_task",
                        {"summary": SCRIPT, "pending_issues": LINES},
                        ("approve", "reject"),
                        id="c",
                    ),
                ),
                {"finish": True},
            ),
            LINES,
        ),
    ):
        place = asked(waiting).one(class_="asked")
        assert place.all(class_="left-out") == []
        assert [text for text in texts if text not in place.text] == []


@pytest.mark.parametrize("case", ASKED)
def test_the_record_of_a_call_is_bounded(case: str) -> None:
    name, args = ASKED[case]
    calls = tuple(CallFinished(1, name, args, True, SCRIPT) for _ in range(30))
    parts = RenderedThread().parts(run_of(Turn(TASK, 1, "", calls)), Stand())
    assert len("".join(parts.values())) < 1_000_000
    assert "left out of this page" in parts["p-turn-1-1"]
