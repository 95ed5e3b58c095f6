"""The typed events of a running thread; a stored history is read as the same events."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.foreign import explain, valid_text, words
from signoff.graph.machine import State
from signoff.session.decisions import Decision

__all__ = [
    "Answered",
    "CallDecided",
    "CallFinished",
    "CallProgress",
    "CallStarted",
    "Called",
    "Confirmed",
    "Decided",
    "Entered",
    "Nudged",
    "PhaseAccepted",
    "Resumed",
    "Retrying",
    "Said",
    "SessionEvent",
    "Stopping",
    "TaskEnded",
    "Thought",
    "Token",
    "Undone",
    "Wrote",
    "events_schema",
    "from_dict",
]


def _tag(kind: type) -> str:
    """The name of a class in JSON: `call_started`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


@dataclass(frozen=True, kw_only=True)
class _Happened:
    """The fields of every event. Two events are equal if they have the same content, whatever the time.

    seq: its number, from 1, in one iteration of `Session.events`, or in a history. at: when it happened, in
    seconds since 1970; None if a history does not have it. path: the names of the delegates that lead to its
    machine; empty for the thread's own. type: its name in `to_dict`.
    """

    seq: int = field(default=0, compare=False)
    at: float | None = field(default=None, compare=False)
    path: tuple[str, ...] = ()
    type: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.type = _tag(cls)

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON values, under its `type`."""
        return _fields(self)


@dataclass(frozen=True)
class Entered(_Happened):
    """The machine entered `state`, coming from `source`. turn: replies so far, of at most `turns`. tokens:
    those of the task so far."""

    state: State
    turn: int
    turns: int
    tokens: int
    source: State


@dataclass(frozen=True)
class Token(_Happened):
    """A chunk of a streaming reply; the `Said` with this message id has the whole reply."""

    text: str
    message_id: str = ""


@dataclass(frozen=True)
class Retrying(_Happened):
    """A model call has failed, and is retried in `seconds`.

    why: in a few words, such as `rate limit`. tries: attempts so far, of at most `most`. dropped: a part of
    the reply had arrived and does not count.
    """

    seconds: float
    why: str
    tries: int = 1
    most: int = 1
    dropped: bool = False


@dataclass(frozen=True)
class Wrote(_Happened):
    """The user wrote this; `answers` if it answers what waited. by: who wrote the answer, if stored with
    it."""

    text: str
    answers: bool = False
    message_id: str = ""
    by: str = ""


@dataclass(frozen=True)
class Called:
    """A call in a reply, as the model made it. args: empty if they are not a JSON object."""

    name: str
    args: Mapping[str, Any]
    call_id: str


@dataclass(frozen=True)
class Said(_Happened):
    """The model said this; `calls` are those in the same reply. tokens: those of this reply. seconds: its
    duration, including waits between attempts. beside: for a reply in the tagged text protocol, everything
    but plans, code and calls. retries: how often the call was retried."""

    turn: int
    text: str
    calls: tuple[Called, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    beside: str | None = None
    retries: int = 0
    message_id: str = ""


@dataclass(frozen=True)
class CallDecided(_Happened):
    """A person has decided on a call: `approve`, `edit`, `reject` or `respond`.

    args: the arguments that will run; empty unless the call runs. message: the reason for a rejection, or the
    answer. by: who decided, if given with the answer. Only emitted while the thread runs: in a history, the
    call's `CallFinished` has the result.
    """

    turn: int
    name: str
    call_id: str
    decision: str
    args: Mapping[str, Any] | None = None
    message: str = ""
    by: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class CallStarted(_Happened):
    """A working tool starts with these arguments. asked: the model's own arguments, if a person changed them.
    reply_id: the id of the message that made the call."""

    turn: int
    name: str
    args: Mapping[str, Any]
    call_id: str
    asked: Mapping[str, Any] | None = None
    reply_id: str = ""


@dataclass(frozen=True)
class CallProgress(_Happened):
    """A value that a running tool wrote, with LangGraph's `get_stream_writer()` or its runtime's
    `stream_writer`."""

    turn: int
    name: str
    call_id: str
    data: Any
    reply_id: str = ""


@dataclass(frozen=True)
class CallFinished(_Happened):
    """A call of a work tool, or a control call that was refused, and its result.

    args: the arguments that ran. asked: the model's own, if a person changed them. seconds: how long it ran.
    waited: seconds until a person, or the driver, had answered. person: "edited" if a person changed its
    arguments; "responded" if a person gave the result instead. by: who decided, if given with the answer.
    not_run: why it did not run (`rejected`, `invalid`, `unknown`, …); empty if it ran. unknown: it is unknown
    whether it took effect. message_id: the id of the result. reply_id: the id of the message that made the
    call.
    """

    turn: int
    name: str
    args: Mapping[str, Any]
    ok: bool
    result: str
    call_id: str = ""
    seconds: float = 0.0
    person: str = ""
    asked: Mapping[str, Any] | None = None
    waited: float = 0.0
    by: str = ""
    not_run: str = ""
    unknown: bool = False
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Thought(_Happened):
    """The model recorded a thought."""

    turn: int
    text: str
    approach: str | None = None
    status: str | None = None
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Answered(_Happened):
    """A question of the model with its answer. waited: seconds until the answer. by: who answered, if given
    with it. expired: nobody answered in time, and it is the default answer."""

    turn: int
    question: str
    answer: str
    waited: float = 0.0
    by: str = ""
    expired: bool = False
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class PhaseAccepted(_Happened):
    """A finish was accepted that reports a part of the task as done; the task continues."""

    turn: int
    percentage: float
    summary: str
    next_phase: str
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Confirmed(_Happened):
    """A person was asked about the finish: `ok` if they confirmed it, else it was sent back. words: their
    comment. waited: seconds until they answered. by: who it was, if given with the answer."""

    turn: int
    ok: bool
    words: str = ""
    waited: float = 0.0
    by: str = ""
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Nudged(_Happened):
    """A reminder that the machine wrote for the model, and why (`talked`, `near_limit`, …)."""

    why: str
    text: str
    message_id: str = ""


@dataclass(frozen=True)
class Resumed(_Happened):
    """An existing thread continues; `how`: answer, go on, undo, stop or task.

    For an answer, interrupt_id names what it answers, and `by` who gave it, if given with it. turns: the
    extra turns after a limit.
    """

    how: str
    interrupt_id: str = ""
    by: str = ""
    turns: int = 0


@dataclass(frozen=True)
class Undone(_Happened):
    """The result of undoing one effect. call: the call that had it, in one line. why: why it was not undone;
    empty if it was. said: what its undo, or a person, said. below: the delegates that lead to the call."""

    call: str
    why: str = ""
    said: str = ""
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stopping(_Happened):
    """The run stops at the next step boundary on request (`by`, as in Paused)."""

    by: str


@dataclass(frozen=True)
class TaskEnded(_Happened):
    """The task has ended; `outcome` has the fields of Outcome."""

    outcome: Mapping[str, Any]


@dataclass(frozen=True)
class Decided(_Happened):
    """The decision that the run ended with; always the last event."""

    decision: Decision[Any]


SessionEvent = (
    Entered
    | Token
    | Retrying
    | Wrote
    | Said
    | CallDecided
    | CallStarted
    | CallProgress
    | CallFinished
    | Thought
    | Answered
    | PhaseAccepted
    | Confirmed
    | Nudged
    | Resumed
    | Undone
    | Stopping
    | TaskEnded
    | Decided
)
"""Everything that `Session.events` yields; `Decided` is always the last."""

_EVENTS: Mapping[str, Any] = {kind.type: kind for kind in get_args(SessionEvent)}
_KINDS = [get_origin(kind) or kind for kind in get_args(Decision)]
_DECISIONS: Mapping[str, Any] = {_tag(kind): kind for kind in _KINDS}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an event or of a decision as JSON values, under its type."""
    found = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return {"type": _tag(type(value)), **found} if _has_tag(value) else found


def _has_tag(value: Any) -> bool:
    return _tag(type(value)) in _EVENTS or _tag(type(value)) in _DECISIONS


def _plain(value: Any) -> Any:
    """`value` as a JSON value; anything without a JSON form as text."""
    try:
        return _json(value)
    except RecursionError:
        return words(value)


def _json(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return valid_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {valid_text(str(key)): _json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json(part) for part in value]
    if isinstance(value, BaseModel):
        return _json(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return words(value)


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def from_dict(given: Mapping[str, Any]) -> SessionEvent:
    """The event that `to_dict` has written. Raises SetupError for anything else."""
    event: SessionEvent = _read(given, _EVENTS, "an event")
    return event


def _read(given: Any, kinds: Mapping[str, Any], what: str) -> Any:
    kind = kinds.get(str(given.get("type"))) if isinstance(given, Mapping) else None
    if kind is None:
        raise SetupError(f"This is not {what}; its `type` would be one of: {', '.join(kinds)}.")
    values = {name: value for name, value in given.items() if name != "type"}
    if kind is Decided and "decision" in values:
        values["decision"] = _read(values["decision"], _DECISIONS, "a decision")
    try:
        return _reader(kind).validate_python(values)
    except ValidationError as error:
        raise SetupError(f"This is not {what} of the type {given['type']}: {explain(error)}.") from error


def events_schema() -> dict[str, Any]:
    """The JSON schema of what `to_dict` returns, for all events."""
    schema: dict[str, Any] = TypeAdapter(SessionEvent).json_schema(mode="serialization")
    tags = {kind.__name__: tag for tag, kind in {**_EVENTS, **_DECISIONS}.items()}
    for name, known in schema["$defs"].items():
        properties = known.pop("properties", {})
        said = {"type": {"const": tags[name]}} if name in tags else {}
        if properties:
            known["properties"] = {**said, **properties}
            # Each event has all its fields.
            known["required"] = [*known["properties"]]
        if "description" in known:
            known["description"] = " ".join(known["description"].partition("\n\n")[0].split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(schema)}


def _without_titles(part: Any) -> Any:
    """The schema without titles that only repeat names, and without defaults."""
    if isinstance(part, list):
        return [_without_titles(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for name, value in part.items():
        if name in ("properties", "$defs"):
            found[name] = {key: _without_titles(one) for key, one in value.items()}
        elif name not in ("title", "default"):
            found[name] = _without_titles(value)
    return found
