"""A thread in terms of the AG-UI protocol: its messages, their events, and the open interrupts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from ag_ui import core

from signoff import Action, Approval, Question, Waiting
from signoff.events import (
    Answered,
    Called,
    CallFinished,
    CallStarted,
    Confirmed,
    Decided,
    Entered,
    PhaseAccepted,
    Retrying,
    Said,
    SessionEvent,
    TaskEnded,
    Thought,
    Token,
    Wrote,
)
from signoff.front.answering import get_short_id

_NOTES = ("asked", "by", "expired", "not_run", "person", "seconds", "unknown", "waited")
"""The notes on a tool result for which the protocol has no field."""

_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

Event = core.BaseEvent


class Transcript:
    """The messages of a thread as the protocol defines them, and the events that report changes to them."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self._made: dict[str, Called] = {}
        """The calls of the replies, as the model made them, by id."""
        self._open = ""
        """The id of the message that is arriving."""
        self._step = ""
        self._pieces = True
        """Whether chunks of a reply are sent: not if its beginning was missed."""

    def make_snapshot(self) -> Event:
        return core.MessagesSnapshotEvent.model_validate({"messages": [*self.messages.values()]})

    def add_user(self, message_id: str, text: str) -> bool:
        """Adds a user message; returns False if it already exists."""
        if message_id in self.messages:
            return False
        self.messages[message_id] = {"id": message_id, "role": "user", "content": text}
        return True

    def join(self) -> None:
        """Joins in the middle of a run."""
        self._pieces = False

    def close(self) -> Iterator[Event]:
        """Returns the events that close the open message and step."""
        yield from self._end_text()
        if self._step:
            yield core.StepFinishedEvent(step_name=self._step)
            self._step = ""

    def tell(self, event: SessionEvent) -> Iterator[Event]:
        """Returns the protocol's events for an event; none if it was already reported."""
        if event.path:
            # A delegate's event: its messages do not belong to this conversation.
            if not isinstance(event, Token):
                yield _make_custom(event)
            return
        match event:
            case Token():
                yield from self._token(event)
            case Said():
                yield from self._said(event)
            case Wrote() if not event.answers and self.add_user(event.message_id, event.text):
                yield from _tell_text(event.message_id, event.text, "user")
            case Entered():
                yield from self._entered(event)
            case Thought() if event.message_id not in self.messages:
                yield from self._thought(event)
            case PhaseAccepted() if event.message_id not in self.messages:
                yield from self._phase(event)
            case Retrying(dropped=True) if self._open:
                yield from self._dropped()
                yield _make_custom(event)
            case CallStarted() | CallFinished() | Answered() | Confirmed():
                yield from self._work(event)
            case Wrote() | Thought() | PhaseAccepted() | TaskEnded() | Decided():
                pass
            case _:
                yield _make_custom(event)

    def _work(self, event: CallStarted | CallFinished | Answered | Confirmed) -> Iterator[Event]:
        match event:
            case CallStarted():
                yield from self.add_call(event.reply_id, event.call_id, event.name, event.args)
            case CallFinished(args=args):
                yield from self._result(event, event.name, args, event.result, event.ok)
            case Answered():
                name, args = self.find_call(
                    event.reply_id, event.call_id, "ask_user", {"question": event.question}
                )
                yield from self._result(event, name, args, event.answer)
            case Confirmed():
                name, args = self.find_call(event.reply_id, event.call_id, "finish_task", {})
                yield from self._result(event, name, args, event.words or "yes", event.ok)

    def _dropped(self) -> Iterator[Event]:
        """Discards a partial reply."""
        dropped = self._open
        yield from self._end_text()
        del self.messages[dropped]
        yield self.make_snapshot()

    def find_call(
        self, reply_id: str, call_id: str, name: str, args: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any]]:
        """Returns the call in question as the model made it, else the given name and arguments."""
        found = self._made.get(_make_call_id(reply_id, call_id))
        return (found.name, found.args) if found else (name, args)

    def _token(self, event: Token) -> Iterator[Event]:
        known = event.message_id in self.messages and self._open != event.message_id
        if known or not self._pieces or not event.text:
            return
        if self._open != event.message_id:
            yield from self._end_text()
            self._open = event.message_id
            self.messages[event.message_id] = {"id": event.message_id, "role": "assistant", "content": ""}
            yield core.TextMessageStartEvent(message_id=event.message_id, role="assistant")
        self.messages[event.message_id]["content"] += event.text
        yield core.TextMessageContentEvent(message_id=event.message_id, delta=event.text)

    def _end_text(self) -> Iterator[Event]:
        if self._open:
            yield core.TextMessageEndEvent(message_id=self._open)
            self._open = ""

    def _said(self, event: Said) -> Iterator[Event]:
        opened, self._pieces = self._open, True
        self._made |= {_make_call_id(event.message_id, made.call_id): made for made in event.calls}
        yield from self._end_text()
        known = self.messages.get(event.message_id)
        if opened and opened != event.message_id:
            # It was reported under another id.
            del self.messages[opened]
            known = None
        if known is None and (event.text or opened):
            self._assistant(event.message_id)["content"] = event.text
            if opened:
                yield self.make_snapshot()
            else:
                yield from _tell_text(event.message_id, event.text, "assistant")
        elif opened and known and known["content"].strip() != event.text:
            known["content"] = event.text
            yield self.make_snapshot()

    def _assistant(self, message_id: str) -> dict[str, Any]:
        return self.messages.setdefault(message_id, {"id": message_id, "role": "assistant"})

    def _entered(self, event: Entered) -> Iterator[Event]:
        if self._step:
            yield core.StepFinishedEvent(step_name=self._step)
        self._step = str(event.state)
        yield core.StepStartedEvent(step_name=self._step)
        now = {"state": self._step, "turn": event.turn, "turns": event.turns, "tokens": event.tokens}
        patch = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in now.items()]
        yield core.StateDeltaEvent.model_validate({"delta": patch})

    def add_call(self, reply_id: str, call_id: str, name: str, args: Mapping[str, Any]) -> Iterator[Event]:
        """Returns the events of a tool call, unless it is known, with a person's changes to its arguments."""
        own, arguments = (
            _make_call_id(reply_id, call_id),
            json.dumps(dict(args), ensure_ascii=False, default=str),
        )
        parent = reply_id or own
        calls = self._assistant(parent).setdefault("toolCalls", [])
        known = next((one for one in calls if one["id"] == own), None)
        if known is None:
            function = {"name": name or "unknown", "arguments": arguments}
            calls.append({"id": own, "type": "function", "function": function})
            yield core.ToolCallStartEvent(
                tool_call_id=own, tool_call_name=function["name"], parent_message_id=parent
            )
            yield core.ToolCallArgsEvent(tool_call_id=own, delta=arguments)
            yield core.ToolCallEndEvent(tool_call_id=own)
        elif args and known["function"]["arguments"] != arguments:
            known["function"]["arguments"] = arguments
            yield self.make_snapshot()

    def add_pending(self, waiting: Waiting) -> Iterator[Event]:
        """Returns the events of the waiting calls, as the conversation has them."""
        document = waiting.document()
        reply_id, call_id = document.get("reply_id", ""), document.get("call_id", "")
        for call in waiting.calls if isinstance(waiting, Approval) else ():
            yield from self.add_call(reply_id, call.id, call.name, call.args)
        if isinstance(waiting, Question) and call_id:
            asked = {"question": waiting.text, "options": list(waiting.options)}
            name, args = self.find_call(reply_id, call_id, "ask_user", asked)
            yield from self.add_call(reply_id, call_id, name, args)
        if isinstance(waiting, Action):
            yield from self.add_call(reply_id, call_id, waiting.tool, waiting.args)

    def _result(
        self,
        event: CallFinished | Answered | Confirmed,
        name: str,
        args: Mapping[str, Any],
        result: str,
        ok: bool = True,
    ) -> Iterator[Event]:
        if event.message_id in self.messages:
            return
        if isinstance(event, CallFinished) or not self._knows(event.reply_id, event.call_id):
            yield from self.add_call(event.reply_id, event.call_id, name, args)
        own = _make_call_id(event.reply_id, event.call_id)
        notes = {name: found for name in _NOTES if (found := getattr(event, name, None))}
        metadata = {"signoff": {"ok": ok, **notes}}
        error = {} if ok else {"error": result}
        self.messages[event.message_id] = {
            "id": event.message_id,
            "role": "tool",
            "content": result,
            "toolCallId": own,
            "metadata": metadata,
            **error,
        }
        yield core.ToolCallResultEvent(
            message_id=event.message_id, tool_call_id=own, content=result, role="tool", metadata=metadata
        )

    def _knows(self, reply_id: str, call_id: str) -> bool:
        calls = self.messages.get(reply_id, {}).get("toolCalls", ())
        return any(one["id"] == _make_call_id(reply_id, call_id) for one in calls)

    def _thought(self, event: Thought) -> Iterator[Event]:
        own = event.message_id
        self.messages[own] = {"id": own, "role": "reasoning", "content": event.text}
        yield core.ReasoningStartEvent(message_id=own)
        yield core.ReasoningMessageStartEvent(message_id=own, role="reasoning")
        if event.text:
            yield core.ReasoningMessageContentEvent(message_id=own, delta=event.text)
        yield core.ReasoningMessageEndEvent(message_id=own)
        yield core.ReasoningEndEvent(message_id=own)

    def _phase(self, event: PhaseAccepted) -> Iterator[Event]:
        content = {"percentage": event.percentage, "summary": event.summary, "next": event.next_phase}
        found = {"id": event.message_id, "role": "activity", "activityType": "phase", "content": content}
        self.messages[event.message_id] = found
        yield core.ActivitySnapshotEvent(message_id=event.message_id, activity_type="phase", content=content)


def _tell_text(message_id: str, text: str, role: Literal["user", "assistant"]) -> Iterator[Event]:
    yield core.TextMessageStartEvent(message_id=message_id, role=role)
    if text:
        yield core.TextMessageContentEvent(message_id=message_id, delta=text)
    yield core.TextMessageEndEvent(message_id=message_id)


def _make_call_id(reply_id: str, own: str) -> str:
    """Returns the id of a call in the conversation: a model may reuse an id in another reply."""
    return f"{reply_id}/{own}" if reply_id else own


def _make_custom(event: SessionEvent) -> Event:
    return core.CustomEvent(name=f"signoff.{event.type}", value=event.to_dict())


def list_interrupts(waiting: Waiting) -> list[core.Interrupt]:
    """Returns the open interrupts, for an approval one per call. Their ids identify exactly what is shown."""
    document = waiting.document()
    reply_id, call_id = document.get("reply_id", ""), document.get("call_id", "")
    if not isinstance(waiting, Approval):
        told = waiting.text if isinstance(waiting, Question) else ""
        deadline = waiting.deadline if isinstance(waiting, Question) else None
        return [
            core.Interrupt(
                id=make_interrupt_id(waiting),
                reason=document["type"],
                message=told or f"Return the result of {getattr(waiting, 'tool', 'this')}.",
                tool_call_id=_make_call_id(reply_id, call_id) if call_id else None,
                response_schema=_make_schema(waiting),
                expires_at=None if deadline is None else _make_date(deadline),
                metadata={"signoff": document},
            )
        ]
    return [
        core.Interrupt(
            id=make_interrupt_id(waiting, at),
            reason=document["type"],
            message=call.note or f"Allow {call.name} to run?",
            tool_call_id=_make_call_id(reply_id, call.id) if call.id else None,
            response_schema=_make_decision_schema(call.name, call.allowed, call.args_schema),
            metadata={
                "signoff": {
                    "tool": call.name,
                    "args": dict(call.args),
                    "allowed": list(call.allowed),
                    "shown": document["shown"],
                    "problem": waiting.problem,
                    "path": list(waiting.path),
                }
            },
        )
        for at, call in enumerate(waiting.calls)
    ]


def _make_date(seconds: float) -> str:
    """Returns the time in ISO 8601. A deadline may be later than the last year that it can express."""
    return datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC).isoformat()


def make_interrupt_id(waiting: Waiting, at: int = 0) -> str:
    return f"{waiting.interrupt_id}:{get_short_id(waiting)}:{at}"


def _make_schema(waiting: Waiting) -> dict[str, Any]:
    if isinstance(waiting, Question) and waiting.options:
        return {"type": "string", "examples": list(waiting.options)}
    return {"type": "string"}


def _make_decision_schema(
    name: str, allowed: Sequence[str], args: Mapping[str, Any] | None
) -> dict[str, Any]:
    edited = {
        "type": "object",
        "properties": {"name": {"const": name}, "args": dict(args or {"type": "object"})},
        "required": ["name", "args"],
    }
    fields = {"type": {"enum": list(allowed)}, "message": {"type": "string"}, "edited_action": edited}
    if "edit" not in allowed:
        del fields["edited_action"]
    return {"type": "object", "properties": fields, "required": ["type"]}
