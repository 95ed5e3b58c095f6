"""Runs the next batch of calls: the longest run of consecutive reads, or one other call, its effect at most
once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp

from signoff.graph.machine import Event
from signoff.graph.marks import not_run
from signoff.graph.replies import Call
from signoff.graph.section import decided
from signoff.graph.state import AgentState, Decided
from signoff.graph.task import Task
from signoff.nodes.invoke import Done, Job
from signoff.nodes.journal import DONE, STARTED, WAITING, Entry, claim, look, note, outcome_known, unknown
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Report, Steps, Store
from signoff.tools.kinds import Kind

PARALLEL_READS = 8


@dataclass(frozen=True)
class Jobs:
    """Calls that run beside each other; gives what came of them, in order."""

    jobs: Sequence[Job]

    def do(self, run: Run) -> list[Done]:
        for job in self.jobs:
            job.start()
        return [job.result() for job in self.jobs]

    async def ado(self, run: Run) -> list[Done]:
        return list(await asyncio.gather(*(job.aresult() for job in self.jobs)))


def execute(state: AgentState, run: Run) -> Steps:
    task = run.task(state)
    batch = next_batch(task.due, run.kit.toolbox.kinds)
    if run.kit.toolbox.is_effect(batch[0].name):
        messages = yield from _effect(batch[0], task, state, run)
    else:
        done = yield Jobs([Job(call, state, run) for call in batch])
        messages = [message for one in done for message in one.messages]
    left = len(batch) < len(task.due) or not messages
    event = Event.MORE if left else Event.DONE
    return Report(event, {"messages": messages})


def next_batch(due: Sequence[Call], kinds: Mapping[str, Kind]) -> Sequence[Call]:
    """The calls that run together now: reads beside each other, anything else alone."""
    reads = list(takewhile(lambda call: kinds[call.name] is Kind.READ, due[:PARALLEL_READS]))
    return reads or due[:1]


def _effect(call: Call, task: Task, state: AgentState, run: Run) -> Part[list[Any]]:
    """One call that may change something: `started` is durable before it runs, `done` after.

    Nothing comes back for a call whose outcome is unknown when a person is to be asked: it stays due, and
    `route_tools` sends it to `approve`.
    """
    box, reply_id = run.kit.toolbox, task.reply_of(call).message.id or ""
    decision = decided(call, task.decisions)
    if box.needs_approval(call.name, call.args) and not _approved(decision):
        return [_not_approved(call, run)]
    entry: Entry | None = (yield from look(run, reply_id, [call])).get(call.id)
    again = entry is not None and entry.status == STARTED and box.may_repeat(call.name)
    asked = entry is not None and entry.status == STARTED and _approved(decision, entry.attempt)
    if not (again or asked) and (known := outcome_known(call, entry, run)):
        ask = run.kit.ask_unknown and entry is not None and entry.status == STARTED
        return [] if ask else [known]
    begun = Entry(STARTED, entry.attempt + 1 if entry else 1)
    if not (yield claim(run, reply_id, call, entry, begun)):
        # Another runner of this thread has just started the same call.
        return [unknown(call, run)]
    job = Job(call, state, run, decision["args"] if decision else None)
    try:
        results: list[Done] = yield Jobs([job])
    except GraphBubbleUp:
        yield Store([note(run, reply_id, call, replace(begun, status=WAITING))])
        raise
    done = results[0]
    yield Store([note(run, reply_id, call, replace(begun, status=DONE, answer=done.result))])
    return done.messages


def _approved(decision: Decided | None, attempt: int | None = None) -> bool:
    """Whether a person said that the call may run; with `attempt`, again after so many starts."""
    if decision is None or decision["type"] not in ("approve", "edit"):
        return False
    return attempt is None or decision["attempt"] == attempt


def _not_approved(call: Call, run: Run) -> ToolMessage:
    text = run.kit.texts.results["not_approved"].format(name=call.name)
    return not_run(call.id, call.name, text, "not_approved")
