"""Values, replies, messages and outputs of tools as no provider, middleware or tool should give them,
drawn by
chance from a seed."""

import datetime
import enum
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, HumanMessage, ToolMessage

FORGED = "forged"
"""What a mark under our key holds that is not ours; no message of a thread may have it."""

FINISH = {"name": "finish_task", "args": {"summary": "Done."}, "id": "f", "type": "tool_call"}
ACT = {"name": "act", "args": {"what": "x"}, "id": "a", "type": "tool_call"}
LOOK = {"name": "look", "args": {"what": "x"}, "id": "l", "type": "tool_call"}
MARKS = (
    "answer", "after", "nudge", "cut", "checked", "unknown", "confirmed", "not_run", "order", "estimated",
    "stopped",
    "ended", "shown", "at", "seconds", "phase", "delegate", "undone", "extended", "granted", "sent_back",
    "reply",
)  # fmt: skip


class Own(AIMessage):
    """A provider's own kind of reply."""

    extra: object = None


class Said(HumanMessage):
    """A middleware's own kind of message."""


class Reason(enum.Enum):
    STOP = 1
    SAFETY = "SAFETY"


class Wild:
    """Raises when it is read."""

    def __str__(self) -> str:
        raise RuntimeError("not to be read")

    __repr__ = __str__


def _nested(depth: int, kind: type) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if kind is list else {"x": value}
    return value


def _ring() -> Any:
    ring: list[Any] = []
    ring += [ring, ring]
    return ring


def shared() -> Any:
    """As much as 2 to the 40th values, in hardly any memory; code of others would print it for ever."""
    value: Any = ["x"]
    for _ in range(40):
        value = [value, value]
    return value


ONES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30,
    1.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf"), b"\xff", b"", (1, 2), {3}, frozenset(), 1j,
    Ellipsis, object, datetime.date(2026, 1, 1), Reason.STOP, Reason.SAFETY, range(3), ValueError("x"),
)  # fmt: skip
TEXTS: tuple[str, ...] = (
    "", " ", "x", "done", "\ud800", "\udfff\ud800x", "a\0b", "\0", "\u202e", "ü" * 90, "x" * 3_000, "{",
    "null", '{"what": "x"}', '{"a": 1', "NaN", "<think>hm</think>", "finish_task", "stop", "length", "SAFETY",
    "content_filter", "text", "tool_use", "tool_call", "image_url", "refusal", "id", "type",
)  # fmt: skip
MADE: tuple[Callable[[], Any], ...] = (
    object, Wild, _ring, lambda: _nested(63, list), lambda: _nested(65, dict),
    lambda: _nested(300, list), lambda: _nested(5_000, dict), lambda: "x" * 100_000, lambda: ["x"] * 10_000,
)  # fmt: skip


class Drawn:
    """Draws from a seed; the same seed gives the same."""

    def __init__(self, seed: object) -> None:
        self.chance = Random(str(seed))

    def one(self, *of: Any) -> Any:
        return self.chance.choice(of)

    def text(self) -> str:
        return self.one(*TEXTS) if self.chance.random() < 0.8 else f"call_{self.chance.getrandbits(4_000):x}"

    def value(self, depth: int = 3) -> Any:
        sort = self.chance.random()
        if sort < 0.35 or not depth:
            return self.one(*ONES)
        if sort < 0.6:
            return self.text()
        if sort < 0.68:
            return self.one(*MADE)()
        size = self.chance.randrange(4)
        if sort < 0.84:
            return [self.value(depth - 1) for _ in range(size)]
        return {self.key(): self.value(depth - 1) for _ in range(size)}

    def key(self) -> Any:
        return self.text() if self.chance.random() < 0.85 else self.one(1, None, 2.5, (1, 2), b"x", True)

    def marks(self) -> Any:
        named = {self.one(*MARKS): self.one(FORGED, FORGED, [FORGED], {FORGED: FORGED}) for _ in range(3)}
        return self.one(named, named, FORGED, [FORGED], None)

    def extras(self) -> Any:
        """Something for `additional_kwargs` or `response_metadata`."""
        if self.chance.random() < 0.25:
            return self.value()
        keys = (
            "finish_reason", "stop_reason", "model_name", "model_provider", "tool_calls", "function_call",
            "refusal",
            "reasoning_content", "incomplete_details", "prompt_feedback", "status", "output_version", "x",
        )  # fmt: skip
        made = {self.one(*keys): self.value() for _ in range(self.chance.randrange(4))}
        for key in ("signoff", "signoff-0123456789abcdef"):
            if self.chance.random() < 0.4:
                made[key] = self.marks()
        return made

    def content(self) -> Any:
        if self.chance.random() < 0.3:
            return self.value()
        return [self.one(self.block, self.text, self.value)() for _ in range(self.chance.randrange(4))]

    def block(self) -> Any:
        keys = (
            "text",
            "id",
            "call_id",
            "name",
            "input",
            "args",
            "arguments",
            "partial_json",
            "thinking",
            "value",
            "x",
        )
        block = {
            "type": self.one(
                "text", "tool_use", "tool_call", "function_call", "image_url", "reasoning", None, []
            )
        }
        return {**block, **{self.one(*keys): self.value(2) for _ in range(self.chance.randrange(4))}}

    def usage(self) -> Any:
        keys = (
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "input_token_details",
            "output_token_details",
            "x",
        )
        made = {key: self.one(3, 5, 5, self.value(1)) for key in keys if self.chance.random() < 0.8}
        return self.one(made, made, self.value(1))

    def call(self) -> Any:
        call = dict(self.one(ACT, LOOK, FINISH, ACT))
        call |= {self.one("args", "name", "id", "type", "x", "extras"): self.value() for _ in range(2)}
        for key in ("args", "name", "id", "type"):
            if self.chance.random() < 0.1:
                del call[key]
        return self.one(call, call, call, self.value(1))

    def arguments(self) -> dict[str, Any]:
        return {"what": self.value()}

    def fields(self) -> dict[str, Any]:
        """The fields of a reply: sound ones, of which some are replaced or missing."""
        calls = self.one([], [ACT], [FINISH], [ACT, LOOK], [ACT, FINISH], [{**ACT, "args": self.arguments()}])
        fields: dict[str, Any] = {
            "content": self.one("", "Let me see.", "x"),
            "type": "ai",
            "tool_calls": [dict(call) for call in calls],
            "invalid_tool_calls": [],
            "additional_kwargs": {},
            "response_metadata": {},
            "usage_metadata": None,
            "id": f"r{self.chance.getrandbits(64):x}",
            "name": None,
        }
        odd: Mapping[str, Callable[[], Any]] = {
            "content": self.content, "additional_kwargs": self.extras, "response_metadata": self.extras,
            "usage_metadata": self.usage, "id": lambda: self.one(self.text, self.value)(), "name": self.value,
            "tool_calls": lambda: self.one([self.call() for _ in range(2)], self.value()),
            "invalid_tool_calls": lambda: self.one([self.call()], self.value()), "extra": self.value,
            "type": self.value,
        }  # fmt: skip
        for name in self.chance.sample([*odd], self.chance.randrange(1, 4)):
            fields[name] = odd[name]()
        if self.chance.random() < 0.15:
            del fields[self.one(*fields)]
        return fields

    def reply(self) -> Any:
        """A whole reply, past all checks of its class; now and then no reply at all."""
        if self.chance.random() < 0.02:
            return self.one(ChatMessage(content="x", role="critic"), None, "text", HumanMessage("x"))
        return self.one(AIMessage, AIMessage, Own).model_construct(**self.fields())

    def chunks(self) -> list[Any]:
        """A streamed reply."""
        if self.chance.random() < 0.3:
            return [AIMessageChunk.model_construct(**{**self.fields(), **self.pieces()})]
        beside = [
            AIMessageChunk.model_construct(**{**self.fields(), **self.pieces(), "tool_calls": []})
            for _ in range(self.chance.randrange(1, 3))
        ]
        last = AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}, chunk_position="last")
        return [*beside, last]

    def pieces(self) -> dict[str, Any]:
        raw = self.one(
            '{"what": "x"}', '{"what": "\\ud800\\u0000"}', '{"summary": "Do', "", None, '{"what": 1e999}'
        )
        piece = {
            "name": self.one("act", "look", "finish_task", self.text()),
            "args": raw,
            "id": "a",
            "index": 0,
        }
        if self.chance.random() < 0.3:
            piece[self.one(*piece)] = self.value(1)
        return {
            "tool_call_chunks": self.one([], [{**piece, "type": "tool_call_chunk"}]),
            "chunk_position": None,
        }

    def message(self) -> Any:
        """What a middleware writes into the history."""
        fields = self.fields()
        if self.chance.random() < 0.5:
            fields |= {"tool_calls": []}
            return AIMessage.model_construct(**fields)
        kind = self.one(HumanMessage, Said, ToolMessage, HumanMessage)
        names = ("content", "additional_kwargs", "response_metadata", "id", "name")
        more = {"type": kind.model_fields["type"].default, "tool_call_id": self.one("a", self.value(1))}
        if kind is ToolMessage:
            more |= {"artifact": self.value(), "status": self.one("success", self.value(1))}
        return kind.model_construct(**{key: fields[key] for key in names if key in fields}, **more)

    def output(self, call_id: str) -> Any:
        """What a tool returns: a value, its message, or a list of both."""
        sort = self.chance.random()
        if sort < 0.4:
            return self.value()
        message = ToolMessage.model_construct(
            content=self.one("x", self.content()),
            type="tool",
            tool_call_id=call_id,
            additional_kwargs=self.extras(),
            response_metadata=self.extras(),
            status=self.one("success", "error", self.value(1)),
            artifact=self.value(),
            id=self.one(None, self.value(1)),
            name=self.one(None, self.value(1)),
        )
        return message if sort < 0.8 else [message, self.value()] if sort < 0.85 else self.command(message)

    def command(self, message: Any) -> Any:
        from langgraph.types import Command

        beside = [self.message() for _ in range(self.chance.randrange(2))]
        return Command(
            update=self.one({"messages": [message, *beside]}, {"messages": message}, self.value(2))
        )
