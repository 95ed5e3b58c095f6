"""The history of a thread, read message by message into sections, one for each task.

The reading is a pure function of the checkpointed messages and state. It gives the same before and after a
restart, on another worker and in a replay. A section knows which calls are due, standing or waiting in its
task. The ledger records the position and the tokens of each message as the thread grows, so that building a
prompt takes time in proportion to the new messages, not to the whole thread.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately as tokens

from signoff.graph.history.replies import Call, Controls, Reply, fingerprint, normal, read_reply
from signoff.graph.history.usage import Tally
from signoff.graph.messages import is_answer, is_genuine, lineage, marks, nudge_kind, persons_words
from signoff.graph.state import AgentState, CallDecision, RefusedFinish, Verdicts

# The verdicts on a finish that are not refusals. `PENDING`: a person has been asked to confirm it. `PHASE`: a
# part is done. `GOES_ON`: a finishing tool has said that the task goes on.
ACCEPTED = "accepted"
PENDING = "needs a person"
PHASE = "phase"
GOES_ON = "goes on"
_STANDS = (ACCEPTED, PENDING)

Verdict = str | RefusedFinish


class Wait(StrEnum):
    """What a thread waits for, from a person or its driver. `word`: the next message in a dialogue."""

    ANSWER = "answer"
    APPROVAL = "approval"
    ACTION = "action"
    WORD = "word"
    CONFIRMATION = "confirmation"


class Tools(Controls, Protocol):
    """What the reader needs to know about the tools."""

    def needs_approval(self, name: str, args: Mapping[str, Any]) -> bool: ...

    def is_driven(self, name: str) -> bool: ...

    @property
    def dialogue(self) -> bool: ...

    @property
    def rounds(self) -> bool: ...


@dataclass(frozen=True)
class UserWords:
    """What the user wrote while a call waited, and what it waited for."""

    wait: Wait
    text: str


@dataclass(slots=True)
class TaskSection:
    """The messages of one task while they are being read.

    `nudges`, `sent_back` (finishes that a person did not accept, by `Reply.key`) and `heard` (the user's
    words in a dialogue) each record after how many replies that was.
    """

    id: str = ""
    messages: list[HumanMessage] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    controls: list[tuple[Reply, Call]] = field(default_factory=list)
    nudges: list[tuple[str, int]] = field(default_factory=list)
    answers: dict[str, UserWords] = field(default_factory=dict)
    sent_back: dict[str, int] = field(default_factory=dict)
    heard: list[int] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def ask(self) -> Call | None:
        """The standing question: asked, not answered, and with no open calls before it in its reply."""
        for reply, call in self.controls:
            if call.effect == "ask" and reply.open(call) and call.id not in self.answers:
                return call
        return None

    def finish(self, verdicts: Mapping[str, Verdict]) -> Call | None:
        """The latest finish that was not refused, here or in an import.

        None after one that a person sent back, or that did not end the task: an earlier claim does not stand
        again in its place. An accepted finish still stands, since a process can be killed before its task has
        ended.
        """
        for reply, call in reversed(self.controls):
            if call.effect != "finish":
                continue
            key, words = reply.key(call), self.answers.get(call.id)
            if key in self.sent_back or (words and words.wait is Wait.CONFIRMATION):
                return None
            verdict = verdicts.get(key, PENDING)
            if verdict in (PHASE, GOES_ON):
                return None
            if verdict in _STANDS and not reply.failed(call):
                return call
        return None

    def confirming(self, verdicts: Mapping[str, Verdict]) -> Call | None:
        """The standing finish, when a person has been asked to confirm it."""
        call = self.finish(verdicts)
        pending = {key for key, verdict in verdicts.items() if verdict == PENDING}
        return next((c for reply, c in self.controls if c is call and reply.key(c) in pending), None)

    def due(self) -> tuple[Call, ...]:
        """The open calls of the last reply before its first finish or ask."""
        if not self.replies:
            return ()
        last = self.replies[-1]
        return tuple([call for call in last.before_control if last.open(call)])

    def spoke(self) -> Reply | None:
        """The last reply, if it has text only and neither the user nor a reminder has followed."""
        now = len(self.replies)
        reminded = any(at == now for _, at in self.nudges)
        return (
            self.replies[-1]
            if now and self.replies[-1].talk and not reminded and now not in self.heard
            else None
        )

    def waits(
        self,
        tools: Tools,
        decisions: Mapping[str, CallDecision],
        asked: Mapping[str, str],
        verdicts: Mapping[str, Verdict],
    ) -> tuple[Wait, tuple[Call, ...]] | None:
        """What the task waits for, so that a human message arriving now belongs to it."""
        due = self.due()
        if not due:
            if ask := self.ask():
                return Wait.ANSWER, (ask,)
            if finish := self.confirming(verdicts):
                return Wait.CONFIRMATION, (finish,)
            return (Wait.WORD, ()) if tools.dialogue and self.spoke() else None
        if any(call.problem or call.effect is not None for call in due):
            return None
        waiting = tuple(call for call in due if call.id in asked) or undecided(due, tools, decisions)
        if waiting:
            return Wait.APPROVAL, waiting
        return (Wait.ACTION, due[:1]) if tools.is_driven(due[0].name) else None


def verdicts_of(found: Verdicts | None, task: str) -> dict[str, Verdict]:
    """The verdicts on the finishes of `task`, by `Reply.key`: one of the above, or the refusal."""
    return found["calls"] if found and found["task"] == task else {}


def refusals_of(verdicts: Mapping[str, Verdict]) -> dict[str, RefusedFinish]:
    """The refusals among the verdicts."""
    return {key: verdict for key, verdict in verdicts.items() if not isinstance(verdict, str)}


def undecided(due: Sequence[Call], tools: Tools, decisions: Mapping[str, CallDecision]) -> tuple[Call, ...]:
    """The due calls that a person must approve and has not decided on."""
    return tuple(
        [
            call
            for call in due
            if call.effect is None
            and tools.needs_approval(call.name, call.args)
            and not decided(call, decisions)
        ]
    )


def decided(call: Call, decisions: Mapping[str, CallDecision]) -> CallDecision | None:
    """The decision on exactly this call: this id, this tool, these arguments."""
    found = decisions.get(call.id)
    return found if found and found["hash"] == fingerprint(call.name, call.args) else None


def who_decided(decision: CallDecision | None) -> dict[str, Any]:
    """The mark that records who decided; empty if unknown."""
    return {"by": decision["by"]} if decision is not None and "by" in decision else {}


CHARS = 4
"""The estimated characters per token."""


# The characters of a call without its arguments, as `tokens` counts them.
_AROUND = 120
# The tokens of a line of the assistant that the history does not have.
_LINE = 12


class PersonsWords(NamedTuple):
    """What a person said by the message at this place, and the id of the call that it is about, if any."""

    place: int
    call_id: str
    text: str


class Ledger:
    """`replies` are the positions of the model's replies; `places` the position of each message by its id;
    `systems` the texts of the system messages, which have no place of their own in a prompt; `reported` the
    ids of answers from other threads."""

    __slots__ = ("_answers", "_heard", "_seen", "_sums", "_words", "places", "replies", "reported", "systems")

    def __init__(self) -> None:
        self._seen = 0
        # An array takes a quarter of the memory of a list of numbers.
        self._sums = array("q", [0])
        self.replies = array("q")
        self.places: dict[str, int] = {}
        self.systems: list[str] = []
        self.reported: set[str] = set()
        self._heard = 0
        self._words: list[PersonsWords] = []
        self._answers: set[str] = set()

    def upto(self, messages: Sequence[BaseMessage]) -> "Ledger":
        """The ledger with all of `messages`, the first of which may be recorded already."""
        for position in range(self._seen, len(messages)):
            message = messages[position]
            self.places[message.id or ""] = position
            if isinstance(message, SystemMessage):
                self.systems.append(message.text)
            elif is_answer(message):
                before = messages[position - 1].id if position else None
                # In its own thread, the finish or the reminder before it says the same.
                if marks(message)["after"] != (before or ""):
                    self.reported.add(message.id or "")
            elif isinstance(message, AIMessage):
                self.replies.append(position)
        self._seen = len(messages)
        return self

    def weights(self, messages: Sequence[BaseMessage]) -> "array[int]":
        """For each position, the tokens of all messages before it. Computed on demand, since a prompt without
        a budget needs none."""
        for position in range(len(self._sums) - 1, len(messages)):
            message = messages[position]
            shown = not is_answer(message) or "accepted" in marks(message) or message.id in self.reported
            size = _tokens(message) if shown else 0
            if position and isinstance(message, HumanMessage) and _is_end(messages[position - 1]):
                size += _LINE
            self._sums.append(self._sums[-1] + size)
        return self._sums

    def words(self, messages: Sequence[BaseMessage]) -> list[PersonsWords]:
        """All that people said, in order. Computed on demand, since only a summary needs it."""
        for place in range(self._heard, len(messages)):
            message = messages[place]
            about = marks(message).get("answers", [])
            if isinstance(message, ToolMessage):
                about = [message.tool_call_id]
            if is_genuine(message):
                # The results of the calls that it answers repeat it.
                self._answers.update(about)
            elif self._answers.intersection(about):
                self._answers.difference_update(about)
                continue
            if text := persons_words(message):
                self._words.append(PersonsWords(place, about[0] if about else "", text))
        self._heard = len(messages)
        return self._words


def _is_end(message: BaseMessage) -> bool:
    """Whether a prompt has a line of the assistant between this message and what is said after it."""
    return isinstance(message, ToolMessage) or is_answer(message)


def _tokens(message: BaseMessage) -> int:
    if isinstance(message, SystemMessage):
        return 0
    if not isinstance(message, AIMessage):
        return tokens([message])
    shown = normal(message)
    bad = [call["args"] or "" for call in shown.invalid_tool_calls]
    return tokens([shown]) + sum(_AROUND + len(args) for args in bad) // CHARS


_NO_DECISIONS: Mapping[str, CallDecision] = MappingProxyType({})
_NOTHING_SPOKEN: frozenset[str] = frozenset()
_NOTHING_ASKED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Stray:
    """An open call that will never run, and the reason: a key of `Texts.results`. task: the task of its
    reply; empty if that is not one of the last two."""

    call: Call
    reply: Reply
    why: str
    task: str = ""

    @property
    def reply_id(self) -> str:
        return self.reply.message.id or ""


def calls_left(task: str, replies: Sequence[Reply]) -> list[Stray]:
    """Every open call of these replies, whose task has ended."""
    return [
        Stray(call, reply, "ended", task) for reply in replies for call in reply.calls if reply.open(call)
    ]


@dataclass(slots=True)
class PromptHead:
    """The beginning of a prompt: its messages from index `start` to `upto`, which stay the same whatever the
    history adds."""

    start: int = -1
    upto: int = 0
    replies: int = 0
    messages: list[BaseMessage] = field(default_factory=list)


class Reader:
    """Reads messages one by one into sections, one a task.

    `replies` are all replies of the thread in order; `spoken` are the ids of the user's messages that belong
    to a waiting call, and begin no task. `unmarked` are the marks that `compress` writes on such messages,
    and on those that began a task beside open calls, so that no later reading depends on the current
    settings. `source` is the history as last read. Derived values are cached here: `task` (see task.py),
    `head` and `shown` (prompt.py).
    """

    def __init__(self, tools: Tools, ended_at: str | None) -> None:
        self.tools = tools
        self.decisions: Mapping[str, CallDecision] = _NO_DECISIONS
        self.asked: Mapping[str, str] = _NOTHING_ASKED
        self.verdicts: Verdicts | None = None
        self.ended_at = ended_at
        self.messages: list[BaseMessage] = []
        self.section = TaskSection()
        self.before: TaskSection | None = None
        self.replies: list[Reply] = []
        self.spoken: frozenset[str] = _NOTHING_SPOKEN
        self.unmarked: dict[str, dict[str, Any]] = {}
        self.open_calls: dict[str, list[tuple[Reply, Call]]] = {}
        self.call_ids: set[str] = set()
        self.adjacent = False
        self.answering: tuple[Wait, tuple[Call, ...]] | None = None
        self.last_id: str | None = None
        self.source: Sequence[BaseMessage] = ()
        self.task: tuple[Any, ...] | None = None
        self.head: tuple[Any, ...] | None = None
        self.shown = PromptHead()
        self._ledger = Ledger()

    @property
    def lineage(self) -> object | None:
        return lineage(self.source)

    @property
    def begins(self) -> int:
        """The index of the message that begins the current task."""
        first = self.section.messages[0] if self.section.messages else None
        return self.index.places[first.id or ""] if first is not None else 0

    @property
    def index(self) -> Ledger:
        """The positions of the messages."""
        return self._ledger.upto(self.messages)

    @property
    def sums(self) -> "array[int]":
        """At each place the tokens of all messages before it."""
        return self.index.weights(self.messages)

    def holds(self, messages: Sequence[BaseMessage], ended_at: str | None) -> bool:
        """Whether `messages` begin with exactly the objects that were read, and none was read after the end
        of a task that was not known then."""
        if len(self.messages) > len(messages):
            return False
        if self.ended_at != ended_at and not (messages and ended_at == messages[-1].id):
            return False
        own = self.lineage
        grown = own is not None and lineage(messages) is own
        return grown or all(map(is_, self.messages, messages))

    def add(self, message: BaseMessage) -> None:
        self.messages.append(message)
        if isinstance(message, SystemMessage):
            return
        if is_answer(message):
            # It ends the messages before it, and begins nothing.
            self.adjacent, self.answering, self.last_id = False, None, message.id
            return
        if isinstance(message, AIMessage):
            self._reply(message)
        elif isinstance(message, ToolMessage):
            self._result(message)
        elif isinstance(message, FunctionMessage):
            # OpenAI's first protocol had no ids: such a result belongs to the one call before it.
            self._result(ToolMessage(message.content, tool_call_id="", name=message.name))
        elif isinstance(message, HumanMessage) and is_genuine(message):
            self._human(message)
        elif kind := nudge_kind(message):
            self.section.nudges.append((kind, len(self.section.replies)))
            self.section.tally.reminded(kind, message)
            self._note_rejection(marks(message).get("finish"))
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
        """The tokens of all messages but the last, and of the last one."""
        before, upto = self.sums[-2:]
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

    def _section_of(self, reply: Reply) -> TaskSection | None:
        """The section with this reply, one of the last two; earlier ones are never needed."""
        # Nearly always it is the last reply.
        sections = (self.section, self.before)
        return next((s for s in sections if s and any(reply is r for r in reversed(s.replies))), None)

    def _note_rejection(self, key: str | None) -> None:
        """Records a finish that a person did not accept and whose call the history had already answered."""
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
                self.section.tally.note_person()
            if wait is Wait.WORD:
                self.section.heard.append(len(self.section.replies))
            else:
                self.spoken |= {message.id or ""}
            for call_id in dict.fromkeys(call.id for call in calls):
                before = self.section.answers.get(call_id)
                text = f"{before.text}\n{message.text}" if before else message.text
                self.section.answers[call_id] = UserWords(wait, text)
            self._mark(message, answers=[call.id for call in calls], wait=str(wait))
        elif self._joins(message):
            self.section.messages.append(message)
        else:
            if self.section.replies:
                self.call_ids.update(call.id for call in self.section.replies[-1].calls)
            if self.adjacent or self.section.due() or self.section.ask() or self.section.spoke():
                self._mark(message, begins=True)
            self.before = self.section if self.section.id else None
            self.section = TaskSection(id=message.id or "", messages=[message])

    def _joins(self, message: HumanMessage) -> bool:
        """Whether the message belongs to the genuine one right before it: not when a task ended between."""
        ended = self.last_id == self.ended_at or "begins" in marks(message)
        return self.adjacent and bool(self.section.messages) and not ended

    def _addressed(self, message: HumanMessage) -> tuple[Wait, tuple[Call, ...]] | None:
        """The waiting calls that the message belongs to: from its mark, else from the history."""
        marked = marks(message)
        if "begins" in marked:
            return None
        if "answers" in marked:
            wait, ids = Wait(marked["wait"]), marked["answers"]
            calls = [call for reply in self.section.replies for call in reply.calls if call.id in ids]
            if wait is Wait.CONFIRMATION:
                finishes = [call for _, call in self.section.controls if call.effect == "finish"]
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
        """Every open call except the `kept` ones and those that a user's message answers."""
        if not self.open_calls:
            return ()
        found: list[Stray] = []
        for waiting in self.open_calls.values():
            for reply, call in waiting:
                if any(call is keep for keep in kept) or call.id in self.section.answers:
                    continue
                section, control = self._section_of(reply), reply.control
                task = section.id if section else ""
                if section is not self.section:
                    found.append(Stray(call, reply, "superseded", task))
                elif control is not None and call.index > control.index:
                    found.append(Stray(call, reply, "after_control", task))
                else:
                    found.append(Stray(call, reply, "left_behind", task))
        return tuple(found)


def read_messages(state: AgentState, tools: Tools, before: Reader | None = None) -> Reader:
    """A reader of all messages of the thread. `before` is an earlier one to continue from, if still valid."""
    messages, ended = state.get("messages", []), state.get("ended")
    reader = before
    if reader is None or not reader.holds(messages, ended["message"] if ended else None):
        reader = Reader(tools, ended["message"] if ended else None)
    elif reader.tools is not tools:
        # Which calls need approval may depend on the context of the run.
        reader.tools, reader.task = tools, None
    reader.ended_at = ended["message"] if ended else None
    if approvals := state.get("approvals"):
        reader.decisions, reader.asked = approvals["calls"], approvals["asked"]
    reader.verdicts = state.get("verdicts")
    for message in messages[len(reader.messages) :]:
        reader.add(message)
    reader.source = messages
    return reader
