"""The user's own channels in the state of a thread, next to the machine's.

Tools write them by the `update` of a `Command`. An update that LangGraph could not apply, or that the storage
would return as something else, is detected while the tool result is made. There it becomes an error that the
model reads; later it would be an exception that recurs at each resume.
"""

import copy
import inspect
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin

from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed.base import ManagedValue
from langgraph.types import Overwrite
from typing_extensions import ReadOnly, TypedDict, get_type_hints, is_typeddict

from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past, strict_serde, words
from signoff.graph.state import MIDDLEWARE, AgentState, HookMarks, Input, Output
from signoff.graph.values import is_sound

_MARKS: tuple[Any, ...] = (Required, NotRequired, ReadOnly)
# Channels of LangChain's AgentState that only its own loop uses.
RESULT = "structured_response"
"""The channel of the result, as in LangChain's agents."""
_OF_ITS_LOOP = ("jump_to", "structured_response")
_OMITS = "OmitFromSchema"


@dataclass(frozen=True)
class StateSchemas:
    """The state, input and output schemas of a graph, and the user's channels among them."""

    state: type = AgentState
    input: type = Input
    output: type = Output
    channels: Mapping[str, BaseChannel[Any, Any, Any]] = field(default_factory=dict)


def state_schemas(given: Any, middleware: Mapping[str, Any] | None = None) -> StateSchemas:
    """The state of a graph with the channels of the TypedDict `given`; the machine's own without one.

    It may extend LangGraph's MessagesState or LangChain's AgentState: `messages` is the machine's history.
    middleware: further schemas, by the name of their owner; of several channels with the same name, that of
    `given` wins, else the last one. Raises SetupError for anything that is not a TypedDict, and for a channel
    with one of the machine's names.
    """
    if given is None and middleware is None:
        return StateSchemas()
    machines = get_type_hints(AgentState, include_extras=True)
    if middleware is not None:
        machines[MIDDLEWARE] = HookMarks
    own = dict[str, Any]()
    for whose, schema in (middleware or {}).items():
        own |= _channels(f"The state_schema of the middleware {whose}, {_name(schema)},", schema, machines)
    if given is not None:
        if not is_typeddict(given):
            raise SetupError(
                f"state_schema= is {reprlib.repr(given)}; pass a TypedDict, whose fields may be Annotated "
                "with a reducer."
            )
        own |= _channels(f"state_schema={_name(given)}", given, machines)
    writable = {key: hint for key, hint in own.items() if not _is_managed(hint)}
    marks = {MIDDLEWARE: HookMarks} if middleware is not None else {}
    channels = StateGraph(_typed("State", writable)).channels if writable else {}
    return StateSchemas(
        state=_typed("AgentState", {**own, **marks}, AgentState),
        input=_typed("Input", {k: h for k, h in writable.items() if not _omitted(h, "input")}, Input),
        output=_typed("Output", {k: h for k, h in writable.items() if not _omitted(h, "output")}, Output),
        channels={key: channels[key] for key in writable},
    )


def _name(schema: Any) -> str:
    return getattr(schema, "__name__", None) or reprlib.repr(schema)


def _channels(whose: str, schema: Any, machines: Mapping[str, Any]) -> dict[str, Any]:
    """The channels of a schema, with their types. whose: the schema, as the subject of an error message."""
    if not is_typeddict(schema):
        raise SetupError(f"{whose} is not a TypedDict; define it as one.")
    try:
        hints = get_type_hints(schema, include_extras=True)
    except NameError as error:
        raise SetupError(
            f"{whose} refers to an unknown type ({error}); define it beside the class."
        ) from error
    _check_messages(whose, hints.pop("messages", None))
    own = {key: _bare(hint) for key, hint in hints.items() if not _of_its_loop(key, hint)}
    if taken := [key for key in own if key in machines]:
        others = ", ".join(key for key in machines if key != "messages")
        raise SetupError(
            f"{whose} has the channel {taken[0]!r}, which is the machine's (its channels are: "
            f"{others}); rename yours."
        )
    try:
        if writable := {key: hint for key, hint in own.items() if not _is_managed(hint)}:
            StateGraph(_typed("State", writable))
    except Exception as error:
        raise SetupError(f"{whose} cannot be read ({type(error).__name__}: {error}).") from error
    return own


def _typed(name: str, fields: Mapping[str, Any], base: type | None = None) -> type:
    """A TypedDict of these fields, all optional, in addition to those of `base`."""
    before = get_type_hints(base, include_extras=True) if base else {}
    every = {**before, **{key: NotRequired[hint] for key, hint in fields.items()}}
    made: type = TypedDict(name, every)  # type: ignore[misc]  # its fields are known only here
    return made


def with_result(schema: Any) -> Any:
    """The schema of a graph with a `response_format`: its result is in every output, and in no checkpoint."""
    return _typed(schema.__name__, {RESULT: Annotated[Any, UntrackedValue]}, schema)


def _check_messages(whose: str, hint: Any) -> None:
    """Rejects a custom reducer for the messages: the machine decides by the history."""
    own = [one for one in _notes(hint) if callable(one) or isinstance(one, BaseChannel)]
    if any(one is not add_messages for one in own):
        raise SetupError(
            f"{whose} gives 'messages' a reducer of its own; the history is the machine's: leave "
            "the field out, or take it from MessagesState."
        )


def _bare(hint: Any) -> Any:
    while get_origin(hint) in _MARKS:
        (hint,) = get_args(hint)
    return hint


def _notes(hint: Any) -> Iterator[Any]:
    """The annotations of a type."""
    hint = _bare(hint)
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        yield from notes
        yield from _notes(inner)


def _is_managed(hint: Any) -> bool:
    """Whether LangGraph computes the value (`RemainingSteps`), so that nobody writes it."""
    return any(inspect.isclass(one) and issubclass(one, ManagedValue) for one in _notes(hint))


def _omitted(hint: Any, where: str) -> bool:
    """Whether LangChain's mark keeps a channel out of the `input` or the `output`. Recognised by name, since
    Signoff works without the package."""
    return any(type(one).__name__ == _OMITS and getattr(one, where, False) for one in _notes(hint))


def _of_its_loop(key: str, hint: Any) -> bool:
    return key in _OF_ITS_LOOP and _omitted(hint, "input")


@dataclass(frozen=True)
class Refused:
    """Why an update cannot be written. kind: a key of `Texts.results`; why: in words."""

    kind: str
    channel: str
    why: str = ""


def checked_update(
    update: Mapping[str, Any],
    channels: Mapping[str, BaseChannel[Any, Any, Any]],
    state: Mapping[str, Any],
    *,
    saved: bool,
) -> dict[str, Any] | Refused:
    """`update` in a form that can be written to these channels, whose values are in `state`; or why not.

    saved: whether the values are stored; if so, they are returned as the storage would (a tuple as a list).
    """
    found: dict[str, Any] = {}
    for key, value in update.items():
        if key not in channels:
            return Refused("no_channel", key, ", ".join(channels))
        try:
            kept = saved and not isinstance(channels[key], UntrackedValue)
            found[key] = _stored(value) if kept else value
            _combine(channels[key], state.get(key, _NONE), [found[key]])
        except BaseException as error:
            # A value's own methods, and a reducer of the user's own, may raise anything.
            if gets_past(error):
                raise
            return Refused("not_written", key, f"{type(error).__name__}: {words(error)}")
    return found


def checked_input(
    given: Mapping[str, Any],
    channels: Mapping[str, BaseChannel[Any, Any, Any]],
    state: Mapping[str, Any],
    serde: SerializerProtocol | None,
) -> dict[str, Any]:
    """The values of an input for these channels, in the form in which they are written.

    state: the current values. serde: how the thread is saved; None if it is not. Raises SetupError for a
    value that a reducer rejects, or that cannot be saved: LangGraph saves an input before it applies it, and
    the thread would become unreadable.
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        channel = channels[key]
        try:
            kept = serde is not None and not isinstance(channel, UntrackedValue)
            found[key] = _stored(value, serde) if kept else value
            before = state[key] if key in state else channel.get() if channel.is_available() else _NONE
            # A copy, since a reducer may modify its argument.
            trial = channel.copy() if before is _NONE else channel.from_checkpoint(copy.copy(before))
            trial.update([found[key]])
        except BaseException as error:
            # A value's own methods, and a reducer of the user's own, may raise anything.
            if gets_past(error):
                raise
            why = f"{type(error).__name__}: {' '.join(words(error).split()).rstrip('.')}"
            raise SetupError(
                f"The input's {key!r} is {reprlib.repr(value)}, which this channel cannot take ({why}). "
                "Nothing was changed."
            ) from error
    return found


def combined(
    updates: Sequence[Mapping[str, Any]],
    channels: Mapping[str, BaseChannel[Any, Any, Any]],
    state: Mapping[str, Any],
) -> dict[str, Any]:
    """The updates of several calls combined into one, in order, since a channel takes one write per step.
    Reducers are applied here; without one, the last write wins."""
    writes: dict[str, list[Any]] = {}
    for update in updates:
        for key, value in update.items():
            writes.setdefault(key, []).append(value)
    return {
        key: values[0] if len(values) == 1 else _combine(channels[key], state.get(key, _NONE), values)
        for key, values in writes.items()
    }


def after(
    update: Mapping[str, Any],
    channels: Mapping[str, BaseChannel[Any, Any, Any]],
    state: Mapping[str, Any],
) -> dict[str, Any]:
    """The values of the channels in `update` after it is written."""
    written = {key: _combine(channels[key], state.get(key, _NONE), [value]) for key, value in update.items()}
    return {key: one.value if isinstance(one, Overwrite) else one for key, one in written.items()}


_NONE: Any = object()


def _combine(channel: BaseChannel[Any, Any, Any], before: Any, values: Sequence[Any]) -> Any:
    """One write with the same effect as all of `values` in order, on a channel whose value is `before`."""
    if not isinstance(channel, BinaryOperatorAggregate | DeltaChannel):
        return values[-1]
    # A copy, since a reducer may modify its argument, and this result may not be used.
    now, at = (copy.copy(values[0]), 1) if before is _NONE else (copy.copy(before), 0)
    for value in values[at:]:
        if isinstance(value, Overwrite):
            now = value.value
        elif isinstance(channel, DeltaChannel):
            now = channel.reducer(now, [value])
        else:
            now = channel.operator(now, value)
    return now if at else Overwrite(now)


def _stored(value: Any, serde: SerializerProtocol | None = None) -> Any:
    """`value` as the storage returns it. Raises TypeError for one that cannot be stored.

    serde: the serializer, if not that of Signoff's own storages; its owner decides what it returns.
    """
    if is_sound(value):
        return value
    own = strict_serde()
    used = serde or own
    try:
        back = used.loads_typed(used.dumps_typed(value))
        differs = used is own and back != _listed(value)
    except Exception as error:
        raise TypeError(_not_stored(value, f" ({words(error)})")) from error
    if differs:
        raise TypeError(_not_stored(value, " as it is"))
    return back


def _not_stored(value: Any, why: str) -> str:
    return (
        f"a value of type {type(value).__name__} cannot be stored{why}; pass plain values (texts, numbers, "
        "lists, dicts) or messages"
    )


def _listed(value: Any) -> Any:
    """`value` with tuples as lists, as they are stored."""
    if isinstance(value, list | tuple):
        return [_listed(one) for one in value]
    return {key: _listed(one) for key, one in value.items()} if isinstance(value, dict) else value


def for_a_copy(
    values: Mapping[str, Any], channels: Mapping[str, BaseChannel[Any, Any, Any]]
) -> dict[str, Any]:
    """The values of a thread for writing to a new one, bypassing the reducers that produced them."""
    return {
        key: Overwrite(value) if key in channels and _reduces(channels[key]) else value
        for key, value in values.items()
    }


def _reduces(channel: BaseChannel[Any, Any, Any]) -> bool:
    """Whether a new channel starts with a value to which writes are added."""
    return isinstance(channel, BinaryOperatorAggregate | DeltaChannel) and channel.is_available()
