"""Replies of the tagged text protocol, and the calls that they make, in short."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from signoff.models import ScriptedModel, TaggedText, reply

TOOLS = ("run_python", "think", "ask_user", "finish_task", "write_file")
CODE = "```python\nprint(1)\n```"
RUN = "run: print(1)"
PLAN = "<PLAN>\nLook.\n</PLAN>"
DONE = "<PLAN>[FINALIZE] It is 1.</PLAN>"
FINISHED = "<STATE_UPDATE>\nApproach: look\nStatus: Finished\n</STATE_UPDATE>"
FAILED = [HumanMessage("Do it."), ToolMessage("no", name="run_python", tool_call_id="c", status="error")]
"""A history whose last execution failed."""


def bound(model: ScriptedModel, names: Sequence[str] = TOOLS, **options: Any) -> TaggedText:
    """A model that works by text, with tools of these names."""
    tools = [{"name": name, "description": "", "parameters": {}} for name in names]
    made = TaggedText(model, **options).bind_tools(tools)
    assert isinstance(made, TaggedText)
    return made


def calls_of(model: TaggedText, history: Sequence[BaseMessage] = ()) -> list[tuple[str, str]]:
    """The calls of its reply in order: name and the text of the arguments."""
    *_, last = model.stream(list(history) or "Do it.")
    return [(part["name"] or "", part["args"] or "") for part in last.tool_call_chunks]


def told(text: str, *, truncated: bool = False, debugging: bool = False) -> list[str]:
    """The calls of a reply in short; truncated: it was cut off at the limit of its tokens."""
    step = reply(text, finish_reason="length" if truncated else "stop")
    made = calls_of(bound(ScriptedModel([step], chunk_size=10_000)), FAILED if debugging else ())
    return [_short(name, json.loads(args) if args.startswith("{") else None) for name, args in made]


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
