"""Scripts for the scripted model: what a step may be, and the position in a script."""

import itertools
import json
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata


class UnexpectedCall(AssertionError):
    """The model was called after its script had ended."""


class UnusedSteps(AssertionError):
    """The script was not played to its end."""


@dataclass(frozen=True)
class ScriptedCall:
    """One tool call as the provider sends it: `arguments` is the exact text, id None asks for a fresh one."""

    name: str
    arguments: str
    id: str | None = None


Usage: TypeAlias = UsageMetadata | tuple[int, int] | Literal[False] | None


@dataclass(frozen=True)
class ScriptedReply:
    """One reply: its text and calls in order, and what the provider says about it (see `reply`)."""

    parts: tuple[str | ScriptedCall, ...]
    finish_reason: str | None = None
    usage: Usage = None
    refusal: str | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            if not isinstance(part, str | ScriptedCall):
                raise TypeError(f"A reply is made of text and call(...), not of {part!r}.")


Step: TypeAlias = (
    str
    | ScriptedCall
    | ScriptedReply
    | AIMessage
    | BaseException
    | Sequence[str | ScriptedCall]
    | Callable[[list[BaseMessage]], "Step"]
)
Script: TypeAlias = Iterable[Step] | Callable[[list[BaseMessage]], Step]


def call(
    name: str,
    /,
    *,
    id: str | None = None,
    raw: str | None = None,
    args: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> ScriptedCall:
    """One call of the tool `name` with these arguments.

    id: the id that the provider gives; "" for a missing one, None for a fresh one ("call_1", "call_2", ...).
    raw: the exact argument text, instead of arguments: for malformed JSON or JSON that was cut.
    args: arguments as a mapping, for those whose names are taken here (`id`, `raw`, `args`).

    Raises TypeError for `raw` beside arguments, and for arguments that are not JSON.
    """
    if args is not None and not isinstance(args, Mapping):
        raise TypeError("args is a mapping of arguments; for an argument of that name: args={'args': ...}.")
    merged = {**(args or {}), **arguments}
    if raw is not None and merged:
        raise TypeError("raw is the whole argument text: give either raw or arguments.")
    return ScriptedCall(name, _json(merged) if raw is None else raw, id)


def reply(
    *parts: str | ScriptedCall,
    finish_reason: str | None = None,
    usage: Usage = None,
    refusal: str | None = None,
) -> ScriptedReply:
    """One reply with text and calls in this order; `reply()` is an empty one.

    finish_reason: None means "tool_calls" when there are calls, else "stop".
    usage: (input tokens, output tokens) or LangChain's dict; False for a provider that reports none; None
        counts characters, four to a token.
    refusal: the text of a refusal, where OpenAI's models put it (`additional_kwargs["refusal"]`).
    """
    return ScriptedReply(parts, finish_reason, usage, refusal)


@dataclass(frozen=True)
class Seen:
    """What the model was shown in one call; `tools` are OpenAI-style schemas, `kwargs` is all the rest."""

    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    tool_choice: Any
    kwargs: dict[str, Any]

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools offered, in order."""
        return [tool["function"]["name"] if "function" in tool else tool["type"] for tool in self.tools]


@dataclass(frozen=True)
class Wire:
    """A reply as it goes over the wire: every call has its final id, a list is a message's content blocks."""

    parts: Sequence[str | ScriptedCall | list[str | dict[Any, Any]]]
    usage: Usage
    response_metadata: dict[str, Any]
    additional_kwargs: dict[str, Any]


class Player:
    """The position in a script and the record, shared by every copy of a model."""

    def __init__(self, script: Script) -> None:
        if isinstance(script, str | ScriptedCall | ScriptedReply | BaseMessage | BaseException | type):
            raise TypeError("A script is a list of steps, or one function: put a single step into a list.")
        self._steps: Iterator[Step] = itertools.repeat(script) if callable(script) else iter(script)
        self._has_end = not callable(script)
        self._lock = threading.Lock()
        self._fault: AssertionError | None = None
        self._ids = (f"call_{number}" for number in itertools.count(1))
        self._given_ids: set[str] = set()
        self.seen: list[Seen] = []
        self.chunks_sent = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def count_chunk(self) -> None:
        with self._lock:
            self.chunks_sent += 1

    def play(self, seen: Seen) -> Wire:
        try:
            step = self._take(seen)
            while callable(step):
                step = step() if isinstance(step, type) else step(list(seen.messages))
        except AssertionError as fault:
            self._fault = self._fault or fault
            raise
        if isinstance(step, BaseException):
            raise step.with_traceback(None)
        return self._wire(step)

    def _take(self, seen: Seen) -> Step:
        with self._lock:
            self.seen.append(seen)
            for step in self._steps:
                return step
            count = len(self.seen)
        shown = "\n".join(f"  {_excerpt(message)}" for message in seen.messages[-3:])
        raise UnexpectedCall(f"The script has no step for call {count} of the model. It was shown:\n{shown}")

    def _wire(self, step: Step) -> Wire:
        if isinstance(step, AIMessage):
            sent = step.model_copy(deep=True)
            calls = [ScriptedCall(c["name"], _json(c["args"]), c["id"]) for c in sent.tool_calls]
            calls += [
                ScriptedCall(c["name"] or "", c["args"] or "", c["id"]) for c in sent.invalid_tool_calls
            ]
            blocks = [sent.content, *calls]
            return Wire(blocks, sent.usage_metadata, sent.response_metadata, sent.additional_kwargs)
        if isinstance(step, str | ScriptedCall):
            step = reply(step)
        elif isinstance(step, list | tuple):
            step = reply(*step)
        if not isinstance(step, ScriptedReply):
            raise TypeError(f"A step is text, call(...), reply(...), AIMessage or exception, not {step!r}.")
        with self._lock:
            parts = [self._with_id(part) if isinstance(part, ScriptedCall) else part for part in step.parts]
        metadata = {} if step.finish_reason is None else {"finish_reason": step.finish_reason}
        extra = {} if step.refusal is None else {"refusal": step.refusal}
        return Wire(parts, step.usage, metadata, extra)

    def _with_id(self, part: ScriptedCall) -> ScriptedCall:
        if part.id is None:
            return replace(part, id=next(id for id in self._ids if id not in self._given_ids))
        self._given_ids.add(part.id)
        return part

    def assert_done(self) -> None:
        if self._fault is not None:
            raise self._fault
        with self._lock:
            for step in self._steps if self._has_end else ():
                left = 1 + operator.length_hint(self._steps)
                self._steps = itertools.chain([step], self._steps)
                raise UnusedSteps(f"At least {left} steps of the script are unused; the next one: {step!r}.")


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _excerpt(message: BaseMessage) -> str:
    calls = [tool_call["name"] for tool_call in getattr(message, "tool_calls", ())]
    return f"{message.type}: {str(message.content)[:200]!r}" + (f" calls {', '.join(calls)}" if calls else "")
