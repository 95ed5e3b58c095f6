"""Writes a stored thread as a test: a pytest file that needs no model, no tool and no database.

The test plays the recorded replies, results and answers on a graph with the same settings, and expects the
same path and outcomes. It is run once before it is written: a test that does not pass is not written.
"""

import contextlib
import importlib.metadata
import io
import pprint
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage

from signoff.graph.build import Graph
from signoff.graph.errors import SetupError
from signoff.graph.messages import KEY, marks
from signoff.session.recording import (
    OUTCOME,
    TOO_LONG,
    Move,
    RecordedGraph,
    RecordedMachine,
    RecordedTool,
    Recording,
    record,
)
from signoff.session.redaction import Redaction
from signoff.session.written import template

MOST_CHARACTERS = 1_000_000
"""The maximum length of a test; a longer one would be unreadable."""

_WIDTH = 106


def as_test(graph: Graph, thread_id: str, redact: Callable[[str], str] | None = None) -> str:
    """The text of a test file that expects a scripted run to do what the thread did.

    redact: converts each text, instead of the patterns for secrets; long texts are truncated in any case.

    Raises SetupError if the test would not pass, with the first difference; for a thread that cannot be
    recorded, raises as `record`.
    """
    source = written(record(graph, thread_id), Redaction(redact))
    if len(source) > MOST_CHARACTERS:
        raise SetupError(
            f"The test would have {len(source):,} characters, more than {MOST_CHARACTERS:,}: the tool "
            "results are too large to record; shorten them with your own redaction function."
        )
    if problem := why_it_fails(source):
        raise SetupError(
            f"The thread cannot be written as a test that passes: {problem} A test plays replies, results "
            "and answers, and stops only what waits; it has no clock, no kills, no undo and no prompts of its"
            " own."
        )
    return source


def why_it_fails(source: str) -> str:
    """Runs the test; returns why it failed, in one sentence, or an empty string if it passed."""
    own: dict[str, Any] = {"__name__": "recorded_thread"}
    try:
        exec(compile(source, "recorded_thread.py", "exec"), own)
        with TemporaryDirectory(prefix="signoff-test-") as folder, contextlib.redirect_stdout(io.StringIO()):
            path, outcomes = own["play"](Path(folder))
    except Exception as error:  # noqa: BLE001  whatever it raises, it has not passed
        return f"it ends with {type(error).__name__}: {' '.join(str(error).split())[:300]}."
    for number, (stored, now) in enumerate(_pairs(own["PATH"], path), 1):
        if stored != now:
            return f"step {number} was {stored!r}, and in the test it is {now!r}."
    for stored, now in _pairs(own["OUTCOMES"], outcomes):
        if stored != now:
            return f"an outcome was {stored!r}, and in the test it is {now!r}."
    return ""


def _pairs(stored: list[Any], now: list[Any]) -> Iterator[tuple[Any, Any]]:
    for at in range(max(len(stored), len(now))):
        yield (stored[at] if at < len(stored) else None), (now[at] if at < len(now) else None)


def written(found: Recording, redact: Redaction) -> str:
    """The text of the test."""
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in found.thread_id.lower())
    own, *below = found.machines
    _check_order(below, redact)
    graph = found.graphs[()]
    parts = {
        # A thread id may be any text, even one that would end the docstring.
        "thread_id": re.sub(r"[^\w.:-]", "_", found.thread_id),
        "begun": found.begun[:10],
        "signoff": importlib.metadata.version("signoff"),
        "moves": _listed([_move(move, redact) for move in found.moves]),
        "script": _listed([_reply(one, redact) for one in own.replies]),
        "tools": _tools(graph),
        "results": _results(own, redact),
        "checks": repr(own.checks),
        "delegates": _mapped({way: _delegate(found, way, redact) for way in found.graphs if way}),
        "machines": _listed([_machine(one, redact) for one in below]),
        "path": _listed([repr(step) for one in found.machines for step in one.steps]),
        "expected": repr(OUTCOME),
        "outcomes": _listed([_data(one) for one in own.outcomes]),
        "settings": _settings(graph, redact),
        "with_checks": "checks=[check], " if own.checks else "",
        "name": f"test_thread_{name}"[:80].rstrip("_"),
    }
    # In one pass, since the recorded text may itself contain such a placeholder.
    return re.sub(r"@(\w+)@", lambda mark: parts[mark[1]], template(delegates=bool(graph.delegates)))


def _check_order(machines: Sequence[RecordedMachine], redact: Redaction) -> None:
    """Raises SetupError for machines of the same task that may run in any order, and differ: nothing tells
    which script is whose."""
    for one, other in combinations(machines, 2):
        if (one.path, redact(one.task)) != (other.path, redact(other.task)) or _acts(one) == _acts(other):
            continue
        pairs = zip(one.calls, other.calls, strict=True)
        if next(a[0] == b[0] for a, b in pairs if a != b):
            raise SetupError(
                f"One reply started the delegate {one.path[-1]!r} more than once with the same task, and its "
                "machines did different things; a test cannot tell which is which."
            )


def _acts(machine: RecordedMachine) -> Any:
    """What a machine takes from its record, without ids."""
    replies = []
    for one in machine.replies:
        calls = [] if isinstance(one, str) else [(call["name"], call["args"]) for call in one.tool_calls]
        replies.append((one if isinstance(one, str) else one.content, calls))
    return replies, machine.results, machine.checks


def _data(value: Any, *, as_tuple: bool = False) -> str:
    shown = tuple(value) if as_tuple else value
    return pprint.pformat(shown, width=_WIDTH, sort_dicts=False)


def _listed(items: list[str]) -> str:
    return "[\n" + "".join(f"    {_indented(one)},\n" for one in items) + "]" if items else "[]"


def _mapped(items: Mapping[Any, str]) -> str:
    return "{\n" + "".join(f"    {name!r}: {one},\n" for name, one in items.items()) + "}" if items else "{}"


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _tools(graph: RecordedGraph) -> str:
    return _mapped({name: _tool(tool) for name, tool in graph.tools.items()})


def _results(machine: RecordedMachine, redact: Redaction) -> str:
    results = [(one.tool, dict(one.args), one.ok, one.content) for one in machine.results]
    return _listed([_data(redact(one), as_tuple=True) for one in results])


def _settings(graph: RecordedGraph, redact: Redaction) -> str:
    return "".join(f"{_setting(key, value, redact)}, " for key, value in graph.settings.items())


def _delegate(found: Recording, way: tuple[str, ...], redact: Redaction) -> str:
    graph, above = found.graphs[way], found.graphs[way[:-1]]
    fields = {
        "parallel": repr(above.delegates[way[-1]]),
        "checked": repr(any(one.checks for one in found.machines if one.path == way)),
        "tools": _tools(graph),
        "settings": f"dict({_settings(graph, redact).removesuffix(', ')})",
    }
    return _indented(_mapped({name: _indented(text) for name, text in fields.items()}))


def _machine(found: RecordedMachine, redact: Redaction) -> str:
    fields = {
        "path": repr(found.path),
        "task": repr(redact(found.task)),
        "script": _listed([_reply(one, redact) for one in found.replies]),
        "results": _results(found, redact),
        "checks": repr(found.checks),
    }
    return _mapped({name: _indented(text) for name, text in fields.items()})


def _move(move: Move, redact: Redaction) -> str:
    value = redact(move.value)
    if move.path:
        return f"answer_below({move.path!r}, {move.call_id!r}, {_data(value)})"
    match move.kind:
        case "answer":
            return f"Answer({_data(value)})"
        case "go_on":
            return "go_on()" if value is None else f"go_on({value})"
        case "stop":
            return "stop()"
    several = isinstance(move.value, list) and len(move.value) > 0 and isinstance(move.value[0], str)
    if isinstance(value, str):
        return repr(value)
    return f"[HumanMessage(one) for one in {_data(value)}]" if several else f"[HumanMessage({_data(value)})]"


def _reply(found: AIMessage | str, redact: Redaction) -> str:
    if isinstance(found, str):
        return f"ContextOverflowError({found!r})" if found == TOO_LONG else f"RuntimeError({redact(found)!r})"
    if marks(found).get("call_refused"):
        return "RuntimeError('tool_use_failed: the provider refused the call')"
    metadata = found.response_metadata
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    usage: Any = found.usage_metadata or False
    if (
        not isinstance(found.content, str)
        or found.invalid_tool_calls
        or found.additional_kwargs.get("refusal")
    ):
        return _message(found, redact)
    parts = [repr(redact(found.content))] if found.content else []
    for call in found.tool_calls:
        args, call_id = redact(call["args"]), call["id"]
        plain = all(_is_keyword_argument(name) for name in args)
        arguments = [f"{name}={value!r}" for name, value in args.items()] if plain else [f"args={args!r}"]
        parts.append(f"call({', '.join([repr(call['name']), f'id={call_id!r}', *arguments])})")
    if reason:
        parts.append(f"finish_reason={reason!r}")
    short = usage and set(usage) <= {"input_tokens", "output_tokens", "total_tokens"}
    short = short and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    told_usage = (usage["input_tokens"], usage["output_tokens"]) if short else usage
    return f"reply({', '.join([*parts, f'usage={told_usage!r}'])})"


def _is_keyword_argument(name: str) -> bool:
    """Whether an argument of a tool can be one of `call`, too."""
    return name.isidentifier() and not iskeyword(name) and name not in ("id", "raw", "args")


def _message(found: AIMessage, redact: Redaction) -> str:
    extra = {name: one for name, one in found.additional_kwargs.items() if name == "refusal"}
    metadata = {
        name: value
        for name, value in found.response_metadata.items()
        if name != KEY and isinstance(value, str | int | float | bool | None)
    }
    fields = {
        "content": redact(found.content),
        "tool_calls": redact(found.tool_calls),
        "invalid_tool_calls": redact(found.invalid_tool_calls),
        "additional_kwargs": redact(extra),
        "response_metadata": redact(metadata),
        "usage_metadata": found.usage_metadata,
    }
    arguments = (f"{name}={value!r}" for name, value in fields.items() if value or name == "content")
    return f"AIMessage({', '.join(arguments)})"


def _tool(found: RecordedTool) -> str:
    fields = None if found.fields is None else dict(found.fields)
    return repr((found.kind, fields, list(found.required)))


def _setting(name: str, value: Any, redact: Redaction) -> str:
    if name == "response_format":
        # Of the graph, not of the thread: names such as `password` are those of its fields.
        return f"{name}={_data(value)}"
    if name == "control_tools":
        return f"{name}=standard_controls(**{value!r})"
    if name != "limits":
        return f"{name}={redact(value)!r}"
    prices = value.get("prices")
    plain = {key: one for key, one in value.items() if key != "prices"}
    arguments = [f"{key}={one!r}" for key, one in plain.items()]
    arguments += [f"prices=Prices(**{prices.model_dump()!r})"] if prices else []
    return f"limits=Limits({', '.join(arguments)})"
