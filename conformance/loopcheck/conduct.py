"""The plan of a run, in parts that can be interrupted and resumed: each part is a file of results."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopcheck import VERSION
from loopcheck.bench import PATIENCE, Bench
from loopcheck.case import load_cases
from loopcheck.driver import run_case
from loopcheck.faults import Fault, plan, sample
from loopcheck.play import TaskRun, play
from loopcheck.process import NoAnswer
from loopcheck.sources.registry import SOURCES
from loopcheck.sources.task import Task
from loopcheck.subjects import Subject

CASES = "cases"


@dataclass(frozen=True)
class Part:
    """One subject on the unit cases, or on one source with one seed. full: all tasks instead of a sample."""

    subject: Subject
    what: str
    seed: int = 0
    full: bool = False

    @property
    def name(self) -> str:
        if self.what == CASES:
            return f"{self.subject.name}.{CASES}"
        return f"{self.subject.name}.{self.what}.{self.seed}{'.full' if self.full else ''}"

    def file(self, folder: Path) -> Path:
        """The file of its results."""
        return folder / f"{self.name}.jsonl"


def list_parts(
    subjects: Sequence[Subject], what: Sequence[str], seeds: Sequence[int], *, full: bool
) -> list[Part]:
    """Returns the parts in the order in which they run: each subject's cases first."""
    found = []
    for subject in subjects:
        found += [Part(subject, CASES)] if CASES in what else []
        sources = [one for one in what if one != CASES]
        found += [Part(subject, source, seed, full) for source in sources for seed in seeds]
    return found


def tell(words: str) -> None:
    """Reports progress."""
    print(words, file=sys.stderr, flush=True)


def work(part: Part, folder: Path, patience: float = PATIENCE) -> str:
    """Runs what is not yet in the part's file; returns why it could not run, or an empty text.

    patience: seconds for one step.
    """
    if part.subject.problem:
        return part.subject.problem
    try:
        with Bench(part.subject.command, part.subject.url, patience=patience) as bench:
            file = _File(part.file(folder), bench)
            if file.done:
                tell(f"{part.name}: {len(file.done)} kept from an earlier run; --anew runs them again")
            for found in _cases(bench, file) if part.what == CASES else _tasks(part, bench, file):
                file.add(found)
                tell(f"{part.name}: {found.get('case') or found.get('task')} {_mark(found)}")
    except NoAnswer as error:
        return f"it did not start: {error}"
    except ModuleNotFoundError as error:
        return f"{part.what} is not installed ({error}); run `loopcheck install`"
    return ""


def _mark(found: Mapping[str, Any]) -> str:
    if "mark" in found:
        return str(found["mark"])
    played = TaskRun(**found)
    return "ok" if played.right else "fail" if played.claimed else "n/a"


def _cases(bench: Bench, file: "_File") -> Iterator[dict[str, Any]]:
    for case in load_cases():
        if case.name not in file.done:
            cell = run_case(bench, case)
            yield {"case": case.name, "version": case.version, "mark": cell.mark, "why": cell.why}


def _tasks(part: Part, bench: Bench, file: "_File") -> Iterator[dict[str, Any]]:
    for task, fault in draw_tasks(part.what, part.seed, full=part.full):
        if task.name not in file.done:
            yield play(bench, part.subject.name, task, fault, part.seed).document()


def draw_tasks(source: str, seed: int, *, full: bool) -> list[tuple[Task, Fault]]:
    """Returns the tasks that a seed selects, each with its fault."""
    planned = plan(SOURCES[source].tasks(), seed)
    return planned if full else sample(planned, seed)


class _File:
    """Results, one per line, below a header line. Results of other versions are discarded."""

    def __init__(self, file: Path, bench: Bench) -> None:
        self._file = file
        hello = bench.hello
        head = {"suite": VERSION, "framework": hello.framework, "versions": dict(hello.versions)}
        lines = read_lines(file)
        if not lines or lines[0] != head:
            lines = [head]
        versions = {case.name: case.version for case in load_cases()}
        lines = [one for one in lines if "case" not in one or versions.get(one["case"]) == one.get("version")]
        # Without an incomplete last line.
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))
        self.done = {one.get("case") or one["task"] for one in lines[1:]}
        """The names of finished runs; a case of another version runs again."""

    def add(self, found: Mapping[str, Any]) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps(found) + "\n")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Reads a file of results, without an incomplete last line."""
    found: list[dict[str, Any]] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
