"""One history written down in each of the formats, as its programs write it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
    messages_to_dict,
)

Place = tuple[int, str | None]
Written = tuple[Any, dict[Place, int]]


@dataclass(frozen=True)
class User:
    """A person's message."""

    text: str = "do it"


@dataclass(frozen=True)
class Use:
    """A call. raw: its argument text, where that is no JSON."""

    name: str
    id: str
    args: str = "{}"

    @property
    def value(self) -> Any:
        return json.loads(self.args)

    @property
    def broken(self) -> bool:
        try:
            json.loads(self.args)
        except ValueError:
            return True
        return False


@dataclass(frozen=True)
class Ai:
    """A reply. cut: it reached the length limit."""

    text: str = ""
    uses: tuple[Use, ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class Res:
    """The result of the call `id`."""

    id: str
    text: str = "ok"
    failed: bool = False

    @property
    def told(self) -> str:
        return f"Error: {self.text}" if self.failed else self.text


Line = User | Ai | Res
History = Sequence[Line]


def ai(*parts: str | Use, cut: bool = False) -> Ai:
    """A reply with these words and calls."""
    words = " ".join(part for part in parts if isinstance(part, str))
    return Ai(words, tuple(part for part in parts if isinstance(part, Use)), cut)


def _one_each(history: History) -> dict[Place, int]:
    """Where everything stands in a format with one message for each line."""
    found: dict[Place, int] = {}
    for at, line in enumerate(history):
        ids = [use.id for use in line.uses] if isinstance(line, Ai) else []
        ids += [line.id] if isinstance(line, Res) else []
        found |= {(at, each): at for each in (None, *ids)}
    return found


def _message(line: Line) -> BaseMessage:
    if isinstance(line, User):
        return HumanMessage(line.text)
    if isinstance(line, Res):
        return ToolMessage(line.text, tool_call_id=line.id, status="error" if line.failed else "success")
    bad = [
        InvalidToolCall(type="invalid_tool_call", name=use.name, args=use.args, id=use.id, error="cut")
        for use in line.uses
        if use.broken
    ]
    good: Any = [{"name": use.name, "args": use.value, "id": use.id} for use in line.uses if not use.broken]
    metadata = {"finish_reason": "length" if line.cut else "tool_calls"}
    return AIMessage(line.text, tool_calls=good, invalid_tool_calls=bad, response_metadata=metadata)


def langchain_dicts(history: History) -> Written:
    return messages_to_dict([_message(line) for line in history]), _one_each(history)


def langchain_dumps(history: History) -> Written:
    return json.loads(dumps({"messages": [_message(line) for line in history]})), _one_each(history)


def langchain_fields(history: History) -> Written:
    values = [_message(line).model_dump() for line in history]
    return {"values": {"messages": values}}, _one_each(history)


def chat(history: History) -> Written:
    def written(line: Line) -> dict[str, Any]:
        if isinstance(line, User):
            return {"role": "user", "content": line.text}
        if isinstance(line, Res):
            return {"role": "tool", "tool_call_id": line.id, "content": line.told}
        calls = [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.args}}
            for use in line.uses
        ]
        message = {"role": "assistant", "content": line.text or None} | (
            {"tool_calls": calls} if calls else {}
        )
        return {"choices": [{"message": message, "finish_reason": "length"}]} if line.cut else message

    return {"model": "m", "messages": [written(line) for line in history]}, _one_each(history)


def plain(history: History) -> Written:
    """Role and content with LangChain's short form of calls."""

    def written(line: Line) -> dict[str, Any]:
        if isinstance(line, User):
            return {"role": "human", "content": line.text}
        if isinstance(line, Res):
            status = "error" if line.failed else "success"
            return {"role": "tool", "tool_call_id": line.id, "content": line.text, "status": status}
        calls = [{"id": use.id, "name": use.name, "args": _read(use)} for use in line.uses]
        reason = {"finish_reason": "length"} if line.cut else {}
        return {"role": "ai", "content": [{"type": "text", "text": line.text}], "tool_calls": calls, **reason}

    return [written(line) for line in history], _one_each(history)


def _read(use: Use) -> Any:
    return use.args if use.broken else use.value


def responses(history: History) -> Written:
    items: list[dict[str, Any]] = []
    places: dict[Place, int] = {}
    for at, line in enumerate(history):
        if isinstance(line, User):
            items.append({"role": "user", "content": line.text})
        elif isinstance(line, Res):
            places[at, line.id] = len(items)
            items.append({"type": "function_call_output", "call_id": line.id, "output": line.told})
        else:
            status = "incomplete" if line.cut else "completed"
            items.append({"type": "reasoning", "id": f"rs_{at}", "summary": []})
            if line.text:
                part = {"type": "output_text", "text": line.text, "annotations": []}
                message = {"type": "message", "role": "assistant", "content": [part], "status": status}
                items.append({"id": f"msg_{at}", **message})
            for use in line.uses:
                places[at, use.id] = len(items)
                made = {"type": "function_call", "call_id": use.id, "name": use.name, "status": status}
                items.append({"id": f"fc_{at}", "arguments": use.args, **made})
        places[at, None] = len(items) - 1
    return {"object": "response", "input": items[:1], "output": items[1:]}, places


def anthropic(history: History) -> Written:
    messages: list[dict[str, Any]] = []
    places: dict[Place, int] = {}
    for at, line in enumerate(history):
        if isinstance(line, User):
            messages.append({"role": "user", "content": line.text})
        elif isinstance(line, Res):
            part = {"type": "tool_result", "tool_use_id": line.id, "content": line.text}
            block = part | ({"is_error": True} if line.failed else {})
            if at and isinstance(history[at - 1], Res):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
            places[at, line.id] = len(messages) - 1
        else:
            text = [{"type": "text", "text": line.text}] if line.text else []
            uses = [{"type": "tool_use", "id": u.id, "name": u.name, "input": u.value} for u in line.uses]
            reason = "max_tokens" if line.cut else "tool_use" if uses else "end_turn"
            messages.append({"role": "assistant", "content": [*text, *uses], "stop_reason": reason})
            places |= {(at, use.id): len(messages) - 1 for use in line.uses}
        places[at, None] = len(messages) - 1
    return {"system": "be kind", "max_tokens": 100, "messages": messages}, places


def _by_line(ai_message: Callable[[Ai], Any], result: Callable[[Res, Use | None], Any], user: Any) -> Any:
    """A writer with one message for each line."""

    def written(history: History) -> Written:
        made: dict[str, Use] = {}
        items: list[Any] = []
        for line in history:
            if isinstance(line, User):
                items.append({"role": "user", **user(line)})
            elif isinstance(line, Res):
                items.append({"role": "tool", **result(line, made.get(line.id))})
            else:
                made |= {use.id: use for use in line.uses}
                items.append({"role": "assistant", **ai_message(line)})
        return {"messages": items}, _one_each(history)

    return written


def _said(text: str) -> Any:
    return [{"type": "text", "content": text}] if text else None


agentdojo = _by_line(
    lambda line: {
        "content": _said(line.text),
        "tool_calls": [{"function": u.name, "args": u.value, "id": u.id} for u in line.uses] or None,
    },
    lambda line, use: {
        "content": _said("" if line.failed else line.text),
        "tool_call_id": line.id,
        "tool_call": {"function": use.name, "args": {}, "id": line.id} if use else None,
        "error": line.text if line.failed else None,
    },
    lambda line: {"content": _said(line.text)},
)

inspect = _by_line(
    lambda line: {
        "content": line.text,
        "source": "generate",
        "tool_calls": [
            {"id": u.id, "function": u.name, "type": "function"}
            | ({"arguments": {}, "parse_error": "no JSON"} if u.broken else {"arguments": u.value})
            for u in line.uses
        ],
    },
    lambda line, use: {
        "content": "" if line.failed else line.text,
        "tool_call_id": line.id,
        "function": use.name if use else "gone",
        **({"error": {"type": "unknown", "message": line.text}} if line.failed else {}),
    },
    lambda line: {"content": line.text, "source": "input"},
)

tau2 = _by_line(
    lambda line: {
        "content": line.text or None,
        "tool_calls": [
            {
                "id": u.id,
                "name": u.name,
                "arguments": u.args if u.broken else u.value,
                "requestor": "assistant",
            }
            for u in line.uses
        ],
    },
    lambda line, _: {"id": line.id, "content": line.text, "requestor": "assistant", "error": line.failed},
    lambda line: {"content": line.text},
)

WRITERS: dict[str, Callable[[History], Written]] = {
    "LangChain messages_to_dict": langchain_dicts,
    "LangChain dumps": langchain_dumps,
    "LangChain fields": langchain_fields,
    "OpenAI chat": chat,
    "plain role and content": plain,
    "OpenAI Responses": responses,
    "Anthropic": anthropic,
    "AgentDojo": agentdojo,
    "inspect": inspect,
    "tau2-bench": tau2,
}
"""Every format, by a name for people."""
