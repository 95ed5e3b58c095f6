"""Runs calls of tools: reads beside each other, a call that may change something at most once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.errors import GraphBubbleUp

from signoff.graph.replies import Call
from signoff.graph.state import AgentState
from signoff.nodes.invoke import Job
from signoff.nodes.journal import DONE, STARTED, WAITING, Entry, claim, look, note, outcome_known, unknown
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Store
from signoff.nodes.told import Done
from signoff.tools.kinds import fingerprint

MOST_STARTS = 2
"""A call that may run again after a crash is told as unknown when it was cut short so often."""


@dataclass(frozen=True)
class Jobs:
    """Calls that run beside each other, or `one_by_one`; gives what came of them, in order."""

    jobs: Sequence[Job]
    one_by_one: bool = False

    def do(self, run: Run) -> list[Done]:
        if self.one_by_one or len(self.jobs) == 1:
            return [job.alone() for job in self.jobs]
        for job in self.jobs:
            job.start()
        return [job.result() for job in self.jobs]

    async def ado(self, run: Run) -> list[Done]:
        if self.one_by_one or len(self.jobs) == 1:
            return [await job.aalone() for job in self.jobs]
        return list(await asyncio.gather(*(job.aresult() for job in self.jobs)))


def once(
    call: Call,
    reply_id: str,
    state: AgentState,
    run: Run,
    *,
    again: Callable[[Entry], bool],
    edited: Mapping[str, Any] | None = None,
    ask_unknown: bool = False,
) -> Part[list[BaseMessage]]:
    """A part of a node: a call that may change something. `started` is durable before it runs, `done` after.

    again: whether a call that the journal knows runs once more. edited: arguments in place of the model's.
    ask_unknown: nothing comes back for a call whose outcome is unknown, since a person will be asked.
    """
    runs = fingerprint(call.name, call.args if edited is None else edited)
    entry: Entry | None = (yield from look(run, reply_id, [call])).get(call.id)
    if entry is not None and entry.hash == runs and not again(entry):
        ask = ask_unknown and entry.status == STARTED
        return [] if ask else outcome_known(call, entry, run)
    begun = Entry(STARTED, entry.attempt + 1 if entry else 1, runs, edited)
    if not (yield claim(run.thread_id, reply_id, call, entry, begun)):
        # Another runner of this thread has just started the same call.
        return [unknown(call, run, edited)]
    try:
        results: list[Done] = yield Jobs([Job(call, state, run, edited)])
    except GraphBubbleUp:
        yield Store([note(run, reply_id, call, replace(begun, status=WAITING))])
        raise
    messages = results[0].messages
    yield Store([note(run, reply_id, call, replace(begun, status=DONE, messages=tuple(messages)))])
    return messages
