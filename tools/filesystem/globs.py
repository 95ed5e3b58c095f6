"""Which paths a glob means, as models write them, and which ones a `.gitignore` leaves out.

Both match by `fnmatch` one piece at a time: its expressions never go back over what they have matched, where
a `.gitignore` read as one regular expression can take time without end, and hold the interpreter meanwhile.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from langchain_core.tools import ToolException

from signoff.tools.filesystem.paths import shown

_MOST_ALTERNATIVES = 500
_MOST_BRACES = 50
_MOST_RULES = 2_000
_MOST_STEPS = 50
_SPECIAL = "*?["


def fitting(glob: str | None, folder: str = ".") -> Callable[[str], bool]:
    """Whether a path of the workspace fits `glob`: by its name, or by its path from there or from `folder`.

    `*` also fits "/", "**/" also nothing, `{a,b}` each of its parts, and what stands in brackets either one
    of these characters or itself, since folders are called `[id]` too. Raises ToolException for too many
    braces.
    """
    if not glob:
        return lambda path: True
    short = re.sub(r"(?:^|(?<=/))(?:\./|/)+", "", glob)
    short += "*" if short.endswith("/") else ""
    few = short.count("{") <= _MOST_BRACES
    wanted = list(islice(_alternatives(short), _MOST_ALTERNATIVES + 1)) if few else []
    if not 0 < len(wanted) <= _MOST_ALTERNATIVES:
        raise ToolException(f"The glob {shown(glob)} stands for too many others; use fewer braces.")
    prefix = "" if folder == "." else f"{folder}/"
    tests = [re.compile(fnmatch.translate(each)).match for each in dict.fromkeys(wanted)]

    def fits(path: str) -> bool:
        names = {path, path.rsplit("/", 1)[-1], path.removeprefix(prefix)}
        return any(test(name) for name in names for test in tests)

    return fits


def _alternatives(glob: str) -> Iterator[str]:
    """The globs without braces that `glob` stands for."""
    return ("".join(parts) for parts in product(*_parts(glob)))


def _parts(glob: str) -> list[list[str]]:
    """What may stand at each place."""
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
            # The braces may be part of a name as well.
            each = [alternative for choice in choices for alternative in _bounded(choice)]
            found.append([*each, glob[at:end]])
        else:
            found.append([glob[at]])
        at = end
    return found


def _bounded(glob: str) -> Iterator[str]:
    return islice(_alternatives(glob), _MOST_ALTERNATIVES + 1)


def _choices(glob: str, start: int) -> list[str]:
    """The parts of the braces that open at `start`; none when they do not close or hold no comma."""
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
    """The rules of the `.gitignore` in `folder` ("" or a path that ends with "/")."""
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [rule for line in islice(lines, _MOST_RULES) if (rule := _rule(line, folder))]


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, is_folder: bool) -> bool:
    """Whether the last of the rules that fits leaves this path out."""
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
    """A name as git writes it: `\\` takes the meaning of the next sign, and `[^a]` is `[!a]`."""
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
    """Whether the names fit the steps, all ways tried at once."""
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
    """The places, and those behind a `**` that stands for nothing; the last one stands for something."""
    found = set(places)
    for at in sorted(places):
        while at < len(steps) - 1 and steps[at] is None:
            at += 1
            found.add(at)
    return found
