"""The AG-UI protocol over the server's threads, for CopilotKit and every other client of it.

A request reads, or asks the room of its thread for something, as the pages do: it owns no run. Of what a
client sends only the last message of its user, its answers and what it asks for count; its history and its
state are never believed. docs/how-to/ag-ui.md says what stands for what.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from ag_ui import core
from ag_ui.encoder import EventEncoder
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from signoff.front.answering import Known, answering_values, asked_of, beginning, overtaken, shown_as
from signoff.front.choices import moves
from signoff.graph.errors import SetupError, SignoffError, StorageError, ThreadBusy, ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.commands import TooLate
from signoff.session.decisions import Action, Approval, Confirmation, Question, Waiting
from signoff.session.events import (
    Answered,
    Called,
    CallFinished,
    CallStarted,
    Confirmed,
    Decided,
    Ended,
    Entered,
    PhaseAccepted,
    Retrying,
    Said,
    SessionEvent,
    Thought,
    Token,
    Wrote,
    from_dict,
)
from signoff.session.history import conversation
from signoff.session.status import Condition, ThreadStatus, deps_of, look, readable, reading_graph
from signoff.web.hub import Hub
from signoff.web.room import Room

MOST_BYTES = 10_000_000
"""Of the body of a request: a client sends its whole history each time."""
_MOST_TEXT = 400_000

_NOTES = ("asked", "by", "expired", "granted", "not_run", "person", "seconds", "unknown", "waited")
"""Of a result, beside what the protocol has a place for."""

Event = core.BaseEvent
_MOST_ID = 500
Id = Annotated[str, Field(min_length=1, max_length=_MOST_ID)]


class _Sent(BaseModel):
    """What other versions of the protocol add is nothing to refuse it for."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class Resume(_Sent):
    """An answer to one interrupt."""

    interrupt_id: Annotated[str, Field(max_length=1_000)]
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class Own(BaseModel):
    """What has no place in the protocol."""

    model_config = ConfigDict(extra="forbid")

    move: Literal["pause", "stop", "go_on", "extend", "retry"] | None = None
    turns: Annotated[int, Field(ge=1, le=100_000)] = 10


class Forwarded(_Sent):
    signoff: Own = Own()


class RunInput(_Sent):
    """What counts of the protocol's `RunAgentInput`."""

    thread_id: Id
    run_id: Id
    messages: list[Any]
    resume: list[Resume] | None = None
    forwarded_props: Annotated[
        Forwarded, BeforeValidator(lambda given: given if isinstance(given, dict) else {})
    ] = Forwarded()

    def written(self) -> dict[str, Any] | None:
        """The user's last message."""
        users = (
            one for one in reversed(self.messages) if isinstance(one, dict) and one.get("role") == "user"
        )
        return next(users, None)


def _words(message: Mapping[str, Any]) -> tuple[str, str]:
    """The id and the text of a message. Raises SetupError for one that is no text."""
    own, content = message.get("id"), message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not (isinstance(own, str) and 0 < len(own) <= _MOST_ID and all(isinstance(one, str) for one in texts)):
        raise SetupError(f"A message of the user is text, under an id of at most {_MOST_ID} characters.")
    text = valid_text("\n".join(map(str, texts)))
    if not text.strip():
        raise SetupError("The task is empty; say what is to be done.")
    if len(text) > _MOST_TEXT:
        raise SetupError(f"The message is too long; at most {_MOST_TEXT:,} characters are taken.")
    return valid_text(own), text


# --- the conversation ---


class Transcript:
    """The messages of a thread as the protocol has them, and the events that tell of what is new in them."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self._made: dict[str, Called] = {}
        """The calls of the replies, as the model made them."""
        self._open = ""
        """The message that comes in."""
        self._step = ""
        self._pieces = True
        """Whether pieces of a reply are told: not of one whose beginning was missed."""

    def snapshot(self) -> Event:
        return core.MessagesSnapshotEvent.model_validate({"messages": [*self.messages.values()]})

    def user(self, message_id: str, text: str) -> bool:
        """Adds what a user wrote; False when it is there."""
        if message_id in self.messages:
            return False
        self.messages[message_id] = {"id": message_id, "role": "user", "content": text}
        return True

    def join(self) -> None:
        """Goes on in the middle of a run."""
        self._pieces = False

    def close(self) -> Iterator[Event]:
        """Ends what is open."""
        yield from self._end_text()
        if self._step:
            yield core.StepFinishedEvent(step_name=self._step)
            self._step = ""

    def of(self, event: SessionEvent) -> Iterator[Event]:
        """What an event means; of one that was told already nothing."""
        if event.path:
            # A delegate's: its own messages are not of this conversation.
            if not isinstance(event, Token):
                yield _custom(event)
            return
        match event:
            case Token():
                yield from self._token(event)
            case Said():
                yield from self._said(event)
            case Wrote() if not event.answers and self.user(event.message_id, event.text):
                yield from _text(event.message_id, event.text, "user")
            case Entered():
                yield from self._entered(event)
            case Thought() if event.message_id not in self.messages:
                yield from self._thought(event)
            case PhaseAccepted() if event.message_id not in self.messages:
                yield from self._phase(event)
            case Retrying(dropped=True) if self._open:
                yield from self._dropped()
                yield _custom(event)
            case CallStarted() | CallFinished() | Answered() | Confirmed():
                yield from self._work(event)
            case Wrote() | Thought() | PhaseAccepted() | Ended() | Decided():
                pass
            case _:
                yield _custom(event)

    def _work(self, event: CallStarted | CallFinished | Answered | Confirmed) -> Iterator[Event]:
        match event:
            case CallStarted():
                yield from self.call(event.reply_id, event.call_id, event.name, event.args)
            case CallFinished(args=args):
                yield from self._result(event, event.name, args, event.result, event.ok)
            case Answered():
                name, args = self.made(event, "ask_user", {"question": event.question})
                yield from self._result(event, name, args, event.answer)
            case Confirmed():
                name, args = self.made(event, "finish_task", {})
                yield from self._result(event, name, args, event.words or "yes", event.ok)

    def _dropped(self) -> Iterator[Event]:
        """What had come in of a reply does not count."""
        dropped = self._open
        yield from self._end_text()
        del self.messages[dropped]
        yield self.snapshot()

    def made(
        self, of: Answered | Confirmed | Question | Confirmation, name: str, args: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any]]:
        """The call that this is about, as the model made it; else what is known of it."""
        found = self._made.get(_call_id(of.reply_id, of.call_id))
        return (found.name, found.args) if found else (name, args)

    def _token(self, event: Token) -> Iterator[Event]:
        if not self._pieces or not event.text or (event.message_id in self.messages and not self._open):
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
        self._made |= {_call_id(event.message_id, made.call_id): made for made in event.calls}
        yield from self._end_text()
        known = self.messages.get(event.message_id)
        if opened and opened != event.message_id:
            # It was told under another id than it has.
            del self.messages[opened]
            known = None
        if known is None and (event.text or opened):
            self._assistant(event.message_id)["content"] = event.text
            if opened:
                yield self.snapshot()
            else:
                yield from _text(event.message_id, event.text, "assistant")
        elif opened and known and known["content"].strip() != event.text:
            known["content"] = event.text
            yield self.snapshot()

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

    def call(self, reply_id: str, call_id: str, name: str, args: Mapping[str, Any]) -> Iterator[Event]:
        """A call of a tool, unless it is known; with its new arguments if a person has changed them."""
        own, arguments = _call_id(reply_id, call_id), json.dumps(dict(args), ensure_ascii=False, default=str)
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
            yield self.snapshot()

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
            yield from self.call(event.reply_id, event.call_id, name, args)
        own = _call_id(event.reply_id, event.call_id)
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
        return any(one["id"] == _call_id(reply_id, call_id) for one in calls)

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


def _text(message_id: str, text: str, role: Literal["user", "assistant"]) -> Iterator[Event]:
    yield core.TextMessageStartEvent(message_id=message_id, role=role)
    if text:
        yield core.TextMessageContentEvent(message_id=message_id, delta=text)
    yield core.TextMessageEndEvent(message_id=message_id)


def _call_id(reply_id: str, own: str) -> str:
    """The id of a call in the conversation: a model may repeat its own in another reply."""
    return f"{reply_id}/{own}" if reply_id else own


def _custom(event: SessionEvent) -> Event:
    return core.CustomEvent(name=f"signoff.{event.type}", value=event.to_dict())


# --- what the thread waits for ---


def interrupts(waiting: Waiting) -> list[core.Interrupt]:
    """What the thread waits for; of an approval one for each call. Their ids name exactly what is shown."""
    document = waiting.document()
    if not isinstance(waiting, Approval):
        told = waiting.text if isinstance(waiting, Question) else getattr(waiting, "summary", "")
        deadline = waiting.deadline if isinstance(waiting, Question) else None
        return [
            core.Interrupt(
                id=interrupt_id(waiting),
                reason=waiting.pause,
                message=told or f"The result of {getattr(waiting, 'tool', 'this')} is wanted.",
                tool_call_id=_call_id(waiting.reply_id, waiting.call_id) if waiting.call_id else None,
                response_schema=_schema(waiting),
                expires_at=None if deadline is None else datetime.fromtimestamp(deadline, UTC).isoformat(),
                metadata={"signoff": document},
            )
        ]
    return [
        core.Interrupt(
            id=interrupt_id(waiting, at),
            reason=waiting.pause,
            message=call.note or f"May {call.name} run?",
            tool_call_id=_call_id(waiting.reply_id, call.call_id) if call.call_id else None,
            response_schema=_decision_schema(call.name, call.allowed, call.args_schema),
            metadata={
                "signoff": {
                    "tool": call.name,
                    "args": dict(call.args),
                    "allowed": list(call.allowed),
                    "shown": waiting.shown,
                    "problem": waiting.problem,
                    "path": list(waiting.path),
                }
            },
        )
        for at, call in enumerate(waiting.calls)
    ]


def interrupt_id(waiting: Waiting, at: int = 0) -> str:
    return f"{waiting.interrupt_id}:{shown_as(waiting)}:{at}"


def _schema(waiting: Waiting) -> dict[str, Any]:
    if isinstance(waiting, Question) and waiting.options:
        return {"type": "string", "examples": list(waiting.options)}
    if isinstance(waiting, Confirmation):
        return {"type": "string", "description": "yes, or what is wrong", "examples": ["yes"]}
    return {"type": "string"}


def _decision_schema(name: str, allowed: Sequence[str], args: Mapping[str, Any] | None) -> dict[str, Any]:
    edited = {
        "type": "object",
        "properties": {"name": {"const": name}, "args": dict(args or {"type": "object"})},
        "required": ["name", "args"],
    }
    fields = {"type": {"enum": list(allowed)}, "message": {"type": "string"}, "edited_action": edited}
    if "edit" not in allowed:
        del fields["edited_action"]
    return {"type": "object", "properties": fields, "required": ["type"]}


def _answers(given: Sequence[Resume]) -> tuple[str, str, dict[int, Any]]:
    """The interrupt that is answered, what of it was shown, and the answers by their places. Raises
    SetupError for answers that contradict each other."""
    found: dict[int, Any] = {}
    places = set[tuple[str, str, int]]()
    for one in given:
        name, _, rest = one.interrupt_id.partition(":")
        shown, _, at = rest.partition(":")
        place = int(at) if at.isdecimal() and len(at) < 5 else 0
        if (name, shown, place) in places:
            raise SetupError("There are two answers to one interrupt; send one. Nothing was changed.")
        places.add((name, shown, place))
        found[place] = None if one.status == "cancelled" else one.payload
    if len({(name, shown) for name, shown, _ in places}) > 1:
        raise SetupError("These answers are for different things; answer one at a time. Nothing was changed.")
    return name, shown, found


# --- a request ---


class Run:
    """One run of the protocol: what is asked for, and all that happens until the thread rests."""

    def __init__(self, hub: Hub, room: Room, given: RunInput, who: str) -> None:
        self.hub, self.room, self.given, self.who = hub, room, given, who
        self.thread_id, self.run_id = room.thread_id, valid_text(given.run_id)
        self.transcript = Transcript()
        self._cursor = 0
        self._unknown = False
        """Whether nobody knows what came of the action that is handed out: only its driver is told."""

    async def stream(self) -> AsyncGenerator[str, None]:
        """The events, as they are sent. Whoever leaves here changes nothing."""
        encode = EventEncoder().encode
        self.room.events.readers += 1
        self.hub.readers += 1
        try:
            yield encode(
                core.RunStartedEvent(
                    thread_id=self.thread_id, run_id=self.run_id, protocol_version=core.PROTOCOL_VERSION
                )
            )
            try:
                async for event in self._events():
                    yield ": still here\n\n" if event is None else encode(event)
            except SignoffError as error:
                for closing in self.transcript.close():
                    yield encode(closing)
                yield encode(core.RunErrorEvent(message=str(error), code=_code(error)))
        finally:
            self.room.events.readers -= 1
            self.hub.readers -= 1

    async def _events(self) -> AsyncGenerator[Event | None, None]:
        # Asked in this order, so that whatever happens now is in the log or in what is read.
        self._cursor, here = self.room.events.last, self.room.here
        status, _ = await self._read()
        if here:
            self.transcript.join()
        elif waiting := asked_of(status):
            deque(self._pending(waiting), maxlen=0)
        written = None if self.given.resume else self.given.written()
        new = None
        if written is not None and str(written.get("id")) not in self.transcript.messages:
            new = _words(written)
            self.transcript.user(*new)
        yield self.transcript.snapshot()
        yield self._state(status, here)
        if ran := await self._ask(new) or here:
            async for event in self._follow():
                yield event
            status, missed = await self._read()
            for event in (*missed, *self.transcript.close()):
                yield event
        for event in self._end(status, ran, await self._elsewhere()):
            yield event

    async def _ask(self, written: tuple[str, str] | None) -> bool:
        """Does what the client asks for; whether the thread runs with it. Raises what it is refused for."""
        own = self.given.forwarded_props.signoff
        try:
            if self.given.resume:
                await self._resume(self.given.resume)
            elif own.move is not None:
                await self.room.move(own.move, own.turns)
                return self.room.here or own.move != "pause"
            elif written is not None:
                message_id, text = written
                await self.room.run(beginning(text, message_id))
            else:
                return False
        except Known:
            return self.room.here
        except TooLate:
            # It was given up, so nothing is lost; the client learns what the thread waits for by now.
            if self.given.resume and all(one.status == "cancelled" for one in self.given.resume):
                return self.room.here
            raise
        return True

    async def _resume(self, given: Sequence[Resume]) -> None:
        name, shown, values = _answers(given)
        try:
            await self.room.run(answering_values(name, shown, values, self.who))
        except ThreadBusy as error:
            raise overtaken() from error

    # --- following ---

    async def _follow(self) -> AsyncGenerator[Event | None, None]:
        """All that happens until the thread rests. None where there is nothing new for a while."""
        log = self.room.events
        while True:
            entries = log.after(self._cursor)
            if entries is None:
                # So slow that what was to come next has gone: it is told everything anew.
                self._cursor = log.last
                for event in self.transcript.close():
                    yield event
                self.transcript.join()
                status, _ = await self._read()
                yield self.transcript.snapshot()
                yield self._state(status, self.room.here)
                if not self.room.here:
                    return
                continue
            for entry in entries:
                self._cursor = entry.seq
                if entry.kind == "rests":
                    if self.room.error is not None:
                        raise _told(self.room.error)
                    return
                for event in self._happened(entry.kind, json.loads(entry.data)):
                    yield event
            if self.hub.closing.is_set() or self.room.gone:
                raise ThreadError("The server ends, or the thread was deleted; what was saved stays.")
            if self._cursor == log.last and not await self.hub.more(log, self._cursor):
                yield None

    def _happened(self, kind: str, found: dict[str, Any]) -> Iterator[Event]:
        if kind == "loading":
            yield core.CustomEvent(name="signoff.loading", value=found)
            return
        event = from_dict(found)
        if isinstance(event, Decided):
            self._unknown = isinstance(event.decision, Action) and event.decision.unknown
        yield from self.transcript.of(event)

    async def _read(self) -> tuple[ThreadStatus, list[Event]]:
        """The thread as it is saved, and what of its messages was not told yet."""
        return await self.hub.beside.do(self._saved)

    def _saved(self) -> tuple[ThreadStatus, list[Event]]:
        graph = reading_graph(self.room.storage)
        status = look(graph, self.thread_id)
        with readable(self.thread_id):
            told = conversation(status.values, deps_of(graph).toolbox)
            return status, [part for event in told for part in self.transcript.of(event)]

    async def _elsewhere(self) -> bool:
        return bool(await self.hub.beside.do(self.room.storage.checkpointer.is_running, self.thread_id))

    # --- how it stands ---

    def _state(self, status: ThreadStatus, running: bool) -> Event:
        waiting = None if running else asked_of(status)
        shown: dict[str, Any] = {
            "thread": self.thread_id,
            "condition": "running" if running else str(status.condition),
            "waitsFor": waiting.waits_for if waiting else None,
            "state": None,
            "turn": status.task.turns,
            "turns": None,
            "tokens": status.task.total.total_tokens,
            "moves": [move.name for move in moves(status, running=running, here=self.room.here)],
            "outcome": None if running else _outcome(status),
        }
        return core.StateSnapshotEvent(snapshot=shown)

    def _end(self, status: ThreadStatus, ran: bool, running: bool) -> Iterator[Event]:
        """How the thread stands at the end of this run: what it waits for, or how the task has ended. ran:
        something has run for it."""
        if self._unknown and isinstance(status.waiting, Action):
            status = replace(status, waiting=replace(status.waiting, unknown=True))
        waiting = None if running else asked_of(status)
        if waiting is not None:
            yield from self._pending(waiting)
        yield self._state(status, running)
        outcome = None if running else _outcome(status)
        cancelled = outcome is not None and outcome["reason"] == "cancelled"
        if ran and outcome is not None and outcome["status"] == "error" and not cancelled:
            yield core.RunErrorEvent(message=outcome["error"] or outcome["reason"], code=outcome["reason"])
            return
        found: Any = None
        if waiting is not None:
            found = core.RunFinishedInterruptOutcome(interrupts=interrupts(waiting))
        elif not running and (cancelled or status.condition in (Condition.STOPPED, Condition.WAITING)):
            found = core.RunFinishedCancelledOutcome()
        result = outcome or {"status": "running" if running else str(status.condition)}
        yield core.RunFinishedEvent(
            thread_id=self.thread_id, run_id=self.run_id, outcome=found, result=result
        )

    def _pending(self, waiting: Waiting) -> Iterator[Event]:
        """The calls that wait, as the conversation has them."""
        for call in waiting.calls if isinstance(waiting, Approval) else ():
            yield from self.transcript.call(waiting.reply_id, call.call_id, call.name, call.args)
        if isinstance(waiting, Question) and waiting.call_id:
            asked = {"question": waiting.text, "options": list(waiting.options)}
            name, args = self.transcript.made(waiting, "ask_user", asked)
            yield from self.transcript.call(waiting.reply_id, waiting.call_id, name, args)
        if isinstance(waiting, Action):
            yield from self.transcript.call(waiting.reply_id, waiting.call_id, waiting.tool, waiting.args)
        if isinstance(waiting, Confirmation) and waiting.call_id:
            claimed = {"summary": waiting.summary, "pending_issues": list(waiting.pending_issues)}
            name, args = self.transcript.made(waiting, "finish_task", claimed)
            yield from self.transcript.call(waiting.reply_id, waiting.call_id, name, args)


def _outcome(status: ThreadStatus) -> dict[str, Any] | None:
    """How the task has ended, as plain JSON."""
    return None if status.outcome is None else dict(Ended(status.outcome).to_dict()["outcome"])


def _told(error: BaseException) -> SignoffError:
    return error if isinstance(error, SignoffError) else ThreadError(f"{type(error).__name__}: {error}")


def _code(error: SignoffError) -> str:
    """What a program may go by."""
    kinds = ((TooLate, "too_late"), (ThreadBusy, "busy"), (StorageError, "storage"))
    return next((code for kind, code in kinds if isinstance(error, kind)), "refused")
