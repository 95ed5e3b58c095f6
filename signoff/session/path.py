"""The path of a thread (which states ran, what each reported, and why), and the forks of a thread."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, StateSnapshot

from signoff.graph.build import Graph
from signoff.graph.compiled.inputs import entry_update, go_on
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.foreign import counted
from signoff.graph.history.task import Task, read
from signoff.graph.machine import ALIASES, Event, State, next_states
from signoff.graph.schemas.state import for_a_copy
from signoff.nodes.descent import namespace
from signoff.nodes.journal import copy_entries
from signoff.session.status import config_of, deps_of, readable

_START = "__start__"
# LangGraph keeps what no task wrote, such as the target of a `Command(goto=…)`, under this id.
NO_TASK = str(UUID(int=0))


@dataclass(frozen=True)
class Step:
    """One step of a thread, as it was saved.

    at: when it was saved, ISO 8601. checkpoint_id: names this point of the thread, to fork from for example;
        a last step that was killed before it had a checkpoint has that of the step before.
    state: the state that ran. None for an input, a change from outside and the beginning of a fork, and for
        a state of another version that this one does not know.
    event: what the state reported; "input", "update" or "fork" where none ran.
    rule, why: the rule that fired, and its reason; empty for every state but `decide`.
    next: the states that run next, by their names when it was saved; empty when the thread had ended.
    task: the id of the message that began the current task; empty before the first one has begun.
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


def steps(checkpointer: BaseCheckpointSaver[Any], thread_id: str, limit: int | None = None) -> list[Step]:
    """The steps that led to the thread's current state, oldest first; only the last `limit` steps if given.

    Branches that were left by a fork are not part of it. Empty for a thread that does not exist.
    """
    walk = _Walk(limit)
    for found in checkpointer.list(_whole(thread_id)):
        if not walk.back_to(found):
            break
    return walk.path()


async def asteps(
    checkpointer: BaseCheckpointSaver[Any], thread_id: str, limit: int | None = None
) -> list[Step]:
    """`steps`, for an event loop."""
    walk = _Walk(limit)
    async for found in checkpointer.alist(_whole(thread_id)):
        if not walk.back_to(found):
            break
    return walk.path()


def trail(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> list[CheckpointTuple]:
    """The checkpoints that led to where the thread stands, oldest first, without branches that were left."""
    found: list[CheckpointTuple] = []
    for saved in checkpointer.list(_whole(thread_id)):
        if not found or _id(saved) == _parent_id(found[-1]):
            found.append(saved)
        if _parent_id(found[-1]) is None:
            break
    return found[::-1]


def before_turn(path: Sequence[Step], turn: int) -> Step:
    """The last step before the model was called for this turn of the current task, counted from 1.

    path: all steps of the thread. Counted are the replies that this thread got, as `call_llm` tells them.

    Raises ThreadError when the task never came to this turn.
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


def _whole(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def known_state(name: str) -> State | None:
    """The state of today that this name stands for; None for one of another version."""
    return ALIASES.get(name) or (State(name) if name in set(State) else None)


class _Walk:
    """Goes back from the newest checkpoint of a thread, from each one to its parent.

    Savers list checkpoints newest first, so a parent comes after its child, and what comes between them
    belongs to another branch.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.found: list[Step] = []
        self.child: CheckpointTuple | None = None
        self.entered = False

    def back_to(self, found: CheckpointTuple) -> bool:
        """Takes the next older checkpoint. False when no more is wanted."""
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
        name = ran_between(saved, parent)
        # An input is saved twice: as it came, and when LangGraph has put it into the channels. Before a first
        # run that saves only its end there is an empty checkpoint.
        again = self.entered and saved.metadata.get("source") == "input"
        if saved.checkpoint["channel_versions"] and not again:
            self.found.append(step_of(saved, name, saved.checkpoint["channel_values"]))
        self.entered = name == _START

    def _add_unsaved(self, newest: CheckpointTuple) -> None:
        """Adds what was done, and killed before there was a checkpoint of it."""
        if found := unsaved(newest):
            self.found.append(step_of(newest, *found))
            self.entered = found[0] == _START


def unsaved(newest: CheckpointTuple) -> tuple[str, dict[str, Any]] | None:
    """The node that had run when its process was killed before there was a checkpoint of it, and the values
    after it (of channels that keep only what is written: what it wrote). None when there is none."""
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


def ran_between(saved: CheckpointTuple, parent: CheckpointTuple | None) -> str:
    """The name of the node that ran between `parent` and `saved`; empty for none.

    More than one ran when steps between were not saved (`durability="exit"`): this is the last of them.
    """
    seen = saved.checkpoint["versions_seen"]
    return max(all_between(saved, parent), key=lambda name: max(seen[name].values()), default="")


def all_between(saved: CheckpointTuple, parent: CheckpointTuple | None) -> list[str]:
    """The names of all nodes that ran between `parent` and `saved`.

    A node that runs notes which versions of the channels it has seen. An input notes the same for what it
    cuts short, though nothing ran.
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
        # A step of another middleware, in an agent with guards, may come before there is any event.
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
            raise ThreadError(f"Thread {target!r} already exists; choose another id.")
        with readable(thread_id):
            snapshot = _point(graph, thread_id, at)
            values: Any = snapshot.values
            task = read(values, deps_of(graph).toolbox)
        _check_none_below(graph, thread_id, task)
        if graph.store is not None and task.last is not None:
            copy_entries(graph.store, (thread_id, target), task.last.message.id or "", task.due)
        if outcome := values.get("outcome"):
            values = {**values, "outcome": {**outcome, "thread_id": target}}
        copied = for_a_copy(values, deps_of(graph).channels)
        if snapshot.next == (str(State.FINISH),):
            # The rules would not find an end again that a finish has been granted already. Where that event
            # leads is known: the last state has no way of its own.
            last = str(State.FINISH)
            graph.update_state(config_of(target), Command(goto=last, update=copied), last)
        else:
            graph.update_state(config_of(target), *entry_update(Event.FORK, copied))
        if not task.due and (task.ask is not None or task.spoke is not None):
            _ask(graph, target)


def _check_none_below(graph: Graph, thread_id: str, task: Task) -> None:
    """Raises ThreadError where a delegate is at work: the copy would do once more what it has done."""
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver), "a session has one"
    reply_id = (task.last.message.id or "") if task.last else ""
    for call in task.due:
        ns = namespace("", call.name, reply_id, call.id)
        if saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}) is not None:
            raise ThreadError(
                f"The delegate {call.name!r} has begun its work at this point, and a copy of the thread "
                "would have it done again; let it end first, or fork at another point. Nothing was changed."
            )


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
    turns = read(values, deps_of(graph).toolbox).turns
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
