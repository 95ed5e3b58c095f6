"""`python -m benchmarks.overhead`: the table; `--check` exits 0 only when every target is met.

`--record` saves the results in results.json, part by part, and writes docs/benchmarks/overhead.md and its
pictures; `--parts` selects parts. A part that cannot run says what is missing. `--plot FOLDER` draws the
recorded results.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.overhead import pages, pictures
from benchmarks.overhead.client import CLIENTS
from benchmarks.overhead.crowd import CROWDS
from benchmarks.overhead.explain import explain
from benchmarks.overhead.measure import SUBJECTS, installed
from benchmarks.overhead.parts import PARTS, of_length, part
from benchmarks.overhead.record import RESULTS, Recorded
from benchmarks.overhead.sessions import SHORTENED, WHOLE, Session
from benchmarks.overhead.targets import LENGTHS
from loopcheck.subjects import install, list_subjects
from signoff.graph.errors import SetupError
from tests.support.arguments import at_least

_ENVIRONMENTS = ("langchain", "deepagents", "openai-agents", "pydantic-ai", "smolagents")


def main() -> int:
    given = _arguments()
    console = Console(width=130)
    if given.plot or given.record:
        # Fails before half an hour of measuring, not after it.
        pictures.canvas()
    if given.plot:
        pictures.draw(Recorded.read(RESULTS), given.plot)
        return 0
    if given.install:
        for subject in list_subjects():
            if subject.name in _ENVIRONMENTS:
                install(subject)
    recorded = _measured(given, console)
    if given.json:
        recorded.save(given.json)
    if given.record:
        pages.write()
    missed = [one for one in recorded.results() if not one.met]
    if missed and given.check:
        explain(recorded, console)
    return int(given.check and bool(missed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=at_least(2), nargs="+", help=f"lengths of runs (default: {LENGTHS})")
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--check", action="store_true", help="run all parts; exit with 1 if a target is missed"
    )
    parser.add_argument("--record", action="store_true", help="run all parts and save the results")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="only draw the recorded results")
    parser.add_argument(
        "--install", action="store_true", help="first create the environments of the other frameworks"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save the results to this file")
    given = parser.parse_args()
    lengths = [of_length(turns) for turns in given.turns or ()]
    everything = PARTS if given.check or given.record else [of_length(turns) for turns in LENGTHS]
    given.parts = [*lengths, *(given.parts or ())] or everything
    return given


def _measured(given: argparse.Namespace, console: Console) -> Recorded:
    """Runs these parts and returns the results; with `record`, adds them to the recorded ones."""
    asked = (*SUBJECTS, *CROWDS, *CLIENTS, *WHOLE, *SHORTENED)
    there = {one.env for one in installed(asked)}
    if absent := sorted({one.env for one in asked if one.env} - there):
        console.print(f"Not installed: {', '.join(absent)} (--install creates them).")
    recorded = Recorded.read(RESULTS) if given.record and RESULTS.exists() else Recorded()
    for name in given.parts:
        console.print(f"measuring {name}", highlight=False)
        try:
            part(name)(recorded)
        except SetupError as missing:
            console.print(str(missing), highlight=False)
            continue
        recorded.measured(name)
        if given.record:
            recorded.save(RESULTS)
    _print(recorded, console)
    return recorded


def _print(recorded: Recorded, console: Console) -> None:
    table = Table(
        "turns", "storage", "subject", "CPU ms per turn", "ms per turn", "KB on disk per turn", "runs"
    )
    for one in [*recorded.figures, *recorded.guards]:
        kilobytes = f"{one.kilobytes:.1f}" if one.stored else ""
        where = "SQLite" if one.stored else "none"
        numbers = (f"{one.cpu:.2f}", f"{one.wall:.2f}", kilobytes, str(one.runs))
        table.add_row(f"{one.turns:,}", where, one.subject, *numbers)
    clients = Table(
        "chunks per reply", "subject, with a real client", "CPU ms per turn", "first token ms", "runs"
    )
    for cost in recorded.clients:
        first = "" if cost.first is None else f"{cost.first:.1f}"
        clients.add_row(f"{cost.chunks:,}", cost.subject, f"{cost.cpu:.2f}", first, str(cost.runs))
    crowds = Table("runs at once", "model", "subject", "seconds", "CPU seconds", "repetitions")
    for each in recorded.crowds:
        told = (f"{each.wall:.2f}", f"{each.cpu:.2f}", str(each.repeats))
        crowds.add_row(f"{each.runs:,}", f"{each.model:g} s", each.subject, *told)
    stores = Table("subject", "storage", "turns per second", "CPU ms per turn", "repetitions")
    for kept in recorded.stored:
        rates = (f"{kept.turns_a_second:.1f}", f"{kept.cpu:.2f}")
        stores.add_row(kept.subject, kept.storage, *rates, str(kept.repeats))
    targets = Table("target", "measured", "at most", "", "of what", show_lines=True)
    for result in recorded.results():
        judged = (f"{result.measured:.2f} {result.unit}", f"{result.most:.3g} {result.unit}")
        targets.add_row(result.name, *judged, "met" if result.met else "missed", result.beside)
    sessions = _sessions(recorded.sessions)
    for shown in (table, clients, sessions, _starts(recorded), crowds, stores, targets):
        if shown.row_count:
            console.print(shown)


def _sessions(found: Sequence[Session]) -> Table:
    table = Table("turns", "budget", "subject", "first", "read", "cached", "written", "summaries", "dollars")
    for one in found:
        tokens = (f"{number:,}" for number in (one.first, one.read, one.cached, one.written))
        budget = "" if one.budget is None else f"{one.budget:,}"
        row = (one.subject, *tokens, str(one.summaries), f"{one.dollars:.3f}")
        table.add_row(f"{one.turns:,}", budget, *row)
    return table


def _starts(recorded: Recorded) -> Table:
    table = Table("what starts", "seconds")
    for name, seconds in recorded.start.items():
        table.add_row(f"{name}, CPU", f"{seconds:.2f}")
    if tokens := recorded.first_tokens:
        table.add_row("the embedded model's first token, first run", f"{tokens.first:.1f}")
        table.add_row("the same in the second run", f"{tokens.again:.1f}")
    return table


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(str(error))
