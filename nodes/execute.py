"""Runs the next batch of calls: the longest run of consecutive reads, or one other call."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import takewhile

from langchain_core.messages import ToolMessage

from signoff.graph.history import Task
from signoff.graph.machine import Event
from signoff.graph.replies import Call
from signoff.graph.state import AgentState
from signoff.nodes.invoke import Job
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.tools.kinds import Kind

PARALLEL_READS = 8


def execute(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    batch = next_batch(task.due, run.kit.kinds)
    jobs = [Job(call, run).start() for call in batch]
    return _report(task, [job.result() for job in jobs])


async def aexecute(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    batch = next_batch(task.due, run.kit.kinds)
    jobs = [Job(call, run) for call in batch]
    return _report(task, await asyncio.gather(*(job.aresult() for job in jobs)))


def next_batch(due: Sequence[Call], kinds: Mapping[str, Kind]) -> Sequence[Call]:
    """The calls that run together now: reads beside each other, anything else alone."""
    reads = list(takewhile(lambda call: kinds[call.name] is Kind.READ, due[:PARALLEL_READS]))
    return reads or due[:1]


def _report(task: Task, results: Sequence[ToolMessage]) -> Report:
    event = Event.MORE if len(results) < len(task.due) else Event.DONE
    return Report(event, {"messages": list(results)})
