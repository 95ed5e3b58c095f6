"""In the environment of AgentDojo: draws tasks, plays each under every fault on every subject, and tells."""

import random
import sys
from dataclasses import asdict
from datetime import date
from importlib.metadata import version

from benchmarks.agentdojo import pages
from benchmarks.agentdojo.faults import NAMES, drawn
from benchmarks.agentdojo.run import claimed, run
from benchmarks.agentdojo.source import VERSION, tasks
from benchmarks.agentdojo.subjects import SUBJECTS
from benchmarks.agentdojo.task import Done, Task

_PACKAGES = ("agentdojo", "signoff", "langchain", "langgraph")


def play(chosen: list[Task], seed: int) -> list[Done]:
    """Every run of these tasks."""
    found = []
    for task in chosen:
        for name in NAMES:
            if (fault := drawn(name, task, seed)) is None:
                continue
            for subject in (one for one in SUBJECTS if claimed(one, name)):
                done = run(subject, task, fault)
                found.append(done)
                mark = "right" if done.right else f"WRONG ({done.why}; twice: {done.twice})"
                print(f"{task.name}, {name}, {subject}: {mark}", file=sys.stderr, flush=True)
    return found


def main(seed: int, count: int, *, record: bool) -> None:
    every = tasks()
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    found = {
        "day": date.today().isoformat(),
        "seed": seed,
        "of": len(every),
        "benchmark": VERSION,
        "versions": {name: version(name) for name in _PACKAGES},
        "tasks": [one.name for one in chosen],
        "runs": [asdict(one) for one in play(chosen, seed)],
    }
    if record:
        pages.record(found)
    print(pages.table([Done(**one) for one in found["runs"]]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), record="record" in sys.argv[3:])
