"""Runs the next batch of calls: the longest run of consecutive reads, or one other call."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from langchain_core.messages import ToolMessage

from signoff.graph.machine import Event
from signoff.graph.replies import Call
from signoff.graph.state import AgentState
from signoff.nodes.invoke import Job
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps
from signoff.tools.kinds import Kind

PARALLEL_READS = 8


@dataclass(frozen=True)
class Jobs:
    """Calls that run beside each other; gives their results in order."""

    jobs: Sequence[Job]

    def do(self, run: Run) -> list[ToolMessage]:
        for job in self.jobs:
            job.start()
        return [job.result() for job in self.jobs]

    async def ado(self, run: Run) -> list[ToolMessage]:
        return list(await asyncio.gather(*(job.aresult() for job in self.jobs)))


def execute(state: AgentState, run: Run) -> Steps:
    task = run.task(state)
    batch = next_batch(task.due, run.kit.kinds)
    results = yield Jobs([Job(call, run) for call in batch])
    event = Event.MORE if len(batch) < len(task.due) else Event.DONE
    return Report(event, {"messages": results})


def next_batch(due: Sequence[Call], kinds: Mapping[str, Kind]) -> Sequence[Call]:
    """The calls that run together now: reads beside each other, anything else alone."""
    reads = list(takewhile(lambda call: kinds[call.name] is Kind.READ, due[:PARALLEL_READS]))
    return reads or due[:1]
