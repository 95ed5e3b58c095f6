"""Reads the history of a thread turn by turn: messages, calls, and the rule that applied with its reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from signoff.graph.history.reader import read_messages
from signoff.graph.history.task import Task
from signoff.graph.limits import Limits
from signoff.graph.machine import Event, State
from signoff.graph.messages import is_answer, is_genuine, marks
from signoff.models.text_protocol.status import reply_statuses
from signoff.session.events import Called, Said, SessionEvent, Wrote
from signoff.session.following import Follower
from signoff.session.path import Step
from signoff.tools.toolbox import Toolbox


@dataclass(frozen=True)
class Turn:
    """One reply of the model and its results.

    task: the id of the message that began its task. number: its number in the task, from 1. text: what the
    model said.
    events: thoughts, calls with their results, answers and reminders, in order. tokens, seconds: those of the
    reply. steps: the states that the machine went through from this reply to the next, each `decide` with the
    rule that fired and why. beside, status: for a reply in the tagged text protocol, its text outside plans,
    code and calls, and the status of the work after it (`Debugging` if its code failed). message_id: the id
    of the reply. calls: its calls, as the model made them.
    """

    task: str
    number: int
    text: str
    events: tuple[SessionEvent, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    steps: tuple[Step, ...] = ()
    beside: str | None = None
    status: str | None = None
    message_id: str = ""
    calls: tuple[Called, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """One task of a thread: what the user wrote to begin it, and its turns."""

    task: str
    words: tuple[str, ...]
    turns: tuple[Turn, ...]


def chapters(values: Mapping[str, Any], toolbox: Toolbox, steps: Sequence[Step] = ()) -> list[Chapter]:
    """The thread with this state, task by task. `steps` are those of `path.steps`."""
    ways = _ways(steps)
    found: list[Chapter] = []
    replies = sum(isinstance(event, Said) for _, event in _read(values, toolbox))
    # A history may begin with imported replies: the steps belong to the last replies.
    ways = [()] * (replies - len(ways)) + ways[max(0, len(ways) - replies) :]
    statuses = iter(reply_statuses(values.get("messages", ())))
    turns: list[Turn] = []
    words: list[str] = []
    current = ""
    for task, event in _read(values, toolbox):
        if task != current and (turns or words):
            found.append(Chapter(current, tuple(words), tuple(turns)))
            turns, words = [], []
        current = task
        if isinstance(event, Said):
            way = ways[0] if ways else ()
            ways = ways[1:]
            made = Turn(task, len(turns) + 1, event.text, (), event.tokens, event.seconds, tuple(way))
            turns.append(
                replace(
                    made,
                    beside=event.beside,
                    status=next(statuses, None),
                    message_id=event.message_id,
                    calls=event.calls,
                )
            )
        elif isinstance(event, Wrote) and not event.answers:
            words.append(event.text)
        elif turns:
            last = turns[-1]
            turns[-1] = Turn(**{**vars(last), "events": (*last.events, event)})
    return [*found, Chapter(current, tuple(words), tuple(turns))] if current or turns else found


def _read(values: Mapping[str, Any], toolbox: Toolbox) -> Iterator[tuple[str, SessionEvent]]:
    """Everything in the messages as events, in order, each with the id of its task."""
    for number, (task, event) in enumerate(_events_of(values, toolbox), 1):
        yield task, replace(event, seq=number)


def read_conversation(values: Mapping[str, Any], toolbox: Toolbox) -> Iterator[SessionEvent]:
    """All events of the thread with this state, in order; the message that reports how a task ended is a
    `Said`, too."""
    return (event for _, event in _events_of(values, toolbox, answers=True))


def _events_of(
    values: Mapping[str, Any], toolbox: Toolbox, *, answers: bool = False
) -> Iterator[tuple[str, SessionEvent]]:
    messages: Sequence[BaseMessage] = values.get("messages", ())
    spoken = read_messages(values, toolbox).spoken  # type: ignore[arg-type]  # the state of a snapshot
    follower = Follower(Task(), toolbox, Limits().turns)
    current = ""
    for message in messages:
        if answers and is_answer(message):
            yield current, Said(follower.turn, message.text, message_id=message.id or "")
        elif isinstance(message, HumanMessage) and is_genuine(message):
            answering = message.id in spoken or "answers" in marks(message)
            if not answering and (follower.turn or not current):
                follower.begin()
                current = message.id or ""
            by = marks(message).get("by", "")
            yield current, Wrote(message.text, answering, message.id or "", by)
        else:
            for event in follower.message(message):
                yield current, event


def _ways(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """The steps from each reply to the next."""
    starts = [
        at for at, step in enumerate(steps)
        if step.state is State.CALL_LLM and step.event == Event.REPLIED
    ]  # fmt: skip
    return [steps[at:until] for at, until in pairwise([*starts, len(steps)])]
