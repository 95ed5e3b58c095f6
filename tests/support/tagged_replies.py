"""Replies of the tagged text protocol, and the calls that they make, in short."""

import json
from collections.abc import Mapping
from typing import Any

from signoff.models.text_protocol.calls import ToolNames, calls_of
from signoff.models.text_protocol.reading import read_text

TOOLS = frozenset({"run_python", "think", "ask_user", "finish_task", "write_file"})
CODE = "```python\nprint(1)\n```"
RUN = "run: print(1)"
PLAN = "<PLAN>\nLook.\n</PLAN>"
DONE = "<PLAN>[FINALIZE] It is 1.</PLAN>"
FINISHED = "<STATE_UPDATE>\nApproach: look\nStatus: Finished\n</STATE_UPDATE>"


def made(text: str, *, truncated: bool = False, debugging: bool = False) -> list[tuple[str, Any]]:
    """The calls of a reply: name and arguments, None for a call that was left open."""
    calls = calls_of(read_text(text), ToolNames(), TOOLS, truncated=truncated, debugging=debugging)
    return [
        (call.name, json.loads(call.arguments) if call.arguments.startswith("{") else None) for call in calls
    ]


def told(text: str, **how: bool) -> list[str]:
    """The calls of a reply in short."""
    return [_short(name, args) for name, args in made(text, **how)]


def _short(name: str, args: Mapping[str, Any] | None) -> str:
    if args is None:
        return f"open {name}"
    match name:
        case "run_python" if "code" in args:
            return f"run: {args['code'].rstrip()}"
        case "ask_user":
            return f"ask: {args['question']}"
        case "finish_task":
            return f"finish: {args['summary']}"
        case "think":
            return ": ".join(["think", *(str(value) for value in args.values())])
    return f"{name} {json.dumps(args)}"
