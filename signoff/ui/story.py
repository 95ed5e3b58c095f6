"""What a thread holds, as the events that led to where it stands."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from signoff.cli.database import OpenStorage
from signoff.graph.machine import State
from signoff.nodes.journal import recorded
from signoff.session.events import Ended, Event, Said, Wrote
from signoff.session.history import Chapter, chapters
from signoff.session.path import Step, steps
from signoff.session.standing import Standing, kit_of, look, readable, reading_graph

Edge = tuple[State, State]


@dataclass(frozen=True)
class Story:
    """A thread, read back.

    events: everything that happened, oldest first, the end of each task among it. edges: how often the
    machine went from one state to another in the current task. at: the state that ran last, or runs next.
    running: whether a process runs the thread now.
    """

    standing: Standing
    events: Sequence[Event]
    edges: Counter[Edge]
    at: State | None
    running: bool


def read_story(storage: OpenStorage, thread_id: str) -> Story:
    """The thread as it is saved. Raises StorageError for one that cannot be read."""
    # Asked first: a run that ends in between is looked at once more; one that had ended is read whole.
    running = storage.checkpointer.is_running(thread_id)
    graph = reading_graph(storage)
    standing = look(graph, thread_id)
    with readable(thread_id):
        path = steps(storage.checkpointer, thread_id)
        told = chapters(standing.values, kit_of(graph).toolbox, path)
        ends = {end.task: end.model_dump() for end in recorded(storage.store, thread_id)}
    if standing.outcome is not None:
        ends[standing.task.id] = dict(standing.outcome)
    ran = [step for step in path if step.task == standing.task.id and step.state]
    at = _next_state(path) or (ran[-1].state if ran else None)
    return Story(standing, list(_events(told, ends)), _edges(ran, at), at, running)


def _events(told: Sequence[Chapter], ends: Mapping[str, Mapping[str, Any]]) -> Iterator[Event]:
    for chapter in told:
        for words in chapter.words:
            yield Wrote(words)
        for turn in chapter.turns:
            yield Said(turn.number, turn.text, (), turn.tokens, turn.seconds, turn.beside)
            yield from turn.events
        if chapter.task in ends:
            yield Ended(ends[chapter.task])


def _edges(ran: Sequence[Step], at: State | None) -> Counter[Edge]:
    states = [step.state for step in ran if step.state]
    if at is not None and states and at is not states[-1]:
        states.append(at)
    return Counter(pairwise(states))


def _next_state(path: Sequence[Step]) -> State | None:
    names = path[-1].next if path else ()
    return next((State(name) for name in names if name in set(State)), None)
