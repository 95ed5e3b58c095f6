"""The compiled graph, on SQLite, goes where the explored functions go: every sequence of three replies.

A prefix is run once; each reply that may follow it forks its checkpoint.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from signoff import Limits, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.machine import State
from signoff.models import ScriptedModel
from signoff.session.status import deps_of
from signoff.verify.explore import key
from signoff.verify.machine import ALPHABET, CORE, Machine, MachinePoint, message
from tests.proof.worlds import NAMES, TOOLS

MODEL = [str(State.CALL_LLM)]
ENDINGS = ("status", "reason", "claim", "verified", "turns", "nudges", "refusals", "tool_calls")


@dataclass(frozen=True)
class Place:
    """Where a run stands: in the compiled graph by its checkpoint, in the explored functions by a point."""

    config: RunnableConfig
    point: MachinePoint


class Runs:
    """Both machines side by side. Replies come whole: what the stream cuts off never comes to the nodes."""

    def __init__(self, storage: Any) -> None:
        self.next_reply: AIMessage | RuntimeError = AIMessage("")
        model = ScriptedModel(lambda _: self.next_reply, disable_streaming=True)
        limits = Limits(turns=3, talk_turns=2, repeats=None)
        self.graph: Graph = build_graph(model, TOOLS, limits=limits, storage=storage)
        self.machine = Machine(replace(deps_of(self.graph), readings={}), NAMES)
        self.visited = 0

    def begin(self, thread_id: str) -> Place:
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        self.graph.invoke({"messages": [("user", "do it")]}, config, interrupt_before=MODEL)
        return self._place(config, self.machine.begin([("user", "do it")], 0))

    def after(self, place: Place, name: str) -> Place:
        """The place after one reply, and an answer where that asks a person."""
        self.visited += 1
        symbol = ALPHABET[name]
        said = message(symbol, NAMES, str(self.visited))
        self.next_reply = RuntimeError(symbol.error) if symbol.error else said
        self.graph.invoke(None, place.config, interrupt_before=MODEL)
        config: RunnableConfig = {"configurable": {"thread_id": place.config["configurable"]["thread_id"]}}
        found = self.graph.get_state(config)
        point = self._on(self.machine.step(place.point, ALPHABET[name]).after)
        if point.waiting is not None:
            (pending,) = found.interrupts
            assert pending.value["type"] == point.waiting["type"]
            self.graph.invoke(Command(resume={pending.id: "blue"}), config, interrupt_before=MODEL)
            point = self._on(self.machine.step(point, answer="blue").after)
        return self._place(config, point)

    def _place(self, config: RunnableConfig, point: MachinePoint) -> Place:
        found, point = self.graph.get_state(config), self._on(point)
        assert self._seen(found.next, found.values) == self._seen((), point.state, point)
        return Place(found.config, point)

    def _on(self, point: MachinePoint) -> MachinePoint:
        while point.place not in (None, State.CALL_LLM) and point.waiting is None:
            self.machine.deps.readings.clear()
            point = self.machine.step(point).after
        return point

    def _seen(self, following: Sequence[str], values: Any, point: MachinePoint | None = None) -> Hashable:
        """How the run stands: the state that is next, what the rules see, and how it has ended."""
        given = point or MachinePoint(State(following[0]) if following else None, values)
        outcome = values.get("outcome") or {}
        bare = replace(given, shelf={}, waiting=None)
        return key(bare, self.machine), tuple(outcome.get(name) for name in ENDINGS)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_sequence_of_three_replies(tmp_path: Path, figure: Any) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        runs = Runs(storage)
        places = [runs.begin("a thread")]
        for _ in range(3):
            places = [runs.after(p, name) for p in places if p.point.place is not None for name in CORE]
    figure(f"the compiled graph on SQLite: {runs.visited:,} forks, each where the explored functions go")
    assert runs.visited > 500


def test_every_single_reply(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        runs = Runs(storage)
        begun = runs.begin("a thread")
        ended = [name for name in ALPHABET if runs.after(begun, name).point.place is None]
    assert {"finish", "write + finish", "words + finish", "error"} <= set(ended)
    assert not {"talk", "done!", "ask", "cut write + finish", "empty finish", "phase"} & set(ended)
