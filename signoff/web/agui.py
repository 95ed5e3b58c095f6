"""The AG-UI protocol over the server's threads, for CopilotKit and every other AG-UI client.

Like the pages, a request reads the thread or asks its room for something; it owns no run. Of what a client
sends, only the user's last message, the answers and the requested move count; the history and state that it
sends are never trusted. docs/how-to/front-ends.md maps the protocol to Signoff's terms.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from ag_ui import core
from ag_ui.encoder import EventEncoder
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from signoff import (
    Action,
    SetupError,
    SignoffError,
    StorageError,
    ThreadBusy,
    ThreadError,
    ThreadStatus,
    TooLate,
)
from signoff.events import Wrote, from_dict
from signoff.front.answering import Known, begin_task, get_asked, give_values, make_too_late_error
from signoff.front.choices import moves, waits_for
from signoff.session.history import read_conversation
from signoff.session.status import deps_of, look, readable, reading_graph
from signoff.text import valid_text
from signoff.web.hub import Hub
from signoff.web.room import Room
from signoff.web.transcript import Event, Transcript, list_interrupts

MOST_BYTES = 10_000_000
"""Largest request body: a client sends its whole history each time."""
_MOST_TEXT = 400_000
_MOST_ID = 500

Id = Annotated[str, Field(min_length=1, max_length=_MOST_ID)]


class _Sent(BaseModel):
    """Ignores the fields that other versions of the protocol add."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class ResumeEntry(_Sent):
    """An answer to one interrupt."""

    interrupt_id: Annotated[str, Field(max_length=1_000)]
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class Own(BaseModel):
    """Signoff's own fields, for which the protocol has no place."""

    model_config = ConfigDict(extra="forbid")

    move: Literal["pause", "stop", "go_on"] | None = None
    turns: Annotated[int, Field(ge=1, le=100_000)] | None = None


class Forwarded(_Sent):
    signoff: Own = Own()


class RunInput(_Sent):
    """The fields of the protocol's `RunAgentInput` that are used."""

    thread_id: Id
    run_id: Id
    messages: list[Any]
    resume: list[ResumeEntry] | None = None
    forwarded_props: Annotated[
        Forwarded, BeforeValidator(lambda given: given if isinstance(given, dict) else {})
    ] = Forwarded()

    def written(self) -> dict[str, Any] | None:
        """The user's last message."""
        users = (
            one for one in reversed(self.messages) if isinstance(one, dict) and one.get("role") == "user"
        )
        return next(users, None)


def _read_words(message: Mapping[str, Any]) -> Wrote:
    """Returns the text of a message. Raises SetupError if it is not text."""
    own, content = message.get("id"), message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not (isinstance(own, str) and 0 < len(own) <= _MOST_ID and all(isinstance(one, str) for one in texts)):
        raise SetupError(f"A user message must be text and have an id of at most {_MOST_ID} characters.")
    text = valid_text("\n".join(map(str, texts)))
    if not text.strip():
        raise SetupError("The task is empty; say what to do.")
    if len(text) > _MOST_TEXT:
        raise SetupError(f"The message is too long; at most {_MOST_TEXT:,} characters are accepted.")
    return Wrote(text, message_id=valid_text(own))


def _read_answers(given: Sequence[ResumeEntry]) -> tuple[str, str, dict[int, Any]]:
    """Returns the interrupt to answer, the id of what was shown, and the answers by position.

    Raises SetupError for answers that contradict each other.
    """
    found: dict[int, Any] = {}
    places = set[tuple[str, str, int]]()
    for one in given:
        name, _, rest = one.interrupt_id.partition(":")
        shown, _, at = rest.partition(":")
        place = int(at) if at.isdecimal() and len(at) < 5 else 0
        if (name, shown, place) in places:
            raise SetupError("The request has two answers to one interrupt; send one. Nothing was changed.")
        places.add((name, shown, place))
        found[place] = None if one.status == "cancelled" else one.payload
    if len({(name, shown) for name, shown, _ in places}) > 1:
        raise SetupError(
            "These answers are for different interrupts; answer one at a time. Nothing was changed."
        )
    return name, shown, found


class AguiRun:
    """One run of the protocol: the request, and every event until the thread comes to rest."""

    room: Room
    """The room of the thread, for as long as the stream lasts."""

    def __init__(self, hub: Hub, given: RunInput, who: str) -> None:
        self.hub, self.given, self.who = hub, given, who
        self.thread_id, self.run_id = given.thread_id, valid_text(given.run_id)
        self.transcript = Transcript()
        self._cursor = 0

    async def stream(self) -> AsyncGenerator[str, None]:
        """Yields the encoded events. A client that disconnects changes nothing."""
        encode = EventEncoder().encode
        with self.hub.asked(self.thread_id) as self.room:
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
                    yield encode(core.RunErrorEvent(message=str(error), code=_get_code(error)))
            finally:
                self.room.events.readers -= 1
                self.hub.readers -= 1
                if not self.room.events.readers:
                    # Clients that connect later read what was saved.
                    self.room.events.clear()

    async def _events(self) -> AsyncGenerator[Event | None, None]:
        # In this order, so that anything that happens now is either in the log or in the thread read below.
        self._cursor, here = self.room.events.last, self.room.here
        running, status, _ = await self._read()
        if here:
            self.transcript.join()
        elif waiting := get_asked(status):
            deque(self.transcript.add_pending(waiting), maxlen=0)
        # Without the new message: a client drops what is not in the snapshot, so it does not resend a message
        # that was refused.
        yield self.transcript.make_snapshot()
        yield self._state(status, running)
        new = self._find_new()
        ran = await self._ask(new) or here
        for told in () if new is None else self.transcript.tell(new):
            yield told
        if ran:
            try:
                async for event in self._follow():
                    yield event
            except SignoffError:
                for told in () if new is None else await self._take_back(new):
                    yield told
                raise
        if ran or new:
            running, status, missed = await self._read()
            for told in (*missed, *self.transcript.close()):
                yield told
        for told in self._end(status, ran, running):
            yield told

    def _find_new(self) -> Wrote | None:
        """Returns the message that begins a task: one that the thread does not have yet.

        Raises SetupError if it is not text.
        """
        asks_other = self.given.resume or self.given.forwarded_props.signoff.move is not None
        written = None if asks_other else self.given.written()
        if written is None or str(written.get("id")) in self.transcript.messages:
            return None
        return _read_words(written)

    async def _take_back(self, new: Wrote) -> list[Event]:
        """Returns the events that remove the client's message if the thread does not have it."""
        _, status, _ = await self._read()
        if any(message.id == new.message_id for message in status.values.get("messages", ())):
            return []
        self.transcript.messages.pop(new.message_id, None)
        return [*self.transcript.close(), self.transcript.make_snapshot()]

    async def _ask(self, new: Wrote | None) -> bool:
        """Carries out the client's request; returns whether the thread runs. Raises why it was refused."""
        own = self.given.forwarded_props.signoff
        try:
            if self.given.resume:
                await self._resume(self.given.resume)
            elif own.move is not None:
                await self.room.move(own.move, own.turns)
                return self.room.here or own.move != "pause"
            elif new is not None:
                await self.room.run(begin_task(new.text, new.message_id))
            else:
                return False
        except Known:
            return self.room.here
        except TooLate:
            # The client cancelled, so nothing is lost; it learns what the thread now waits for.
            if self.given.resume and all(one.status == "cancelled" for one in self.given.resume):
                return self.room.here
            raise
        return True

    async def _resume(self, given: Sequence[ResumeEntry]) -> None:
        name, shown, values = _read_answers(given)
        try:
            await self.room.run(give_values(name, shown, values, self.who))
        except ThreadBusy as error:
            raise make_too_late_error() from error

    # --- following ---

    async def _follow(self) -> AsyncGenerator[Event | None, None]:
        """Yields the events until the thread comes to rest, and None when nothing is new for a while."""
        log, run = self.room.events, self.room.runs
        while True:
            entries = log.after(self._cursor)
            if entries is None:
                # So slow that the next entries were dropped: send everything again.
                self._cursor = log.last
                for event in self.transcript.close():
                    yield event
                self.transcript.join()
                running, status, _ = await self._read()
                yield self.transcript.make_snapshot()
                yield self._state(status, running)
                if not self.room.here:
                    return
                continue
            for entry in entries:
                self._cursor = entry.seq
                if entry.kind == "rests":
                    if int(entry.data) < run:
                        # The end of the previous run, reported after this one began.
                        continue
                    if self.room.error is not None:
                        raise _make_error(self.room.error)
                    return
                for event in self._happened(entry.kind, json.loads(entry.data)):
                    yield event
            if self.hub.closing.is_set() or self.room.gone:
                raise ThreadError("The server ends, or the thread was deleted; everything saved is kept.")
            if self._cursor == log.last and not await self.hub.wait_for_more(log, self._cursor):
                yield None

    def _happened(self, kind: str, found: dict[str, Any]) -> Iterator[Event]:
        if kind == "loading":
            yield core.CustomEvent(name="signoff.loading", value=found)
            return
        yield from self.transcript.tell(from_dict(found))

    async def _read(self) -> tuple[bool, ThreadStatus, list[Event]]:
        """Returns whether a process runs the thread, the saved thread, and the messages not sent yet."""
        here = self.room.here
        # Checked before the thread is read: otherwise a run that ends in between would look stopped.
        elsewhere = await self.hub.beside.do(self.room.storage.checkpointer.is_running, self.thread_id)
        return here or elsewhere, *await self.hub.beside.do(self._saved)

    def _saved(self) -> tuple[ThreadStatus, list[Event]]:
        graph = reading_graph(self.room.storage)
        status = look(graph, self.thread_id)
        waiting = status.wait()
        if isinstance(waiting, Action) and self.room.is_unknown(status, waiting):
            # The saved thread does not say that an action's outcome is unknown: only its driver learns that.
            status = replace(status, waits=(replace(waiting, unknown=True), *status.waits[1:]))
        with readable(self.thread_id):
            told = read_conversation(status.values, deps_of(graph).toolbox)
            return status, [part for event in told for part in self.transcript.tell(event)]

    # --- how it stands ---

    def _state(self, status: ThreadStatus, running: bool) -> Event:
        waiting = None if running else get_asked(status)
        shown: dict[str, Any] = {
            "thread": self.thread_id,
            "condition": "running" if running else str(status.condition),
            "waitsFor": waits_for(waiting),
            "state": None,
            "turn": status.task.turns,
            "turns": None,
            "tokens": status.task.total.total_tokens,
            "moves": [move.name for move in moves(status, running=running, here=self.room.here)],
            "outcome": None if running else _get_outcome(status),
        }
        return core.StateSnapshotEvent(snapshot=shown)

    def _end(self, status: ThreadStatus, ran: bool, running: bool) -> Iterator[Event]:
        """Yields the final events: what the thread waits for, or how the task ended. ran: something ran."""
        waiting = None if running else get_asked(status)
        if waiting is not None:
            yield from self.transcript.add_pending(waiting)
        yield self._state(status, running)
        outcome = None if running else _get_outcome(status)
        cancelled = outcome is not None and outcome["reason"] == "cancelled"
        if ran and outcome is not None and outcome["status"] == "error" and not cancelled:
            yield core.RunErrorEvent(message=outcome["error"] or outcome["reason"], code=outcome["reason"])
            return
        found: Any = None
        if waiting is not None:
            found = core.RunFinishedInterruptOutcome(interrupts=list_interrupts(waiting))
        elif not running and (cancelled or (status.condition.has_work_left or status.waits)):
            found = core.RunFinishedCancelledOutcome()
        result = outcome or {"status": "running" if running else str(status.condition)}
        yield core.RunFinishedEvent(
            thread_id=self.thread_id, run_id=self.run_id, outcome=found, result=result
        )


def _get_outcome(status: ThreadStatus) -> dict[str, Any] | None:
    """Returns the outcome of the task as plain JSON."""
    return None if status.outcome is None else status.outcome.model_dump(mode="json")


def _make_error(error: BaseException) -> SignoffError:
    return error if isinstance(error, SignoffError) else ThreadError(f"{type(error).__name__}: {error}")


def _get_code(error: SignoffError) -> str:
    """What a program may go by."""
    kinds = ((TooLate, "too_late"), (ThreadBusy, "busy"), (StorageError, "storage"))
    return next((code for kind, code in kinds if isinstance(error, kind)), "refused")
