"""The same scenarios on every framework that is installed: `python -m benchmarks.loopbench`."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.loopbench.driver import Bench, Cell
from benchmarks.loopbench.explain import explain
from benchmarks.loopbench.peers import Peer, install, peers
from benchmarks.loopbench.process import Dead, Silent
from benchmarks.loopbench.scenario import Scenario
from benchmarks.loopbench.scenarios import SCENARIOS, THEMES
from benchmarks.loopbench.table import MARKS, Column, Results, markdown, read, svg

progress = Console(stderr=True)


def measure(peer: Peer, scenarios: Sequence[Scenario]) -> tuple[Column, list[Cell]]:
    """What the framework does in these scenarios."""
    if peer.problem:
        return Column(peer.title, {}, {}, peer.problem), []
    try:
        with Bench(peer.python, peer.adapter) as bench:
            cells = [_shown(bench.run(scenario), peer) for scenario in scenarios]
            hello = bench.hello
    except (Dead, Silent):
        return Column(peer.title, {}, {}, "does not start"), []
    found = {cell.scenario: (cell.mark, cell.why) for cell in cells}
    return Column(hello.framework, hello.versions, found), cells


def _shown(cell: Cell, peer: Peer) -> Cell:
    progress.print(f"{peer.title}: {cell.scenario} {MARKS[cell.mark]}", highlight=False)
    return cell


def _chosen(names: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"There is no {what} {unknown[0]!r}; there are: {', '.join(known)}.")
    return list(names) or list(known)


def main(
    only: Annotated[list[str] | None, typer.Option(help="Only this framework; may be repeated.")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Only this scenario; may be repeated.")] = None,
    why: Annotated[str, typer.Option("--explain", help="Say what each framework did in this one.")] = "",
    make: Annotated[bool, typer.Option("--install", help="Make the frameworks' environments first.")] = False,
    saved: Annotated[Path | None, typer.Option("--read", help="Show results saved by --json.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Save the results here.")] = None,
    svg_file: Annotated[Path | None, typer.Option("--svg", help="Draw the results here.")] = None,
) -> None:
    """Run the scenarios of LoopBench and print the table as Markdown."""
    every = peers()
    names = _chosen(only or [], [peer.name for peer in every], "framework")
    asked = [why] if why else scenario or []
    scenarios = [s for s in SCENARIOS if s.name in _chosen(asked, [s.name for s in SCENARIOS], "scenario")]
    chosen = [peer for peer in every if peer.name in names]
    for file in filter(None, (json_file, svg_file)):
        if file.is_dir() or not file.parent.is_dir():
            # Else a quarter of an hour of measuring would be lost at its end.
            raise typer.BadParameter(
                f"Nothing can be written to {file}; name a file in a folder that exists."
            )
    if make:
        for peer in chosen:
            progress.print(f"installing {peer.title}", highlight=False)
            install(peer)
    if saved:
        results = _read(saved)
    else:
        found: list[tuple[Column, list[Cell]]] = []
        for peer in chosen:
            # After each framework: a bench of all takes a quarter of an hour, and may be broken off.
            found.append(measure(peer, scenarios))
            results = Results(date.today().isoformat(), [column for column, _ in found])
            _save(results, json_file)
        if why:
            print(explain(scenarios[0], found))
            return
    print(markdown(results, THEMES))
    if svg_file:
        svg_file.write_text(svg(results, THEMES))


def _read(file: Path) -> Results:
    try:
        return read(file)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise typer.BadParameter(
            f"{file} holds no results of LoopBench; name a file saved by --json."
        ) from error


def _save(results: Results, file: Path | None) -> None:
    if file:
        file.write_text(json.dumps(results.document(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    typer.run(main)
