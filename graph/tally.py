"""What a task has used, added up message by message while its history is read.

So a decision costs as much as what is new, not as much as the whole task.
"""

from collections.abc import Callable, Mapping
from operator import add, sub
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff.graph.marks import marks
from signoff.graph.repeats import Repeats
from signoff.graph.replies import Call, Reply
from signoff.graph.state import Spent
from signoff.tools.kinds import Effect

RESUMED = "resumed"
REPEATING = "repeating"
FROM_TOOL = "tool"
ROUND = "round"
# Marks of the machine that do not put the model right.
NO_NUDGES = (RESUMED, FROM_TOOL, ROUND)
SENT_BACK = "sent_back"


class Used(NamedTuple):
    """What was used: tokens of the model's replies (and of the digests that a model wrote), work calls that
    ran, seconds in model calls and tools. `refused`: work calls above the limit of them. `estimated`: model
    calls of which the provider did not report all tokens.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    refused: int = 0
    estimated: int = 0

    def plus(self, other: "Used") -> "Used":
        return Used(*map(add, self, other))

    def minus(self, other: "Used") -> "Used":
        return Used(*map(sub, self, other))


NOTHING = Used()


class Tally:
    """The sums of one task. `granted`: turns that it was given on request; `requested`: whether it asked."""

    __slots__ = ("_all", "_before", "granted", "repeats", "requested")

    def __init__(self) -> None:
        self.repeats = Repeats()
        self.granted = 0
        self.requested = False
        self._all = NOTHING
        self._before = NOTHING

    def total(self, spent: Spent | None) -> Used:
        """What was used since the task began. `spent`: what its digests cost."""
        return self._all.plus(_of_digests(spent)) if spent else self._all

    def used(self, total: Used) -> Used:
        """What of `total` counts against the limits: all since the task was last extended."""
        return total.minus(self._before) if any(self._before) else total

    def replied(self, reply: Reply, estimate: Callable[[], tuple[int, int]]) -> None:
        """`estimate` gives the tokens read and written, for a reply of ours whose provider counted none."""
        self.repeats.replied(reply)
        self._all = self._all.plus(_of_reply(reply.message, estimate))

    def settled(self, call: Call, result: ToolMessage) -> None:
        notes = marks(result)
        why = notes.get("not_run")
        if call.effect is Effect.FINISH and "seconds" in notes:
            # Its checks, or a finishing tool that was run.
            self._all = self._all.plus(Used(seconds=notes["seconds"]))
        if call.effect is None:
            ran, refused = int(why is None), int(why == "tool_calls")
            took = Used(tool_calls=ran, refused=refused, seconds=notes.get("seconds", 0.0))
            self._all = self._all.plus(took)
        elif call.effect is Effect.MORE_TURNS:
            self.granted += notes.get("granted", 0)
            self.requested = self.requested or "granted" in notes or why == "rejected"
        elif why is None and (call.effect is Effect.ASK or notes.get(SENT_BACK)):
            self.heard()

    def reminded(self, kind: str, message: BaseMessage) -> None:
        """A synthetic message of this kind."""
        if kind == RESUMED:
            self.repeats = Repeats()
            if (spent := marks(message).get("extended")) is not None:
                self._before = self._all.plus(_of_digests(spent))
        elif kind == REPEATING:
            self.repeats.told()
        elif kind == FROM_TOOL:
            self.repeats.shown(message)
        elif kind == SENT_BACK:
            self.heard()

    def heard(self) -> None:
        """A person has spoken: what comes now is no repetition of what came before."""
        self.repeats = Repeats()


def _of_reply(message: AIMessage, estimate: Callable[[], tuple[int, int]]) -> Used:
    usage, notes = message.usage_metadata, marks(message)
    seconds = notes.get("seconds", 0.0)
    if not usage:
        # A reply that was imported was no call of a model here.
        read, written = estimate() if "at" in notes else (0, 0)
        return Used(read, written, read + written, seconds=seconds, estimated=int("at" in notes))
    return Used(
        usage["input_tokens"],
        usage["output_tokens"],
        usage["total_tokens"],
        min(usage["input_tokens"], (usage.get("input_token_details") or {}).get("cache_read", 0)),
        seconds=seconds,
        estimated=int(bool(notes.get("estimated"))),
    )


def _of_digests(spent: Mapping[str, Any] | None) -> Used:
    if not spent:
        return NOTHING
    tokens = (spent["input_tokens"], spent["output_tokens"], spent["total_tokens"])
    return Used(*tokens, seconds=spent["seconds"], estimated=int(spent["estimated"]))
