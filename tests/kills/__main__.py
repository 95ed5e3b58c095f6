"""`python -m tests.kills [--target NAME] [--kills N] [--seed N] [--database URL]`: kills, and says what came
of it. Fails where an effect took place twice, or is told wrongly."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.kills.harness import Swept, Target, sweep
from tests.kills.targets import Delegates, Edited, Guarded, Loop, Undo
from tests.support.arguments import at_least

KINDS: tuple[type[Target], ...] = Loop, Delegates, Undo, Edited, Guarded
TARGETS = {kind.__name__.lower(): kind for kind in KINDS}


def swept(name: str, kills: int, seed: int, database: str) -> Swept:
    """The kills of one target, with a SQLite file of its own without the URL of a database."""
    with tempfile.TemporaryDirectory() as folder:
        where = database or f"{folder}/threads.sqlite"
        return sweep(TARGETS[name](), where, Path(folder), kills, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--kills", type=at_least(1), default=100, help="of each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--database", default="", help="postgresql://…; else SQLite files")
    options = parser.parse_args()
    is_wrong = False
    for name in options.target or TARGETS:
        found = swept(name, options.kills, options.seed, options.database)
        print(f"{name}, seed {options.seed}: {found.kills} kills, {found.unknown} effects told as unknown")
        print(*found.faults, sep="\n", end="\n" if found.faults else "", flush=True)
        is_wrong |= bool(found.faults)
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
