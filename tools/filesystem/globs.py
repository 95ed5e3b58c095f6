"""Matches paths against globs, as models write them, and against the rules of a `.gitignore`.

Both become regular expressions, a `.gitignore` by `pathspec`, which knows git's rules. As they may come from
anywhere, their expressions have a deadline.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice

import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from signoff.tools.filesystem.paths import quote_path

_MOST_IN_A_GLOB = 1_000
_MOST_BRACES = 50
# Stand for the parts of braces; a path cannot have the first.
_OPEN, _OR, _CLOSE = "\0(", "\0|", "\0)"
_SIGNS = {_OPEN: "(?:", _OR: "|", _CLOSE: ")", "?": "."}
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_PART = re.compile(r"\0.|(?:(?<=^)|(?<=[/(|]))\*\*/|\*+|\[(?P<set>[^\]][^\]]*)\]|.", re.DOTALL)
_MOST_RULES = 2_000
_MOST_IN_A_RULE = 1_000
_RULE_SECONDS = 0.2


def fitting(glob: str | None, folder: str = ".") -> Callable[[str], bool]:
    """A test whether a path of the workspace matches `glob`.

    It matches by its name, or by its path from the workspace or from `folder`. `*` also matches "/", "**/"
    also nothing, `{a,b}` each of its parts or itself, and brackets either one of their characters or
    themselves, because folders may be called `[id]`. Raises ToolException if it is too long; the test, if it
    takes too long.
    """
    if not glob:
        return lambda path: True
    if len(glob) > _MOST_IN_A_GLOB or glob.count("{") > _MOST_BRACES:
        raise ToolException(
            f"The glob {quote_path(glob)} is longer than {_MOST_IN_A_GLOB:,} characters or has more than "
            f"{_MOST_BRACES} braces; use a shorter one."
        )
    short = re.sub(r"(?:^|(?<=/))(?:\./|/)+", "", glob)
    short += "*" if short.endswith("/") else ""
    try:
        either = regex.compile(f"{_expression(_grouped(short))}|{_expression(short)}", regex.DOTALL)
    except regex.error:
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
    """`glob` with its braces and their commas, from the inside out, as signs that no path has."""
    before = ""
    while before != glob:
        before = glob
        glob = _BRACES.sub(lambda match: f"{_OPEN}{match[1].replace(',', _OR)}{_CLOSE}", glob)
    return glob


def _expression(glob: str) -> str:
    return _PART.sub(_translated, glob)


def _translated(part: re.Match[str]) -> str:
    text = part[0]
    if text in _SIGNS:
        return _SIGNS[text]
    if text.startswith("*"):
        return "(?:.*/)?" if text.endswith("/") else ".*"
    if part["set"]:
        inner = part["set"].replace("\\", r"\\").replace("[", r"\[")
        inner = f"^{inner[1:]}" if inner.startswith("!") else inner.replace("^", r"\^")
        return f"(?:[{inner}]|{re.escape(text)})"
    return re.escape(text)


class IgnoreRules:
    """The rules of a `.gitignore`; none is left once one of them took too long."""

    def __init__(self, rules: Sequence[tuple["regex.Pattern[str]", bool]]) -> None:
        # The last one that matches decides.
        self._rules = rules[::-1]
        all_of_them = "|".join(rule.pattern for rule, _ in rules)
        self._any = regex.compile(all_of_them, regex.DOTALL) if rules else None

    def verdict(self, path: str) -> bool | None:
        """Whether a rule excludes this path, which ends in a slash for a folder; None if none matches."""
        try:
            if self._any is None or not self._any.search(path, timeout=_RULE_SECONDS):
                return None
            matching = (out for rule, out in self._rules if rule.search(path, timeout=_RULE_SECONDS))
            return next(matching, None)
        except TimeoutError:
            self._any = None
            return None


@lru_cache(256)
def rules_of(text: str) -> IgnoreRules:
    """The rules of a `.gitignore` with this text; what is not a rule is passed over, as git does."""
    rules: list[tuple[regex.Pattern[str], bool]] = []
    for line in islice(text.split("\n"), _MOST_RULES):
        if len(line) > _MOST_IN_A_RULE or not line.strip("/\r "):
            continue
        try:
            rule, excludes = GitIgnoreSpecPattern.pattern_to_regex(line)
            if rule is not None and excludes is not None:
                # Only for the entry itself: what is below an excluded folder is never asked for.
                end = "\\Z" if "ps_d" in rule else "." if rule.endswith("/") else ""
                rules.append((regex.compile(rule + end, regex.DOTALL), excludes))
        except (GitIgnorePatternError, regex.error):
            continue
    return IgnoreRules(rules)


def is_ignored(rules: Sequence[tuple[str, IgnoreRules]], path: str, *, is_folder: bool) -> bool:
    """Whether the innermost rules that match this path exclude it. rules: each with its folder, "" or a path
    that ends in a slash."""
    for folder, own in reversed(rules):
        verdict = own.verdict(path[len(folder) :] + "/" * is_folder)
        if verdict is not None:
            return verdict
    return False
