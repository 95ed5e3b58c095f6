"""The scripts in which a finish waits for a person: what the model says, what is sent, how each must end."""

from typing import Any

from langgraph.types import Command

from signoff import Limits
from signoff.models import call
from tests.support.cases.loop import AGAIN, FAIL, FINISH, GO, NOTHING, SUCCESS, WRITE, Case, limit
from tests.support.histories import ai, done, user

CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
YES: Any = Command(resume="yes")
NO: Any = Command(resume="The title is wrong.")
NO_MESSAGE: list[Any] = [("user", "The title is wrong.")]
REFUSED_ONCE = {**SUCCESS, "turns": 2, "refusals": 1}
SENT_BACK = "A person did not accept this: The title is wrong."
TELLS_IMPORT = "A person did not accept your finish_task: The title is wrong."
NEEDS = {"summary": "All of it.", "requires_user_confirmation": True}
IMPORT = [user(), ai(("finish_task", "f", NEEDS)), done("f")]

CONFIRMING = {
    "a finish that asks for a person waits": Case([CONFIRM], ends=None),
    "'done' with open problems waits": Case(
        [call("finish_task", summary="x", pending_issues=["the logo"])], ends=None
    ),
    "'partial' with open problems does not": Case(
        [call("finish_task", summary="x", outcome="partial", pending_issues=["the logo"])],
        ends={"status": "success", "claim": "partial", "pending_issues": ["the logo"]},
    ),
    "'partial' that asks for a person does": Case(
        [call("finish_task", summary="x", outcome="partial", requires_user_confirmation=True)], ends=None
    ),
    "a yes ends the task": Case(
        [CONFIRM],
        given=[GO, YES],
        ends={**SUCCESS, "verified": "asserted", "turns": 1, "refusals": 0, "pending_issues": []},
        says=["Accepted. A person confirmed it."],
    ),
    "what is left open stays in the outcome": Case(
        [call("finish_task", summary="All of it.", pending_issues=["the logo"])],
        given=[GO, YES],
        ends={**SUCCESS, "pending_issues": ["the logo"]},
    ),
    "feedback goes on": Case([CONFIRM, FINISH], given=[GO, NO], ends=REFUSED_ONCE, says=[SENT_BACK]),
    "a message is feedback": Case(
        [CONFIRM, FINISH], given=[GO, NO_MESSAGE], ends=REFUSED_ONCE, says=[SENT_BACK]
    ),
    "two confirmations in a row": Case([CONFIRM, CONFIRM], given=[GO, NO, YES], ends=REFUSED_ONCE),
    "a message, then a yes": Case([CONFIRM, CONFIRM], given=[GO, NO_MESSAGE, YES], ends=REFUSED_ONCE),
    "sent back on the last turn: one more turn": Case(
        [CONFIRM, FINISH], given=[GO, NO], limits=Limits(turns=1), ends=REFUSED_ONCE
    ),
    "sent back by a message on the last turn: one more turn": Case(
        [CONFIRM, FINISH], given=[GO, NO_MESSAGE], limits=Limits(turns=1), ends=REFUSED_ONCE
    ),
    "sent back twice: one more turn each time": Case(
        [CONFIRM, CONFIRM, FINISH],
        given=[GO, NO, NO_MESSAGE],
        limits=Limits(turns=1),
        ends={**SUCCESS, "turns": 3, "refusals": 2},
    ),
    "and only one more": Case(
        [CONFIRM, WRITE],
        given=[GO, NO],
        limits=Limits(turns=1),
        ran=["write"],
        ends=limit("turns", turns=2, refusals=1, summary=""),
    ),
    "work before it has run": Case([[WRITE, CONFIRM]], given=[GO, YES], ran=["write"]),
    "work after it never runs": Case(
        [[CONFIRM, WRITE]], given=[GO, YES], says=["Not run: a call after finish_task"], streamed=False
    ),
    "a failed sibling comes first: nobody is asked": Case(
        [[FAIL, CONFIRM], FINISH], ran=["fail"], ends=REFUSED_ONCE, says=["fail in the same reply"]
    ),
    "bad arguments come first: nobody is asked": Case(
        [call("finish_task", summary=" ", requires_user_confirmation=True), FINISH], ends=REFUSED_ONCE
    ),
    "nothing new while it waits: it still waits": Case([CONFIRM], given=[GO, NOTHING], ends=None),
    "the next task after a yes": Case(
        [CONFIRM, FINISH], given=[GO, YES, AGAIN], ends={**SUCCESS, "turns": 1, "refusals": 0}
    ),
    "the next task after one that was sent back": Case(
        [CONFIRM, FINISH, CONFIRM, FINISH], given=[GO, NO_MESSAGE, AGAIN, NO_MESSAGE], ends=REFUSED_ONCE
    ),
    "an import waits": Case([], given=[IMPORT], ends=None),
    "an import, confirmed": Case([], given=[IMPORT, YES], ends={**SUCCESS, "turns": 1, "pending_issues": []}),
    "an import, sent back": Case(
        [FINISH], given=[IMPORT, NO], ends={**REFUSED_ONCE, "nudges": 1}, says=[TELLS_IMPORT]
    ),
    "an import, sent back by a message": Case(
        [FINISH], given=[IMPORT, NO_MESSAGE], ends={**REFUSED_ONCE, "nudges": 1}, says=[TELLS_IMPORT]
    ),
    "an import on the last turn: one more turn": Case(
        [FINISH], given=[IMPORT, NO_MESSAGE], limits=Limits(turns=1), ends=REFUSED_ONCE
    ),
    "an import, sent back: an earlier claim does not stand again": Case(
        [FINISH],
        given=[[user(), ai(("finish_task", "e")), done("e"), *IMPORT[1:]], NO_MESSAGE],
        ends={**SUCCESS, "turns": 3, "refusals": 1},
    ),
    "an import of two tasks asks nobody about the first": Case(
        [FINISH], given=[[*IMPORT, user("b")]], ends={**SUCCESS, "turns": 1, "refusals": 0}
    ),
}
