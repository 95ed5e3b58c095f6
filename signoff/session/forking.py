"""Forks a thread: copies it as it was at some point, with its delegates."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, StateSnapshot

from signoff.graph.build import Graph
from signoff.graph.compiled.inputs import entry_update, what_is_left
from signoff.graph.errors import SetupError, ThreadError, unknown_thread
from signoff.graph.foreign import count_noun
from signoff.graph.history.task import read
from signoff.graph.machine import Event, State
from signoff.graph.messages import is_reply
from signoff.graph.schemas.state import for_a_copy
from signoff.nodes.delegates.descent import is_within, namespace
from signoff.nodes.delegates.ledger import copy_ledger
from signoff.nodes.journal import copy_entries, copy_entries_below
from signoff.session.copying import copy_machine, namespaces_below
from signoff.session.path import before_turn, steps
from signoff.session.status import config_of, deps_of, readable

_TO_A_QUESTION = (State.COMPRESS, State.DECIDE, State.ASK_USER)


def fork(graph: Graph, thread_id: str, at: int | str | None, target: str) -> None:
    """Copies the thread to `target`: as it was after `at` turns of its current task, at the checkpoint with
    this id, or as it is (None).

    A fork of a thread that waits for an answer waits for it, too. If it waits for anything else, continue the
    fork first (`run()`): then it waits for the same.

    The journal entries of calls that were open at that point are copied, too, and so are the delegates called
    by then, in their current state: the fork does not repeat an effect that has already happened. Raises
    ThreadError if there is no such point, or if `target` exists.
    """
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | str)):
        raise SetupError(f"Fork at a number of turns, at the id of a checkpoint, or at None; not at {at!r}.")
    with graph.runner(config_of(target)) as hold, hold.here():
        if graph.get_state(config_of(target)).created_at is not None:
            raise ThreadError(f"Thread {target!r} already exists; choose another id.")
        with readable(thread_id):
            snapshot = _point(graph, thread_id, at)
            values: Any = snapshot.values
            task = read(values, deps_of(graph).toolbox)
        _copy_below(graph, (thread_id, target), values.get("messages", ()), task.id)
        if graph.store is not None and task.last is not None:
            copy_entries(graph.store, (thread_id, target), task.last.message.id or "", task.due)
        if outcome := values.get("outcome"):
            values = {**values, "outcome": {**outcome, "thread_id": target}}
        copied = for_a_copy(values, deps_of(graph).channels)
        if snapshot.next == (str(State.FINISH),):
            # The rules would not end the task again, since its finish was already accepted. Where the event
            # leads is known: the last state has no edges of its own.
            last = str(State.FINISH)
            graph.update_state(config_of(target), Command(goto=last, update=copied), last)
        else:
            graph.update_state(config_of(target), *entry_update(Event.FORK, copied))
        if not task.due and (task.ask is not None or task.spoke is not None):
            _ask(graph, target)


def _copy_below(graph: Graph, threads: tuple[str, str], messages: Sequence[BaseMessage], task: str) -> None:
    """Copies the delegates of these messages, with all delegates below them, in their current state, so that
    their effects are not repeated."""
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a session has one"
    source, target = threads
    known = namespaces_below(saver, source)
    begun = [
        namespace("", call["name"], message.id or "", call["id"] or "")
        for message in (messages if known else ())
        if is_reply(message)
        for call in message.tool_calls
    ]
    copied = [ns for ns in known if any(is_within(ns, top) for top in begun)]
    for ns in copied:
        copy_machine(saver, source, ns, target)
    if graph.store is not None and copied:
        copy_entries_below(graph.store, threads, copied)
        copy_ledger(graph.store, threads, task, copied)


def _ask(graph: Graph, thread_id: str) -> None:
    """Asks the standing question; nothing else runs on the way there."""
    place = config_of(thread_id)
    others = [str(state) for state in State if state not in _TO_A_QUESTION]
    for _ in graph.stream_held(what_is_left(graph.get_state(place)), place, interrupt_before=others):
        pass


def _point(graph: Graph, thread_id: str, at: int | str | None) -> StateSnapshot:
    now = graph.get_state(config_of(thread_id))
    if now.created_at is None:
        raise unknown_thread(thread_id)
    values: Any = now.values
    turns = read(values, deps_of(graph).toolbox).turns
    if at is None or at == turns:
        return now
    if isinstance(at, int) and not 0 <= at < turns:
        raise ThreadError(f"The current task has {count_noun(turns, 'turn')}; there is no turn {at} in it.")
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
