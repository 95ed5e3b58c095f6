"""Turns the messages and updates of a thread into events."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.history.replies import fingerprint
from signoff.graph.history.task import Task
from signoff.graph.machine import LAST, TRANSITIONS, Event, State, next_state
from signoff.graph.messages import append_messages, is_genuine, is_reply, marks, nudge_kind
from signoff.graph.state import CallDecision
from signoff.models.text_protocol.reading import read_text
from signoff.models.text_protocol.status import tagged_notes
from signoff.nodes.model.trying import RETRYING
from signoff.nodes.tool_calls.progress import ToolWrote
from signoff.session.events import (
    Answered,
    CallDecided,
    Called,
    CallFinished,
    CallProgress,
    CallStarted,
    Confirmed,
    Entered,
    Nudged,
    PhaseAccepted,
    Retrying,
    Said,
    SessionEvent,
    TaskEnded,
    Thought,
    Token,
    Undone,
    Wrote,
)
from signoff.tools.toolbox import Toolbox

_OF_RETRYING = ("seconds", "why", "tries", "most", "dropped")


class Follower:
    """Turns messages and updates into events, in order.

    task: the task as already in the history. turns: the turn limit of one task. extended: the turns by which
    the task is extended now, which is not in the history yet. messages: the history, so that new messages get
    the ids that they will have in it; None if not needed. undone: how many effects of the task have already
    been processed by an undo.
    """

    def __init__(
        self,
        task: Task,
        toolbox: Toolbox,
        turns: int,
        extended: int = 0,
        messages: Sequence[BaseMessage] | None = None,
        undone: int = 0,
    ) -> None:
        self.toolbox = toolbox
        self.turns = turns
        self.turn = task.turns
        self.most = task.most_turns(turns)
        if extended:
            self.most = max(self.most, self.turn) + extended
        self.undone = undone
        self.tokens = sum(_tokens(reply.message) for reply in task.replies)
        self.open: dict[str, Called] = {}
        self.decisions: Mapping[str, CallDecision] = task.decisions
        self.reply_id = ""
        # A copy, since the history passes its set of ids to the first list that extends it.
        self._history: list[BaseMessage] | None = None if messages is None else list(messages)
        self._ids = {message.id for message in messages or ()}
        for reply in task.replies[-1:]:
            self.reply_id = reply.message.id or ""
            self.open = {
                call.id: Called(call.name, call.args, call.id) for call in reply.calls if reply.open(call)
            }

    def update(self, state: State, written: Mapping[str, Any] | None) -> Iterator[SessionEvent]:
        """The events for the update of one state of the machine. written: None for a state that was answered
        and then failed, which LangGraph tells as an update."""
        if written is None:
            return
        if state is State.APPROVE and (approvals := written.get("approvals")):
            yield from self._decided(approvals["calls"])
        for message in written.get("messages", ()):
            placed = self._with_history_id(message)
            # An undo marks results that were already reported.
            if state is not State.UNDO:
                yield from self.message(placed)
        if state is State.UNDO:
            yield from self._undone(written.get("undo") or {})
        if "task" in written:
            self.begin()
        if written.get("outcome"):
            yield TaskEnded(written["outcome"])
        if state is not LAST or written["event"] in TRANSITIONS[state]:
            to = next_state(state, Event(written["event"]))
            yield Entered(to, self.turn, self.most, self.tokens, state)
            if to is State.EXECUTE:
                yield from self._batch()

    def token(self, text: str, message_id: str | None) -> Token:
        """A chunk of a streaming reply, with the id that the reply will have: see `call_llm`."""
        if message_id is None or message_id in self._ids:
            message_id = f"{message_id or 'reply'}-{len(self._history or ())}"
        return Token(text, message_id)

    def wrote(self, data: Any) -> Iterator[SessionEvent]:
        """The events for a value on LangGraph's custom stream, from a running tool or from the model's
        retries."""
        if isinstance(data, ToolWrote):
            # An abandoned tool may continue to write.
            if called := self.open.get(data.call_id):
                yield CallProgress(self.turn, called.name, called.call_id, data.data, reply_id=self.reply_id)
        elif isinstance(data, Mapping) and data.get("type") == RETRYING:
            yield Retrying(**{name: data[name] for name in _OF_RETRYING if name in data})

    def begin(self) -> None:
        """A new task begins."""
        self.turn = self.tokens = 0
        self.most = self.turns
        self.open.clear()
        self.decisions = {}

    def message(self, message: BaseMessage) -> Iterator[SessionEvent]:
        if is_reply(message):
            yield from self._reply(message)
        elif isinstance(message, ToolMessage):
            yield from self._result(message)
        elif isinstance(message, HumanMessage) and is_genuine(message):
            notes = marks(message)
            yield Wrote(message.text, "answers" in notes, message.id or "", notes.get("by", ""))
        elif why := nudge_kind(message):
            yield Nudged(why, message.text, message.id or "")

    def _with_history_id(self, message: BaseMessage) -> BaseMessage:
        """`message` with its id in the history."""
        if self._history is None:
            return message
        self._history = append_messages(self._history, [[message]])
        found = message if message.id else self._history[-1]
        self._ids.add(found.id)
        return found

    def _undone(self, undoing: Mapping[str, Any]) -> Iterator[Undone]:
        """The results of an undo since the last report."""
        done = undoing.get("done", ())
        for step in done[self.undone :]:
            yield Undone(step["call"], step["why"] or "", step["said"], tuple(step["path"]))
        self.undone = len(done)

    def _batch(self) -> Iterator[CallStarted]:
        """The calls that run now: consecutive reads, delegates, or one other. See `next_batch`."""
        box = self.toolbox
        together = any(called.name in box.delegates for called in islice(self.open.values(), 1))
        for at, called in enumerate(self.open.values()):
            name = called.name
            if box.effect(name) is not None or (name in box.delegates) is not together:
                return
            alone = not together and (box.is_effect(name) or box.is_driven(name))
            if at and alone:
                return
            args, asked = self._arguments_of(called)
            yield CallStarted(self.turn, name, args, called.call_id, asked, self.reply_id)
            if alone:
                return

    def _decided(self, calls: Mapping[str, CallDecision]) -> Iterator[CallDecided]:
        """The new decisions."""
        before, self.decisions = self.decisions, calls
        for call_id, found in calls.items():
            called = self.open.get(call_id)
            if called is None or before.get(call_id) == found or self._decision(called) is None:
                continue
            runs = found["type"] in ("approve", "edit")
            yield CallDecided(
                self.turn,
                called.name,
                call_id,
                found["type"],
                self._arguments_of(called)[0] if runs else None,
                found["message"],
                found.get("by", ""),
                self.reply_id,
            )

    def _decision(self, called: Called) -> CallDecision | None:
        """The decision on exactly this call."""
        found = self.decisions.get(called.call_id)
        return found if found and found["hash"] == fingerprint(called.name, called.args) else None

    def _arguments_of(self, called: Called) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The arguments with which a call runs, and the model's own if they differ."""
        found = self._decision(called)
        edited = found["args"] if found and found["type"] == "edit" else None
        return (called.args, None) if edited is None else (edited, called.args)

    def _reply(self, message: AIMessage) -> Iterator[Said]:
        fresh = not message.id or message.id != self.reply_id
        self.reply_id = message.id or ""
        # The same reply appears again if the machine has changed its call ids.
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        called = tuple(
            Called(
                call["name"] or "", call["args"] if isinstance(call["args"], dict) else {}, call["id"] or ""
            )
            for call in calls
        )
        self.open = {one.call_id: one for one in called}
        if fresh:
            tokens = _tokens(message)
            self.turn += 1
            self.tokens += tokens
            notes, text = marks(message), message.text.strip()
            seconds, at = float(notes.get("seconds", 0.0)), notes.get("at")
            beside = read_text(message.text).plain if called and tagged_notes(message) is not None else None
            retries, name = notes.get("retries", 0), message.id or ""
            yield Said(self.turn, text, called, tokens, seconds, beside, retries, name, at=at)

    def _result(self, message: ToolMessage) -> Iterator[SessionEvent]:
        called = self.open.pop(message.tool_call_id, None)
        called = called or Called(message.name or "", {}, message.tool_call_id)
        effect, notes = self.toolbox.effect(called.name), marks(message)
        args, ok = called.args, message.status != "error"
        waited, by = float(notes.get("waited", 0.0)), notes.get("by", "")
        ids: dict[str, Any] = {
            "call_id": called.call_id,
            "message_id": message.id or "",
            "reply_id": self.reply_id,
        }
        if effect == "finish" and (notes.get("confirmed") or notes.get("sent_back")):
            yield Confirmed(self.turn, bool(notes.get("confirmed")), notes.get("said", ""), waited, by, **ids)
        if effect == "continue" and ok:
            approach, status = args.get("approach"), args.get("status")
            yield Thought(self.turn, str(args.get("thought", "")), approach, status, **ids)
        elif effect == "ask" and ok:
            asked, expired = str(args.get("question", "")), bool(notes.get("expired"))
            yield Answered(self.turn, asked, message.text, waited, by, expired, **ids)
        elif effect == "finish" and ok and (phase := notes.get("phase")):
            yield PhaseAccepted(self.turn, **phase, **ids)
        elif effect != "finish" or not ok:
            yield self._finished(called, message, ids)

    def _finished(self, called: Called, message: ToolMessage, ids: Mapping[str, Any]) -> CallFinished:
        notes, ok = marks(message), message.status != "error"
        args, asked = (notes["ran"], called.args) if "ran" in notes else (called.args, None)
        return CallFinished(
            self.turn,
            called.name,
            args,
            ok,
            message.text,
            seconds=float(notes.get("seconds", 0.0)),
            person=next((way for way in ("edited", "responded") if notes.get(way)), ""),
            asked=asked,
            waited=float(notes.get("waited", 0.0)),
            by=notes.get("by", ""),
            not_run=notes.get("not_run", ""),
            unknown=bool(notes.get("unknown")),
            **ids,
        )


def _tokens(message: AIMessage) -> int:
    return message.usage_metadata["total_tokens"] if message.usage_metadata else 0
