"""One reply of the model, read: its calls in order, what is wrong with each, how the reply stopped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, TypeVar

from langchain_core.messages import AIMessage, ToolMessage

from signoff.graph.marks import marks
from signoff.tools.control import Effect

_LENGTH = {"length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS"}
_FILTERED = {"content_filter", "refusal", "safety", "SAFETY", "content_filtered", "guardrail_intervened"}
_DEPTH = 64
_CALL_BLOCKS = {"tool_use", "tool_call"}
_T = TypeVar("_T")


class Stop(StrEnum):
    """How a reply stopped, as far as it matters: `stop` and `tool_calls` both read as `normal`."""

    NORMAL = "normal"
    LENGTH = "length"
    FILTERED = "filtered"


class Controls(Protocol):
    """What the reading needs to know of the control tools."""

    def effect(self, name: str) -> Effect | None: ...

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None: ...


@dataclass(frozen=True)
class Call:
    """One tool call of a reply. `effect` is None for a work call.

    `problem` says why the call is never run or counted: `malformed` (no JSON), `invalid` (a question
    that does not fit), `truncated` (the reply was cut); `error` has the detail.
    """

    index: int
    id: str
    name: str
    args: Mapping[str, Any]
    effect: Effect | None = None
    problem: str | None = None
    error: str = ""

    @property
    def decides(self) -> bool:
        """Whether this is a finish or an ask that counts."""
        return self.problem is None and self.effect in (Effect.FINISH, Effect.ASK)


@dataclass
class Reply:
    """A reply and, by position of the call, the results that the history holds for it."""

    message: AIMessage
    calls: tuple[Call, ...]
    stop: Stop
    results: dict[int, ToolMessage] = field(default_factory=dict)

    @cached_property
    def control(self) -> Call | None:
        """The first finish or ask that counts; what follows it is never run."""
        return next((call for call in self.calls if call.decides), None)

    @cached_property
    def before_control(self) -> tuple[Call, ...]:
        """The calls that are settled before the first finish or ask; all of them when there is none."""
        control = self.control
        return self.calls if control is None else self.calls[: control.index]

    @cached_property
    def works(self) -> bool:
        """Whether the reply calls a tool that is no control tool."""
        return any(call.effect is None for call in self.calls)

    @cached_property
    def text(self) -> str:
        return self.message.text.strip()

    @property
    def empty(self) -> bool:
        return not self.calls and not self.text and self.stop is Stop.NORMAL

    @property
    def talk(self) -> bool:
        """Whether this is a whole reply of words without a call."""
        return not self.calls and bool(self.text) and self.stop is Stop.NORMAL

    def key(self, call: Call) -> str:
        """A name of the call that is its own even where a provider repeats ids."""
        return f"{self.message.id}:{call.index}"

    def open(self, call: Call) -> bool:
        return call.index not in self.results

    def failed(self, call: Call) -> bool:
        """Whether the call has a result and that result is an error."""
        found = self.results.get(call.index)
        return found is not None and found.status == "error"


def stop_of(message: AIMessage) -> Stop:
    """How the provider says that the reply stopped."""
    metadata = message.response_metadata
    reason = metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("done_reason")
    if not isinstance(reason, str):
        reason = ""
    if reason in _LENGTH:
        return Stop.LENGTH
    if reason in _FILTERED or message.additional_kwargs.get("refusal"):
        return Stop.FILTERED
    return Stop.NORMAL


def complete_json(raw: str) -> bool:
    """Whether `raw` is one whole JSON object, by a strict parser. No text at all means no arguments."""
    if not raw.strip():
        return True
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and storable(value)


def storable(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a database takes a JSON value: not nested too deep, no integer beyond 64 bits."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(storable(part, depth - 1) for part in parts)
    return True


def read_reply(message: AIMessage, controls: Controls) -> Reply:
    """The reply with its calls in order and judged one by one."""
    stop = stop_of(message)
    calls: list[Call] = []
    for index, (raw, error) in enumerate(_in_order(message)):
        name = raw.get("name") or ""
        args = raw["args"] if isinstance(raw.get("args"), dict) else {}
        effect = controls.effect(name)
        problem, detail = ("malformed", error) if error is not None else (None, "")
        if stop is Stop.LENGTH and (problem or not _survives(message, raw, effect, calls)):
            problem = "truncated"
        if problem is None and effect is Effect.ASK and (invalid := controls.problem(name, args)):
            problem, detail = "invalid", invalid
        calls.append(Call(index, raw.get("id") or "", name, args, effect, problem, detail))
    return Reply(message, tuple(calls), stop)


def with_call_ids(message: AIMessage, fresh: Mapping[int, str]) -> AIMessage:
    """A copy of `message` in which the calls at the positions of `fresh` have the ids given there."""
    bad = [dict(call) for call in message.invalid_tool_calls]
    good = [dict(call) for call in message.tool_calls]
    parts = message.content if isinstance(message.content, list) else []
    blocks = [dict(part) if isinstance(part, dict) else part for part in parts]
    for position, call in enumerate(_places(message, bad + good)):
        if position in fresh:
            old, call["id"] = call.get("id"), fresh[position]
            for block in blocks:
                if isinstance(block, dict) and block.get("type") in _CALL_BLOCKS and block.get("id") == old:
                    block["id"] = fresh[position]
                    break
    content = blocks if isinstance(message.content, list) else message.content
    legacy = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    return message.model_copy(
        update={
            "tool_calls": good,
            "invalid_tool_calls": bad,
            "content": content,
            "additional_kwargs": legacy,
        }
    )


def _places(message: AIMessage, found: list[_T]) -> list[_T]:
    """`found` (the malformed calls, then the others) in the order of the reply, when that is recorded.

    Without a record the malformed come first, which is the careful reading: a finish beside them is void.
    """
    order: Sequence[int] = marks(message).get("order", ())
    return [found[at] for at in order] if sorted(order) == list(range(len(found))) else found


def _in_order(message: AIMessage) -> list[tuple[Mapping[str, Any], str | None]]:
    """All calls in the order of the reply, with the error of each malformed one."""
    bad: list[tuple[Mapping[str, Any], str | None]] = [
        (dict(call), call.get("error") or "it cannot be parsed") for call in message.invalid_tool_calls
    ]
    return _places(message, bad + [(dict(call), None) for call in message.tool_calls])


def _survives(
    message: AIMessage, raw: Mapping[str, Any], effect: Effect | None, earlier: Sequence[Call]
) -> bool:
    """Whether a call of a truncated reply counts: a control call that is known to be whole, with nothing
    refused before it. Work calls of a truncated reply never run."""
    if effect is None or any(call.problem for call in earlier):
        return False
    if marks(message).get("checked"):
        return True
    texts = [
        legacy.get("function", {}).get("arguments")
        for legacy in message.additional_kwargs.get("tool_calls", ())
        if legacy.get("id") == raw.get("id")
    ]
    return len(texts) == 1 and isinstance(texts[0], str) and complete_json(texts[0])
