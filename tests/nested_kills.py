"""Kills a tree of five machines at every moment around its writes, and records what came of it.

Run as a program: `python -m tests.nested_kills [--way WAY] [--stride N] [--record]`, or with
`--database postgresql://…`. It prints one line for each fault, fails when there is one, and writes how many
kills there were into `benchmarks/nested_kills.json`; see `tests/support/sweeps/nested.py`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.arguments import at_least
from tests.support.sweeps.nested import faults, kills_of

RESULTS = Path(__file__).parents[1] / "benchmarks" / "nested_kills.json"
_AT_ONCE = 2


def swept(way: str, stride: int, database: str) -> Iterator[dict[str, Any]]:
    """The report of each kill: every stride-th moment of a run, by several processes."""
    with tempfile.TemporaryDirectory() as folder:
        sweeps = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.support.sweeps.nested", f"{folder}/{part}", way),
                    *(str(1 + part * stride), str(_AT_ONCE * stride), "100000", database),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for part in range(_AT_ONCE)
        ]
        for sweep in sweeps:
            assert sweep.stdout is not None
            yield from map(json.loads, sweep.stdout)
            if sweep.wait():
                raise SystemExit(f"A sweep has failed ({sweep.returncode}); see above.")


def record(where: Path, name: str, found: dict[str, Any]) -> None:
    known = json.loads(where.read_text()) if where.exists() else {}
    where.write_text(json.dumps({**known, name: found}, indent=2, sort_keys=True) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--way", choices=["sync", "async", "in-turn"], default="sync")
    parser.add_argument("--stride", type=at_least(1), default=1, help="kill at every N-th moment")
    parser.add_argument("--database", default="", help="the address of a PostgreSQL database")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULTS.name}")
    given = parser.parse_args(words)
    begun, counts, wrong = time.time(), Counter[str](), Counter[str]()
    for report in swept(given.way, given.stride, given.database):
        counts += Counter(runs=1, kills=kills_of(report), unknown=report["unknown"])
        wrong.update(broken := faults(report))
        if broken:
            print(", ".join(broken), json.dumps(report), flush=True)
    found = {
        "way": given.way,
        "every": given.stride,
        **counts,
        "effects_twice": wrong["no effect twice"],
        "effects_lost": wrong["no effect lost in silence"],
        "waits_lost": wrong["no wait lost"],
        "ended_otherwise": wrong["the end"] + wrong["turns"],
        "ledger_wrong": wrong["the ledger"],
        "minutes": round((time.time() - begun) / 60, 1),
    }
    print(json.dumps(found))
    if given.record:
        name = "postgresql" if given.database else "sqlite"
        record(RESULTS, f"{name}, in turn" if given.way == "in-turn" else name, found)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
