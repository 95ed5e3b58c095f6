"""A copy of a thread, as it was at some point, that goes its own way."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot

from signoff.graph.build import Graph
from signoff.graph.compiled.inputs import go_on
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.foreign import counted
from signoff.graph.history.task import read
from signoff.graph.machine import Event, State
from signoff.nodes.journal import copy_entries
from signoff.session.path import before_turn, steps
from signoff.session.standing import config_of, kit_of, readable

_TO_A_QUESTION = (State.COMPRESS, State.DECIDE, State.ASK_USER)


def fork(graph: Graph, thread_id: str, at: int | str | None, target: str) -> None:
    """Copies the thread to `target`: as it was after `at` turns of its current task, at the checkpoint with
    this id, or as it is (None).

    A copy of a thread that waits for an answer waits for it, too. One that waits for something else is to go
    on first (`run()`): then it waits for the same.

    What the journal says of calls that were open at that point is copied too: the fork does not repeat an
    effect that has taken place. Raises ThreadError when there is no such point, or `target` exists.
    """
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | str)):
        raise SetupError(f"Fork at a number of turns, at the id of a checkpoint, or at None; not at {at!r}.")
    with graph.runner(config_of(target)):
        if graph.get_state(config_of(target)).created_at is not None:
            raise ThreadError(f"There is a thread {target!r} already; fork to another id.")
        with readable(thread_id):
            snapshot = _point(graph, thread_id, at)
            values: Any = snapshot.values
            task = read(values, kit_of(graph).toolbox)
        if graph.store is not None and task.last is not None:
            copy_entries(graph.store, (thread_id, target), task.last.message.id or "", task.due)
        # In the name of `nudge`, whose only way leads to `compress`: from there the rules find their way.
        # They would not find an end again that a finish has been granted already.
        ends = snapshot.next == (str(State.FINISH),)
        name, event = (State.CONFIRM, Event.CONFIRMED) if ends else (State.NUDGE, Event.NUDGED)
        if outcome := values.get("outcome"):
            values = {**values, "outcome": {**outcome, "thread_id": target}}
        graph.update_state(config_of(target), {**values, "event": str(event)}, str(name))
        if not task.due and (task.ask is not None or task.spoke is not None):
            _ask(graph, target)


def _ask(graph: Graph, thread_id: str) -> None:
    """Puts the question that stands to a person: nothing else runs on the way there."""
    place = config_of(thread_id)
    others = [str(state) for state in State if state not in _TO_A_QUESTION]
    for _ in graph.stream_held(go_on(graph.get_state(place)), place, interrupt_before=others):
        pass


def _point(graph: Graph, thread_id: str, at: int | str | None) -> StateSnapshot:
    now = graph.get_state(config_of(thread_id))
    if now.created_at is None:
        raise ThreadError(f"There is no thread {thread_id!r} to fork.")
    values: Any = now.values
    turns = read(values, kit_of(graph).toolbox).turns
    if at is None or at == turns:
        return now
    if isinstance(at, int) and not 0 <= at < turns:
        raise ThreadError(f"The current task has {counted(turns, 'turn')}; there is no turn {at} in it.")
    checkpointer = graph.checkpointer
    assert isinstance(checkpointer, BaseCheckpointSaver), "a session has one"
    checkpoint = at
    if isinstance(at, int):
        checkpoint = before_turn(steps(checkpointer, thread_id), at + 1).checkpoint_id
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_id": checkpoint}}
    found = graph.get_state(config)
    if found.created_at is None:
        raise ThreadError(f"Thread {thread_id!r} has no checkpoint {at!r}; `signoff show --json` lists them.")
    return found
