"""Formats tool calls and their results as lines, in short or in full."""

import json
import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from signoff.events import CallFinished
from signoff.front.text import cut, one_line, plain
from signoff.graph.texts import FINISH_NAME

_RESULT_LINES = 2
_SHELL_LINES = 6
_REFUSAL_LINES = 10
_CHANGE_LINES = 4
_PIECE = 60
_LINE = 160
_CAUSE = 2_000
SHELL_END = re.compile(r"\n?\[exit code (\w+); ([^\n]*)\]\Z")


def in_short(call: CallFinished) -> list[Text]:
    """Returns a finished call: one line that names it, and the most important lines of its result."""
    command = call.args.get("command")
    if call.name == "run_shell" and isinstance(command, str) and (ended := SHELL_END.search(call.result)):
        return _shell(command, call.result, ended, call.person == "edited")
    head = Text.assemble(_mark(call.ok), (one_line(call.name), "bold"), "  ")
    # A person may have answered instead: then nothing was changed.
    if call.name == "edit_file" and call.ok and not call.person and (change := _change(call.args)):
        head.append(cut(one_line(str(call.args.get("path", ""))), _PIECE))
        return [head, *_few(change, _CHANGE_LINES)]
    if call.name == FINISH_NAME and not call.ok:
        claim = _each("", str(call.args.get("summary") or ""), "dim")
        return [head, *_few(claim, _CHANGE_LINES), *_few(_each("", call.result, "red"), _REFUSAL_LINES)]
    code = call.args.get("code")
    if call.name == "run_python" and isinstance(code, str):
        return [head, *_few(_each("> ", code, "cyan"), _CHANGE_LINES), *_result(call)]
    return [Text.assemble(head, arguments(call.args)), *_result(call)]


def in_full(name: str, args: Mapping[str, Any]) -> Text:
    """Returns a call with everything that it would do: nobody should approve what is not shown."""
    command, code, content = args.get("command"), args.get("code"), args.get("content")
    rest = dict(args)
    body: list[Text] = []
    if name == "run_shell" and isinstance(command, str):
        del rest["command"]
        body = _each("$ ", command, "bold")
    elif name == "edit_file" and (body := _change(args)):
        rest = {key: value for key, value in args.items() if key not in ("old", "new")}
    elif name == "run_python" and isinstance(code, str):
        del rest["code"]
        body = _each("> ", code, "cyan")
    elif name == "write_file" and isinstance(content, str):
        del rest["content"]
        body = _each("+ ", content, "green")
    path = rest.pop("path", None)
    head = Text.assemble((one_line(name), "bold"), f"  {one_line(str(path))}" if path is not None else "")
    others = [line for key, value in rest.items() for line in _argument_lines(key, value)]
    return Text("\n").join([head, *others, *body])


def arguments(args: Mapping[str, Any]) -> str:
    """Returns the arguments of a call in short: the path alone, the others as name=value."""
    parts: list[str] = []
    for name, value in args.items():
        shown = cut(one_line(value if isinstance(value, str) else json.dumps(value, default=str)), _PIECE)
        if name == "path":
            parts.insert(0, shown)
        else:
            parts.append(
                f'{one_line(name)}="{shown}"' if isinstance(value, str) else f"{one_line(name)}={shown}"
            )
    return "  ".join(parts)


def shortened(result: str, most: int = _LINE) -> list[str]:
    """Returns the first lines of a result, at most `most` characters of each, and how many more there are."""
    lines = _lines(result)
    shown = [cut(line, most) for line in lines[:_RESULT_LINES]]
    if len(lines) > _RESULT_LINES:
        shown.append(f"… {len(lines) - _RESULT_LINES} more lines")
    return shown


def _mark(ok: bool) -> tuple[str, str]:
    return ("✓ ", "green") if ok else ("✗ ", "red")


def _result(call: CallFinished) -> list[Text]:
    """Returns the lines of a result; those of a failure with the whole cause."""
    lines = shortened(call.result, _LINE if call.ok else _CAUSE)
    return [Text(f"  {line}", style="dim") for line in lines]


def _shell(command: str, result: str, ended: re.Match[str], edited: bool) -> list[Text]:
    """Returns the command, the last lines of its output, which show the outcome, and its exit code.

    edited: a person changed the command. That must not get lost among the lines before.
    """
    lines = [line.rstrip() for line in plain(result[: ended.start()]).split("\n") if line.strip()]
    kept = 1 if edited else 0
    before = len(lines) - _SHELL_LINES - kept
    if before > 1:
        lines[kept:-_SHELL_LINES] = [f"… {before} lines before"]
    shown = [f"  {cut(line, _LINE)}" for line in lines]
    first, *more = [line for line in plain(command).split("\n") if line.strip()] or [""]
    ok = ended[1] == "0"
    head = Text.assemble(_mark(ok), ("$ ", "dim"), (first, "bold"))
    head.append(f" … {len(more)} more lines" if more else "", style="dim")
    end = Text(f"  exit code {ended[1]} · {one_line(ended[2])}", style="dim" if ok else "red")
    return [head, *(Text(line, style="dim") for line in shown), end]


def _change(args: Mapping[str, Any]) -> list[Text]:
    old, new = args.get("old"), args.get("new")
    if not (isinstance(old, str) and isinstance(new, str)):
        return []
    return [*_each("- ", old, "red"), *_each("+ ", new, "green")]


def _each(mark: str, text: str, style: str) -> list[Text]:
    lines = plain(text).removesuffix("\n").split("\n") if text else []
    return [Text(f"  {mark}{line}", style=style) for line in lines]


def _few(lines: list[Text], most: int) -> list[Text]:
    more = len(lines) - most
    return lines if more <= 1 else [*lines[:most], Text(f"  … {more} more lines", style="dim")]


def _argument_lines(key: str, value: Any) -> list[Text]:
    shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    first, *more = plain(shown).split("\n")
    return [Text(f"  {one_line(key)}: {first}"), *(Text(f"    {line}") for line in more)]


def _lines(text: str) -> list[str]:
    return [line for line in (one_line(line) for line in text.splitlines()) if line]
