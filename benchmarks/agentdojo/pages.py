"""The page of the recorded results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.agentdojo.faults import NAMES
from benchmarks.agentdojo.task import Done

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "agentdojo.md"

_HEAD = """\
# AgentDojo's tasks under faults

[AgentDojo](https://github.com/ethz-spylab/agentdojo) has user tasks in four suites (workspace, travel,
banking, slack), each with an environment, tools, the calls that solve it, and a check of what the
environment and the answer are afterwards. The package is used as it is, in an environment of its own (MIT
licence); nothing of it is copied.

The model is scripted: it plays AgentDojo's own solution, one call a reply, and reads from the history what
is done. So every task is solved when nothing goes wrong, and what is measured is the loop. Each task is
played under each fault, at a place that a seed draws: SIGKILL before, in and after a call that changes
something, a reply cut in its call, words without a call, the same ids in every reply, a failing call beside
the claim that all is done, two finishes in one reply, a dropped connection, 429 and 500. Each agent saves
its thread in SQLite; one that was killed, or has raised or ended with an error, goes on in a new process,
twice at most. Where a result says that nobody knows whether a call took place, the model looks, and calls
again only if it did not.

A run is right if the agent said that it is done, AgentDojo's check agrees, and no effect took place more
often than in the solution. `create_agent` is LangChain's, with a checkpointer and nothing else, and is told
"Go on." where it stands still after a kill; with `Guards` it is `guarded`, with a store. It ends by words
alone, so two finishes are not claimed by it.
"""


def page() -> str:
    """What was recorded, in words and a table."""
    found = json.loads(RESULTS.read_text())
    runs = [Done(**one) for one in found["runs"]]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    count, every = len(found["tasks"]), found["of"]
    drawn = f"all of its {every} tasks, with" if count == every else f"{count} of its {every} tasks, drawn by"
    words = (
        f"Recorded {found['day']} with {versions} (AgentDojo's benchmark {found['benchmark']}): {drawn} the "
        f"seed {found['seed']}. Right, of the runs; a task without a place for a fault is left out."
    )
    names = "" if count == every else f"The tasks: {', '.join(found['tasks'])}.\n\n"
    more = "" if count == every else f", and `--tasks {every}` for all"
    command = f"`python -m benchmarks.agentdojo --seed {found['seed']} --tasks {count}`"
    return (
        f"{_HEAD}\n{words}\n\n{table(runs)}\n\n{names}{command} plays them again (with `--install` the first "
        f"time{more}).\n"
    )


def record(found: Mapping[str, Any]) -> None:
    """Keeps these results, a run a line, and writes the page."""
    head = json.dumps({name: value for name, value in found.items() if name != "runs"})
    runs = ",\n".join(json.dumps(run) for run in found["runs"])
    RESULTS.write_text(f'{head[:-1]},\n"runs": [\n{runs}\n]}}\n')
    PAGE.write_text(page())


def table(runs: Sequence[Done]) -> str:
    """A row a fault, a column a subject; then what went wrong in which way."""
    subjects = list(dict.fromkeys(one.subject for one in runs))
    lines = [["", *subjects], ["---", *["--:"] * len(subjects)]]
    for fault in (one for one in NAMES if any(run.fault == one for run in runs)):
        lines.append([fault, *(_share(runs, subject, fault) for subject in subjects)])
    lines.append(["**all**", *(f"**{_share(runs, subject)}**" for subject in subjects)])
    for words, counts in (
        ("said that it is done, wrongly", lambda one: one.wrongly),
        ("an effect took place twice", lambda one: bool(one.twice)),
        ("not ended as done", lambda one: not one.ended),
    ):
        found = [sum(counts(one) for one in runs if one.subject == subject) for subject in subjects]
        lines.append([words, *map(str, found)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _share(runs: Sequence[Done], subject: str, fault: str | None = None) -> str:
    asked = [one for one in runs if one.subject == subject and fault in (None, one.fault)]
    return f"{sum(one.right for one in asked)} of {len(asked)}" if asked else ""
