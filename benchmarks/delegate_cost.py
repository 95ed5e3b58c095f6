"""CPU per turn of a delegate compared with the same graph alone: `python -m benchmarks.delegate_cost`.

Both run the same scripted model and tool alternately, each on its own SQLite database. The minimum of several
runs counts, since other programs only add time. A parent runs the delegate, and its two turns count, too.
`--record` writes the result to `benchmarks/delegate_cost.json`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage

from signoff import Limits, build_graph, delegate, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call, reply
from tests.support.arguments import at_least

RESULTS = Path(__file__).with_suffix(".json")
MOST = 1.1
"""The target: this many times the CPU per turn of the graph alone."""

GO: Any = {"messages": [("user", "go")]}
ENOUGH = 10**9


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
    "delegate": lambda turns, **options: lead(turns, None, **options),
    "delegate, limit of turns": lambda turns, **options: lead(turns, Limits(tree_turns=ENOUGH), **options),
    "delegate, limit of tool calls": lambda turns, **options: lead(
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


def measured(turns: int, runs: int, way: str) -> dict[str, float]:
    """Returns the minimum CPU per turn in milliseconds, by subject."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(runs + 1):
        for name, made in WAYS.items():
            found[name].append(seconds(made, turns, way))
    # The first run of each also pays for one-time imports and setup.
    return {name: 1_000 * min(times[1:]) / turns for name, times in found.items()}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=at_least(10), default=100)
    parser.add_argument("--runs", type=at_least(1), default=9)
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULTS.name}")
    given = parser.parse_args(words)
    record: dict[str, Any] = {"turns": given.turns, "runs": given.runs, "most": MOST, "of": "CPU, SQLite"}
    met = True
    for way in ("sync", "async"):
        found = measured(given.turns, given.runs, way)
        ratios = {name: round(one / found["alone"], 3) for name, one in found.items() if name != "alone"}
        met = met and all(ratio <= MOST for ratio in ratios.values())
        record[way] = {"alone_ms": round(found["alone"], 3), **ratios}
        print(way, json.dumps(record[way]))
    if given.record:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
