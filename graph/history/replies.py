"""One reply of the model, read: its calls in order, what is wrong with each, how the reply stopped."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import AIMessage, ToolMessage

from signoff.graph.history.shapes import (
    Stop,
    complete_json,
    in_order,
    normal,
    raw_texts,
    stop_of,
    thinks,
    words_of,
)
from signoff.graph.kinds import Effect
from signoff.graph.messages import marks
from signoff.graph.speed.lazy import lazy

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_CALL_BLOCKS = {"tool_use", "tool_call", "function_call"}


class Controls(Protocol):
    """What the reading needs to know of the control tools."""

    def effect(self, name: str) -> Effect | None: ...

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None: ...

    def meant(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply. `effect` is None for a work call.

    `problem` says why the call is never run or counted: `malformed` (no JSON), `invalid` (a question
    that does not fit), `truncated` (the reply was cut); `error` has the detail. known: whether there is such
    a tool.
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
    def shown_name(self) -> str:
        """The name as providers take it: they refuse a whole request for one with other characters."""
        return self.name if self.known else _NOT_IN_NAMES.sub("_", self.name)[:64] or "unnamed"

    @property
    def decides(self) -> bool:
        """Whether this is a finish or an ask that counts."""
        return self.problem is None and self.effect in (Effect.FINISH, Effect.ASK)


@dataclass
class Reply:
    """A reply. `found` are the results that the history holds for its calls, in their order."""

    message: AIMessage
    calls: tuple[Call, ...]
    stop: Stop
    found: list[ToolMessage | None]

    @lazy
    def control(self) -> Call | None:
        """The first finish or ask that counts; what follows it is never run."""
        return next((call for call in self.calls if call.decides), None)

    @lazy
    def before_control(self) -> tuple[Call, ...]:
        """The calls that are settled before the first finish or ask; all of them when there is none."""
        control = self.control
        return self.calls if control is None else self.calls[: control.index]

    @lazy
    def works(self) -> bool:
        """Whether the reply calls a tool that is no control tool."""
        return any(call.effect is None for call in self.calls)

    @lazy
    def text(self) -> str:
        """What it says, without thoughts."""
        return words_of(self.message)

    @lazy
    def silent(self) -> bool:
        """Whether the reply came to its end without a word and without a call."""
        return not self.calls and not self.text and self.stop is Stop.NORMAL

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it at all."""
        return self.silent and not thinks(self.message)

    @property
    def reasoning(self) -> bool:
        """Whether there are only thoughts in it."""
        return self.silent and thinks(self.message)

    @property
    def talk(self) -> bool:
        """Whether this is a whole reply of words without a call."""
        return not self.calls and bool(self.text) and self.stop is Stop.NORMAL

    @lazy
    def plain(self) -> bool:
        """Whether a provider takes the message as it is."""
        written = self.message.tool_calls
        return len(written) == len(self.calls) and all(
            call.id == self.shown_id(call) and call.shown_name == raw["name"]
            for call, raw in zip(self.calls, written, strict=True)
        )

    def key(self, call: Call) -> str:
        """A name of the call that is its own even where a provider repeats ids."""
        return f"{self.message.id}:{call.index}"

    def shown_id(self, call: Call) -> str:
        """The id as providers take it: they refuse a reply with one twice, or with a call that has none."""
        repeated = any(other.id == call.id for other in self.calls[: call.index])
        return self.own_id(call) if repeated or not call.id else call.id

    def own_id(self, call: Call) -> str:
        """An id of the call made from its place, so that a repetition of the step makes the same one."""
        return f"call_{uuid.uuid5(uuid.NAMESPACE_OID, self.key(call)).hex[:24]}"

    def result(self, call: Call) -> ToolMessage | None:
        return self.found[call.index]

    def open(self, call: Call) -> bool:
        return self.found[call.index] is None

    def failed(self, call: Call) -> bool:
        """Whether the call has a result and that result is an error."""
        found = self.found[call.index]
        return found is not None and found.status == "error"

    def ran(self, call: Call) -> bool:
        """Whether the call has a result and was run."""
        found = self.found[call.index]
        return found is not None and "not_run" not in marks(found)

    @property
    def results(self) -> list[ToolMessage]:
        """The results that there are."""
        return [result for result in self.found if result is not None]


def read_reply(given: AIMessage, controls: Controls) -> Reply:
    """The reply with its calls in order and judged one by one, in whatever shape it was delivered."""
    message, stop = normal(given), stop_of(given)
    calls: list[Call] = []
    for index, (raw, error) in enumerate(_in_order(message)):
        meant = controls.meant(raw.get("name") or "")
        name = meant or raw.get("name") or ""
        args = raw["args"] if isinstance(raw.get("args"), dict) else {}
        effect = controls.effect(name)
        problem, detail = ("malformed", error) if error is not None else (None, "")
        if stop is Stop.LENGTH and (problem or not _survives(given, raw, effect, calls)):
            problem = "truncated"
        if problem is None and effect is Effect.ASK and (invalid := controls.problem(name, args)):
            problem, detail = "invalid", invalid
        known = meant is not None
        calls.append(Call(index, raw.get("id") or "", name, args, effect, problem, detail, known))
    return Reply(message, tuple(calls), stop, [None] * len(calls))


def with_call_ids(message: AIMessage, fresh: Mapping[int, str]) -> AIMessage:
    """A copy of `message` in which the calls at the positions of `fresh` have the ids given there."""
    bad = [dict(call) for call in message.invalid_tool_calls]
    good = [dict(call) for call in message.tool_calls]
    parts = message.content if isinstance(message.content, list) else []
    blocks = [dict(part) if isinstance(part, dict) else part for part in parts]
    for position, call in enumerate(in_order(message, bad + good)):
        if position in fresh:
            old, call["id"] = call.get("id"), fresh[position]
            for block in blocks:
                key = "call_id" if isinstance(block, dict) and "call_id" in block else "id"
                if isinstance(block, dict) and block.get("type") in _CALL_BLOCKS and block.get(key) == old:
                    block[key] = fresh[position]
                    break
    content = blocks if isinstance(message.content, list) else message.content
    raw = ("tool_calls", "function_call")
    extras = {key: value for key, value in message.additional_kwargs.items() if key not in raw}
    return message.model_copy(
        update={
            "tool_calls": good,
            "invalid_tool_calls": bad,
            "content": content,
            "additional_kwargs": extras,
        }
    )


def _in_order(message: AIMessage) -> list[tuple[Mapping[str, Any], str | None]]:
    """All calls in the order of the reply, with the error of each malformed one."""
    found: list[tuple[Mapping[str, Any], str | None]] = [
        (dict(call), call.get("error") or "it cannot be parsed") for call in message.invalid_tool_calls
    ]
    found += [(dict(call), None) for call in message.tool_calls]
    return in_order(message, found)


def _survives(
    message: AIMessage, raw: Mapping[str, Any], effect: Effect | None, earlier: Sequence[Call]
) -> bool:
    """Whether a call of a truncated reply counts: a control call that is known to be whole, with nothing
    refused before it. Work calls of a truncated reply never run."""
    if effect is None or any(call.problem for call in earlier):
        return False
    if marks(message).get("checked"):
        return True
    texts = raw_texts(message, raw.get("id") or "")
    return len(texts) == 1 and isinstance(texts[0], str) and complete_json(texts[0])
