"""The history of a thread, read message by message into sections, one a task.

The reading is a pure function of the checkpointed messages and state. It gives the same before and after a
restart, on another worker and in a replay.

Where the messages of a thread stand and how many tokens each takes, noted while the thread grows.

So the view and its size cost as much as what is new, not as much as the whole thread.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from types import MappingProxyType
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.history.replies import Call, Reply, read_reply
from signoff.graph.history.section import Section, Tools, Wait, Words, verdicts_of
from signoff.graph.history.shapes import normal
from signoff.graph.kinds import Effect
from signoff.graph.messages import is_genuine, lineage, marks, nudge_kind
from signoff.graph.state import AgentState, Decided, Verdicts

CHARS = 4
"""Characters of a token, by estimate."""


# Characters of a call beside its arguments, as `tokens` counts them.
_AROUND = 120


class Ledger:
    """`sums[i]` are the tokens of the first `i` messages; `replies` the positions of the model's replies;
    `places` the position of each message by its id; `systems` the texts of the system messages, which take
    no place of their own in a view."""

    __slots__ = ("places", "replies", "sums", "systems")

    def __init__(self) -> None:
        # An array takes a quarter of the memory of a list of numbers.
        self.sums = array("q", [0])
        self.replies = array("q")
        self.places: dict[str, int] = {}
        self.systems: list[str] = []

    def upto(self, messages: Sequence[BaseMessage]) -> "Ledger":
        """The ledger with all of `messages`, of which the first ones may be noted already."""
        for position in range(len(self.sums) - 1, len(messages)):
            message = messages[position]
            self.places[message.id or ""] = position
            if isinstance(message, SystemMessage):
                self.systems.append(message.text)
            elif isinstance(message, AIMessage):
                self.replies.append(position)
            self.sums.append(self.sums[-1] + _tokens(message))
        return self


def _tokens(message: BaseMessage) -> int:
    if isinstance(message, SystemMessage):
        return 0
    if not isinstance(message, AIMessage):
        return tokens([message])
    shown = normal(message)
    bad = [call["args"] or "" for call in shown.invalid_tool_calls]
    return tokens([shown]) + sum(_AROUND + len(args) for args in bad) // CHARS


_NO_DECISIONS: Mapping[str, Decided] = MappingProxyType({})
_NOTHING_ASKED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Stray:
    """An open call that will never run, and why: a key of `Texts.results`."""

    call: Call
    why: str
    reply_id: str
    control: str = ""


@dataclass(slots=True)
class Shown:
    """How a view begins: its messages from the one at `start` on, up to the one at `upto`, which stay as they
    are however the history goes on."""

    start: int = -1
    upto: int = 0
    replies: int = 0
    messages: list[BaseMessage] = field(default_factory=list)


class Reader:
    """Reads messages one by one into sections, one a task.

    `replies` are all replies of the thread in order; `spoken` are the ids of the user's messages that belong
    to a call that waited, and begin nothing. `unmarked` are the marks that `compress` writes on such
    messages, and on those that began a task beside open calls, so that no later reading depends on today's
    settings. What is made of a reading is kept with it: `task` (see task.py), `head` and `shown` (view.py).
    """

    def __init__(self, tools: Tools, ended_at: str | None) -> None:
        self.tools = tools
        self.decisions: Mapping[str, Decided] = _NO_DECISIONS
        self.asked: Mapping[str, str] = _NOTHING_ASKED
        self.verdicts: Verdicts | None = None
        self.ended_at = ended_at
        self.messages: list[BaseMessage] = []
        self.section = Section()
        self.before: Section | None = None
        self.replies: list[Reply] = []
        self.spoken: frozenset[str] = frozenset()
        self.unmarked: dict[str, dict[str, Any]] = {}
        self.open_calls: dict[str, list[tuple[Reply, Call]]] = {}
        self.call_ids: set[str] = set()
        self.adjacent = False
        self.answering: tuple[Wait, tuple[Call, ...]] | None = None
        self.last_id: str | None = None
        self.lineage: object | None = None
        self.task: tuple[Any, ...] | None = None
        self.head: tuple[Any, ...] | None = None
        self.shown = Shown()
        self._ledger = Ledger()

    @property
    def noted(self) -> Ledger:
        """Where the messages stand, and how many tokens each takes."""
        return self._ledger.upto(self.messages)

    def holds(self, messages: Sequence[BaseMessage], ended_at: str | None) -> bool:
        """Whether `messages` begin with exactly those that were read: the very same objects."""
        if self.ended_at != ended_at or len(self.messages) > len(messages):
            return False
        grown = self.lineage is not None and lineage(messages) is self.lineage
        return grown or all(map(is_, self.messages, messages))

    def add(self, message: BaseMessage) -> None:
        self.messages.append(message)
        if isinstance(message, SystemMessage):
            return
        if isinstance(message, AIMessage):
            self._reply(message)
        elif isinstance(message, ToolMessage):
            self._result(message)
        elif isinstance(message, FunctionMessage):
            # The first protocol knew no ids: such a result is of the one call before it.
            self._result(ToolMessage(message.content, tool_call_id="", name=message.name))
        elif isinstance(message, HumanMessage) and is_genuine(message):
            self._human(message)
        elif kind := nudge_kind(message):
            self.section.nudges.append((kind, len(self.section.replies)))
            self.section.tally.reminded(kind, message)
            self._sent_back(marks(message).get("finish"))
        self.adjacent = is_genuine(message)
        if not self.adjacent:
            self.answering = None
        self.last_id = message.id
        if not self.section.id:
            self.section.id = message.id or ""

    def _reply(self, message: AIMessage) -> None:
        if self.section.replies:
            self.call_ids.update(call.id for call in self.section.replies[-1].calls)
        reply = read_reply(message, self.tools)
        self.section.replies.append(reply)
        if reply.control:
            self.section.controls.append((reply, reply.control))
        self.section.tally.replied(reply, self._estimate)
        self.replies.append(reply)
        for call in reply.calls:
            self.open_calls.setdefault(call.id, []).append((reply, call))

    def _estimate(self) -> tuple[int, int]:
        """The tokens of the messages before the last one, and of that one."""
        before, upto = self.noted.sums[-2:]
        return before, upto - before

    def _result(self, message: ToolMessage) -> None:
        waiting = self.open_calls.get(message.tool_call_id)
        if not waiting:
            return
        meant = marks(message).get("reply", waiting[-1][0].message.id)
        position = next((i for i, (reply, _) in enumerate(waiting) if reply.message.id == meant), 0)
        reply, call = waiting.pop(position)
        reply.found[call.index] = message
        if section := self._section_of(reply):
            section.tally.settled(call, message)
        self.section.answers.pop(call.id, None)
        if marks(message).get("sent_back"):
            self.section.sent_back[reply.key(call)] = len(self.section.replies)
        if not waiting:
            del self.open_calls[message.tool_call_id]

    def _section_of(self, reply: Reply) -> Section | None:
        """The section with this reply, out of the last two; nothing needs an earlier one."""
        # Nearly always it is the last reply of all.
        sections = (self.section, self.before)
        return next((s for s in sections if s and any(reply is r for r in reversed(s.replies))), None)

    def _sent_back(self, key: str | None) -> None:
        """Notes a finish that a person did not accept and whose call the history had answered before."""
        if key is None:
            return
        self.section.sent_back[key] = len(self.section.replies)
        for call_id, words in list(self.section.answers.items()):
            if words.wait is Wait.CONFIRMATION:
                del self.section.answers[call_id]

    def _human(self, message: HumanMessage) -> None:
        waiting = self._addressed(message)
        if waiting:
            self.answering = waiting
            wait, calls = waiting
            if wait in (Wait.ANSWER, Wait.WORD, Wait.CONFIRMATION):
                self.section.tally.heard()
            if wait is Wait.WORD:
                self.section.heard.append(len(self.section.replies))
            else:
                self.spoken |= {message.id or ""}
            for call_id in dict.fromkeys(call.id for call in calls):
                before = self.section.answers.get(call_id)
                text = f"{before.text}\n{message.text}" if before else message.text
                self.section.answers[call_id] = Words(wait, text)
            self._mark(message, answers=[call.id for call in calls], wait=str(wait))
        elif self._joins(message):
            self.section.messages.append(message)
        else:
            if self.section.replies:
                self.call_ids.update(call.id for call in self.section.replies[-1].calls)
            if self.adjacent or self.section.due() or self.section.ask() or self.section.spoke():
                self._mark(message, begins=True)
            self.before = self.section if self.section.id else None
            self.section = Section(id=message.id or "", messages=[message])

    def _joins(self, message: HumanMessage) -> bool:
        """Whether the message belongs to the genuine one right before it: not when a task ended between."""
        ended = self.last_id == self.ended_at or "begins" in marks(message)
        return self.adjacent and bool(self.section.messages) and not ended

    def _addressed(self, message: HumanMessage) -> tuple[Wait, tuple[Call, ...]] | None:
        """The waiting calls that the message belongs to: as it is marked, else as the history stands."""
        marked = marks(message)
        if "begins" in marked:
            return None
        if "answers" in marked:
            wait, ids = Wait(marked["wait"]), marked["answers"]
            calls = [call for reply in self.section.replies for call in reply.calls if call.id in ids]
            if wait is Wait.CONFIRMATION:
                finishes = [call for _, call in self.section.controls if call.effect is Effect.FINISH]
                calls = [call for call in finishes if call.id in ids]
            return wait, tuple(calls)
        if self.last_id == self.ended_at:
            return None
        verdicts = verdicts_of(self.verdicts, self.section.id)
        return self.answering or self.section.waits(self.tools, self.decisions, self.asked, verdicts)

    def _mark(self, message: HumanMessage, **notes: Any) -> None:
        if not marks(message):
            self.unmarked[message.id or ""] = notes

    def strays(self, kept: Sequence[Call]) -> tuple[Stray, ...]:
        """Every open call but the `kept` ones and those that the user's words answer."""
        if not self.open_calls:
            return ()
        found: list[Stray] = []
        for waiting in self.open_calls.values():
            for reply, call in waiting:
                if any(call is keep for keep in kept) or call.id in self.section.answers:
                    continue
                control, reply_id = reply.control, reply.message.id or ""
                if not any(reply is own for own in reversed(self.section.replies)):
                    found.append(Stray(call, "superseded", reply_id))
                elif control is not None and call.index > control.index:
                    found.append(Stray(call, "after_control", reply_id, control.name))
                else:
                    found.append(Stray(call, "left_behind", reply_id))
        return tuple(found)


def read_messages(state: AgentState, tools: Tools, before: Reader | None = None) -> Reader:
    """All messages of the thread, read. `before` is an earlier reading to go on from, if it still holds."""
    messages, ended = state.get("messages", []), state.get("ended")
    reader = before
    if reader is None or not reader.holds(messages, ended["message"] if ended else None):
        reader = Reader(tools, ended["message"] if ended else None)
    if approvals := state.get("approvals"):
        reader.decisions, reader.asked = approvals["calls"], approvals["asked"]
    reader.verdicts = state.get("verdicts")
    for message in messages[len(reader.messages) :]:
        reader.add(message)
    reader.lineage = lineage(messages)
    return reader
