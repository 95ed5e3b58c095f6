"""What happens while a thread runs, one typed event at a time; a finished history reads the same way."""

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
    "Ended",
    "Entered",
    "Nudged",
    "PhaseAccepted",
    "Resumed",
    "Retrying",
    "Said",
    "SessionEvent",
    "Stopping",
    "Thought",
    "Token",
    "Undone",
    "Wrote",
    "events_schema",
    "from_dict",
]


def _tag(kind: type) -> str:
    """The name of a class as JSON has it: `call_started`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


@dataclass(frozen=True, kw_only=True)
class _Happened:
    """What every event has. Two events are equal when they tell the same, whenever that was.

    seq: its number, from 1, in one iteration of `Session.events`, or in a history. at: when it happened, in
    seconds since 1970; None where a history does not say. path: the delegates that lead to the machine that
    it comes from, by name; empty for the thread's own. type: its name in `to_dict`.
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
    """The machine entered `state`, coming from `source`. turn: replies so far, of at most `turns`. tokens: of
    the task so far."""

    state: State
    turn: int
    turns: int
    tokens: int
    source: State


@dataclass(frozen=True)
class Token(_Happened):
    """A piece of the reply that is coming in; the reply is told whole by the `Said` of this message id."""

    text: str
    message_id: str = ""


@dataclass(frozen=True)
class Retrying(_Happened):
    """A call of the model has failed, and is tried again in `seconds`.

    why: in a few words, such as `rate limit`. tries: so far, of at most `most`. dropped: a part of the reply
    had come and does not count. model: the one that is asked next, where it is another one.
    """

    seconds: float
    why: str
    tries: int = 1
    most: int = 1
    dropped: bool = False
    model: str = ""


@dataclass(frozen=True)
class Wrote(_Happened):
    """The user wrote this; `answers` when it answers what waited. by: who wrote the answer, if that was given
    with it."""

    text: str
    answers: bool = False
    message_id: str = ""
    by: str = ""


@dataclass(frozen=True)
class Called:
    """A call in a reply, as the model made it. args: none where they are no JSON object."""

    name: str
    args: Mapping[str, Any]
    call_id: str


@dataclass(frozen=True)
class Said(_Happened):
    """The model said this; `calls` are those in the same reply. tokens: of this reply.
    seconds: that it took, with what was waited between tries. beside: of a reply in the tagged text protocol
    what is not a plan, code or call. retries: how often the call was tried again."""

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

    args: those that will run; none unless it is run. message: the reason of a rejection, or the answer.
    by: who decided, if that was given with the answer. Only told while the thread runs: in a history the
    call's `CallFinished` says what came of it.
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
    """A work tool begins to run, with these arguments. asked: the model's own, where a person changed them.
    reply_id: the message that made the call."""

    turn: int
    name: str
    args: Mapping[str, Any]
    call_id: str
    asked: Mapping[str, Any] | None = None
    reply_id: str = ""


@dataclass(frozen=True)
class CallProgress(_Happened):
    """What a tool wrote while it runs, by LangGraph's `get_stream_writer()` or its runtime's
    `stream_writer`."""

    turn: int
    name: str
    call_id: str
    data: Any
    reply_id: str = ""


@dataclass(frozen=True)
class CallFinished(_Happened):
    """A call of a work tool, or a control call that was refused, and its result.

    args: those that ran. asked: the model's own, where a person changed them; what a version before 0.2
    stored of an earlier task has the model's own in `args` alone. seconds: that it ran. waited: seconds until
    a person, or the driver that it was handed to, had answered. person: "edited" when a person had changed
    its arguments; "responded" when a person gave the result in its place. by: who decided, if that was given
    with the answer. not_run: why it was not run (`rejected`, `invalid`, `unknown`, …); empty when it was.
    unknown: nobody knows whether it took place. granted: turns that it was granted. message_id: of the
    result. reply_id: of the message that made the call.
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
    granted: int = 0
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Thought(_Happened):
    """The model noted a thought."""

    turn: int
    text: str
    approach: str | None = None
    status: str | None = None
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Answered(_Happened):
    """A question of the model and the answer to it. waited: seconds until it came. by: who gave it, if that
    was given with it. expired: nobody did, and it is the answer by default."""

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
    """A finish was accepted that says a part of the task is done; the task goes on."""

    turn: int
    percentage: float
    summary: str
    next_phase: str
    call_id: str = ""
    message_id: str = ""
    reply_id: str = ""


@dataclass(frozen=True)
class Confirmed(_Happened):
    """A person was asked about the finish: `ok` when they confirmed it, else it was sent back. words: what
    they said. waited: seconds until they did. by: who it was, if that was given with the answer."""

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
    """An existing thread continues; `how`: answer, go on, extend, retry, undo, stop or task.

    Of an answer: interrupt_id says what it answers, and `by` who gave it, if that was given with it. turns:
    how many more were given by `extend`.
    """

    how: str
    interrupt_id: str = ""
    by: str = ""
    turns: int = 0


@dataclass(frozen=True)
class Undone(_Happened):
    """What came of the undoing of one effect. call: the call that had it, in a line. why: why it stands;
    empty for one that was undone. said: what its undo, or a person, said. below: the delegates that lead to
    the call."""

    call: str
    why: str = ""
    said: str = ""
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stopping(_Happened):
    """The run stops at the next step boundary because someone asked for it (`by`, as in Paused)."""

    by: str


@dataclass(frozen=True)
class Ended(_Happened):
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
    | Ended
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
    """`value` as JSON has it; what has no such form as its text."""
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
    """The schema without what only repeats its names, and without the defaults of code."""
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
