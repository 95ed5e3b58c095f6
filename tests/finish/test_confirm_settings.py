"""Which finishes need a person, and how the person's answer is read."""

from typing import Any

import pytest

from signoff.tools.answers import ConfirmationAnswer, read_confirmation
from signoff.tools.control import needs_confirmation

WRONG = ConfirmationAnswer(False, "wrong")
ANSWERS: list[tuple[Any, ConfirmationAnswer]] = [
    *(
        (word, ConfirmationAnswer(True))
        for word in (True, "yes", "y", "OK", " Confirm ", "confirmed", "Yes!")
    ),
    *((word, ConfirmationAnswer(True)) for word in ("approve", "approved", "accept", "accepted", "true")),
    *((word, ConfirmationAnswer(False)) for word in (False, "no", "N", "reject", "Rejected.", "false")),
    ("wrong", WRONG),
    ("  yes, but the title is wrong ", ConfirmationAnswer(False, "yes, but the title is wrong")),
    ({"type": "confirm"}, ConfirmationAnswer(True)),
    ({"type": "approve", "message": "well done"}, ConfirmationAnswer(True, "well done")),
    ({"type": "reject"}, ConfirmationAnswer(False)),
    ({"type": "reject", "message": "wrong"}, WRONG),
    ({"type": "ignore", "args": None}, ConfirmationAnswer(False)),
    ({"type": "response", "args": "wrong"}, WRONG),
    ({"type": "response", "args": "yes"}, ConfirmationAnswer(True)),
    ({"confirmed": True}, ConfirmationAnswer(True)),
    ({"confirmed": "no", "feedback": "wrong"}, WRONG),
    ({"confirmed": False, "feedback": "yes"}, ConfirmationAnswer(False, "yes")),
    ({"confirmed": "wrong"}, WRONG),
    ({"feedback": "wrong"}, WRONG),
    ({"decisions": [{"type": "approve"}]}, ConfirmationAnswer(True)),
    ({"decisions": [{"type": "reject", "message": "wrong"}]}, WRONG),
    ([{"type": "accept", "args": None}], ConfirmationAnswer(True)),
    (["yes"], ConfirmationAnswer(True)),
]


@pytest.mark.parametrize(("answer", "read"), ANSWERS, ids=lambda value: repr(value))
def test_an_answer_is_read_in_all_its_shapes(answer: Any, read: ConfirmationAnswer) -> None:
    assert read_confirmation(answer) == read


def nested(depth: int) -> Any:
    value: Any = "yes"
    for _ in range(depth):
        value = [value]
    return value


BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "None is neither a yes nor words"),
    "no words": ("  ", "is neither"),
    "a number": (1, "1 is neither"),
    "an empty object": ({}, "is neither"),
    "an unknown type": ({"type": "maybe"}, "is neither"),
    "an edit": ({"type": "edit", "args": {"summary": "x"}}, "is neither"),
    "a number under its key": ({"confirmed": 1}, "1 is neither"),
    "no decision": ([], "0 decisions for one finish"),
    "two decisions": (["yes", "no"], "2 decisions for one finish"),
    "a list in a list": ([["yes"]], "is neither"),
    "nested very deep": (nested(100_000), "is neither"),
    "very long": ([["x" * 10_000]], "is neither"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_says_why_in_few_words(name: str) -> None:
    answer, why = BAD[name]
    with pytest.raises(ValueError, match=why) as raised:
        read_confirmation(answer)
    assert len(str(raised.value)) < 200


CLAIMS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"outcome": "done", "pending_issues": []}, False),
    ({"pending_issues": ["x"]}, True),
    ({"outcome": "done", "pending_issues": ["x"]}, True),
    *(({"outcome": word, "pending_issues": ["x"]}, False) for word in ("partial", "blocked", "impossible")),
    *(({"outcome": word, "requires_user_confirmation": True}, True) for word in ("done", "blocked")),
    ({"requires_user_confirmation": False, "pending_issues": None}, False),
]


@pytest.mark.parametrize(("claim", "needed"), CLAIMS)
def test_which_claims_need_a_person(claim: dict[str, Any], needed: bool) -> None:
    assert needs_confirmation(claim) is needed
