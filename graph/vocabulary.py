"""The words for a thread's status and a task's end: one table, for cards, lists, pages and JSON.

Each word of the JSON documents comes with the text that a person reads. The reference in the docs prints this
table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

_MORE = "Go on to continue where it stopped."

Tone = Literal["green", "amber", "red", "blue", "violet"]


@dataclass(frozen=True)
class Word:
    """A word of a JSON document as a person sees it: its text, its meaning, its colour and symbol.

    tone: None if another word decides the colour.
    """

    shown: str
    meaning: str
    tone: Tone | None = None
    sign: str = ""


@dataclass(frozen=True)
class WaitWord(Word):
    """What a thread waits for. title: the title of the card that asks for it."""

    title: str = ""


@dataclass(frozen=True)
class ReasonWord(Word):
    """Why a task has ended. error: the error of its outcome; empty if the code that ends the task gives a
    more specific one. following: what to do next, after a limit."""

    error: str = ""
    following: str = _MORE


def _table(rows: dict[str, Word]) -> Mapping[str, Word]:
    return MappingProxyType(rows)


VERIFIED: Mapping[str, Word] = _table(
    {
        "verified": Word("Verified", "every check ran and passed", "green", "✓"),
        "asserted": Word("Asserted", "no check ran; the words are the model's own", "amber", "◐"),
        "unverified": Word("Unverified", "the review refused it, and a person accepted it", "red", "!"),
    }
)
"""What an accepted finish is based on. It gives a success its first word and its colour."""

CLAIMS: Mapping[str, Word] = _table(
    {
        "done": Word("done", "the whole task is done"),
        "partial": Word("partly done", "only a part is done"),
        "blocked": Word("blocked", "something outside the model's reach is in the way"),
        "impossible": Word("not possible", "it cannot be done at all"),
    }
)
"""What the model claims about its work."""

STATUSES = _table(
    {
        "running": Word("running", "a process runs it now", "blue", "▶"),
        "queued": Word("queued", "a worker will continue it", "blue", "▶"),
        "waiting": Word("waiting", "it waits for a person or for the driver", "violet", "?"),
        "paused": Word("paused", "its workers were asked to pause it", "amber", "‖"),
        "stopped": Word("stopped (resumable)", "work remains, and no process runs it", "amber", "‖"),
        "success": Word("success", "a finish was accepted; see what it is based on and what it claims", None),
        "limit": Word("limit", "a limit was reached; it can go on", "amber", "■"),
        "error": Word("error", "it failed or was stopped; it can be retried", "red", "✗"),
        "failed": Word("failed", "the workers gave up on it", "red", "✗"),
        "damaged": Word("damaged", "its saved state cannot be read", "red", "✗"),
    }
)
"""The status of a thread."""

ENDED = ("success", "limit", "error")
"""The statuses of a thread whose task has ended."""

WAITS: Mapping[str, WaitWord] = MappingProxyType(
    {
        "answer": WaitWord(
            "waiting for an answer",
            "the model has asked a question",
            title="The model asks",
        ),
        "approval": WaitWord(
            "waiting for approval",
            "calls need a person's decision",
            title="Waiting for approval",
        ),
        "action": WaitWord(
            "waiting for an action",
            "a call was handed over to the thread's driver",
            title="Handed over to you",
        ),
        "confirmation": WaitWord(
            "waiting for confirmation",
            "a finish needs a person's confirmation",
            title="Finished? Please confirm",
        ),
    }
)
"""What a thread waits for."""

_STUCK = f"It was stuck: look at its last text, or start a new task in other words. {_MORE}"
_REVIEWED = f"Fix the reason for the refusal, or the check that refuses it. {_MORE}"

STANDING: Mapping[str, str] = MappingProxyType(
    {
        "no_undo": "its tool has no undo",
        "failed": "the call failed, and may have had part of its effect",
        "unknown": "it is unknown whether it took effect",
        "elsewhere": "it is not in the journal of this thread",
        "handed_over": "it was handed over to the driver",
        "another_graph": "another graph did it, and this one cannot inspect it",
        "rejected": "a person refused to undo it",
        "not_approved": "it needs a person's approval, and nobody could be asked",
        "stopped": "the undo was stopped before",
        "undo_failed": "its undo failed",
        "undo_unknown": "it is unknown whether its undo took effect",
    }
)
"""Why an effect stands after its task was undone."""

OPEN_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "effect": "it is not known whether {call} took effect",
        "delegate": "{name} did not succeed ({why})",
    }
)
"""What a claim of "done" may pass over, as a sentence of the outcome."""

REASONS: Mapping[str, ReasonWord] = MappingProxyType(
    {
        "finish_task": ReasonWord(
            "finished", "the model signed off; another finishing tool gives its own name"
        ),
        "turns": ReasonWord("Turn limit reached", "all turns are used"),
        "tree_turns": ReasonWord(
            "Turn limit of the tree reached", "all turns of the task and its delegates together are used"
        ),
        "tool_calls": ReasonWord(
            "Limit of tool calls reached", "all tool calls are used, and one more was made"
        ),
        "children": ReasonWord(
            "Limit of delegates reached", "all calls of delegates are used, and one more was made"
        ),
        "depth": ReasonWord(
            "Limit of depth reached", "a delegate was called below the deepest allowed level"
        ),
        "tokens": ReasonWord("Token limit reached", "all tokens are used"),
        "cost": ReasonWord("Cost limit reached", "the whole budget is spent"),
        "seconds": ReasonWord("Time limit reached", "all working time is used"),
        "talk_turns": ReasonWord(
            "Stopped: it only talked", "too many replies in a row without a call", following=_STUCK
        ),
        "repeats": ReasonWord(
            "Stopped: it repeated itself",
            "the same work gave the same result too often",
            following=_STUCK,
        ),
        "review_deadlock": ReasonWord(
            "Stopped: its finish was refused again and again",
            "with no work in between, and nobody to ask",
            following=_REVIEWED,
        ),
        "model_error": ReasonWord("The model failed", "its provider, or its connection"),
        "content_filter": ReasonWord(
            "The model refused",
            "or its provider filtered, two replies in a row",
            error="The model refused, or its provider filtered, two replies in a row. Put the task in other "
            "words, or use another model.",
        ),
        "needs_person": ReasonWord(
            "It needs a person",
            "and there is no checkpointer to wait with",
            error="The model asks: {question} Build the graph with storage= (or a checkpointer) so that it "
            "can wait for the answer.",
        ),
        "cancelled": ReasonWord(
            "Cancelled", "it was stopped on request", error="The task was stopped on request."
        ),
        "superseded": ReasonWord(
            "Replaced by a new task",
            "a new message came before it had ended",
            error="The user wrote a new message before this task had ended.",
        ),
        "no_task": ReasonWord(
            "No task",
            "there was no message",
            error="There is nothing to do: send a message with the task.",
        ),
        "middleware": ReasonWord("Ended by a middleware", "one of its hooks jumped to the end, or failed"),
    }
)
"""Why a task has ended."""

_OTHER = Word("", "", "red", "✗")


@dataclass(frozen=True)
class Heading:
    """The heading of a card on how a task ended: the first word and the colour say what the result is based
    on."""

    title: str
    tone: Tone
    sign: str


def heading(outcome: Mapping[str, Any]) -> Heading:
    """The heading of a task that has ended. `outcome` has the fields of `Outcome`."""
    status = STATUSES.get(outcome["status"], _OTHER)
    if outcome["status"] == "success":
        rests = VERIFIED[outcome["verified"] or "asserted"]
        claim = CLAIMS.get(outcome["claim"] or "")
        title = f"{rests.shown}: {claim.shown if claim else 'ended'}"
        if (outcome.get("undo") or {}).get("undone"):
            return Heading(f"{title}, and undone since", "amber", "↶")
        return Heading(title, rests.tone or "amber", rests.sign)
    known = REASONS.get(outcome["reason"])
    # This name comes from user code; the caller escapes it.
    title = known.shown if known else f"{status.shown.capitalize()}: {outcome['reason']}"
    return Heading(title, status.tone or "red", status.sign)


def following(reason: str) -> str:
    """What to do after a task that ended at this limit."""
    return REASONS[reason].following if reason in REASONS else _MORE


def stands(status: str, waits_for: str | None = None, outcome: Mapping[str, Any] | None = None) -> Heading:
    """The status of a thread as a person reads it; if its task has ended, the heading of `outcome`."""
    if outcome and status in ENDED:
        return heading(outcome)
    word = STATUSES.get(status, _OTHER)
    waits = WAITS.get(waits_for or "") if status == "waiting" else None
    return Heading((waits or word).shown or status, word.tone or "amber", word.sign)


TABLES: Mapping[str, Mapping[str, Word]] = MappingProxyType(
    {
        "status": STATUSES,
        "waits_for": WAITS,
        "verified": VERIFIED,
        "claim": CLAIMS,
        "reason": REASONS,
    }
)
"""All tables, by the field of the JSON documents that uses their words."""
