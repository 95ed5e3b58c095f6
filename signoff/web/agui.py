"""The AG-UI protocol over the server's threads, for CopilotKit and every other client of it.

A request reads, or asks the room of its thread for something, as the pages do: it owns no run. Of what a
client sends only the last message of its user, its answers and what it asks for count; its history and its
state are never believed. docs/how-to/ag-ui.md says what stands for what.
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

from signoff.front.answering import Known, begin_task, get_asked, give_values, make_too_late_error
from signoff.front.choices import moves
from signoff.graph.errors import SetupError, SignoffError, StorageError, ThreadBusy, ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.commands import TooLate
from signoff.session.decisions import Action
from signoff.session.events import Ended, Wrote, from_dict
from signoff.session.history import read_conversation
from signoff.session.status import Condition, ThreadStatus, deps_of, look, readable, reading_graph
from signoff.web.hub import Hub
from signoff.web.room import Room
from signoff.web.transcript import Event, Transcript, list_interrupts

MOST_BYTES = 10_000_000
"""Of the body of a request: a client sends its whole history each time."""
_MOST_TEXT = 400_000
_MOST_ID = 500

Id = Annotated[str, Field(min_length=1, max_length=_MOST_ID)]


class _Sent(BaseModel):
    """What other versions of the protocol add is nothing to refuse it for."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class ResumeEntry(_Sent):
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
    """What a message says. Raises SetupError for one that is no text."""
    own, content = message.get("id"), message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not (isinstance(own, str) and 0 < len(own) <= _MOST_ID and all(isinstance(one, str) for one in texts)):
        raise SetupError(f"A message of the user is text, under an id of at most {_MOST_ID} characters.")
    text = valid_text("\n".join(map(str, texts)))
    if not text.strip():
        raise SetupError("The task is empty; say what to do.")
    if len(text) > _MOST_TEXT:
        raise SetupError(f"The message is too long; at most {_MOST_TEXT:,} characters are taken.")
    return Wrote(text, message_id=valid_text(own))


def _read_answers(given: Sequence[ResumeEntry]) -> tuple[str, str, dict[int, Any]]:
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


class AguiRun:
    """One run of the protocol: what is asked for, and all that happens until the thread rests."""

    room: Room
    """That of the thread, for as long as the stream lasts."""

    def __init__(self, hub: Hub, given: RunInput, who: str) -> None:
        self.hub, self.given, self.who = hub, given, who
        self.thread_id, self.run_id = given.thread_id, valid_text(given.run_id)
        self.transcript = Transcript()
        self._cursor = 0

    async def stream(self) -> AsyncGenerator[str, None]:
        """The events, as they are sent. Whoever leaves here changes nothing."""
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
                    # Whoever comes later reads what was saved.
                    self.room.events.clear()

    async def _events(self) -> AsyncGenerator[Event | None, None]:
        # Asked in this order, so that whatever happens now is in the log or in what is read.
        self._cursor, here = self.room.events.last, self.room.here
        running, status, _ = await self._read()
        if here:
            self.transcript.join()
        elif waiting := get_asked(status):
            deque(self.transcript.add_pending(waiting), maxlen=0)
        # Without what is new: a client drops what is not in it, and so does not send again what is refused.
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
        """The message that is to begin a task: one that the thread does not have. Raises SetupError where it
        is no text."""
        asks_other = self.given.resume or self.given.forwarded_props.signoff.move is not None
        written = None if asks_other else self.given.written()
        if written is None or str(written.get("id")) in self.transcript.messages:
            return None
        return _read_words(written)

    async def _take_back(self, new: Wrote) -> list[Event]:
        """What tells the client that its message came to nothing, if the thread does not have it."""
        _, status, _ = await self._read()
        if any(message.id == new.message_id for message in status.values.get("messages", ())):
            return []
        self.transcript.messages.pop(new.message_id, None)
        return [*self.transcript.close(), self.transcript.make_snapshot()]

    async def _ask(self, new: Wrote | None) -> bool:
        """Does what the client asks for; whether the thread runs with it. Raises what it is refused for."""
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
            # It was given up, so nothing is lost; the client learns what the thread waits for by now.
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
        """All that happens until the thread rests. None where there is nothing new for a while."""
        log, run = self.room.events, self.room.runs
        while True:
            entries = log.after(self._cursor)
            if entries is None:
                # So slow that what was to come next has gone: it is told everything anew.
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
                        # The end of the run before, told after this one has begun.
                        continue
                    if self.room.error is not None:
                        raise _make_error(self.room.error)
                    return
                for event in self._happened(entry.kind, json.loads(entry.data)):
                    yield event
            if self.hub.closing.is_set() or self.room.gone:
                raise ThreadError("The server ends, or the thread was deleted; what was saved stays.")
            if self._cursor == log.last and not await self.hub.wait_for_more(log, self._cursor):
                yield None

    def _happened(self, kind: str, found: dict[str, Any]) -> Iterator[Event]:
        if kind == "loading":
            yield core.CustomEvent(name="signoff.loading", value=found)
            return
        yield from self.transcript.tell(from_dict(found))

    async def _read(self) -> tuple[bool, ThreadStatus, list[Event]]:
        """Whether some process runs the thread; the thread as it is saved; what of its messages was not told
        yet."""
        here = self.room.here
        # Before the thread: otherwise a run that ends in between would look as if it had been stopped.
        elsewhere = await self.hub.beside.do(self.room.storage.checkpointer.is_running, self.thread_id)
        return here or elsewhere, *await self.hub.beside.do(self._saved)

    def _saved(self) -> tuple[ThreadStatus, list[Event]]:
        graph = reading_graph(self.room.storage)
        status = look(graph, self.thread_id)
        if isinstance(status.waiting, Action) and self.room.is_unknown(status, status.waiting):
            # What is saved does not say that nobody knows what came of it: only its driver is told.
            status = replace(status, waiting=replace(status.waiting, unknown=True))
        with readable(self.thread_id):
            told = read_conversation(status.values, deps_of(graph).toolbox)
            return status, [part for event in told for part in self.transcript.tell(event)]

    # --- how it stands ---

    def _state(self, status: ThreadStatus, running: bool) -> Event:
        waiting = None if running else get_asked(status)
        shown: dict[str, Any] = {
            "thread": self.thread_id,
            "condition": "running" if running else str(status.condition),
            "waitsFor": waiting.waits_for if waiting else None,
            "state": None,
            "turn": status.task.turns,
            "turns": None,
            "tokens": status.task.total.total_tokens,
            "moves": [move.name for move in moves(status, running=running, here=self.room.here)],
            "outcome": None if running else _get_outcome(status),
        }
        return core.StateSnapshotEvent(snapshot=shown)

    def _end(self, status: ThreadStatus, ran: bool, running: bool) -> Iterator[Event]:
        """How the thread stands at the end of this run: what it waits for, or how the task has ended. ran:
        something has run for it."""
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
        elif not running and (cancelled or status.condition in (Condition.STOPPED, Condition.WAITING)):
            found = core.RunFinishedCancelledOutcome()
        result = outcome or {"status": "running" if running else str(status.condition)}
        yield core.RunFinishedEvent(
            thread_id=self.thread_id, run_id=self.run_id, outcome=found, result=result
        )


def _get_outcome(status: ThreadStatus) -> dict[str, Any] | None:
    """How the task has ended, as plain JSON."""
    return None if status.outcome is None else dict(Ended(status.outcome).to_dict()["outcome"])


def _make_error(error: BaseException) -> SignoffError:
    return error if isinstance(error, SignoffError) else ThreadError(f"{type(error).__name__}: {error}")


def _get_code(error: SignoffError) -> str:
    """What a program may go by."""
    kinds = ((TooLate, "too_late"), (ThreadBusy, "busy"), (StorageError, "storage"))
    return next((code for kind, code in kinds if isinstance(error, kind)), "refused")
