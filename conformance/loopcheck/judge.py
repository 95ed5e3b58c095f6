"""The judgement: checks of a record. A case lists checks that must hold and checks that must not.

A check never looks at a framework's own words for what happened, only at what the model was shown, which
tools ran, and how the steps ended for their caller.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, get_args

from loopcheck.observed import ModelCall, Observed, Status
from loopcheck.outside import line
from loopcheck.reading import Node, Read, choice, many

STATUSES: Sequence[str] = get_args(Status)


@dataclass(frozen=True)
class Verdict:
    """ok: whether the subject passed. why: what happened."""

    ok: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Check(ABC):
    """Something that a record shows or does not show.

    why: the message for a failure; `{found}` in it stands for what the check found. after_step, before_step:
    the check considers only what happened between these steps, numbered from 1; 0 is no bound.
    """

    why: str = ""
    after_step: int = 0
    before_step: int = 0

    reads: ClassVar[Mapping[str, Read]] = {}
    """Its own fields in a file, and their readers."""
    needs: ClassVar[Sequence[str]] = ()
    """The required fields."""
    either: ClassVar[Sequence[str]] = ()
    """Fields of which one is required; a range has two."""

    def holds(self, seen: Observed) -> bool:
        return self.shows(self._window(seen))

    def wrong(self, seen: Observed) -> str:
        """Returns the message for a failure."""
        return self.why.replace("{found}", line(self.found(self._window(seen))))

    @abstractmethod
    def shows(self, seen: Observed) -> bool:
        """Returns whether this part of a record shows it."""

    @abstractmethod
    def found(self, seen: Observed) -> str:
        """Summarizes what this part of a record shows."""

    def _window(self, seen: Observed) -> Observed:
        return seen.window(self.after_step, self.before_step)


@dataclass(frozen=True, kw_only=True)
class CountCheck(Check):
    """Something that happened exactly `count` times, or `at_least` or `at_most` this often."""

    count: int | None = None
    at_least: int | None = None
    at_most: int | None = None

    numbers: ClassVar[Mapping[str, Read]] = dict.fromkeys(("count", "at_least", "at_most"), Node.number)
    either: ClassVar[Sequence[str]] = tuple(numbers)

    def shows(self, seen: Observed) -> bool:
        number = self.number(seen)
        least, most = self.at_least or 0, number if self.at_most is None else self.at_most
        return self.count in (None, number) and least <= number <= most

    def found(self, seen: Observed) -> str:
        return str(self.number(seen))

    @abstractmethod
    def number(self, seen: Observed) -> int:
        """How often it happened."""


@dataclass(frozen=True, kw_only=True)
class EndCheck(Check):
    """`ends`: how the last step ended for its caller: with one of `status`, or with none of `not`.

    which: the `last` end, or `any` of them.
    """

    status: Sequence[str]
    which: str = "last"

    reads: ClassVar[Mapping[str, Read]] = {
        "status": many(choice(STATUSES, "status")),
        "not": many(choice(STATUSES, "status")),
        "which": choice(("last", "any"), "choice"),
    }
    either: ClassVar[Sequence[str]] = ("status", "not")

    def shows(self, seen: Observed) -> bool:
        reports = seen.reports if self.which == "any" else [seen.last]
        return any(report.status in self.status for report in reports)

    def found(self, seen: Observed) -> str:
        return f"{seen.last.status} ({seen.last.words})" if seen.last.words else seen.last.status


@dataclass(frozen=True, kw_only=True)
class FinalCheck(Check):
    """`final`: the final answer of the last step: it `contains` this text, or `equals` this value."""

    contains: str | None = None
    equals: Any = None

    reads: ClassVar[Mapping[str, Read]] = {"contains": Node.words, "equals": Node.anything}
    either: ClassVar[Sequence[str]] = tuple(reads)

    def shows(self, seen: Observed) -> bool:
        if self.contains is not None:
            return self.contains in str(seen.last.final)
        return bool(seen.last.final == self.equals)

    def found(self, seen: Observed) -> str:
        return repr(seen.last.final)


@dataclass(frozen=True, kw_only=True)
class ToolCheck(CountCheck):
    """`ran`: how often `tool` really ran, by its own record.

    args: counts only runs with these arguments. other: only runs in which one of them has another value.
    """

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)

    reads: ClassVar[Mapping[str, Read]] = {
        "tool": Node.words,
        "args": Node.mapping,
        "other": Node.mapping,
        **CountCheck.numbers,
    }
    needs: ClassVar[Sequence[str]] = ("tool",)

    def number(self, seen: Observed) -> int:
        runs = [run for run in seen.runs(self.tool) if self._fits(run.args)]
        return len(runs)

    def _fits(self, args: Mapping[str, Any]) -> bool:
        same = all(args.get(name) == value for name, value in self.args.items())
        other = any(args.get(name) != value for name, value in self.other.items())
        return same and (other or not self.other)


@dataclass(frozen=True, kw_only=True)
class CallCheck(CountCheck):
    """`called`: how often the model was called, and replied.

    who: counts only calls by the sub-agent with this task, or by the top-level agent, which is "". asks_for:
    only those whose reply has a tool call with this text in its arguments.
    """

    who: str | None = None
    asks_for: str = ""

    reads: ClassVar[Mapping[str, Read]] = {"who": Node.text, "asks_for": Node.words, **CountCheck.numbers}

    def number(self, seen: Observed) -> int:
        calls = _calls_of(seen, self.who)
        return sum(not self.asks_for or _asks_for(shown, self.asks_for) for shown in calls)


@dataclass(frozen=True, kw_only=True)
class WordsCheck(Check):
    """`shown`: what the model was shown, except its own messages: these `words`, or a match of `pattern`.

    pattern: a regular expression, case-insensitive. which: in `any` model call, in `each`, or in the `last`.
    who: only in calls of the sub-agent with this task, or of the top-level agent, which is "". in_calls: the
    names and arguments of the model's own earlier tool calls count, too. after_reply: only messages after the
    model's first reply count.
    """

    words: str = ""
    pattern: str = ""
    which: str = "any"
    who: str | None = None
    in_calls: bool = False
    after_reply: bool = False

    reads: ClassVar[Mapping[str, Read]] = {
        "words": Node.words,
        "pattern": lambda node: _regular(node),
        "which": choice(("any", "each", "last"), "choice"),
        "who": Node.text,
        "in_calls": Node.flag,
        "after_reply": Node.flag,
    }
    either: ClassVar[Sequence[str]] = ("words", "pattern")

    def shows(self, seen: Observed) -> bool:
        calls = _calls_of(seen, self.who)
        match self.which:
            case "each":
                return all(map(self._says, calls))
            case "last":
                return bool(calls) and self._says(calls[-1])
        return any(map(self._says, calls))

    def found(self, seen: Observed) -> str:
        return f"{len(_calls_of(seen, self.who))} calls of the model"

    def _says(self, shown: ModelCall) -> bool:
        others = [message.text for message in shown.messages if message.role != "assistant"]
        texts = [shown.told_since] if self.after_reply else others
        if self.in_calls:
            made = [call for message in shown.messages for call in message.calls]
            texts += [text for _, name, arguments in made for text in (name, arguments)]
        if self.pattern:
            return any(re.search(self.pattern, text, re.IGNORECASE) for text in texts)
        return any(self.words in text for text in texts)


@dataclass(frozen=True, kw_only=True)
class UnansweredCheck(Check):
    """`unanswered`: the model was shown one of its own calls without a result."""

    def shows(self, seen: Observed) -> bool:
        return any(shown.dangling for shown in seen.calls)

    def found(self, seen: Observed) -> str:
        return next((", ".join(shown.dangling) for shown in seen.calls if shown.dangling), "none")


@dataclass(frozen=True, kw_only=True)
class PrefixCheck(Check):
    """`prefix`: each request of the top-level agent begins with the whole previous request: the same tools,
    and the same messages in the same order."""

    def shows(self, seen: Observed) -> bool:
        return not self._breaks(seen)

    def found(self, seen: Observed) -> str:
        breaks = self._breaks(seen)
        return f"request {breaks[0]}" if breaks else "no request"

    def _breaks(self, seen: Observed) -> list[int]:
        """Returns the numbers of the requests that begin differently, counted from 1."""
        calls = _calls_of(seen, "")
        pairs = enumerate(pairwise(calls), 2)
        return [number for number, (before, after) in pairs if not _begins(after, before)]


@dataclass(frozen=True, kw_only=True)
class AnyCheck(Check):
    """`any`: at least one of the checks in `of` holds."""

    of: Sequence[Check]

    needs: ClassVar[Sequence[str]] = ("of",)

    def shows(self, seen: Observed) -> bool:
        return any(check.holds(seen) for check in self.of)

    def found(self, seen: Observed) -> str:
        return next((check.found(seen) for check in self.of), "")


CHECKS: Mapping[str, type[Check]] = {
    "ends": EndCheck,
    "final": FinalCheck,
    "ran": ToolCheck,
    "called": CallCheck,
    "shown": WordsCheck,
    "unanswered": UnansweredCheck,
    "prefix": PrefixCheck,
    "any": AnyCheck,
}
WINDOW: Mapping[str, Read] = {"after_step": Node.positive, "before_step": Node.positive}


def judge(must: Sequence[Check], must_not: Sequence[Check], seen: Observed) -> Verdict:
    """Passes if all checks in `must` hold and none in `must_not` does. A run that never ends by itself fails
    every case."""
    found = [_endless(seen)] if _endless(seen) else []
    found += [check.wrong(seen) for check in must if not check.holds(seen)]
    found += [check.wrong(seen) for check in must_not if check.holds(seen)]
    told = seen.told()
    return Verdict(not found, f"{'; '.join(found)} ({told})" if found else told)


def read_check(node: Node) -> Check:
    """Reads a check in `must` or `must_not`, with its `why`."""
    return _read(node, {"why": Node.words, **WINDOW}, ("why",))


def _read(node: Node, more: Mapping[str, Read], required: Sequence[str]) -> Check:
    named = node.fields().get("check")
    if named is None:
        raise node.bad("the field 'check' is missing")
    kind = CHECKS[named.one_of(tuple(CHECKS), "check")]
    # The alternatives of `any` are checks without `why` and window: `any` has those for all of them.
    own = {"of": many(lambda one: _read(one, {}, ()))} if kind is AnyCheck else kind.reads
    known = {"check": Node.words, **own, **more}
    given = node.object(known, ("check", *kind.needs, *required))
    chosen = [name for name in kind.either if name in given]
    if kind.either and not chosen:
        raise node.bad(f"one of these fields is missing: {', '.join(kind.either)}")
    if len(chosen) > 1 and chosen != ["at_least", "at_most"]:
        raise node.bad(f"these fields exclude each other: {', '.join(chosen)}")
    if "not" in given:
        unwanted = given.pop("not")
        given["status"] = tuple(status for status in STATUSES if status not in unwanted)
    return kind(**{name: value for name, value in given.items() if name != "check"})


def walk(check: Check) -> list[Check]:
    """Yields the check and those inside it."""
    below = check.of if isinstance(check, AnyCheck) else ()
    return [check, *(found for one in below for found in walk(one))]


def _endless(seen: Observed) -> str:
    if seen.last.status == "hung":
        return line(seen.last.words) or "it hung"
    return "it did not end by itself" if seen.capped else ""


def _calls_of(seen: Observed, who: str | None) -> list[ModelCall]:
    return seen.calls if who is None else seen.calls_of(who)


def _asks_for(shown: ModelCall, words: str) -> bool:
    return any(words in arguments for _, _, arguments in shown.calls)


def _begins(after: ModelCall, before: ModelCall) -> bool:
    same_tools = after.tools == before.tools or not (after.tools and before.tools)
    return same_tools and after.messages[: len(before.messages)] == before.messages


def _regular(node: Node) -> str:
    try:
        re.compile(node.words())
    except re.error as error:
        raise node.bad(f"it is not a valid regular expression: {error}") from error
    return node.words()
