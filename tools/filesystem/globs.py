"""Matches paths against globs, as models write them, and against the rules of a `.gitignore`.

Both match one component at a time with `fnmatch`, whose expressions do not backtrack. A `.gitignore` turned
into one regular expression could take exponential time and block the interpreter meanwhile.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from langchain_core.tools import ToolException

from signoff.tools.filesystem.paths import quote_path

_MOST_ALTERNATIVES = 500
_MOST_BRACES = 50
_MOST_RULES = 2_000
_MOST_STEPS = 50
_SPECIAL = "*?["


def fitting(glob: str | None, folder: str = ".") -> Callable[[str], bool]:
    """Returns a test whether a path of the workspace matches `glob`.

    It matches by its name, or by its path from the workspace or from `folder`. `*` also matches "/", "**/"
    also nothing, `{a,b}` each of its parts, and brackets either one of their characters or themselves,
    because folders may be called `[id]`. Raises ToolException for too many braces.
    """
    if not glob:
        return lambda path: True
    short = re.sub(r"(?:^|(?<=/))(?:\./|/)+", "", glob)
    short += "*" if short.endswith("/") else ""
    few = short.count("{") <= _MOST_BRACES
    wanted = list(islice(_alternatives(short), _MOST_ALTERNATIVES + 1)) if few else []
    if not 0 < len(wanted) <= _MOST_ALTERNATIVES:
        raise ToolException(f"The glob {quote_path(glob)} expands to too many patterns; use fewer braces.")
    prefix = "" if folder == "." else f"{folder}/"
    tests = [re.compile(fnmatch.translate(each)).match for each in dict.fromkeys(wanted)]

    def fits(path: str) -> bool:
        names = {path, path.rsplit("/", 1)[-1], path.removeprefix(prefix)}
        return any(test(name) for name in names for test in tests)

    return fits


def _alternatives(glob: str) -> Iterator[str]:
    """Returns the globs without braces that `glob` expands to."""
    return ("".join(parts) for parts in product(*_parts(glob)))


def _parts(glob: str) -> list[list[str]]:
    """Returns the alternatives at each position."""
    found: list[list[str]] = []
    at = 0
    while at < len(glob):
        end = at + 1
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] in "/,{"):
            end = at + 3
            found.append(["**/", ""])
        elif glob[at] == "[" and (close := glob.find("]", at + 2)) > 0:
            end = close + 1
            found.append([glob[at:end], "[[]" + glob[at + 1 : end]])
        elif glob[at] == "{" and (choices := _choices(glob, at)):
            end = at + 1 + sum(len(choice) + 1 for choice in choices)
            # The braces may also be part of a name.
            each = [alternative for choice in choices for alternative in _bounded(choice)]
            found.append([*each, glob[at:end]])
        else:
            found.append([glob[at]])
        at = end
    return found


def _bounded(glob: str) -> Iterator[str]:
    return islice(_alternatives(glob), _MOST_ALTERNATIVES + 1)


def _choices(glob: str, start: int) -> list[str]:
    """Returns the parts of the braces that open at `start`; none without a closing brace or a comma."""
    depth, begun = 0, start + 1
    choices: list[str] = []
    for at in range(start, len(glob)):
        depth += {"{": 1, "}": -1}.get(glob[at], 0)
        if depth == 0:
            return [*choices, glob[begun:at]] if choices else []
        if depth == 1 and glob[at] == ",":
            choices.append(glob[begun:at])
            begun = at + 1
    return []


_Step = Callable[[str], object] | None


@dataclass(frozen=True)
class IgnoreRule:
    """One line of a `.gitignore`. steps: a test for each name on the way; None stands for `**`."""

    folder: str
    steps: tuple[_Step, ...]
    negated: bool
    folders_only: bool


def rules_of(text: str, folder: str) -> list[IgnoreRule]:
    """Returns the rules of the `.gitignore` in `folder` ("" or a path that ends with "/")."""
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [rule for line in islice(lines, _MOST_RULES) if (rule := _rule(line, folder))]


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, is_folder: bool) -> bool:
    """Whether the last rule that matches this path excludes it."""
    for rule in reversed(rules):
        if (is_folder or not rule.folders_only) and _leads(rule.steps, path[len(rule.folder) :].split("/")):
            return not rule.negated
    return False


def _rule(line: str, folder: str) -> IgnoreRule | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    negated = line.startswith("!")
    line = line[negated:]
    if not line or (line.startswith("#") and not negated):
        return None
    folders_only = line.endswith("/")
    names = line.rstrip("/").split("/")
    if len(names) == 1:
        names = ["**", *names]
    elif not names[0]:
        del names[0]
    if not any(names) or len(names) > _MOST_STEPS:
        return None
    return IgnoreRule(folder, tuple(map(_step, names)), negated, folders_only)


def _step(name: str) -> _Step:
    if name == "**":
        return None
    if not any(sign in name for sign in (*_SPECIAL, "\\")):
        return name.__eq__
    return re.compile(fnmatch.translate(_as_fnmatch(name))).match


def _as_fnmatch(name: str) -> str:
    """Translates a git pattern to `fnmatch`: `\\` escapes the next character, and `[^a]` becomes `[!a]`."""
    found, at = "", 0
    while at < len(name):
        if name[at] == "\\" and at + 1 < len(name):
            found += f"[{name[at + 1]}]" if name[at + 1] in _SPECIAL else name[at + 1]
            at += 2
        elif name.startswith("[^", at):
            found += "[!"
            at += 2
        else:
            found += name[at]
            at += 1
    return re.sub(r"\*+", "*", found)


def _leads(steps: tuple[_Step, ...], names: list[str]) -> bool:
    """Whether the names match the steps; all possible positions are followed at once."""
    here = _reached(steps, {0})
    for name in names:
        after: set[int] = set()
        for at in here:
            if at < len(steps):
                step = steps[at]
                if step is None:
                    after.add(at + 1 if at == len(steps) - 1 else at)
                    after.add(at)
                elif step(name) not in (None, False):
                    after.add(at + 1)
        if not after:
            return False
        here = _reached(steps, after)
    return len(steps) in here


def _reached(steps: tuple[_Step, ...], places: set[int]) -> set[int]:
    """Adds the positions after a `**` that matches nothing; the last step must match something."""
    found = set(places)
    for at in sorted(places):
        while at < len(steps) - 1 and steps[at] is None:
            at += 1
            found.add(at)
    return found
