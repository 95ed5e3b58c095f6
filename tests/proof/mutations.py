"""Broken copies of the table, and all mutations of one machine together."""

from collections.abc import Mapping

import signoff.graph.machine
from signoff.graph.machine import ENTRIES, TRANSITIONS, Event, State
from tests.proof.mutation import Break, Mutation
from tests.proof.mutations_of_nodes import NODE_MUTATIONS
from tests.proof.mutations_of_rules import RULE_MUTATIONS


def leads(state: State, event: Event, target: State) -> Break:
    """The table with one event that leads elsewhere."""
    bent = {**TRANSITIONS, state: {**TRANSITIONS[state], event: target}}
    return lambda patch: patch.setattr(signoff.graph.machine, "TRANSITIONS", bent)


def begins(event: Event, state: State) -> Break:
    """The table with one event from outside that enters elsewhere."""
    return lambda patch: patch.setattr(signoff.graph.machine, "ENTRIES", {**ENTRIES, event: state})


NOT_TO_FINISH = [
    (s, e) for s, row in TRANSITIONS.items() for e, target in row.items() if target is not State.FINISH
]
TO_FINISH = [(s, e) for s, row in TRANSITIONS.items() for e, target in row.items() if target is State.FINISH]
_WORLD_OF: Mapping[State | Event, str] = {
    State.APPROVE: "approvals",
    Event.NEEDS_APPROVAL: "approvals",
    State.HAND_OVER: "hand over",
    Event.TO_HAND_OVER: "hand over",
    State.CONFIRM: "checks",
    Event.NEEDS_PERSON: "checks",
    Event.PHASE: "checks",
    Event.DEADLOCK: "nobody to ask",
    Event.CANCELLED: "two events",
    Event.ENDED: "two events",
    Event.STOPPED: "two events",
    Event.TALKED: "imports",
    Event.CALLS_OPEN: "imports",
    Event.TOO_LONG: "errors",
    Event.NOT_READY: "every reply",
    State.UNDO: "undo",
    Event.TO_UNDO: "undo",
}


def world_of(state: State, event: Event) -> str:
    if event is Event.FAILED:
        return {State.CALL_LLM: "errors", State.REVIEW: "nobody to ask"}.get(state, "refusals")
    return _WORLD_OF.get(state) or _WORLD_OF.get(event) or "few calls"


TABLE_MUTATIONS: Mapping[str, Mutation] = {
    **{
        f"{state} - {event} -> finish": Mutation(
            world_of(state, event), leads(state, event, State.FINISH), ()
        )
        for state, event in NOT_TO_FINISH
    },
    **{
        f"{state} - {event} -> call_llm": Mutation(
            world_of(state, event), leads(state, event, State.CALL_LLM), ()
        )
        for state, event in TO_FINISH
    },
}

_BY_HAND = (Event.FORK, Event.GO_ON, Event.EXPIRE)
ENTRY_MUTATIONS: Mapping[str, Mutation] = {
    **{
        f"{event} enters finish": Mutation(
            "by hand" if event in _BY_HAND else "undo" if event is Event.UNDO else "two events",
            begins(event, State.FINISH),
            (),
        )
        for event in ENTRIES
    },
    # A thread that was killed before its newest message was taken up would look ended.
    "stop enters decide": Mutation("two events", begins(Event.STOP, State.DECIDE), ["its own task"]),
}

ALL: Mapping[str, Mutation] = {**RULE_MUTATIONS, **TABLE_MUTATIONS, **ENTRY_MUTATIONS, **NODE_MUTATIONS}
