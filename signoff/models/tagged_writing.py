"""Writes a reply as text of the tagged protocol: its own text, or its calls when it is of another origin."""

import json
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from signoff.models.tagged_calls import Names
from signoff.models.tagged_reader import plain_lines
from signoff.models.tagged_status import tagged_notes


def written(message: AIMessage, names: Names) -> str:
    """The reply as its model wrote it, without evidence that it made up; a reply that was made by calls, by
    another model say, in the form in which this protocol would have written them."""
    notes = tagged_notes(message)
    if notes is not None:
        text = plain_lines(message.text)
        return text[: notes.get("upto", len(text))].rstrip()
    calls = [_written(call["name"], call["args"], names) for call in message.tool_calls]
    return "\n\n".join(part for part in (message.text.strip(), *calls) if part)


def _written(name: str, args: Mapping[str, Any], names: Names) -> str:
    if name == names.think:
        return "\n\n".join(part for part in (_section("PLAN", args.get("thought")), _state(args)) if part)
    if name == names.code and isinstance(args.get("code"), str):
        return _fenced(args["code"])
    if name == names.ask and set(args) == {"question"}:
        return _section("ASK", args["question"])
    if name == names.finish and set(args) == {"summary"}:
        return _section("PLAN", f"[FINALIZE] {args['summary']}")
    return f'<CALL name="{name}">{json.dumps(args, ensure_ascii=False)}</CALL>'


def _state(args: Mapping[str, Any]) -> str:
    lines = [f"{key.capitalize()}: {args[key]}" for key in ("approach", "status") if args.get(key)]
    return _section("STATE_UPDATE", "\n".join(lines))


def _section(tag: str, text: Any) -> str:
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""


def _fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{code.rstrip()}\n{fence}"
