"""How many turns a task takes, with a call that ends it and without: `python benchmarks/iterations.py`.

Twenty tasks with a simulated model, and five with a real one (`--real`, needs the extra signoff[local]).

The simulated model has one compulsion, which real models show, too: when the work is done it goes on calling
tools, unless there is a call that ends the run; then it makes that call. It is a script: it shows what the
compulsion costs, not how often models have it.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

# Called as a file, the folder above is not on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import typer
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from rich.console import Console
from rich.table import Table

from benchmarks.file_tasks import TASKS as FILE_TASKS
from benchmarks.file_tasks import TURNS as FILE_TURNS
from benchmarks.file_tasks import run_task
from benchmarks.loops import LOOPS, PLAIN, SIGNOFF, Run
from signoff.models import ScriptedModel, call

MOST_TURNS = 30
CLASSES = {"simple": (7, 3), "medium": (6, 8), "complex": (7, 15)}
"""For each class: how many tasks, and the turns that each needs, the finish among them."""

SIMULATED = (
    "The model of this table is SIMULATED: a script that goes on calling tools when its work is done, unless "
    "a call ends the run.\nThe table shows what that compulsion costs, not how often models have it. Its "
    "tokens are characters divided by four, without the descriptions of tools."
)
REAL = (
    "The model of this table is real ({name}), with default settings and no worked examples, its answers as "
    "they came."
)


@dataclass(frozen=True)
class Prices:
    """US dollars for a million tokens."""

    input: float
    output: float

    def of(self, run: Run) -> float:
        return (run.input_tokens * self.input + run.output_tokens * self.output) / 1_000_000


@dataclass(frozen=True)
class Row:
    """The runs of one loop on one class of tasks; turns, tokens, cost and seconds are means per task."""

    kind: str
    loop: str
    tasks: int
    turns: float
    tokens: float
    cost: float
    seconds: float
    tasks_per_second: float
    ended: dict[str, int]
    right: int | None


def compulsive(work_turns: int, latency: float) -> ScriptedModel:
    """A model that works for so many turns; then it finishes if it can, else it looks again and again."""

    def step(messages: list[BaseMessage]) -> Any:
        time.sleep(latency)
        done = sum(isinstance(message, AIMessage) for message in messages)
        if done < work_turns:
            return call("work", step=done + 1)
        if "finish_task" in model.seen[-1].tool_names:
            return call(
                "finish_task", summary=f"All {work_turns} steps are done, and their results are checked."
            )
        return call("look", at=f"step {done % work_turns + 1}")

    model = ScriptedModel(step)
    return model


@tool
def work(step: int) -> str:
    """Do a step of the work."""
    return f"Step {step} is done. " + "It was written to its file, and the tests of that file pass. " * 3


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is done, nothing is left to do there. " * 3


work.metadata, look.metadata = {"kind": "write"}, {"kind": "read"}
TOOLS: tuple[BaseTool, ...] = (work, look)


def simulated(latency: float) -> list[Run]:
    """Twenty tasks, each run by both loops; `latency`: seconds that a model call takes at least."""
    return [
        LOOPS[loop](compulsive(turns - 1, latency), TOOLS, f"Do {kind} task {number}.", kind, MOST_TURNS)
        for kind, (count, turns) in CLASSES.items()
        for number in range(1, count + 1)
        for loop in LOOPS
    ]


def real(say: Callable[[Run], None]) -> tuple[str, list[Run]] | None:
    """The name of the embedded model and five tasks run with it by both loops; None where it is not there."""
    # Its package is an extra, and slow to import.
    from signoff.models.local import local_model
    from signoff.models.local.install import is_installed

    if not is_installed():
        return None
    found = []
    with local_model() as model:
        model.start()
        for task in FILE_TASKS:
            for loop in LOOPS:
                with tempfile.TemporaryDirectory() as folder:
                    found.append(run_task(loop, model, task, Path(folder)))
                say(found[-1])
        return model.model_name, found


def rows(runs: Sequence[Run], prices: Prices) -> list[Row]:
    """A row for each class and loop, then one a loop for all classes where there are several."""
    kinds = list(dict.fromkeys(run.kind for run in runs))
    found = [
        _row(kind, loop, [run for run in runs if (run.kind, run.loop) == (kind, loop)], prices)
        for kind in kinds
        for loop in LOOPS
    ]
    every = [_row("all", loop, [run for run in runs if run.loop == loop], prices) for loop in LOOPS]
    return found + (every if len(kinds) > 1 else [])


def _row(kind: str, loop: str, runs: Sequence[Run], prices: Prices) -> Row:
    ends = [run.ended for run in runs]
    right = [run.right for run in runs]
    seconds = sum(run.seconds for run in runs)
    return Row(
        kind=kind,
        loop=loop,
        tasks=len(runs),
        turns=statistics.fmean(run.turns for run in runs),
        tokens=statistics.fmean(run.tokens for run in runs),
        cost=statistics.fmean(map(prices.of, runs)),
        seconds=seconds / len(runs),
        tasks_per_second=len(runs) / seconds,
        ended={end: ends.count(end) for end in dict.fromkeys(ends)},
        right=None if None in right else sum(map(bool, right)),
    )


def fewer(found: Iterable[Row]) -> dict[str, float]:
    """By how much of A's turns, tokens, cost and seconds B is below it, over all tasks."""
    last = {row.loop: row for row in found}
    plain, ours = last[PLAIN], last[SIGNOFF]
    names = ("turns", "tokens", "cost", "seconds")
    return {name: 1 - getattr(ours, name) / getattr(plain, name) for name in names}


def table(title: str, found: Sequence[Row]) -> Table:
    looked = any(row.right is not None for row in found)
    names = ["class", "loop", "tasks", "turns", "tokens", "cost", "seconds", "tasks/s", "ended by"]
    shown = Table(title=title, title_justify="left")
    for name in [*names, *(["right"] if looked else [])]:
        words = name in ("class", "loop", "ended by")
        shown.add_column(name, justify="left" if words else "right", no_wrap=name != "ended by")
    for place, row in enumerate(found):
        cells = [
            row.kind,
            row.loop,
            str(row.tasks),
            f"{row.turns:.1f}",
            f"{row.tokens:,.0f}",
            f"${row.cost:.4f}",
            f"{row.seconds:.3f}",
            f"{row.tasks_per_second:.3g}",
            ", ".join(f"{end}: {count}" for end, count in row.ended.items()),
        ]
        cells += [f"{row.right} of {row.tasks}"] if looked else []
        shown.add_row(*cells, end_section=place % 2 == 1)
    return shown


def told(found: Sequence[Row]) -> str:
    """The difference in one sentence."""
    less = {"turns": "fewer turns", "tokens": "fewer tokens", "cost": "less cost", "seconds": "less time"}
    more = {"turns": "more turns", "tokens": "more tokens", "cost": "more cost", "seconds": "more time"}
    parts = [
        f"{abs(share):.0%} {(less if share >= 0 else more)[name]}" for name, share in fewer(found).items()
    ]
    return f"B against A, over all tasks: {', '.join(parts)}."


def main(
    with_real: Annotated[
        bool, typer.Option("--real", help="Run the embedded model too: five tasks, about half an hour.")
    ] = False,
    latency: Annotated[
        float, typer.Option(min=0, help="Seconds that a call of the simulated model takes.")
    ] = 0.02,
    input_price: Annotated[float, typer.Option(min=0, help="Dollars for a million tokens read.")] = 2.5,
    output_price: Annotated[float, typer.Option(min=0, help="Dollars for a million tokens written.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a plain loop with Signoff on the same tasks."""
    prices = Prices(input_price, output_price)
    console, progress = Console(width=140), Console(stderr=True)
    scripted = rows(simulated(latency), prices)
    found = real(lambda run: progress.print(asdict(run))) if with_real else None
    measured = rows(found[1], prices) if found else []
    if as_json:
        document = {
            "simulated": {
                "note": SIMULATED,
                "rows": [asdict(row) for row in scripted],
                "less": fewer(scripted),
            },
            "real": {"model": found[0], "rows": [asdict(row) for row in measured], "less": fewer(measured)}
            if found
            else None,
        }
        print(json.dumps(document, indent=2))
        return
    title = (
        f"Twenty tasks, at most {MOST_TURNS} turns; a call takes {latency:g} s; "
        f"${input_price:g} and ${output_price:g} a million tokens read and written; means per task"
    )
    console.print(table(title, scripted), told(scripted), SIMULATED, sep="\n")
    if found:
        title = f"Five tasks on files, at most {FILE_TURNS} turns, on this machine's processor"
        console.print("", table(title, measured), told(measured), REAL.format(name=found[0]), sep="\n")
    else:
        why = "not installed (the extra signoff[local])" if with_real else "not asked for (--real)"
        console.print(f"\nNo real model was run: {why}. Do not quote the table above alone.")


if __name__ == "__main__":
    typer.run(main)
