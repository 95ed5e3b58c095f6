"""Calls of tools: one line that says what came of each, and behind it the arguments and the result."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from signoff.front.calls import SHELL_END, arguments
from signoff.nodes.results import as_json
from signoff.page.html import Child, Html, hidden, line, tag
from signoff.page.words import block, boxed, folded, pre, took
from signoff.session.events import CallFinished

_MOST_ARGUMENTS = 24
_SHORT = 160
_SAID_PATH = 50
_DIFF_LINES = 400
_CONTEXT = 2
_OPEN_LINES = 16
_HUNK = re.compile(r"^@@ .*@@", re.MULTILINE)
_LOOKS = {"+": "add", "-": "del", "@": "hunk"}
_DECIDED = {
    "approve": "A person approved this call",
    "edit": "A person changed this call",
    "reject": "A person rejected this call",
    "respond": "A person answered in its place",
}
Change = Sequence[tuple[str, str]]


def call(found: CallFinished, notes: Mapping[str, Any], decision: Mapping[str, Any], most: int) -> Html:
    """A call that has ended.

    notes: what is noted on its result. decision: what a person decided on it; empty for none. most:
    characters of one text.
    """
    mark, verdict, look = _verdict(found, notes)
    changed = _changed(found)
    # What the line above it says in full already is not said again.
    path = found.args.get("path")
    said = ("path",) if isinstance(path, str) and len(path) < _SAID_PATH else ()
    shown = {name: value for name, value in found.args.items() if name not in said}
    summary = tag(
        "summary",
        tag("span", mark, class_="mark", aria_hidden="true"),
        hidden(f"{verdict}: "),
        tag("code", line(found.name, 80) or "(no name)", class_="tool"),
        tag("span", line(_in_short(found.name, found.args), _SHORT), class_="short"),
        tag("span", took(found.seconds), class_="meta") if found.seconds >= 0.05 else None,
        _glance(found, look, changed),
        person(notes, decision),
    )
    opened = look != "ok" or 0 < len(changed) <= _OPEN_LINES
    return tag(
        "details",
        summary,
        tag(
            "div",
            in_full(found.name, shown, most, changed),
            _result(found, most),
            class_="inside",
        ),
        class_=f"call {look}",
        open=opened,
    )


def person(notes: Mapping[str, Any], decision: Mapping[str, Any]) -> Html | None:
    """What a person decided on a call, and their words."""
    kind = decision.get("type", "")
    if notes.get("not_run") == "rejected":
        kind = "reject"
    elif notes.get("responded"):
        kind = "respond"
    elif notes.get("edited"):
        kind = "edit"
    if kind not in _DECIDED:
        return None
    words = line(str(decision.get("message") or ""), 400)
    sign = "✗ " if kind == "reject" else "✓ "
    told = tag("span", sign, class_="mark", aria_hidden="true")
    return tag("span", told, _DECIDED[kind], f": {words}" if words else "", class_="person")


def in_full(name: str, args: Mapping[str, Any], most: int, changed: Change | None = None) -> Html:
    """All arguments of a call: commands and code as such, a change of a text as a difference."""
    rest, special = dict(args), list[Child]()
    diff = change(args) if changed is None else changed
    if diff:
        rest = {key: value for key, value in rest.items() if key not in ("old", "new")}
        special.append(_difference(diff, most))
    elif name == "write_file" and isinstance(content := rest.get("content"), str):
        del rest["content"]
        special.append(_difference([("+", row) for row in content[:most].split("\n")], most))
        if len(content) > most:
            special.append(_left(f"{len(content) - most:,} more characters"))
    elif isinstance(command := rest.get("command"), str):
        del rest["command"]
        special.append(pre(f"$ {command}", most, "command"))
    elif isinstance(code := rest.get("code"), str):
        del rest["code"]
        special.append(pre(code, most, "code"))
    head, left, tail = folded(list(rest.items()), _MOST_ARGUMENTS)
    rows = [[_named(key, value, most) for key, value in part] for part in (head, tail)]
    note = tag("div", _left(f"{left:,} more arguments"), class_="row") if left else None
    return tag("div", tag("dl", rows[0], note, rows[1]) if rest else None, special, class_="args")


def change(args: Mapping[str, Any]) -> Change:
    """The lines of an edit, each with its sign; empty when the arguments are no edit."""
    old, new = args.get("old"), args.get("new")
    if not (isinstance(old, str) and isinstance(new, str)):
        return ()
    return list(_compared(*(text.removesuffix("\n").split("\n") if text else [] for text in (old, new))))


def _changed(found: CallFinished) -> Change:
    return change(found.args) if found.name == "edit_file" else ()


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    if max(len(old), len(new)) > _DIFF_LINES:
        yield from (("-", row) for row in old)
        yield from (("+", row) for row in new)
        return
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from ((" ", row) for row in old[a:b])
                continue
            yield from (("-", row) for row in old[a:b])
            yield from (("+", row) for row in new[c:d])


def _difference(rows: Change, most: int) -> Html:
    head, left, tail = folded(rows, _DIFF_LINES)
    each = max(200, most // max(1, len(head) + len(tail)))
    parts = [[_diff_line(sign, row, each) for sign, row in part] for part in (head, tail)]
    note = _left(f"{left:,} more lines") if left else None
    return boxed([parts[0], note, parts[1]], "diff", long=len(rows) > _OPEN_LINES)


def _diff_line(sign: str, row: str, most: int) -> Html:
    return tag("span", f"{sign} " if sign in "+- " else "", block(row, most), "\n", class_=_LOOKS.get(sign))


def _named(key: str, value: Any, most: int) -> Html:
    told = value if isinstance(value, str) else as_json(value)
    return tag("div", tag("dt", line(key, 80)), tag("dd", block(told, most), dir="auto"), class_="row")


def _in_short(name: str, args: Mapping[str, Any]) -> str:
    command = args.get("command")
    if isinstance(command, str):
        return f"$ {command.strip()}"
    short = {key: value[:_SHORT] if isinstance(value, str) else value for key, value in args.items()}
    if name == "edit_file":
        short = {key: value for key, value in short.items() if key == "path"}
    return arguments(dict(list(short.items())[:_MOST_ARGUMENTS]))


def _verdict(found: CallFinished, notes: Mapping[str, Any]) -> tuple[str, str, str]:
    """The sign of a call, what it says, and how it looks."""
    if not found.ok and "not_run" in notes:
        return "⊘", "Not run", "not-run"
    if not found.ok:
        return "✗", "Failed", "bad"
    ended = SHELL_END.search(found.result[-400:])
    if ended and ended[1] != "0":
        return "✗", f"Exit code {line(ended[1], 20)}", "bad"
    return "✓", "Done", "ok"


def _glance(found: CallFinished, look: str, changed: Change) -> Html | None:
    """One line of the result, under the call: what it gave, or how its command ended."""
    if changed:
        signs = [sign for sign, _ in changed]
        told = f"+{signs.count('+')} -{signs.count('-')} lines"
    elif ended := SHELL_END.search(found.result[-400:]):
        output = found.result[:4_000].strip().partition("\n")[0]
        told = f"exit code {ended[1]}" + ("" if output.startswith("[exit code") else f" · {output}")
    else:
        told = found.result[:4_000].strip().partition("\n")[0]
    return tag("span", line(told, _SHORT), class_="glance") if told and look == "ok" else None


def _result(found: CallFinished, most: int) -> Child:
    if not found.result.strip():
        return tag("p", "It gave nothing back.", class_="quiet")
    if _HUNK.search(found.result[:most]):
        rows = found.result[:most].split("\n")
        coloured = [tag("span", row, "\n", class_=_look(row)) for row in rows[:_DIFF_LINES]]
        left = len(found.result) - sum(len(row) + 1 for row in rows[:_DIFF_LINES])
        note = _left(f"{left:,} more characters") if left > 0 else None
        return boxed([coloured, note], "diff result", long=len(rows) > _OPEN_LINES)
    return pre(found.result, most, "result")


def _look(row: str) -> str | None:
    """How a line of a difference looks that some program printed."""
    return "file" if row.startswith(("--- ", "+++ ", "diff ")) else _LOOKS.get(row[:1])


def _left(what: str) -> Html:
    return tag("span", f"… {what} left out of this page", class_="left-out")
