"""What a model may say, as data: one entry is one reply, or one way in which the model fails.

A work call carries how it plays (`ok` or `fail`), so that one tool of a kind is enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, InvalidToolCall

from signoff.graph.messages import KEY

Part = tuple[str, Mapping[str, Any]]
Role = Literal["read", "write", "finish", "ask", "think", "more"]

OK: Mapping[str, Any] = {"plays": "ok"}
FAIL: Mapping[str, Any] = {"plays": "fail"}
NONE: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Symbol:
    """One reply of the model.

    calls: the role of each call (or the name of a tool that does not exist), and what its arguments are
    beside those that it needs. raw: calls that are no JSON. ids: their ids, where a provider gives bad ones.
    error: what is raised in place of a reply. twin: the symbol that must lead to the very same state, since
    only its `finish_reason` is another.
    """

    text: str = ""
    calls: Sequence[Part] = ()
    raw: Sequence[str] = ()
    stop: str = ""
    ids: Sequence[str] = ()
    error: str = ""
    twin: str = ""

    @property
    def roles(self) -> list[str]:
        return [role for role, _ in self.calls]


_FINISH: Part = ("finish", NONE)
_ASK: Part = ("ask", NONE)
_THINK: Part = ("think", NONE)
_READ: Part = ("read", OK)
_WRITE: Part = ("write", OK)
_FAILING: Part = ("write", FAIL)

ALPHABET: Mapping[str, Symbol] = {
    "talk": Symbol("I'll patch it now."),
    "talk, tool_calls": Symbol("I'll patch it now.", stop="tool_calls", twin="talk"),
    "talk, no reason": Symbol("I'll patch it now.", stop="none", twin="talk"),
    "done!": Symbol("Done. The task is finished. TASK_COMPLETE finish_task()"),
    "empty": Symbol(),
    "only thoughts": Symbol("<think>So.</think>"),
    "cut words": Symbol("so I wi", stop="length"),
    "cut write": Symbol(calls=[_WRITE], stop="length"),
    "cut write + finish": Symbol(calls=[_WRITE, _FINISH], stop="length"),
    "cut finish": Symbol(raw=["finish"], stop="length"),
    "refusal": Symbol("I cannot", stop="content_filter"),
    "think": Symbol(calls=[_THINK]),
    "read": Symbol(calls=[_READ]),
    "write": Symbol(calls=[_WRITE]),
    "write, stop": Symbol(calls=[_WRITE], stop="stop", twin="write"),
    "failing write": Symbol(calls=[_FAILING]),
    "two reads + write": Symbol(calls=[_READ, _READ, _WRITE]),
    "two writes": Symbol(calls=[_WRITE, _WRITE]),
    "malformed": Symbol(raw=["write"]),
    "unknown tool": Symbol(calls=[("no_such_tool_at_all", NONE)]),
    "repeated id": Symbol(calls=[_WRITE, _WRITE], ids=["call_0", "call_0"]),
    "no id": Symbol(calls=[_WRITE], ids=[""]),
    "finish": Symbol(calls=[_FINISH]),
    "finish, stop": Symbol(calls=[_FINISH], stop="stop", twin="finish"),
    "words + finish": Symbol("All done.", calls=[_FINISH]),
    "finish + write": Symbol(calls=[_FINISH, _WRITE]),
    "write + finish": Symbol(calls=[_WRITE, _FINISH]),
    "failing write + finish": Symbol(calls=[_FAILING, _FINISH]),
    "unknown tool + finish": Symbol(calls=[("no_such_tool_at_all", NONE), _FINISH]),
    "two finishes": Symbol(calls=[_FINISH, _FINISH]),
    "think + finish": Symbol(calls=[_THINK, _FINISH]),
    "empty finish": Symbol(calls=[("finish", {"summary": " "})]),
    "blank finish": Symbol(calls=[("finish", {"summary": ""})]),
    "phase": Symbol(calls=[("finish", {"completion_percentage": 60})]),
    "finish to confirm": Symbol(calls=[("finish", {"requires_user_confirmation": True})]),
    "unproven finish": Symbol(calls=[("finish", {"summary": "Unproven."})]),
    "blocked": Symbol(calls=[("finish", {"outcome": "blocked"})]),
    "ask": Symbol(calls=[_ASK]),
    "bad ask": Symbol(calls=[("ask", {"question": ""})]),
    "write + ask": Symbol(calls=[_WRITE, _ASK]),
    "finish + ask": Symbol(calls=[_FINISH, _ASK]),
    "ask + finish": Symbol(calls=[_ASK, _FINISH]),
    "more turns": Symbol(calls=[("more", NONE)]),
    "error": Symbol(error="the connection was lost"),
    "too long": Symbol(error="context_length_exceeded: maximum context length is 10 tokens"),
}
STOPPED = Symbol(stop="stopped")
"""The stream was closed since somebody asked for a stop: nothing of the reply counts."""
CORE = (
    "talk",
    "empty",
    "cut write",
    "think",
    "write",
    "failing write + finish",
    "write + finish",
    "finish",
    "finish + write",
    "ask",
    "ask + finish",
    "unknown tool",
)
"""One of each sort: for longer sequences."""

Names = Mapping[str, tuple[str, Mapping[str, Any]]]
"""For each role a tool of the graph, and arguments that fit it."""


def message(symbol: Symbol, names: Names, message_id: str) -> AIMessage:
    """The reply as a chat model gives it, with ids made from `message_id`."""
    parts = [(*names.get(role, (role, NONE)), args) for role, args in symbol.calls]
    ids = list(symbol.ids) or [f"{message_id}-{at}" for at in range(len(parts))]
    calls = [
        {"name": name, "args": {**needed, **args}, "id": call_id, "type": "tool_call"}
        for (name, needed, args), call_id in zip(parts, ids, strict=True)
    ]
    bad = [
        InvalidToolCall(
            type="invalid_tool_call",
            name=names[role][0],
            args='{"summary": "Fixed a',
            id=f"{message_id}-bad{at}",
            error="it is cut off",
        )
        for at, role in enumerate(symbol.raw)
    ]
    reason = symbol.stop or ("tool_calls" if calls or bad else "stop")
    metadata: dict[str, Any] = {} if reason == "none" else {"finish_reason": reason}
    if symbol is STOPPED:
        metadata = {KEY: {"stopped": True}}
    return AIMessage(
        symbol.text,
        id=message_id,
        tool_calls=calls,
        invalid_tool_calls=bad,
        usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        response_metadata=metadata,
    )
