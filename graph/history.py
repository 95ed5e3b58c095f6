"""The history of a thread, read once into a `Task`: all that the rules need to know.

The reading is a pure function of the checkpointed messages and state. It gives the same `Task` before and
after a restart, on another worker and in a replay.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from operator import is_

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from signoff.graph.marks import is_genuine, marks, nudge_kind
from signoff.graph.replies import Call, Controls, Reply, Stop, read_reply
from signoff.graph.state import AgentState
from signoff.tools.control import Effect

RESUMED = "resumed"


@dataclass(frozen=True)
class Stray:
    """An open call that will never run, and why: a key of `Texts.results`."""

    call: Call
    why: str
    reply_id: str
    control: str = ""


@dataclass(frozen=True)
class Task:
    """The current task of a thread.

    `due` are the open calls that are settled next; `ask` and `finish` are the standing control calls;
    `answers` are words of the user that answer an open question, by call id, not yet written as results.
    In-a-row counts (`talk_turns`, `filtered`) start anew at a "resumed" mark. `before` is the task that came
    before this one.
    """

    id: str = ""
    messages: tuple[HumanMessage, ...] = ()
    replies: tuple[Reply, ...] = ()
    due: tuple[Call, ...] = ()
    ask: Call | None = None
    finish: Call | None = None
    strays: tuple[Stray, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    nudges: tuple[str, ...] = ()
    nudged: frozenset[str] = frozenset()
    reminded: bool = False
    fresh: Reply | None = None
    talk_turns: int = 0
    filtered: int = 0
    answered: bool = False
    call_ids: AbstractSet[str] = frozenset()
    extra_turns: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False
    ended: bool = False
    can_ask: bool = True
    before: "Task | None" = None

    @property
    def turns(self) -> int:
        return len(self.replies)

    @property
    def last(self) -> Reply | None:
        return self.replies[-1] if self.replies else None

    @property
    def last_text(self) -> str:
        return next((reply.text for reply in reversed(self.replies) if reply.text), "")

    def reply_of(self, call: Call) -> Reply:
        """The reply that holds `call`."""
        return next(reply for reply in reversed(self.replies) if call in reply.calls)


@dataclass
class _Section:
    """The messages of one task while they are being read."""

    id: str = ""
    messages: list[HumanMessage] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    controls: list[tuple[Reply, Call]] = field(default_factory=list)
    nudges: list[tuple[str, int]] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)

    def ask(self) -> Call | None:
        """The question that stands: put, not answered, and nothing of its reply left to do before it."""
        for reply, call in self.controls:
            if call.effect is Effect.ASK and reply.open(call) and call.id not in self.answers:
                return call
        return None

    def finish(self, verdicts: Mapping[str, str]) -> Call | None:
        """The latest finish without a verdict and without an imported error."""
        for reply, call in reversed(self.controls):
            if call.effect is Effect.FINISH and call.id not in verdicts and not reply.failed(call):
                return call
        return None

    def due(self) -> tuple[Call, ...]:
        """The open calls of the last reply before its first finish or ask."""
        if not self.replies:
            return ()
        last = self.replies[-1]
        return tuple(call for call in last.before_control if last.open(call))

    def waits(self) -> Call | None:
        """The question that a human message arriving now would answer."""
        return None if self.due() else self.ask()


class Reader:
    """Reads messages one by one into sections, one a task.

    `replies` are all replies of the thread in order; `spoken` are the ids of the user's messages that answer
    an open question and begin nothing.
    """

    def __init__(self, controls: Controls, ended_at: str | None) -> None:
        self.controls = controls
        self.ended_at = ended_at
        self.messages: list[BaseMessage] = []
        self.section = _Section()
        self.before: _Section | None = None
        self.replies: list[Reply] = []
        self.spoken: set[str] = set()
        self.open_calls: dict[str, list[tuple[Reply, Call]]] = {}
        self.call_ids: set[str] = set()
        self.adjacent = False
        self.answering: Call | None = None
        self.last_id: str | None = None

    def holds(self, messages: Sequence[BaseMessage], ended_at: str | None) -> bool:
        """Whether `messages` begin with exactly those that were read: the very same objects."""
        same = len(self.messages) <= len(messages) and all(map(is_, self.messages, messages))
        return same and self.ended_at == ended_at

    def add(self, message: BaseMessage) -> None:
        self.messages.append(message)
        if isinstance(message, SystemMessage):
            return
        if isinstance(message, AIMessage):
            self._reply(message)
        elif isinstance(message, ToolMessage):
            self._result(message)
        elif isinstance(message, HumanMessage) and is_genuine(message):
            self._human(message)
        elif kind := nudge_kind(message):
            self.section.nudges.append((kind, len(self.section.replies)))
        self.adjacent = is_genuine(message)
        if not self.adjacent:
            self.answering = None
        self.last_id = message.id
        if not self.section.id:
            self.section.id = message.id or ""

    def _reply(self, message: AIMessage) -> None:
        if self.section.replies:
            self.call_ids.update(call.id for call in self.section.replies[-1].calls)
        reply = read_reply(message, self.controls)
        self.section.replies.append(reply)
        if reply.control:
            self.section.controls.append((reply, reply.control))
        self.replies.append(reply)
        for call in reply.calls:
            self.open_calls.setdefault(call.id, []).append((reply, call))

    def _result(self, message: ToolMessage) -> None:
        waiting = self.open_calls.get(message.tool_call_id)
        if not waiting:
            return
        meant = marks(message).get("reply", waiting[-1][0].message.id)
        position = next((i for i, (reply, _) in enumerate(waiting) if reply.message.id == meant), 0)
        reply, call = waiting.pop(position)
        reply.results[call.index] = message
        self.section.answers.pop(call.id, None)
        if not waiting:
            del self.open_calls[message.tool_call_id]

    def _human(self, message: HumanMessage) -> None:
        waiting = self.answering or self.section.waits()
        if waiting:
            self.answering = waiting
            self.section.answers.setdefault(waiting.id, []).append(message.text)
            self.spoken.add(message.id or "")
        elif self.adjacent and self.section.messages and self.last_id != self.ended_at:
            self.section.messages.append(message)
        else:
            if self.section.replies:
                self.call_ids.update(call.id for call in self.section.replies[-1].calls)
            self.before = self.section if self.section.id else None
            self.section = _Section(id=message.id or "", messages=[message])

    def strays(self, kept: Sequence[Call]) -> tuple[Stray, ...]:
        """Every open call but the `kept` ones and those that the user's words answer."""
        here = {id(reply) for reply in self.section.replies}
        found: list[Stray] = []
        for waiting in self.open_calls.values():
            for reply, call in waiting:
                if any(call is keep for keep in kept) or call.id in self.section.answers:
                    continue
                control, reply_id = reply.control, reply.message.id or ""
                if id(reply) not in here:
                    found.append(Stray(call, "superseded", reply_id))
                elif control is not None and call.index > control.index:
                    found.append(Stray(call, "after_control", reply_id, control.name))
                else:
                    found.append(Stray(call, "left_behind", reply_id))
        return tuple(found)


def read(state: AgentState, controls: Controls, *, can_ask: bool = True) -> Task:
    """The current task of the thread whose state this is.

    `can_ask` says whether the run can pause for a person (it has a checkpointer).
    """
    return current_task(read_messages(state, controls), state, can_ask=can_ask)


def read_messages(state: AgentState, controls: Controls, before: "Reader | None" = None) -> "Reader":
    """All messages of the thread, read. `before` is an earlier reading to go on from, if it still holds."""
    messages, ended = state.get("messages", []), state.get("ended")
    reader = before
    if reader is None or not reader.holds(messages, ended["message"] if ended else None):
        reader = Reader(controls, ended["message"] if ended else None)
    for message in messages[len(reader.messages) :]:
        reader.add(message)
    return reader


def current_task(reader: "Reader", state: AgentState, *, can_ask: bool = True) -> Task:
    """The task that the messages end in, with what the state says of it."""
    before = None if reader.before is None else _task(state, reader.before, None)
    task = _task(state, reader.section, before)
    kept = [*task.due, *(call for call in (task.ask, task.finish) if call)]
    return replace(task, strays=reader.strays(kept), call_ids=reader.call_ids, can_ask=can_ask)


def _task(state: AgentState, section: _Section, before: Task | None) -> Task:
    verdicts = _of_task(state, section.id)
    marked = max((at for kind, at in section.nudges if kind == RESUMED), default=0)
    since = section.replies[marked:]
    outcome, extra = state.get("outcome"), state.get("extra")
    return Task(
        id=section.id,
        messages=tuple(section.messages),
        replies=tuple(section.replies),
        due=section.due(),
        ask=section.ask(),
        finish=section.finish(verdicts),
        answers={call_id: "\n".join(words) for call_id, words in section.answers.items()},
        nudges=tuple(kind for kind, _ in section.nudges),
        nudged=frozenset(kind for kind, at in section.nudges if at == len(section.replies)),
        reminded=any(kind == "near_limit" and at >= marked for kind, at in section.nudges),
        fresh=since[-1] if since else None,
        talk_turns=_talk_in_a_row(since),
        filtered=_filtered_in_a_row(since),
        answered=any(_answered(reply, section) for reply in section.replies[-1:]),
        extra_turns=extra["turns"] if extra and extra["task"] == section.id else 0,
        refused={call: why for call, why in verdicts.items() if why != "accepted"},
        stopped=bool(section.id) and state.get("stop") == section.id,
        ended=bool(outcome and outcome.get("task") == section.id),
        before=before,
    )


def _of_task(state: AgentState, task: str) -> Mapping[str, str]:
    verdicts = state.get("verdicts")
    return verdicts["calls"] if verdicts and verdicts["task"] == task else {}


def _talk_in_a_row(replies: Sequence[Reply]) -> int:
    count = 0
    for reply in reversed(replies):
        if reply.works:
            break
        count += not reply.calls
    return count


def _filtered_in_a_row(replies: Sequence[Reply]) -> int:
    count = 0
    for reply in reversed(replies):
        if reply.stop is not Stop.FILTERED:
            break
        count += 1
    return count


def _answered(reply: Reply, section: _Section) -> bool:
    call = reply.control
    if call is None or call.effect is not Effect.ASK:
        return False
    found = reply.results.get(call.index)
    return call.id in section.answers or (found is not None and "not_run" not in marks(found))
