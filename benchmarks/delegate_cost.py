"""CPU of a delegate's turn compared with the same graph alone: `python -m benchmarks.delegate_cost`.

Both run the same scripted model and tool alternately, each on its own SQLite database. A ratio is taken
between runs of one round, so that a machine that is slow for a while slows both; the median of the ratios
counts. Several processes run the rounds, since the ratios differ by several per cent from one process to the
next, and each round begins with another subject. A parent runs the delegate, and its two turns count, too. A
missed target is printed with the profile of such a run. `--record` writes the result to
`benchmarks/delegate_cost.json` and to the page of delegates.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage
from rich.console import Console

from benchmarks.overhead.explain import profile
from signoff import Limits, build_graph, delegate, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call, reply
from tests.support.arguments import at_least

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "delegate.md"
MOST = 1.1
"""The target: this many times the CPU of a turn of the graph alone."""

GO: Any = {"messages": [("user", "go")]}
ENOUGH = 10**9
_BEGIN, _END = "<!-- python -m benchmarks.delegate_cost --record -->", "<!-- end -->"


def look(n: int) -> str:
    """Look."""
    return f"{n}"


def child(turns: int, **options: Any) -> Graph:
    done = reply(call("finish_task", summary="Done."), usage=(90, 10))

    def script(messages: list[Any]) -> Any:
        at = sum(isinstance(message, AIMessage) for message in messages)
        return done if at >= turns - 1 else reply(call("look", n=at), usage=(90, 10))

    limits = Limits(turns=turns, tokens=ENOUGH, tool_calls=ENOUGH)
    return build_graph(ScriptedModel(script), [look], limits=limits, **options)


def lead(turns: int, limits: Limits | None, **options: Any) -> Graph:
    made = delegate("worker", child(turns), description="Works.")
    steps = [call("worker", task="go"), call("finish_task", summary="Done.")]
    return build_graph(ScriptedModel(steps), [made], limits=limits, **options)


WAYS: Mapping[str, Callable[..., Graph]] = {
    "alone": lambda turns, **options: child(turns, **options),
    "no limit on the tree": lambda turns, **options: lead(turns, None, **options),
    "a limit of turns": lambda turns, **options: lead(turns, Limits(tree_turns=ENOUGH), **options),
    "limits of turns, tool calls and tokens": lambda turns, **options: lead(
        turns, Limits(tree_turns=ENOUGH, tool_calls=ENOUGH, tokens=ENOUGH), **options
    ),
}


def seconds(made: Callable[..., Graph], turns: int, way: str) -> float:
    """Returns the CPU time of one run."""
    with tempfile.TemporaryDirectory() as folder, sqlite_storage(Path(folder) / "threads.sqlite") as storage:
        graph = made(turns, storage=storage)
        config: Any = {"configurable": {"thread_id": "t"}}
        begun = time.process_time()
        values: Any = graph.invoke(GO, config) if way == "sync" else asyncio.run(graph.ainvoke(GO, config))
        took = time.process_time() - begun
        assert outcome_of(values).status == "success"
        return took


def measured(turns: int, runs: int, way: str) -> dict[str, list[float]]:
    """Returns the CPU seconds of each run in this process, by subject and round."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    names = list(WAYS)
    for number in range(runs + 1):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            found[name].append(seconds(WAYS[name], turns, way))
    # The first run of each also pays for one-time imports and setup.
    return {name: times[1:] for name, times in found.items()}


def measured_in(processes: int, turns: int, runs: int, way: str) -> dict[str, list[float]]:
    """Returns the CPU seconds of each run in several processes, one after another."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(processes):
        with get_context("spawn").Pool(1) as pool:
            for name, times in pool.apply(measured, (turns, runs, way)).items():
                found[name] += times
    return found


def compared(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns how many times the CPU of the graph alone each delegate takes: the median over the rounds."""
    alone = found["alone"]
    return {
        name: round(median(one / by for one, by in zip(times, alone, strict=True)), 2)
        for name, times in found.items()
        if name != "alone"
    }


def table(record: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the table on the page of delegates."""
    lines = ["| | sync | async |", "| --- | --: | --: |"]
    names = record["sync"]
    return lines + [
        f"| {name} | {record['sync'][name]:.2f} | {record['async'][name]:.2f} |" for name in names
    ]


def page(text: str, record: Mapping[str, Any]) -> str:
    """Returns the text of the page of delegates with this table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return head + _BEGIN + "\n".join(["", *table(record), ""]) + _END + tail


def explain(record: Mapping[str, Any], turns: int) -> None:
    """Prints the profile of each kind of run that misses the target."""
    console = Console(stderr=True)
    for way in ("sync", "async"):
        for name, ratio in record[way].items():
            if ratio > MOST:
                console.print(f"Missed, {way}, {name}: {ratio} of {MOST}. A run spends its time in:")
                profile(partial(seconds, WAYS[name], turns, way), turns, console)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=at_least(10), default=300)
    parser.add_argument("--runs", type=at_least(1), default=3, help="the rounds in each process")
    parser.add_argument("--processes", type=at_least(1), default=7)
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name} and the page")
    given = parser.parse_args(words)
    record: dict[str, Any] = {"turns": given.turns, "runs": given.runs, "processes": given.processes}
    record |= {"most": MOST, "of": "CPU, SQLite"}
    for way in ("sync", "async"):
        record[way] = compared(measured_in(given.processes, given.turns, given.runs, way))
        print(way, json.dumps(record[way]))
    if given.record:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n")
        PAGE.write_text(page(PAGE.read_text("utf-8"), record), "utf-8")
    explain(record, given.turns)
    sys.exit(0 if max(*record["sync"].values(), *record["async"].values()) <= MOST else 1)


if __name__ == "__main__":
    main()
