"""Matches paths against globs, as models write them, and against the rules of a `.gitignore`.

Both become regular expressions, a `.gitignore` by `pathspec`, which knows git's rules. As they may come from
anywhere, their expressions have a deadline.
"""

import re
import time
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache

import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from signoff.tools.filesystem.paths import quote_path

_MOST_IN_A_GLOB = 1_000
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
# What braces become, and folders of any depth; all else is as in `fnmatch`.
_SIGNS = {"\1": "(?:", "\2": "|", "\3": ")", "**/": "(?:.*/)?"}
_PART = re.compile(r"([\1\2\3]|(?<![^/\1\2])\*\*/)")

MOST_OF_RULES = 32_000
"""How many bytes of a `.gitignore` are read: a hostile one of these takes a second."""

_MOST_RULES = 1_000
_MOST_IN_A_RULE = 200
_RULE_SECONDS = 0.2


class Deadline:
    """A bound on the time of a walk or a search."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds left; 0 when the time is up."""
        return max(self._end - time.monotonic(), 0.0)


def fitting(glob: str | None, folder: str = ".") -> Callable[[str], bool]:
    """A test whether a path of the workspace matches `glob`.

    It matches by its name, or by its path from the workspace or from `folder`. `*` also matches "/", "**/"
    also nothing, `{a,b}` each of its parts or itself, and brackets either one of their characters or
    themselves, because folders may be called `[id]`. Raises ToolException if it is too long; the test, if it
    takes too long.
    """
    if not glob:
        return lambda path: True
    if len(glob) > _MOST_IN_A_GLOB:
        raise ToolException(f"The glob {quote_path(glob)} has over {_MOST_IN_A_GLOB:,} characters; cut it.")
    short = re.sub(r"(?:^|(?<=/))(?:\./|/)+", "", glob)
    short += "*" if short.endswith("/") else ""
    forms = {short, _grouped(short)}
    forms |= {form.replace("[", "[[]") for form in forms}
    try:
        either = regex.compile("|".join(map(_expression, forms)), regex.DOTALL)
    except (regex.error, RecursionError):
        raise ToolException(f"The glob {quote_path(glob)} is not valid; leave out its brackets.") from None
    prefix = "" if folder == "." else f"{folder}/"

    def fits(path: str) -> bool:
        names = {path, path.rsplit("/", 1)[-1], path.removeprefix(prefix)}
        try:
            return any(either.fullmatch(name, timeout=_RULE_SECONDS) for name in names)
        except TimeoutError:
            raise ToolException(f"The glob {quote_path(glob)} takes too long; use a simpler one.") from None

    return fits


def _grouped(glob: str) -> str:
    """`glob` with signs for its braces and their commas, from the inside out."""
    before = ""
    while before != glob:
        before = glob
        glob = _BRACES.sub(lambda match: "\1" + match[1].replace(",", "\2") + "\3", glob)
    return glob


def _expression(glob: str) -> str:
    """The glob as a regular expression: `translate` wraps each part in "(?s:" and ")\\Z"."""
    return "".join(_SIGNS.get(part) or translate(part)[4:-3] for part in _PART.split(glob))


class IgnoreRules:
    """The rules of a `.gitignore`, as one expression each; none is left once they took too long.

    is_partial: whether some, or all by now, are not applied.
    """

    def __init__(self, rules: Sequence[str], *, is_partial: bool) -> None:
        self.is_partial = is_partial
        # The last one that matches decides, so it comes first.
        self._rules = regex.compile("|".join(reversed(rules)), regex.DOTALL) if rules else None

    def verdict(self, path: str) -> bool | None:
        """Whether a rule excludes this path, which ends in a slash for a folder; None if none matches."""
        try:
            match = self._rules and self._rules.match(path, timeout=_RULE_SECONDS)
        except TimeoutError:
            self._rules = match = None
            self.is_partial = True
        return None if match is None else match.groupdict().get("kept") is None


Rules = tuple[tuple[str, IgnoreRules], ...]
"""The rules of several folders, each with its folder, "" or a path that ends in a slash."""


@lru_cache(256)
def rules_of(data: bytes) -> IgnoreRules:
    """The rules of a `.gitignore` with this content, within bounds; what is not a rule is passed over, as git
    does."""
    rules: list[str] = []
    lines = data.decode("utf-8-sig", "surrogateescape").split("\n")
    # The last line may be cut.
    lines = lines[:-1] if len(data) > MOST_OF_RULES else lines
    written = [line for line in lines if not line.startswith("#") and line.strip("/\r ")]
    used = [line for line in written[:_MOST_RULES] if len(line) <= _MOST_IN_A_RULE]
    for line in used:
        try:
            rule, excludes = GitIgnoreSpecPattern.pattern_to_regex(line)
            if rule is not None and excludes is not None:
                # Only for the entry itself: what is below an excluded folder is never asked for.
                end = "\\Z" if "ps_d" in rule else "." if rule.endswith("/") else ""
                start = "" if rule.startswith("^") else ".*"
                kept = "" if excludes else "(?P<kept>)"
                regex.compile(rule)
                rules.append(f"{start}{rule}{end}{kept}")
        except (GitIgnorePatternError, regex.error):
            continue
    return IgnoreRules(rules, is_partial=len(data) > MOST_OF_RULES or used != written)


def is_ignored(rules: Rules, path: str, deadline: Deadline, *, is_folder: bool) -> bool:
    """Whether the innermost rules that match this path exclude it; false when the time is up."""
    name = path + "/" * is_folder
    verdicts = (each.verdict(name[len(folder) :]) for folder, each in reversed(rules) if deadline.left)
    return next((verdict for verdict in verdicts if verdict is not None), False)
