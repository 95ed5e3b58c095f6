"""Reads one reply of the model: its calls in order, and what is wrong with each.

A reply's calls belong in `tool_calls` and `invalid_tool_calls`. Imported histories and servers with older
protocols have them elsewhere: in a provider's extras or in content blocks. All these forms are read alike,
with the arguments parsed strictly from their raw text.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall, ToolMessage

from signoff.graph.foreign import valid_text
from signoff.graph.history.reasons import StopReason, stop_of
from signoff.graph.inside.speed import lazy
from signoff.graph.kinds import Effect
from signoff.graph.messages import KEY, marks
from signoff.graph.values import arguments_text, is_sound, sound


def read_arguments(raw: str) -> dict[str, Any]:
    """The arguments of a call from their raw text: one whole JSON object.

    No text, or null, means no arguments; an object inside a JSON string is accepted, and so are newlines
    inside strings. Raises ValueError, with the reason, for everything else: truncated text, invalid JSON
    (NaN), not an object, or not storable in a database.
    """
    value = _parsed(raw) if raw.strip() else {}
    if isinstance(value, str):
        value = _parsed(value) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    arguments: dict[str, Any] = sound(value)
    return arguments


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_json)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


_THOUGHTS = {"reasoning", "thinking", "redacted_thinking", "reasoning_content"}
_THOUGHT_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
_THINK = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)|(?:(?!<think).)*?</think>", re.DOTALL)
_ARGUMENTS = {
    "tool_use": ("partial_json", "input"),
    "tool_call": ("args",),
    "tool_call_chunk": ("args",),
    "invalid_tool_call": ("args",),
    "function_call": ("arguments",),
}
_T = TypeVar("_T")


def words_of(message: AIMessage) -> str:
    """The text of the reply, without any reasoning in `<think>` tags before it."""
    text: str = message.text
    if "think" in text and (thought := _THINK.match(text)):
        text = text[thought.end() :]
    return text.strip()


def thinks(message: AIMessage) -> bool:
    """Whether the reply contains reasoning."""
    usage = message.usage_metadata
    counted = (usage.get("output_token_details") if usage else None) or {}
    return (
        any(part.get("type") in _THOUGHTS for part in _blocks(message))
        or any(message.additional_kwargs.get(key) for key in _THOUGHT_KEYS)
        or bool(counted.get("reasoning"))
        or words_of(message) != message.text.strip()
    )


class RawCall(NamedTuple):
    """A call as it came: its arguments as text, or as the provider's package has parsed them. error: why that
    package calls it invalid."""

    name: Any
    id: Any
    args: Any
    error: str = ""


def normal(message: AIMessage) -> AIMessage:
    """The reply with all its calls, in order, in `tool_calls` and `invalid_tool_calls`; `message` itself if
    they are there already. Calls in content blocks are removed from the content.

    What the provider's package has parsed counts, and what it calls invalid stays so.
    """
    if message.tool_calls or message.invalid_tool_calls:
        bad = message.invalid_tool_calls
        in_place = not bad or "order" in marks(message)
        if in_place and all(is_sound(call["args"]) for call in message.tool_calls):
            return message
        return with_calls(message, calls_of(message))
    if extras := list(_of_extras(message.additional_kwargs)):
        return with_calls(message, extras)
    blocks = [_of_block(part) for part in _blocks(message) if part.get("type") in _ARGUMENTS]
    if not blocks:
        return message
    content = [p for p in message.content if isinstance(p, str) or p.get("type") not in _ARGUMENTS]
    return with_calls(message.model_copy(update={"content": content}), blocks)


def calls_of(message: AIMessage) -> list[RawCall]:
    """The calls of a reply as its provider's package gives them, in order."""
    bad = [
        RawCall(call["name"], call["id"], call["args"], _why_invalid(call["args"], call.get("error")))
        for call in message.invalid_tool_calls
    ]
    good = [RawCall(call["name"], call["id"], call["args"]) for call in message.tool_calls]
    return in_order(message, bad + good)


def _why_invalid(args: str | None, said: str | None) -> str:
    """Why a call that the provider's package calls invalid is so. said: what it says itself."""
    try:
        read_arguments(args or "")
    except ValueError as error:
        return str(error)[:200]
    return said or "the provider's package could not read it"


def with_calls(message: AIMessage, calls: Sequence[RawCall]) -> AIMessage:
    """The message with these calls in place of its own. Arguments that are not a JSON object make an
    `invalid_tool_call`; the mark `order` keeps the positions of both kinds."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    places: list[tuple[bool, int]] = []
    for call in calls:
        text = arguments_text(call.args)
        name, call_id, args, error = _text(call.name), _text(call.id), dict[str, Any](), call.error
        try:
            args = args if error else read_arguments(text)
        except ValueError as unreadable:
            error = str(unreadable)[:200]
        places.append((not error, len(bad if error else good)))
        if error:
            bad.append(
                InvalidToolCall(
                    type="invalid_tool_call", name=name, id=call_id, args=valid_text(text), error=error
                )
            )
        else:
            good.append(ToolCall(type="tool_call", name=name, id=call_id, args=args))
    order = [len(bad) + at if is_good else at for is_good, at in places]
    metadata = {**message.response_metadata, KEY: {**marks(message), "order": order}}
    return message.model_copy(
        update={"tool_calls": good, "invalid_tool_calls": bad, "response_metadata": metadata}
    )


def _blocks(message: AIMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, list):
        yield from (part for part in message.content if isinstance(part, dict))


def _of_extras(extras: Mapping[str, Any]) -> Iterator[RawCall]:
    """The calls of OpenAI's raw message: `tool_calls`, or the one `function_call` of its first protocol."""
    several = extras.get("tool_calls")
    if isinstance(several, list) and several:
        raw = [call for call in several if isinstance(call, Mapping)]
        pairs = [(call.get("function"), call.get("id")) for call in raw]
    else:
        pairs = [(extras.get("function_call"), None)]
    for function, call_id in pairs:
        if isinstance(function, Mapping):
            yield RawCall(function.get("name"), call_id, function.get("arguments"))


def _of_block(part: Mapping[str, Any]) -> RawCall:
    keys = _ARGUMENTS[part["type"]]
    args = next((part[key] for key in keys if part.get(key)), None)
    error = _why_invalid(args, part.get("error")) if part["type"] == "invalid_tool_call" else ""
    return RawCall(part.get("name"), part.get("call_id") or part.get("id"), args, error)


def in_order(message: AIMessage, found: list[_T]) -> list[_T]:
    """`found` (the malformed calls, then the others) in the order of the reply: as it is marked, else as the
    provider's raw shape shows it.

    Without either, the malformed calls come first, which is the safe reading: a finish beside them is void.
    """
    if len(found) < 2:
        return found
    noted = marks(message).get("order")
    if noted is not None and sorted(noted) == list(range(len(found))):
        return [found[at] for at in noted]
    blocks = [_of_block(part) for part in _blocks(message) if part.get("type") in _ARGUMENTS]
    ids = [call.id for call in [*_of_extras(message.additional_kwargs)] or blocks]
    own = [call["id"] for call in [*message.invalid_tool_calls, *message.tool_calls]]
    if len(set(ids)) == len(ids) == len(found) and set(own) == set(ids):
        return [found[own.index(call_id)] for call_id in ids]
    return found


def _text(value: Any) -> str:
    return valid_text(value) if isinstance(value, str) else ""


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_CALL_BLOCKS = {"tool_use", "tool_call", "function_call"}


class Controls(Protocol):
    """What the reader needs to know about the control tools."""

    def effect(self, name: str) -> Effect | None: ...

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None: ...

    def resolve(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply. `effect` is None for a work call.

    `problem` says why the call never runs or counts: `malformed` (invalid JSON), `invalid` (a question with
    invalid arguments), `truncated` or `filtered` (the whole reply was, see `stop_of`); `error` has the
    details. known: whether the tool exists.
    """

    index: int
    id: str
    name: str
    args: Mapping[str, Any]
    effect: Effect | None = None
    problem: str | None = None
    error: str = ""
    known: bool = True

    @property
    def provider_name(self) -> str:
        """The name in a form that providers accept: they reject a whole request for one invalid name."""
        return self.name if self.known else _NOT_IN_NAMES.sub("_", self.name)[:64] or "unnamed"

    @property
    def decides(self) -> bool:
        """Whether this is a finish or an ask that counts."""
        return self.problem is None and self.effect in ("finish", "ask")


@dataclass
class Reply:
    """A reply. `found` are the results of its calls in the history, in call order."""

    message: AIMessage
    calls: tuple[Call, ...]
    stop: StopReason
    found: list[ToolMessage | None]

    @lazy
    def control(self) -> Call | None:
        """The first finish or ask that counts; calls after it never run."""
        return next((call for call in self.calls if call.decides), None)

    @lazy
    def before_control(self) -> tuple[Call, ...]:
        """The calls before the first finish or ask; all calls if there is none."""
        control = self.control
        return self.calls if control is None else self.calls[: control.index]

    @lazy
    def work_calls(self) -> tuple[Call, ...]:
        """The calls among these of tools that are not control tools."""
        return tuple([call for call in self.before_control if call.effect is None])

    @lazy
    def works(self) -> bool:
        """Whether the reply calls a tool that is not a control tool."""
        return any(call.effect is None for call in self.calls)

    @property
    def only_controls(self) -> bool:
        """Whether only a control call was requested, so that no work call of the reply runs."""
        return bool(marks(self.message).get("controls_only"))

    @property
    def call_refused(self) -> bool:
        """Whether its provider refused it for a call in it, or for want of a required one."""
        return bool(marks(self.message).get("call_refused"))

    @property
    def unstreamed(self) -> bool:
        """Whether its provider has refused to stream."""
        return bool(marks(self.message).get("unstreamed"))

    @lazy
    def text(self) -> str:
        """Its text, without reasoning."""
        return words_of(self.message)

    @lazy
    def silent(self) -> bool:
        """Whether the reply is complete, without text and without a call."""
        return not self.calls and not self.text and self.stop is StopReason.NORMAL

    @property
    def empty(self) -> bool:
        """Whether the reply has no content at all."""
        return self.silent and not thinks(self.message)

    @property
    def reasoning(self) -> bool:
        """Whether the reply has only reasoning."""
        return self.silent and thinks(self.message)

    @property
    def talk(self) -> bool:
        """Whether the reply is complete, with text and without a call."""
        return not self.calls and bool(self.text) and self.stop is StopReason.NORMAL

    @property
    def names(self) -> list[str]:
        """The names of its calls as the model wrote them."""
        return [raw.name or "" for raw in calls_of(self.message)]

    @lazy
    def plain(self) -> bool:
        """Whether a provider accepts the message as it is."""
        written = self.message.tool_calls
        return len(written) == len(self.calls) and all(
            call.id == self.provider_id(call) and call.provider_name == raw["name"]
            for call, raw in zip(self.calls, written, strict=True)
        )

    def key(self, call: Call) -> str:
        """A key of the call that is unique even if a provider repeats ids."""
        return f"{self.message.id}:{call.index}"

    def provider_id(self, call: Call) -> str:
        """The id in a form that providers accept: they reject a reply with a duplicate or missing id."""
        repeated = any(other.id == call.id for other in self.calls[: call.index])
        return self.own_id(call) if repeated or not call.id else call.id

    def own_id(self, call: Call) -> str:
        """An id derived from the call's position, so that repeating the step gives the same one."""
        return f"call_{uuid.uuid5(uuid.NAMESPACE_OID, self.key(call)).hex[:24]}"

    def result(self, call: Call) -> ToolMessage | None:
        return self.found[call.index]

    def open(self, call: Call) -> bool:
        return self.found[call.index] is None

    def failed(self, call: Call) -> bool:
        """Whether the call has a result and that result is an error."""
        found = self.found[call.index]
        return found is not None and found.status == "error"

    def was_run(self, call: Call) -> bool:
        """Whether the call ran and has a result."""
        found = self.found[call.index]
        return found is not None and "not_run" not in marks(found)

    @property
    def work_run(self) -> int:
        """The number of its work calls that ran."""
        return sum(call.effect is None and self.was_run(call) for call in self.calls)

    @property
    def results(self) -> list[ToolMessage]:
        """The results that exist so far."""
        return [result for result in self.found if result is not None]


_CUT = {StopReason.LENGTH: "truncated", StopReason.FILTERED: "filtered"}
"""What is wrong with every call of a reply that stopped like this: what would have followed is not known."""


def read_reply(given: AIMessage, controls: Controls) -> Reply:
    """The reply with its calls in order, each one checked, in whatever form the provider delivered it.

    This alone decides whether a call may run, and whether a finish or a question counts: `Call.problem`.
    """
    message, stop = normal(given), stop_of(given)
    cut = _CUT.get(stop)
    calls: list[Call] = []
    for index, raw in enumerate(calls_of(message)):
        meant = controls.resolve(raw.name or "")
        name = meant or raw.name or ""
        args = {} if raw.error else raw.args
        effect, detail = controls.effect(name), raw.error
        problem = cut or ("malformed" if raw.error else None)
        if problem is None and effect == "ask" and (invalid := controls.problem(name, args)):
            problem, detail = "invalid", invalid
        known = meant is not None
        calls.append(Call(index, raw.id or "", name, args, effect, problem, detail, known))
    return Reply(message, tuple(calls), stop, [None] * len(calls))


def with_call_words(message: AIMessage, fresh: Mapping[int, Mapping[str, str]]) -> AIMessage:
    """A copy of `message` in which the calls at these positions have the ids and names given there."""
    bad = [dict(call) for call in message.invalid_tool_calls]
    good = [dict(call) for call in message.tool_calls]
    parts = message.content if isinstance(message.content, list) else []
    blocks = [dict(part) if isinstance(part, dict) else part for part in parts]
    of_calls = [part for part in blocks if isinstance(part, dict) and part.get("type") in _CALL_BLOCKS]
    renamed: dict[Any, str] = {}
    for position, call in enumerate(in_order(message, bad + good)):
        words = fresh.get(position, {})
        renamed.setdefault(call.get("id"), words.get("id", ""))
        _reword_block(of_calls, call.get("id"), words)
        call |= words
    content = blocks if isinstance(message.content, list) else message.content
    # The order of the calls is read from them by id.
    raw = ("tool_calls", "function_call") if any("id" in words for words in fresh.values()) else ()
    extras = {
        key: _by_new_ids(value, renamed) for key, value in message.additional_kwargs.items() if key not in raw
    }
    return message.model_copy(
        update={
            "tool_calls": good,
            "invalid_tool_calls": bad,
            "content": content,
            "additional_kwargs": extras,
        }
    )


def _by_new_ids(extra: Any, renamed: Mapping[Any, str]) -> Any:
    """What a provider's package keeps by the ids of calls, such as Gemini's signatures, by the new ones."""
    if not isinstance(extra, Mapping):
        return extra
    return {**extra, **{new: extra[old] for old, new in renamed.items() if new and old in extra}}


def _reword_block(blocks: list[dict[str, Any]], call_id: Any, fresh: Mapping[str, str]) -> None:
    """Takes the block of this call out of those that are left, and gives it the new id and name, too."""
    for place, block in enumerate(blocks):
        key = "call_id" if "call_id" in block else "id"
        if block.get(key) == call_id:
            block |= {key if word == "id" else word: value for word, value in fresh.items()}
            del blocks[place]
            return


def fingerprint(name: str, args: Mapping[str, Any]) -> str:
    """A hash of the tool and its arguments, to which a decision is bound."""
    text = json.dumps([name, args], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
