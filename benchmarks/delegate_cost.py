"""CPU of a delegate's turn compared with the same graph alone: `python -m benchmarks.delegate_cost`.

Both run the same scripted model and tool alternately, each on its own SQLite database, in runs of two
lengths. What a turn costs is the difference between them, divided by the turns that the longer one has more;
so the two turns of the parent, and the start, are not part of it. The minimum of several runs counts, since
other programs only add time. `--record` writes the result to `benchmarks/delegate_cost.json` and to the page
of delegates.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage

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


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU: of a turn, and of a whole run of the shorter length."""

    turn: float
    run: float


def measured(turns: int, runs: int, way: str) -> dict[str, Cost]:
    """Returns the costs by subject."""
    lengths = (turns, 2 * turns)
    found: dict[tuple[str, int], list[float]] = {(name, length): [] for name in WAYS for length in lengths}
    for _ in range(runs + 1):
        for (name, length), times in found.items():
            times.append(seconds(WAYS[name], length, way))
    # The first run of each also pays for one-time imports and setup.
    least = {key: 1_000 * min(times[1:]) for key, times in found.items()}
    return {
        name: Cost(turn=(least[name, 2 * turns] - least[name, turns]) / turns, run=least[name, turns])
        for name in WAYS
    }


def compared(costs: Mapping[str, Cost]) -> dict[str, Any]:
    """Returns the costs of the graph alone, and how many times that the delegates take."""
    alone = costs["alone"]
    ratios = {
        name: {"turn": round(one.turn / alone.turn, 2), "run": round(one.run / alone.run, 2)}
        for name, one in costs.items()
        if one is not alone
    }
    return {"turn_ms": round(alone.turn, 2), "run_ms": round(alone.run, 1), "delegates": ratios}


def table(record: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the table on the page of delegates."""
    turns = record["turns"]
    lines = [f"| | a turn, sync | a turn, async | a run of {turns} turns, sync | the same, async |"]
    lines.append("| --- | --: | --: | --: | --: |")
    for name in record["sync"]["delegates"]:
        ratios = [record[way]["delegates"][name] for way in ("sync", "async")]
        cells = [one[part] for part in ("turn", "run") for one in ratios]
        lines.append(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return lines


def page(text: str, record: Mapping[str, Any]) -> str:
    """Returns the text of the page of delegates with this table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return head + _BEGIN + "\n".join(["", *table(record), ""]) + _END + tail


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=at_least(10), default=100)
    parser.add_argument("--runs", type=at_least(1), default=9)
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name} and the page")
    given = parser.parse_args(words)
    record: dict[str, Any] = {"turns": given.turns, "runs": given.runs, "most": MOST, "of": "CPU, SQLite"}
    for way in ("sync", "async"):
        record[way] = compared(measured(given.turns, given.runs, way))
        print(way, json.dumps(record[way]))
    if given.record:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n")
        PAGE.write_text(page(PAGE.read_text("utf-8"), record), "utf-8")
    ratios = [one["turn"] for way in ("sync", "async") for one in record[way]["delegates"].values()]
    sys.exit(0 if max(ratios) <= MOST else 1)


if __name__ == "__main__":
    main()
