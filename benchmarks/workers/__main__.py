"""`python -m benchmarks.workers`: runs three workers through kills, a stop and a restart of the database.

It starts its own PostgreSQL server on 127.0.0.1. It exits with 0 only if every thread ended correctly and no
effect took place twice.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.workers.proof import Figures, Plan, prove
from tests.support.arguments import at_least
from tests.support.servers.postgres import Server, binaries


def main() -> int:
    given = _arguments()
    plan = Plan(given.threads, given.steps, given.kills, given.stops, given.restarts)
    found = binaries()
    if found is None:
        sys.stderr.write("No PostgreSQL server is installed (on Debian: apt-get install postgresql).\n")
        return 2
    if plan.restarts > plan.kills:
        sys.stderr.write("Every restart follows a kill: --restarts cannot be greater than --kills.\n")
        return 2
    server = Server(found)
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = prove(plan, server, Path(folder))
            if not figures.right:
                sys.stderr.write((Path(folder) / "log").read_text()[-20_000:])
    finally:
        server.remove()
    if given.json:
        print(json.dumps({**asdict(figures), "right": figures.right}, indent=2))
    else:
        Console(width=120).print(_table(figures))
    return 0 if figures.right else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    for name, value in asdict(Plan()).items():
        whole = at_least(1 if name in ("threads", "steps") else 0)
        parser.add_argument(f"--{name}", type=whole, default=value, metavar="N", help=f"default: {value}")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    return parser.parse_args()


def _table(figures: Figures) -> Table:
    plan = figures.plan
    title = f"Three workers, {plan.threads} threads of {plan.steps} steps with an effect each"
    table = Table("", "", title=title, show_header=False, title_justify="left")
    all_of_it = plan.threads * plan.steps
    table.add_row("threads ended right", f"{figures.threads_right} of {plan.threads}")
    table.add_row("effects done", f"{figures.effects} of {all_of_it}")
    table.add_row("effects done twice", str(figures.effects_twice))
    table.add_row("calls that ran twice", str(figures.calls_twice))
    table.add_row('calls reported as "outcome unknown"', str(figures.uncertain))
    table.add_row("  of these missing, and called again", str(figures.repeated))
    table.add_row("effects held back by their idempotency key", str(figures.refused))
    table.add_row("SIGKILLs, each with a new worker", str(figures.kills))
    table.add_row("SIGSTOPs, longer than a worker may be silent", str(figures.stops))
    table.add_row("restarts of PostgreSQL, in mid-recovery", str(figures.restarts))
    table.add_row("threads taken over", str(figures.taken_over))
    table.add_row("seconds", str(figures.seconds))
    table.add_row("", "[green]all right[/green]" if figures.right else "[red]not right[/red]")
    return table


if __name__ == "__main__":
    sys.exit(main())
