"""Counts the turns of a task, with and without a call that ends it: `python benchmarks/iterations.py`.

It runs twenty tasks with a simulated model, and shows five tasks with the embedded real one as recorded in
`iterations_real.json`; `--real` runs those again and records them (needs the extra signoff[local]).

The simulated model has one compulsion, which real models also show: when the work is done, it keeps calling
tools, unless there is a call that ends the run; then it makes that call. It is a script: it shows what this
behaviour costs, not how often it occurs.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Annotated, Any

# Called as a file, the folder above is not on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import typer
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from rich.console import Console

from benchmarks.comparison import Prices, Row, fewer, rows, table, told
from benchmarks.file_tasks import TASKS as FILE_TASKS
from benchmarks.file_tasks import TURNS as FILE_TURNS
from benchmarks.file_tasks import run_task
from benchmarks.loops import LOOPS, Run
from signoff.models import ScriptedModel, call
from signoff.models.scripted import CHARS_PER_TOKEN, Seen

MOST_TURNS = 30
RECORD = Path(__file__).parent / "iterations_real.json"
CLASSES = {"simple": (7, 3), "medium": (6, 8), "complex": (7, 15)}
"""For each class: the number of tasks, and the turns that each needs, including the finish."""

SIMULATED = (
    "The model of this table is SIMULATED: a script that keeps calling tools when its work is done, unless a "
    "call ends the run.\nThe table shows what this behaviour costs, not how often it occurs. Tokens are "
    "characters divided by four, in all messages and in the descriptions of all tools in each call. New "
    "tokens are those that the previous call did not read; a provider's cache serves the others, here at a "
    "tenth of the price."
)
REAL = (
    "The model of this table is real ({name}), with default settings and no worked examples, its answers as "
    "they came; {how}. It is small, and ends early rather than late: here the call that ends a run saves "
    "nothing."
)


def compulsive(work_turns: int, latency: float) -> ScriptedModel:
    """A model that works for this many turns, then finishes if it can, and otherwise keeps looking."""

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
    """Runs twenty tasks with both loops; `latency`: minimum duration of a model call, in seconds."""
    return [
        _simulated(loop, compulsive(turns - 1, latency), f"Do {kind} task {number}.", kind)
        for kind, (count, turns) in CLASSES.items()
        for number in range(1, count + 1)
        for loop in LOOPS
    ]


def _simulated(loop: str, model: ScriptedModel, task: str, kind: str) -> Run:
    """Returns the run with the tokens of its tool descriptions, which a scripted model does not count."""
    run = LOOPS[loop](model, TOOLS, task, kind, MOST_TURNS)
    described = sum(_tokens(_described(seen)) for seen in model.seen)
    again = sum(_repeated(before, seen) for before, seen in pairwise(model.seen))
    return replace(run, input_tokens=run.input_tokens + described, repeated_tokens=again)


def _described(seen: Seen) -> int:
    return len(json.dumps(seen.tools))


def _repeated(before: Seen, seen: Seen) -> int:
    """Returns the tokens of the prefix that a prompt shares with the previous call."""
    if seen.tools != before.tools:
        return 0
    pairs = zip(before.messages, seen.messages, strict=False)
    same = [shown for known, shown in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return _tokens(_described(seen) + sum(map(_written, same)))


def _written(message: BaseMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(str(message.content)) + sum(len(c["name"]) + len(str(c["args"])) for c in calls)


def _tokens(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def real(say: Callable[[Run], None]) -> tuple[str, list[Run]]:
    """Runs five tasks with both loops on the embedded model; returns its name and the runs."""
    # The package is an extra, and slow to import.
    from signoff.models.local import local_model

    found = []
    with local_model() as model:
        model.start()
        for task in FILE_TASKS:
            for loop in LOOPS:
                with tempfile.TemporaryDirectory() as folder:
                    found.append(run_task(loop, model, task, Path(folder)))
                say(found[-1])
        return model.model_name, found


def recorded() -> tuple[str, list[Run]]:
    """Returns the recorded result of `real`."""
    found = json.loads(RECORD.read_text("utf-8"))
    return found["model"], [Run(**run) for run in found["runs"]]


def record(name: str, runs: Sequence[Run]) -> None:
    document = {"model": name, "runs": [asdict(run) for run in runs]}
    RECORD.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def main(
    with_real: Annotated[
        bool,
        typer.Option("--real", help="Run the embedded model again: five tasks, about a quarter of an hour."),
    ] = False,
    latency: Annotated[
        float, typer.Option(min=0, help="Duration of a simulated model call in seconds.")
    ] = 0.02,
    input_price: Annotated[float, typer.Option(min=0, help="Dollars per million input tokens.")] = 2.5,
    output_price: Annotated[float, typer.Option(min=0, help="Dollars per million output tokens.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a plain loop with Signoff on the same tasks."""
    prices = Prices(input_price, output_price)
    console, progress = Console(width=140), Console(stderr=True)
    scripted = rows(simulated(latency), prices)
    name, runs = real(lambda run: progress.print(asdict(run))) if with_real else recorded()
    if with_real:
        record(name, runs)
    measured = rows(runs, prices)
    if as_json:
        document = {
            "simulated": {"note": SIMULATED, **_figures(scripted)},
            "real": {"model": name, "recorded": not with_real, **_figures(measured)},
        }
        print(json.dumps(document, indent=2))
        return
    title = (
        f"Twenty tasks, at most {MOST_TURNS} turns; a call takes {latency:g} s; "
        f"${input_price:g} and ${output_price:g} a million tokens read and written; means per task"
    )
    console.print(table(title, scripted), told(scripted), SIMULATED, sep="\n")
    title = f"Five tasks on files, at most {FILE_TURNS} turns"
    how = "run just now" if with_real else "recorded on two cores under other load; --real runs it again"
    console.print("", table(title, measured), told(measured), REAL.format(name=name, how=how), sep="\n")


def _figures(measured: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [asdict(row) for row in measured], "less": fewer(measured)}


if __name__ == "__main__":
    typer.run(main)
