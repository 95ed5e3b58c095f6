"""What a person types on a decision is what they meant, or it is refused: nothing of it is dropped."""

from collections.abc import Mapping
from typing import Any

import pytest

from signoff.front.choices import answer_of
from signoff.graph.errors import ThreadError
from signoff.session.decisions import Approval, PendingCall

ONE, TWO = (PendingCall("run_shell", {"command": str(at)}) for at in (1, 2))
APPROVED: Mapping[str, Any] = {"type": "approve"}
NO: Mapping[str, Any] = {"type": "reject", "message": "no"}
EDITED = {"type": "edit", "edited_action": {"name": "run_shell", "args": {"command": "x"}}}

MEANT: dict[str, tuple[list[str], list[Mapping[str, Any]]]] = {
    "one word for all": (["approve"], [APPROVED, APPROVED]),
    "a colon and nothing": (["Approve: "], [APPROVED, APPROVED]),
    "a rejection for all": (["reject: no"], [NO, NO]),
    "each its own": (["approve", "reject: no"], [APPROVED, NO]),
    "one edited": (['edit: {"command": "x"}', "approve"], [EDITED, APPROVED]),
}
REFUSED: dict[str, tuple[list[str], str]] = {
    "words after an approval": (["approve: but only the first one, please"], "takes no further text"),
    "words after one of them": (["approve: and then stop", "approve"], "takes no further text"),
    "an edit for all": (['edit: {"command": "x"}'], "only an approval or a rejection can apply to all"),
    "an answer for all": (["respond: it is done"], "only an approval or a rejection can apply to all"),
    "too many": (["approve"] * 3, "2 calls to decide on, not 3"),
    "no decision": (["go"], "use one of: approve"),
    "no number": (['edit: {"n": NaN}', "approve"], "holds NaN"),
    "a number too large": (['edit: {"n": 1e999}', "approve"], "too large"),
    "no JSON": (["edit: no", "approve"], "not valid JSON"),
}


@pytest.mark.parametrize("case", MEANT)
def test_what_was_typed_on_two_calls(case: str) -> None:
    texts, decisions = MEANT[case]
    assert answer_of(texts, Approval("i", (ONE, TWO)), "a1") == {"shown": "a1", "decisions": decisions}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_clear_decides_nothing(case: str) -> None:
    texts, why = REFUSED[case]
    with pytest.raises(ThreadError, match=why):
        answer_of(texts, Approval("i", (ONE, TWO)))


def test_one_call_takes_every_decision() -> None:
    assert answer_of(["respond: 42"], Approval("i", (ONE,)))["decisions"] == [
        {"type": "respond", "message": "42"}
    ]
