"""The machine: its states, its events, and where each event leads. All of it is in this file.

A node does its work and reports one event; the transition table alone picks the next state. Input from
outside (a message, a stop, …) is an event, too: `ENTRIES` says in which state it enters. A run ends in
`finish`, which is reached by success (`accepted`, `confirmed`), a limit (`exhausted`, `deadlock`) or an error
(`failed`, `cancelled`); `ended` leads there when an ended thread is called again with nothing new. Only
`finish` leads to `undo`, and back: after a failed task, or on request, its effects are undone.

A thread carries the version of the machine that it was run with. LangGraph silently ends a run when the
thread is at a node that the graph does not have; so code that continues a saved thread first checks its
state, and an unknown one is an error that names the version.
"""

from collections.abc import Container, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from signoff.graph.errors import IllegalEvent, ThreadError


class State(StrEnum):
    """The states of the machine. `WHAT_IT_DOES` says what each of them does."""

    COMPRESS = "compress"
    DECIDE = "decide"
    CALL_LLM = "call_llm"
    ROUTE_TOOLS = "route_tools"
    APPROVE = "approve"
    EXECUTE = "execute"
    HAND_OVER = "hand_over"
    NUDGE = "nudge"
    ASK_USER = "ask_user"
    REVIEW = "review"
    CONFIRM = "confirm"
    FINISH = "finish"
    UNDO = "undo"


class Event(StrEnum):
    """What a state reports, or what enters from outside. `TRANSITIONS` and `ENTRIES` say where it leads."""

    INPUT = "input"
    GO_ON = "go on"
    STOP = "stop"
    EXPIRE = "expire"
    FORK = "fork"
    UNDO = "undo"
    READY = "ready"
    NOT_READY = "not ready"
    CALLS_OPEN = "calls open"
    ASKED = "asked"
    CLAIMED = "claimed"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ENDED = "ended"
    REMIND = "remind"
    TALKED = "talked"
    THINK = "think"
    REPLIED = "replied"
    TOO_LONG = "too long"
    STOPPED = "stopped"
    WORK = "work"
    NEEDS_APPROVAL = "needs approval"
    TO_HAND_OVER = "to hand over"
    SETTLED = "settled"
    DECIDED = "decided"
    OBSERVED = "observed"
    MORE = "more"
    DONE = "done"
    NUDGED = "nudged"
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    DEADLOCK = "deadlock"
    REFUSED = "refused"
    PHASE = "phase"
    NEEDS_PERSON = "needs a person"
    CONFIRMED = "confirmed"
    SENT_BACK = "sent back"
    TO_UNDO = "to undo"
    NEXT = "next"
    UNDONE = "undone"


# All but the last need the work of `compress` first. So does a stop: if a thread was killed before its newest
# message was applied, `decide` would end it with the result of its previous task. An undo on request comes
# after the end of a task, when `compress` has nothing left to do.
_ENTRIES: dict[Event, State] = {
    Event.INPUT: State.COMPRESS,
    Event.GO_ON: State.COMPRESS,
    Event.STOP: State.COMPRESS,
    Event.EXPIRE: State.COMPRESS,
    Event.FORK: State.COMPRESS,
    Event.UNDO: State.UNDO,
}

_TABLE: dict[State, dict[Event, State]] = {
    State.COMPRESS: {Event.READY: State.DECIDE},
    State.DECIDE: {
        Event.NOT_READY: State.COMPRESS,
        Event.CALLS_OPEN: State.ROUTE_TOOLS,
        Event.ASKED: State.ASK_USER,
        Event.CLAIMED: State.REVIEW,
        Event.REMIND: State.NUDGE,
        Event.TALKED: State.NUDGE,
        Event.THINK: State.CALL_LLM,
        Event.EXHAUSTED: State.FINISH,
        Event.FAILED: State.FINISH,
        Event.CANCELLED: State.FINISH,
        Event.ENDED: State.FINISH,
    },
    State.CALL_LLM: {
        Event.REPLIED: State.ROUTE_TOOLS,
        Event.TOO_LONG: State.COMPRESS,
        Event.STOPPED: State.COMPRESS,
        Event.FAILED: State.FINISH,
    },
    State.ROUTE_TOOLS: {
        Event.WORK: State.EXECUTE,
        Event.NEEDS_APPROVAL: State.APPROVE,
        Event.TO_HAND_OVER: State.HAND_OVER,
        Event.TALKED: State.NUDGE,
        Event.SETTLED: State.DECIDE,
    },
    State.APPROVE: {Event.DECIDED: State.ROUTE_TOOLS},
    State.HAND_OVER: {Event.OBSERVED: State.ROUTE_TOOLS},
    State.EXECUTE: {Event.MORE: State.ROUTE_TOOLS, Event.DONE: State.DECIDE},
    State.NUDGE: {Event.NUDGED: State.COMPRESS},
    State.ASK_USER: {Event.ANSWERED: State.COMPRESS},
    State.REVIEW: {
        Event.ACCEPTED: State.FINISH,
        Event.DEADLOCK: State.FINISH,
        Event.FAILED: State.FINISH,
        Event.REFUSED: State.COMPRESS,
        Event.PHASE: State.COMPRESS,
        Event.NEEDS_PERSON: State.CONFIRM,
    },
    State.CONFIRM: {Event.CONFIRMED: State.FINISH, Event.SENT_BACK: State.COMPRESS},
    State.FINISH: {Event.TO_UNDO: State.UNDO},
    State.UNDO: {Event.NEXT: State.UNDO, Event.UNDONE: State.FINISH},
}

ENTRIES: Mapping[Event, State] = MappingProxyType(_ENTRIES)
"""The events from outside, and the state in which each enters, whatever state the thread was in. The answer
to an interrupt is not among them: the state that asked receives it, and reports the resulting event."""

FIRST = ENTRIES[Event.INPUT]
LAST = State.FINISH
"""The state in which a run ends if it reports no event."""

TRANSITIONS: Mapping[State, Mapping[Event, State]] = MappingProxyType(
    {state: MappingProxyType(row) for state, row in _TABLE.items()}
)

WHAT_IT_DOES: Mapping[State, str] = MappingProxyType(
    {
        State.COMPRESS: "P0: starts a new task clean, closes stray calls, summarises old turns",
        State.DECIDE: "applies the ordered rules",
        State.CALL_LLM: "one model call on the prompt",
        State.ROUTE_TOOLS: "normalises the reply, answers think and bad calls, picks the next batch",
        State.APPROVE: "waits for a person's decision on calls",
        State.EXECUTE: "runs the batch of tools or of delegates, each effect at most once",
        State.HAND_OVER: "yields a call to the driver and waits for what it observed",
        State.NUDGE: "appends the reminder that fits",
        State.ASK_USER: "waits for a person's answer",
        State.REVIEW: "judges the standing finish",
        State.CONFIRM: "waits for a person to confirm the finish",
        State.FINISH: "writes the outcome, answers every call still open",
        State.UNDO: "takes back one effect of a task that has ended, the newest first, each at most once",
    }
)


def next_state(state: State, event: Event | None) -> State:
    """Where `event` leads from `state`.

    Raises IllegalEvent, naming the state, the event and the legal ones, when the row does not list it.
    """
    row = TRANSITIONS[state]
    if event is None or event not in row:
        legal = ", ".join(repr(str(e)) for e in row) or "none (it is the last state)"
        raise IllegalEvent(f"{str(event)!r} is not an event of state {str(state)!r}; legal: {legal}.")
    return row[event]


def enters(event: Event) -> State:
    """The state in which `event` enters. Raises IllegalEvent for one that does not come from outside."""
    if event not in ENTRIES:
        legal = ", ".join(repr(str(e)) for e in ENTRIES)
        raise IllegalEvent(f"{str(event)!r} is not an event from outside; legal: {legal}.")
    return ENTRIES[event]


def edges() -> dict[State, dict[State, str]]:
    """The table as drawn: for each state its successors, with the labels of each edge joined."""
    return {state: _joined(row) for state, row in TRANSITIONS.items()}


def entries() -> dict[State, str]:
    """The entries as drawn: the states in which events enter, with the labels of each joined."""
    return _joined(ENTRIES)


def _joined(row: Mapping[Event, State]) -> dict[State, str]:
    drawn: dict[State, str] = {}
    for event, target in row.items():
        drawn[target] = f"{drawn[target]} / {event}" if target in drawn else str(event)
    return drawn


MACHINE = 1
"""The version of the machine, incremented whenever a state is renamed or removed. A thread carries it under
`machine`."""

_BRANCH = "branch:to:"


def next_states(channels: Iterable[str]) -> tuple[str, ...]:
    """The states that run next when these channels are set, under the names they had when saved."""
    return tuple(name.removeprefix(_BRANCH) for name in channels if name.startswith(_BRANCH))


NO_TASK = str(UUID(int=0))
"""The task id under which LangGraph stores writes of no task: a command's update, and the target of its
`goto`."""


def has_command(saved: CheckpointTuple | None) -> bool:
    """Whether a command was saved but no step has applied it, since the process was killed in between.

    It is applied by the next run, whatever that is. LangGraph would apply a second command in the same step.
    """
    writes = saved.pending_writes or () if saved else ()
    return any(task == NO_TASK and channel not in WRITES_IDX_MAP for task, channel, _ in writes)


def check_states(saved: CheckpointTuple | None, known: Container[str], *, newest: bool = True) -> None:
    """Raises ThreadError when the thread is in a state that is not `known`.

    newest: whether `saved` is the latest checkpoint of the thread, not an older one to fork from.
    """
    if saved is None or (name := unknown_state(saved, known, newest=newest)) is None:
        return
    version = saved.checkpoint["channel_values"].get("machine")
    of = f"machine version {version}" if version else "an unknown machine version"
    raise ThreadError(
        f"The thread is in the state {name!r} of {of}, which this Signoff (version {MACHINE}) "
        "does not know: finish it with the Signoff version that began it, or send a new message, "
        "which answers what the thread waits for or begins a new task."
    )


def unknown_state(saved: CheckpointTuple, known: Container[str], *, newest: bool = True) -> str | None:
    """The state of a thread that is not `known`; None if all are."""
    # A state that finished just before its process was killed has left its transition among the pending
    # writes. From an older checkpoint, LangGraph runs that state again instead.
    writes = saved.pending_writes if newest else None
    ways = next_states(channel for _, channel, _ in writes or ())
    names = (*next_states(saved.checkpoint["channel_values"]), *ways)
    return next((name for name in names if name not in known), None)
