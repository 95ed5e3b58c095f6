"""Turns an MCP server's question to a person (elicitation) into a question of the thread, and reads the
answer."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from signoff.graph.foreign import valid_text

if TYPE_CHECKING:
    from mcp.types import ElicitRequestParams, ElicitResult

DECLINE = "decline"
"""The answer that declines."""
_MOST_CHARACTERS = 8_000
_YES, _NO = ("yes", "true", "y", "1"), ("no", "false", "n", "0")


def make_question(server: str, params: "ElicitRequestParams", problem: str = "") -> dict[str, Any]:
    """The question as an interrupt value."""
    fields = _get_fields(params)
    parts = [problem, f"The MCP server {server!r} asks: {params.message}"]
    if params.mode == "url":
        parts.append(f"Open {params.url} and answer done when you have done what it says.")
    elif len(fields) == 1:
        parts += [_describe_field(schema) for schema in fields.values()]
    elif fields:
        told = [f"- {name} ({_describe_field(schema)})" for name, schema in fields.items()]
        parts.append("Answer with JSON of these:\n" + "\n".join(told))
    parts.append(f"{DECLINE} refuses.")
    text = valid_text("\n".join(part for part in parts if part))[:_MOST_CHARACTERS]
    choices = _list_options(params, fields)
    # Where a person writes something of their own, `1` and `a` are words, and no option's number or letter.
    options = [*choices, DECLINE] if choices or not fields else []
    return {"type": "question", "question": text, "options": options, "call_id": ""}


def read_answer(params: "ElicitRequestParams", answer: Any) -> "ElicitResult":
    """The answer for the server. Raises ValueError, with the reason, for an invalid one."""
    from mcp.types import ElicitResult

    text = "" if answer is None else str(answer).strip()
    if text.lower() == DECLINE or not text:
        return ElicitResult(action="decline" if text else "cancel")
    if params.mode == "url":
        return ElicitResult(action="accept")
    fields = _get_fields(params)
    if not fields:
        return ElicitResult(action="accept", content={})
    given = _read_fields(text, fields)
    missing = [name for name in params.requestedSchema.get("required", ()) if name not in given]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return ElicitResult(
        action="accept", content={name: _convert(name, found, fields) for name, found in given.items()}
    )


def _get_fields(params: "ElicitRequestParams") -> Mapping[str, Mapping[str, Any]]:
    schema = params.requestedSchema if params.mode == "form" else {}
    found = schema.get("properties")
    return {name: part for name, part in (found or {}).items() if isinstance(part, Mapping)}


def _list_options(params: "ElicitRequestParams", fields: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if params.mode == "url":
        return ["done"]
    if len(fields) != 1:
        return []
    (schema,) = fields.values()
    return ["yes", "no"] if schema.get("type") == "boolean" else _list_choices(schema)


def _list_choices(schema: Mapping[str, Any]) -> list[str]:
    listed = schema.get("enum") or [
        one.get("const") for one in schema.get("oneOf", ()) if isinstance(one, Mapping)
    ]
    return [str(one) for one in listed] if isinstance(listed, list) else []


def _describe_field(schema: Mapping[str, Any]) -> str:
    """A field in words."""
    parts = [schema.get("title"), schema.get("description"), schema.get("type")]
    if choices := _list_choices(schema):
        parts.append(f"one of: {', '.join(choices)}")
    if "default" in schema:
        parts.append(f"default: {schema['default']}")
    return "; ".join(str(part) for part in parts if part)


def _read_fields(text: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The values by field name, not yet converted."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and (len(fields) > 1 or set(found) <= set(fields)):
        if unknown := [name for name in found if name not in fields]:
            raise ValueError(f"{unknown[0]!r} is not asked for")
        return found
    if len(fields) > 1:
        raise ValueError(f"write JSON with {', '.join(fields)}")
    return {next(iter(fields)): text}


def _convert(name: str, given: Any, fields: Mapping[str, Mapping[str, Any]]) -> Any:
    schema = fields[name]
    kind, text = schema.get("type"), str(given).strip()
    choices = _list_choices(schema)
    if choices and text not in choices:
        raise ValueError(f"{name} is one of: {', '.join(choices)}")
    if kind == "boolean":
        if text.lower() not in (*_YES, *_NO):
            raise ValueError(f"{name} is yes or no")
        return text.lower() in _YES
    if kind == "integer" and re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if kind in ("integer", "number"):
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{name} is a number") from None
        if kind == "integer" or number != number or abs(number) == float("inf"):
            raise ValueError(f"{name} is a {'whole ' if kind == 'integer' else ''}number")
        return number
    if kind == "array":
        return given if isinstance(given, list) else [text]
    return text
