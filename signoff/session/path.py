"""The path of a thread: the states that ran, the event of each, and why."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from signoff.graph.errors import ThreadError
from signoff.graph.machine import NO_TASK, Event, State, next_states

_START = "__start__"


@dataclass(frozen=True)
class Step:
    """One step of a thread, as it was saved.

    at: when it was saved, ISO 8601. checkpoint_id: identifies this point of the thread, for example to fork
        from; a last step that was killed before its checkpoint has that of the step before.
    state: the state that ran. None for an input, a change from outside and the beginning of a fork, and for
        a state of another version that this one does not know.
    event: what the state reported; "input", "update" or "fork" where none ran.
    rule, why: the rule that fired, and its reason; empty for every state but `decide`.
    next: the states that run next, by their names when it was saved; empty if the thread had ended. task: the
    id of the message that began the current task; empty before the first one.
    name: the name of the state when it was saved; empty where none ran.
    """

    at: str
    checkpoint_id: str
    state: State | None
    event: str
    rule: str
    why: str
    next: tuple[str, ...]
    task: str
    name: str


def steps(
    checkpointer: BaseCheckpointSaver[Any], thread_id: str, limit: int | None = None, *, within: str = ""
) -> list[Step]:
    """The steps that led to the thread's current state, oldest first; only the last `limit` steps if given.

    within: the checkpoint namespace of a delegate, for its steps instead of the thread's. Branches abandoned
    by a fork are not included. Empty for an unknown thread.
    """
    walk = _Walk(limit)
    for found in checkpointer.list(_whole(thread_id, within)):
        if not walk.back_to(found):
            break
    return walk.path()


def trail(checkpointer: BaseCheckpointSaver[Any], thread_id: str, ns: str = "") -> list[CheckpointTuple]:
    """The checkpoints that led to the thread's current state, oldest first, without abandoned branches. ns:
    the namespace of a delegate, for the checkpoints of its machine."""
    found: list[CheckpointTuple] = []
    for saved in checkpointer.list(_whole(thread_id, ns)):
        if not found or _id(saved) == _parent_id(found[-1]):
            found.append(saved)
        if _parent_id(found[-1]) is None:
            break
    return found[::-1]


def before_turn(path: Sequence[Step], turn: int) -> Step:
    """The last step before the model was called for this turn of the current task, counted from 1.

    path: all steps of the thread. Counts the replies that this thread received, by its `call_llm` steps.

    Raises ThreadError if the task never reached this turn.
    """
    task = path[-1].task if path else ""
    replies, found = 0, None
    for step in path:
        if not task or step.task != task:
            continue
        if replies == turn - 1 and [known_state(name) for name in step.next] == [State.CALL_LLM]:
            found = step
        replies += step.state is State.CALL_LLM and step.event == Event.REPLIED
    if found is None:
        raise ThreadError(f"The current task has {replies} turns, and none is number {turn}.")
    return found


def _whole(thread_id: str, ns: str = "") -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}


def known_state(name: str) -> State | None:
    """The state with this name; None for a state of another version."""
    return State(name) if name in set(State) else None


class _Walk:
    """Walks back from the newest checkpoint of a thread, from each one to its parent.

    Savers list checkpoints newest first, so a parent comes after its child, and any in between belong to
    another branch.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.found: list[Step] = []
        self.child: CheckpointTuple | None = None
        self.entered = False

    def back_to(self, found: CheckpointTuple) -> bool:
        """Takes the next older checkpoint. Returns False if no more are wanted."""
        if self.child is None:
            self._add_unsaved(found)
        else:
            if _id(found) != _parent_id(self.child):
                return True
            self._add(self.child, found)
        self.child = found
        return _parent_id(found) is not None and not self.full

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.found) >= self.limit

    def path(self) -> list[Step]:
        if self.child is not None and not self.full:
            self._add(self.child, None)
            self.child = None
        return self.found[::-1]

    def _add(self, saved: CheckpointTuple, parent: CheckpointTuple | None) -> None:
        name = node_between(saved, parent)
        # An input is saved twice: as it came, and after LangGraph has written it to the channels. A first run
        # that saves only its end starts with an empty checkpoint.
        again = self.entered and saved.metadata.get("source") == "input"
        if saved.checkpoint["channel_versions"] and not again:
            self.found.append(step_of(saved, name, saved.checkpoint["channel_values"]))
        self.entered = name == _START

    def _add_unsaved(self, newest: CheckpointTuple) -> None:
        """Adds the step that was killed before its checkpoint."""
        if found := unsaved(newest):
            self.found.append(step_of(newest, *found))
            self.entered = found[0] == _START


def unsaved(newest: CheckpointTuple) -> tuple[str, dict[str, Any]] | None:
    """The node that had run when its process was killed before its checkpoint, with the values after it (for
    channels of which only writes are stored, its writes). None if there is none."""
    wrote = dict[str, dict[str, Any]]()
    for task, channel, value in newest.pending_writes or ():
        wrote.setdefault(task, {})[channel] = value
    values = {**newest.checkpoint["channel_values"], **wrote.pop(NO_TASK, {})}
    runs = _next(values)
    done = [found for found in wrote.values() if "event" in found or next_states(found)]
    if not len(runs) == len(done) == 1:
        return None
    kept = {channel: value for channel, value in values.items() if not _next([channel])}
    return runs[0], {**kept, **done[0]}


def _next(channels: Collection[str]) -> tuple[str, ...]:
    return next_states(channels) or ((_START,) if _START in channels else ())


def node_between(saved: CheckpointTuple, parent: CheckpointTuple | None) -> str:
    """The name of the node that ran between `parent` and `saved`; empty for none.

    More than one ran when steps between were not saved (`durability="exit"`): this is the last of them.
    """
    seen = saved.checkpoint["versions_seen"]
    return max(all_between(saved, parent), key=lambda name: max(seen[name].values()), default="")


def all_between(saved: CheckpointTuple, parent: CheckpointTuple | None) -> list[str]:
    """The names of all nodes that ran between `parent` and `saved`.

    A node that runs records the channel versions that it has seen. An input records the same for the nodes
    that it interrupts, though nothing ran.
    """
    if saved.metadata.get("source") != "loop":
        return []
    seen = saved.checkpoint["versions_seen"]
    before = parent.checkpoint["versions_seen"] if parent else {}
    names = [name for name in seen if name == _START or not name.startswith("__")]
    return [name for name in names if seen[name] and seen[name] != before.get(name)]


def step_of(saved: CheckpointTuple, name: str, values: Mapping[str, Any]) -> Step:
    """The step by which the node of this name led to `saved`, or to these values after it."""
    is_state = name not in ("", _START)
    source = "input" if name == _START else str(saved.metadata.get("source", ""))
    state = known_state(name) if is_state else None
    decision = values["decision"] if state is State.DECIDE else {"rule": "", "why": ""}
    return Step(
        at=saved.checkpoint["ts"],
        checkpoint_id=_id(saved),
        state=state,
        # In an agent with guards, a step of another middleware may come before there is any event.
        event=values.get("event", "") if is_state else source,
        rule=decision["rule"],
        why=decision["why"],
        next=_next(values),
        task=values.get("task", ""),
        name=name if is_state else "",
    )


def _id(found: CheckpointTuple) -> str:
    return found.checkpoint["id"]


def _parent_id(found: CheckpointTuple) -> str | None:
    parent = found.parent_config
    return parent["configurable"].get("checkpoint_id") if parent else None
