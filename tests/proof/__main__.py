"""`python -m tests.proof`: explores every world, breaks the machine in every way, and prints the numbers."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from signoff.verify.explore import OVERALL
from signoff.verify.properties import PROPERTIES
from signoff.verify.tree_properties import TREE_OVERALL, TREE_PROPERTIES
from tests.proof.compositions import COMPOSITIONS
from tests.proof.mutations import ALL
from tests.proof.mutations_of_delegates import DELEGATE_MUTATIONS
from tests.proof.numbers import LENGTH, catch, catch_below, gaps, visit, visit_tree
from tests.proof.worlds import WORLDS


def main() -> int:
    begun, console = time.monotonic(), Console(width=100)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        worlds = [pool.submit(visit, name) for name in WORLDS]
        worlds += [pool.submit(visit_tree, name) for name in COMPOSITIONS]
        caught = list(pool.map(catch, ALL, chunksize=4))
        caught += pool.map(catch_below, DELEGATE_MUTATIONS, chunksize=4)
        visited = [one.result() for one in worlds]
    table = Table("world", "states", "transitions", "replayed", f"sequences of up to {LENGTH}", "")
    for one in visited:
        numbers = (one.states, one.transitions, one.compared, one.sequences)
        told = [f"{number:,}" for number in numbers]
        table.add_row(one.name, *told, "broken" if one.broken else "held")
    console.print(table)
    held = len(PROPERTIES) + len(OVERALL) + len(TREE_PROPERTIES) + len(TREE_OVERALL)
    states, transitions = sum(one.states for one in visited), sum(one.transitions for one in visited)
    sequences = sum(one.sequences for one in visited)
    console.print(f"{states:,} states, {transitions:,} transitions, {held} properties")
    console.print(f"They stand for {sequences:,} sequences of up to {LENGTH} replies and events")
    console.print(f"{sum(bool(by) for _, by in caught)} of {len(caught)} mutations caught")
    missing = gaps(visited, caught)
    for line in missing:
        console.print(line, style="red", markup=False)
    console.print(f"{'NOT all' if missing else 'All'} held, in {time.monotonic() - begun:.0f} seconds.")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
