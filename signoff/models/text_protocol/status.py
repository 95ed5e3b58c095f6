"""Where work in the tagged text protocol stands, read from its messages alone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.messages import is_genuine, marks, nudge_kind
from signoff.graph.prompt.prompt import DIGEST
from signoff.models.text_protocol.calls import DEBUGGING

KEY = "signoff_tagged"
"""Where `TaggedText` notes in `response_metadata` that the text of a reply is in the protocol's form."""

EXECUTORS = ("run_python", "run_shell")


class Progress(NamedTuple):
    """The approach and the status of the current task; None while there is none."""

    approach: str | None = None
    status: str | None = None


def tagged_notes(message: BaseMessage) -> Mapping[str, Any] | None:
    """What was noted on a reply that was written in the tagged protocol; None for every other message."""
    found = message.response_metadata.get(KEY) if isinstance(message, AIMessage) else None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class Position:
    """Where the work stands. own: the status that the model gave. failing: the last execution failed or
    timed out. evidence: what the last execution showed."""

    approach: str | None = None
    status: str | None = None
    own: str | None = None
    failing: bool = False
    evidence: ToolMessage | None = None

    def thought(self, args: Mapping[str, Any], notes: Mapping[str, Any]) -> "Position":
        """A thought changes what it names. A status that was forced is not the model's own."""
        status = args.get("status") or self.status
        own = notes.get("status") if "status" in notes else args.get("status")
        return replace(
            self, approach=args.get("approach") or self.approach, status=status, own=own or self.own
        )

    def executed(self, shown: ToolMessage) -> "Position":
        failing = shown.status == "error"
        return replace(self, status=DEBUGGING if failing else self.own, failing=failing, evidence=shown)


def current_status(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Progress:
    """The approach and status at the end of `messages`.

    They are those of the last thought of the current task, but the status is `Debugging` after an execution
    (a call of one of `executors`) that failed or timed out, until another one succeeds or a reply without
    code states another status. A call that was not run at all is no execution.
    """
    found = position(messages, executors, think)
    return Progress(found.approach, found.status)


def position(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Position:
    """As `current_status`, with how it came about."""
    *_, last = (Position(), *positions(messages, executors, think))
    return last


def positions(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Iterator[Position]:
    """Where the work stands after each of `messages`."""
    now = Position()
    names: dict[str, str] = {}
    for message in messages:
        if _begins(message):
            now = Position()
        elif nudge_kind(message) == DIGEST:
            # The thoughts that it stands for are not shown any more.
            now = now.thought(marks(message), {})
        elif isinstance(message, AIMessage):
            for call in message.tool_calls:
                names[call["id"] or ""] = call["name"]
                if call["name"] == think:
                    now = now.thought(call["args"], tagged_notes(message) or {})
        elif isinstance(message, ToolMessage):
            name = message.name or names.get(message.tool_call_id)
            if name in executors and "not_run" not in marks(message):
                now = now.executed(message)
        yield now


def reply_statuses(messages: Sequence[BaseMessage]) -> list[str | None]:
    """For each reply the status when what it did was done; None for one that is not of this protocol."""
    found: list[str | None] = []
    tagged = False
    for message, now in zip(messages, positions(messages), strict=True):
        if isinstance(message, AIMessage):
            tagged = tagged_notes(message) is not None
            found.append(now.status if tagged else None)
        elif tagged and isinstance(message, ToolMessage):
            found[-1] = now.status
    return found


def _begins(message: BaseMessage) -> bool:
    """Whether a person's message begins a task; an answer does not."""
    return isinstance(message, HumanMessage) and is_genuine(message) and "answers" not in marks(message)
