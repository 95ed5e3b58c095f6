"""What happens while a thread runs, one typed event at a time; a finished history reads the same way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.history.task import Task
from signoff.graph.kinds import Effect
from signoff.graph.machine import Event, State, next_state
from signoff.graph.messages import is_genuine, is_reply, marks, nudge_kind
from signoff.models.text_protocol.reading import read_text
from signoff.models.text_protocol.status import tagged_notes
from signoff.nodes.model.trying import Retrying
from signoff.session.decisions import Decision
from signoff.tools.toolbox import Toolbox

__all__ = [
    "Answered",
    "CallFinished",
    "CallStarted",
    "Decided",
    "Ended",
    "Entered",
    "Nudged",
    "Resumed",
    "Retrying",
    "Said",
    "SessionEvent",
    "Stopping",
    "Thought",
    "Token",
    "Wrote",
]


@dataclass(frozen=True)
class Entered:
    """The machine entered `state`, coming from `source`. turn: replies so far, of at most `turns`. tokens: of
    the task so far."""

    state: State
    turn: int
    turns: int
    tokens: int
    source: State


@dataclass(frozen=True)
class Token:
    """A piece of the reply that is coming in."""

    text: str


@dataclass(frozen=True)
class Wrote:
    """The user wrote this; `answers` when it answers what waited."""

    text: str
    answers: bool = False


@dataclass(frozen=True)
class Said:
    """The model said this; `calls` are the tools that the same reply calls. tokens: of this reply.
    seconds: that it took, with what was waited between tries. beside: of a reply in the tagged text protocol
    what is no plan, code or call. retries: how often the call was tried again."""

    turn: int
    text: str
    calls: tuple[str, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    beside: str | None = None
    retries: int = 0


@dataclass(frozen=True)
class CallStarted:
    """A work tool begins to run."""

    turn: int
    name: str
    args: Mapping[str, Any]
    call_id: str


@dataclass(frozen=True)
class CallFinished:
    """A call of a work tool, or a control call that was refused, and its result.

    seconds: that it ran. person: "edited" when a person had changed its arguments, which are then not the
    ones here; "responded" when a person gave the result in its place.
    """

    turn: int
    name: str
    args: Mapping[str, Any]
    ok: bool
    result: str
    call_id: str = ""
    seconds: float = 0.0
    person: str = ""


@dataclass(frozen=True)
class Thought:
    """The model noted a thought."""

    turn: int
    text: str
    approach: str | None = None
    status: str | None = None


@dataclass(frozen=True)
class Answered:
    """A question of the model and the answer to it. waited: seconds until it came."""

    turn: int
    question: str
    answer: str
    waited: float = 0.0


@dataclass(frozen=True)
class Nudged:
    """A reminder that the machine wrote for the model, and why (`talked`, `near_limit`, …)."""

    why: str
    text: str


@dataclass(frozen=True)
class Resumed:
    """A thread that was there already goes on; `how`: answer, go on, extend, retry, stop or task."""

    how: str


@dataclass(frozen=True)
class Stopping:
    """The run stops at the next step boundary because someone asked for it (`by`, as in Paused)."""

    by: str


@dataclass(frozen=True)
class Ended:
    """The task has ended; `outcome` has the fields of Outcome."""

    outcome: Mapping[str, Any]


@dataclass(frozen=True)
class Decided:
    """The run has come to this decision; always the last event."""

    decision: Decision


SessionEvent = (
    Entered
    | Token
    | Wrote
    | Said
    | CallStarted
    | CallFinished
    | Thought
    | Answered
    | Nudged
    | Resumed
    | Retrying
    | Stopping
    | Ended
    | Decided
)
"""Everything that `Session.events` yields; `Decided` is always the last."""


class Follower:
    """Turns messages and updates into events, in order.

    task: what the history holds already. turns: the limit of one task. extra: turns granted on top of it.
    """

    def __init__(self, task: Task, toolbox: Toolbox, turns: int, extra: int = 0) -> None:
        self.toolbox = toolbox
        self.turns = turns
        self.extra = extra
        self.turn = task.turns
        self.tokens = sum(_tokens(reply.message) for reply in task.replies)
        self.open: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._last_reply: str | None = None
        for reply in task.replies[-1:]:
            self._last_reply = reply.message.id
            self.open = {call.id: (call.name, call.args) for call in reply.calls if reply.open(call)}

    def update(self, state: State, written: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """What the update of one state of the machine means."""
        for message in written.get("messages", ()):
            yield from self.message(message)
        if "task" in written:
            self.begin()
        if written.get("outcome"):
            yield Ended(written["outcome"])
        if state is not State.FINISH:
            to = next_state(state, Event(written["event"]))
            yield Entered(to, self.turn, self.turns + self.extra, self.tokens, state)
            if to is State.EXECUTE:
                yield from self._batch()

    def _batch(self) -> Iterator[CallStarted]:
        """The calls that run now: consecutive reads, or one other."""
        for at, (call_id, (name, args)) in enumerate(self.open.items()):
            beside = not self.toolbox.is_effect(name)
            if at and not beside:
                return
            yield CallStarted(self.turn, name, args, call_id)
            if not beside:
                return

    def begin(self) -> None:
        """A new task begins."""
        self.turn = self.tokens = self.extra = 0
        self.open.clear()

    def message(self, message: BaseMessage) -> Iterator[SessionEvent]:
        if is_reply(message):
            yield from self._reply(message)
        elif isinstance(message, ToolMessage):
            yield from self._result(message)
        elif isinstance(message, HumanMessage) and is_genuine(message):
            yield Wrote(message.text, "answers" in marks(message))
        elif why := nudge_kind(message):
            yield Nudged(why, message.text)

    def _reply(self, message: AIMessage) -> Iterator[Said]:
        fresh = message.id != self._last_reply
        self._last_reply = message.id
        # The same reply comes again when the machine has given its calls other ids.
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        self.open = {
            call["id"] or "": (call["name"] or "", call["args"] if isinstance(call["args"], dict) else {})
            for call in calls
        }
        if fresh:
            self.turn += 1
            self.tokens += _tokens(message)
            names = tuple(name for name, _ in self.open.values())
            notes = marks(message)
            seconds, retries = float(notes.get("seconds", 0.0)), notes.get("retries", 0)
            text: str = message.text
            beside = read_text(text).plain if names and tagged_notes(message) is not None else None
            yield Said(self.turn, text.strip(), names, _tokens(message), seconds, beside, retries)

    def _result(self, message: ToolMessage) -> Iterator[SessionEvent]:
        call_id = message.tool_call_id
        name, args = self.open.pop(call_id, (message.name or "", {}))
        ok, effect, notes = message.status != "error", self.toolbox.effect(name), marks(message)
        self.extra += notes.get("granted", 0)
        if effect is Effect.CONTINUE and ok:
            yield Thought(self.turn, str(args.get("thought", "")), args.get("approach"), args.get("status"))
        elif effect is Effect.ASK and ok:
            waited = float(notes.get("waited", 0.0))
            yield Answered(self.turn, str(args.get("question", "")), message.text, waited)
        elif effect is not Effect.FINISH or not ok:
            seconds = float(notes.get("seconds", 0.0))
            person = next((way for way in ("edited", "responded") if notes.get(way)), "")
            yield CallFinished(self.turn, name, args, ok, message.text, call_id, seconds, person)


def _tokens(message: AIMessage) -> int:
    return message.usage_metadata["total_tokens"] if message.usage_metadata else 0
