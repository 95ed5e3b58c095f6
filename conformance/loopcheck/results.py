"""The results, gathered from the files of the parts: shares with confidence intervals, and JSON."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from loopcheck import VERSION
from loopcheck.conduct import CASES, Part, read_lines
from loopcheck.faults import FAULTS
from loopcheck.outside import line, load
from loopcheck.play import TaskRun
from loopcheck.sources.registry import SOURCES

Z = 1.959964
"""The quantile of the normal distribution for 95 %."""


@dataclass(frozen=True)
class Share:
    """Right results out of those that count. left_out: runs that the subject does not claim."""

    right: int
    of: int
    left_out: int = 0

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % Wilson confidence interval, which is valid for small numbers and for shares near 1."""
        if not self.of:
            return 0.0, 1.0
        share, square = self.right / self.of, Z * Z
        middle = share + square / (2 * self.of)
        reach = Z * math.sqrt(share * (1 - share) / self.of + square / (4 * self.of**2))
        whole = 1 + square / self.of
        return max(0.0, (middle - reach) / whole), min(1.0, (middle + reach) / whole)

    @property
    def text(self) -> str:
        if not self.of:
            return "n/a"
        low, high = map(_percent, self.bounds)
        return f"{self.right}/{self.of} ({low} to {high} %)"


def _percent(share: float) -> str:
    """Returns a whole percentage, unless that would round to 0 or 100 wrongly."""
    percent = round(share * 100, 6)  # 4 of 4 reach 1 except for the last bit
    whole = f"{percent:.0f}"
    return (
        f"{min(max(percent, 0.1), 99.9):.1f}" if whole in ("0", "100") and percent not in (0, 100) else whole
    )


@dataclass
class Column:
    """The results of one subject. cases: (mark, why, version of the case) by name. runs: of tasks. absent:
    why it did not run."""

    name: str
    title: str
    versions: Mapping[str, str] = field(default_factory=dict)
    cases: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    runs: list[TaskRun] = field(default_factory=list)
    absent: str = ""

    @property
    def version(self) -> str:
        return next(iter(self.versions.values()), "")

    @property
    def fails(self) -> bool:
        """Whether a claim failed or something did not run."""
        marks = [mark for mark, _, _ in self.cases.values()]
        return bool(self.absent) or "fail" in marks or any(run.claimed and not run.right for run in self.runs)

    def share_of_cases(self, names: Iterable[str]) -> Share:
        marks = [self.cases[name][0] for name in names if name in self.cases]
        return Share(marks.count("ok"), marks.count("ok") + marks.count("fail"), marks.count("n/a"))

    def share_of_runs(self, *, source: str = "", fault: str = "") -> Share:
        asked = [one for one in self.runs if source in ("", one.source) and fault in ("", one.fault)]
        claimed = [one for one in asked if one.claimed]
        return Share(sum(one.right for one in claimed), len(claimed), len(asked) - len(claimed))


class Apart(ValueError):
    """These results cannot be combined in one table: why."""


@dataclass
class Results:
    """day: ISO 8601. full: all tasks ran, not only a sample."""

    day: str
    seeds: Sequence[int]
    full: bool
    columns: Sequence[Column]
    suite: str = VERSION

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(run.source for column in self.columns for run in column.runs))

    def document(self) -> dict[str, Any]:
        """Returns the results as JSON: of a right run only its name, of the others everything."""
        return {
            "suite": self.suite,
            "day": self.day,
            "seeds": list(self.seeds),
            "full": self.full,
            "subjects": [
                {
                    "name": one.name,
                    "title": one.title,
                    "versions": dict(one.versions),
                    "absent": one.absent,
                    "cases": {
                        name: {"mark": mark, "version": version, "why": why}
                        for name, (mark, why, version) in one.cases.items()
                    },
                    "runs": [_short(run) for run in one.runs],
                }
                for one in self.columns
            ],
        }

    def save(self, file: Path) -> None:
        """Writes a line for each case and each run, so that two results can be compared line by line."""
        head = {name: value for name, value in self.document().items() if name != "subjects"}
        subjects = ",\n".join(map(_lines, self.document()["subjects"]))
        text = f'{json.dumps(head)[:-1]}, "subjects": [\n{subjects}\n]}}\n'
        # Anything that a subject says can be written.
        file.write_text(text, encoding="utf-8", errors="backslashreplace")

    @classmethod
    def read(cls, file: Path) -> "Results":
        """Raises OSError, ValueError, LookupError, TypeError or AttributeError for a file of another form."""
        found = load(file.read_bytes())
        seeds = [_of(int, seed) for seed in found["seeds"]]
        columns = [_column(one, seeds) for one in found["subjects"]]
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("a subject is in it twice")
        return cls(line(found["day"]), seeds, _of(bool, found["full"]), columns, line(found["suite"]))

    def list_gaps(self, cases: Mapping[str, int]) -> Mapping[str, str]:
        """What subjects leave out that is in the table, by title: shares of less than what others played are
        no shares of the same. cases: the versions of the unit cases, by name."""
        asked = {run.key for column in self.columns for run in column.runs}
        return {
            column.title: ", ".join(gaps)
            for column in self.columns
            if not column.absent and (gaps := [*_missing_cases(column, cases), *_missing_runs(column, asked)])
        }

    def beside(self, other: "Results") -> "Results":
        """Combines both in one table. Raises Apart for results that cannot be compared."""
        if self.suite != other.suite:
            raise Apart(f"they come from versions {self.suite} and {other.suite}")
        if self.sources and other.sources and (self.seeds, self.full) != (other.seeds, other.full):
            raise Apart("they have different seeds, or one has every task and the other a sample")
        every = [*self.columns, *other.columns]
        names = [column.name for column in every]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise Apart(f"both contain a subject {twice!r}")
        versions: dict[str, int] = {}
        for column in every:
            for name, (_, _, version) in column.cases.items():
                if versions.setdefault(name, version) != version:
                    raise Apart(f"they have different versions of the case {name!r}")
        of = self if self.sources else other
        return Results(max(self.day, other.day), of.seeds, of.full, every, self.suite)


_NAMED = 5
"""How many of the missing unit cases are listed by name."""


def _missing_cases(column: Column, cases: Mapping[str, int]) -> list[str]:
    there = {name for name, (_, _, version) in column.cases.items() if cases.get(name) == version}
    missing = sorted(cases.keys() - there) if column.cases else []
    named = ", ".join([*missing[:_NAMED], *(["…"] if missing[_NAMED:] else [])])
    return [f"{len(missing)} of the unit cases ({named})"] if missing else []


def _missing_runs(column: Column, asked: Set[tuple[str, int, str, str]]) -> list[str]:
    own = {run.key for run in column.runs}
    sources = {source for source, *_ in own}
    missing = Counter(source for source, *_ in asked - own if source in sources)
    return [f"{count} run{'s' * (count > 1)} of {source}" for source, count in sorted(missing.items())]


def _column(said: Mapping[str, Any], seeds: Sequence[int]) -> Column:
    """Parses a file from elsewhere: no value in it is assumed to have the right type."""
    cases = {
        line(name): (_mark(cell["mark"]), str(cell["why"]), int(cell["version"]))
        for name, cell in said["cases"].items()
    }
    versions = {line(name): line(text) for name, text in said["versions"].items()}
    name = line(said["name"])
    runs = [_long(name, run, seeds) for run in said["runs"]]
    # A seed plays each task once, under one fault.
    if len({(run.source, run.seed, run.task) for run in runs}) < len(runs):
        raise ValueError("a run is in it twice")
    return Column(name, line(said["title"]), versions, cases, runs, str(said["absent"]))


def _mark(said: Any) -> str:
    if said not in ("ok", "fail", "n/a"):
        raise ValueError(f"there is no mark {said!r}")
    return str(said)


def _lines(subject: Mapping[str, Any]) -> str:
    """Writes one subject as JSON, each case and each run on a line."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    head = {name: value for name, value in subject.items() if name not in ("cases", "runs")}
    cases = ",\n".join(f"{dump(name)}: {dump(cell)}" for name, cell in subject["cases"].items())
    runs = ",\n".join(map(dump, subject["runs"]))
    return f'{dump(head)[:-1]}, "cases": {{\n{cases}\n}}, "runs": [\n{runs}\n]}}'


_FEW = ("source", "seed", "fault", "task")


def _short(run: TaskRun) -> list[Any]:
    told = run.document()
    few = [told[name] for name in _FEW]
    if run.claimed and run.right:
        return few
    return [*few, {key: value for key, value in told.items() if key not in (*_FEW, "subject")}]


def _long(subject: str, run: Sequence[Any], seeds: Sequence[int]) -> TaskRun:
    given = dict(zip(_FEW, run, strict=False))
    more = run[len(_FEW)] if len(run) > len(_FEW) else {"ended": True, "solved": True}
    found = TaskRun(subject=subject, **given, **more)
    for name, value in found.document().items():
        _of(_KINDS[name], value)
    for effect in (*found.twice, *found.lost):
        _of(str, effect)
    for value, there in ((found.fault, FAULTS), (found.source, SOURCES), (found.seed, seeds)):
        if value not in there:
            raise ValueError(f"there is no {value!r} here")
    return found


_Value = TypeVar("_Value")


def _of(kind: type[_Value], value: Any) -> _Value:
    # To Python, True is a number.
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of the kind {kind.__name__}")
    return value


_KINDS: Mapping[str, type] = {one.name: type(one.default) for one in fields(TaskRun)} | {
    **dict.fromkeys(("subject", "source", "task", "fault"), str),
    **dict.fromkeys(("twice", "lost"), list),
    "seed": int,
}
"""Of the fields of a run."""


def gather(parts: Sequence[Part], folder: Path, absent: Mapping[str, str], day: str) -> Results:
    """Gathers the results from the files of these parts. absent: why subjects did not run."""
    columns: dict[str, Column] = {}
    for part in parts:
        column = columns.setdefault(part.subject.name, Column(part.subject.name, part.subject.title))
        column.absent = absent.get(part.subject.name, "")
        lines = read_lines(part.file(folder))
        if not lines or lines[0]["suite"] != VERSION:
            continue
        column.title, column.versions = lines[0]["framework"], lines[0]["versions"]
        if part.what == CASES:
            column.cases = {one["case"]: (one["mark"], one["why"], one["version"]) for one in lines[1:]}
        else:
            column.runs += [TaskRun(**one) for one in lines[1:]]
    seeds = sorted({part.seed for part in parts if part.what != CASES})
    return Results(day, seeds, any(part.full for part in parts), list(columns.values()))
