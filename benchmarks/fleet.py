"""Runs many tasks at once in one process: `python -m benchmarks.fleet --tasks 1000`.

Every task has its own thread, script and marker. All must finish, and none may contain another task's marker.
The exit code is 1 if a task fails, or if the tasks take twelve turns or more on average.
"""

import asyncio
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from langchain_core.messages import BaseMessage, HumanMessage
from rich.console import Console
from rich.table import Table

from signoff import Storage, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

_MARKER = re.compile(r"task-\d{5}")
_TURNS = (3, 12)
MOST_AVERAGE = 12
"""The average number of turns must be below this."""
_NAMED = 5


@dataclass(frozen=True)
class Task:
    """One finished task. markers: those in its history and outcome; only its own if nothing was mixed up."""

    marker: str
    outcome: dict[str, Any]
    markers: set[str]

    @property
    def right(self) -> bool:
        """Whether it ended with its own finish and contains nothing of another task."""
        ended = (self.outcome["status"], self.outcome["claim"], self.outcome["summary"])
        return ended == ("success", "done", f"{self.marker} is done.") and self.markers == {self.marker}


@dataclass
class Found:
    """The result of a fleet. together: the most tasks that were in a tool at the same time."""

    tasks: list[Task] = field(default_factory=list)
    together: int = 0


class Crowd:
    """Returns scripts of 3 to 11 turns, and a tool in which tasks wait briefly, so that they overlap."""

    def __init__(self, markers: Sequence[str], pause: float) -> None:
        rng = random.Random(100)
        self.scripts = {marker: self._script(marker, rng.randrange(*_TURNS)) for marker in markers}
        self.pause = pause
        self.inside = self.together = 0

    def _script(self, marker: str, turns: int) -> Iterator[Any]:
        for number in range(1, turns):
            yield call("work", marker=marker, step=number)
        yield call("finish_task", summary=f"{marker} is done.")

    def step(self, messages: list[BaseMessage]) -> Any:
        marker = next(message.text for message in messages if isinstance(message, HumanMessage))
        return next(self.scripts[marker])

    async def work(self, marker: str, step: int) -> str:
        """Work."""
        self.inside += 1
        self.together = max(self.together, self.inside)
        await asyncio.sleep(self.pause)
        self.inside -= 1
        return f"{marker} did step {step}"


async def at_once(tasks: int, storage: Storage | None = None, pause: float = 0.5) -> Found:
    """Runs this many tasks at once. storage: where to keep their threads; None for nowhere.

    pause: duration of each call of the working tool, in seconds.
    """
    markers = [f"task-{number:05}" for number in range(tasks)]
    crowd = Crowd(markers, pause)
    graph = build_graph(ScriptedModel(crowd.step), [crowd.work], storage=storage)

    async def run(marker: str) -> Task:
        config: Any = {"configurable": {"thread_id": marker}}
        result = await graph.ainvoke({"messages": [("user", marker)]}, config)
        text = json.dumps([result["outcome"], *(message.model_dump() for message in result["messages"])])
        return Task(marker, result["outcome"], set(_MARKER.findall(text)))

    done = await asyncio.gather(*map(run, markers))
    return Found(list(done), crowd.together)


def main(
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks to run at once.")] = 1000,
    pause: Annotated[float, typer.Option(min=0, help="Duration of a tool call in seconds.")] = 0.5,
    sqlite: Annotated[bool, typer.Option(help="Whether to keep the threads in a SQLite file.")] = True,
) -> None:
    """Run many tasks at once in one process and print how long it takes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        storage = stack.enter_context(sqlite_storage(folder / "threads.sqlite")) if sqlite else None
        begun, worked = time.monotonic(), time.process_time()
        found = asyncio.run(at_once(tasks, storage, pause))
        seconds, cpu = time.monotonic() - begun, time.process_time() - worked
    outcomes = [one.outcome for one in found.tasks]
    turns = sum(outcome["turns"] for outcome in outcomes)
    table = Table("", "", title=f"{tasks} tasks at once, {'SQLite' if sqlite else 'no storage'}")
    table.add_row("finished", str(sum(outcome["status"] == "success" for outcome in outcomes)))
    table.add_row("mixed up", str(sum(one.markers != {one.marker} for one in found.tasks)))
    table.add_row("most in a tool at the same moment", str(found.together))
    average = statistics.fmean(outcome["turns"] for outcome in outcomes)
    table.add_row("turns on average", f"{average:.1f}")
    table.add_row("wall time", f"{seconds:.1f} s")
    table.add_row("CPU time", f"{cpu:.1f} s, {cpu / turns * 1000:.1f} ms a turn")
    table.add_row("tasks per second", f"{tasks / seconds:.1f}")
    table.add_row("most turns on average", str(MOST_AVERAGE))
    Console().print(table)
    wrong = [one.marker for one in found.tasks if not one.right]
    if wrong or average >= MOST_AVERAGE:
        told = f"{len(wrong)} of {tasks} tasks failed; {average:.1f} turns on average."
        raise SystemExit(f"{told} {', '.join(wrong[:_NAMED])}".rstrip())


if __name__ == "__main__":
    typer.run(main)
