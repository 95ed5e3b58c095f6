"""A node of the graph: it runs one function and checks the reported event against the table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.store.base import BaseStore

from signoff.graph.machine import TRANSITIONS, Event, State, next_state
from signoff.graph.outcome import Outcome
from signoff.graph.state import AgentState
from signoff.nodes.kit import Kit, Run


@dataclass(frozen=True)
class Report:
    """What a node reports: one event, what it writes to the state, and outcomes to record in the store.

    Only the last state, whose row of the table is empty, reports no event.
    """

    event: Event | None
    update: dict[str, Any] = field(default_factory=dict)
    records: tuple[Outcome, ...] = ()


Work = Callable[[AgentState, Run], Report]
AsyncWork = Callable[[AgentState, Run], Awaitable[Report]]


class Node(Runnable[AgentState, dict[str, Any]]):
    """A state of the machine as a LangGraph node, for sync and async runs.

    A plain function costs LangGraph a thread switch in an async run; this does not. `awork` is given where
    the work itself waits for something.
    """

    def __init__(self, state: State, kit: Kit, work: Work, awork: AsyncWork | None = None) -> None:
        self.state = state
        self.kit = kit
        self.work = work
        self.awork = awork
        self.name = str(state)

    def invoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = Run(self.kit, config or {})
        report = self._checked(self.work(input, run))
        if run.store is not None:
            for outcome in report.records:
                run.store.put(*_record(outcome))
        return {"event": str(report.event or "ended"), **report.update}

    async def ainvoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = Run(self.kit, config or {})
        report = self._checked(await self.awork(input, run) if self.awork else self.work(input, run))
        if run.store is not None:
            for outcome in report.records:
                await run.store.aput(*_record(outcome))
        return {"event": str(report.event or "ended"), **report.update}

    def _checked(self, report: Report) -> Report:
        if report.event is not None or TRANSITIONS[self.state]:
            next_state(self.state, report.event)
        return report


def outcomes_of(thread_id: str | None) -> tuple[str, ...]:
    """The namespace of the store that holds the outcomes of a thread. A store allows no dot in it."""
    return ("signoff", "outcomes", (thread_id or "").replace("%", "%25").replace(".", "%2E") or "-")


def _record(outcome: Outcome) -> tuple[tuple[str, ...], str, dict[str, Any]]:
    return outcomes_of(outcome.thread_id), outcome.task or "-", outcome.model_dump()


def recorded(store: BaseStore, thread_id: str) -> list[Outcome]:
    """The outcomes of a thread, in the order in which its tasks were recorded."""
    items = store.search(outcomes_of(thread_id), limit=1000)
    ordered = sorted(items, key=lambda item: item.created_at)
    return [Outcome.model_validate(item.value) for item in ordered]
