"""`python -m benchmarks.overhead`: the table; `--check` exits 0 only when every target is met."""

import argparse
import cProfile
import json
import pstats
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.loopbench.peers import install, peers
from benchmarks.overhead.alone import heavy_imports, import_seconds, memory_megabytes, resume_milliseconds
from benchmarks.overhead.measure import SUBJECTS, Figure, installed, measure
from benchmarks.overhead.subjects.own import signoff
from benchmarks.overhead.targets import LENGTHS, LONG, Result, growth, ratios

_ENVIRONMENTS = ("langchain", "deepagents", "openai-agents", "pydantic-ai", "smolagents")
_RUNS = {10: 15, 50: 9, 200: 7, 1_000: 3, LONG: 1}
_EXPLAINED = 12


def main() -> int:
    given = _arguments()
    console = Console(width=120)
    if given.install:
        for peer in peers():
            if peer.name in _ENVIRONMENTS:
                install(peer)
    figures = _figures(given.turns, console)
    results = [*ratios(figures), *growth(figures)]
    if given.check:
        results += _alone()
    _print(figures, results, console)
    if given.json:
        document = {"figures": [asdict(one) for one in figures], "targets": [asdict(one) for one in results]}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    missed = [one for one in results if not one.met]
    if missed and given.check:
        _explain(missed, console)
    return int(given.check and bool(missed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", help=f"lengths of runs (default: {LENGTHS})")
    parser.add_argument(
        "--check", action="store_true", help="all lengths and targets; exit 1 when one is missed"
    )
    parser.add_argument("--install", action="store_true", help="make the environments of the others first")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    given.turns = given.turns or [*LENGTHS, *([LONG] if given.check else [])]
    return given


def _figures(lengths: Sequence[int], console: Console) -> list[Figure]:
    there = installed()
    if absent := sorted({one.env or "" for one in SUBJECTS} - {one.env or "" for one in there}):
        console.print(f"Not installed: {', '.join(absent)} (--install makes them).")
    found: list[Figure] = []
    for turns in lengths:
        for stored in (False, True):
            found += measure(there, turns, _RUNS.get(turns, 3), stored=stored)
    return found


def _alone() -> list[Result]:
    importing = import_seconds("signoff") - import_seconds("langgraph.graph")
    return [
        Result("opening 1,000 turns again", resume_milliseconds(), 100.0, "ms"),
        Result("memory of 1,000 turns", memory_megabytes(), 6.0, "MB"),
        Result("import signoff, over langgraph.graph", importing, 0.1, "s"),
        Result("packages that the import should not need", len(heavy_imports()), 0),
    ]


def _print(figures: Sequence[Figure], results: Sequence[Result], console: Console) -> None:
    table = Table("turns", "storage", "subject", "CPU ms a turn", "ms a turn", "KB on disk a turn", "runs")
    for one in figures:
        kilobytes = f"{one.kilobytes:.1f}" if one.stored else ""
        where = "SQLite" if one.stored else "none"
        numbers = (f"{one.cpu:.2f}", f"{one.wall:.2f}", kilobytes, str(one.runs))
        table.add_row(f"{one.turns:,}", where, one.subject, *numbers)
    console.print(table)
    targets = Table("target", "measured", "at most", "")
    for result in results:
        told = (f"{result.measured:.2f} {result.unit}", f"{result.most:g} {result.unit}")
        targets.add_row(result.name, *told, "met" if result.met else "missed")
    console.print(targets)


def _explain(missed: Sequence[Result], console: Console) -> None:
    """Where the time of a run goes: what a missed target has to be explained by."""
    run, profile = signoff(200, None), cProfile.Profile()
    profile.runcall(run)
    stats = pstats.Stats(profile)
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])[:_EXPLAINED]  # type: ignore[attr-defined]  # undeclared
    console.print(f"Missed: {'; '.join(one.name for one in missed)}. A run of 200 turns spends its time in:")
    for (file, line, name), (_, calls, own, _, _) in rows:
        place = f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        console.print(f"{own / 200 * 1e6:8.0f} µs a turn  {calls / 200:6.1f} calls  {place}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
