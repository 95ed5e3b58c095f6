"""Broken copies of the rules and of the table."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import signoff.graph.rules
import signoff.verify.explore
from signoff.graph.machine import _ENTRIES, _TABLE, Event, State
from signoff.graph.rules import RULES, Rule
from signoff.verify.explore import ENDS, FAITHFUL, RESTART, TWINS
from tests.proof.mutation import Break, Mutation
from tests.proof.mutations_of_nodes import NODE_MUTATIONS, put


def without(name: str) -> Break:
    """The rules without one of them."""
    return _rules(tuple(rule for rule in RULES if rule.name != name))


def below(name: str, other: str) -> Break:
    """The rules with one moved to after another."""
    rest = [rule for rule in RULES if rule.name != name]
    at = next(i for i, rule in enumerate(rest) if rule.name == other)
    moved = next(rule for rule in RULES if rule.name == name)
    return _rules((*rest[: at + 1], moved, *rest[at + 1 :]))


def first(rule: Rule) -> Break:
    """The rules with another before them."""
    return _rules((rule, *RULES))


def _rules(rules: tuple[Rule, ...]) -> Break:
    return lambda patch: patch.setattr(signoff.graph.rules, "RULES", rules)


def leads(state: State, event: Event, target: State) -> Break:
    """The table with one event that leads elsewhere."""
    return lambda patch: patch.setitem(_TABLE[state], event, target)


def begins(event: Event, state: State) -> Break:
    """The table with one event from outside that enters elsewhere."""
    return lambda patch: patch.setitem(_ENTRIES, event, state)


def _reason_stop(task: Any, _: Any) -> str | None:
    reason = task.fresh and task.fresh.message.response_metadata.get("finish_reason")
    return "the model stopped" if reason == "stop" else None


def _forgetful(task: Any, machine: Any) -> Any:
    return _whole(replace(task, talk_turns=0), machine)


_whole = signoff.verify.explore._task


def _remembered() -> Rule:
    """Reminds every other time that this process looks."""
    looked = count()
    return Rule("near_limit", Event.REMIND, lambda *_: "again" if next(looked) % 7 == 3 else None)


DROPPED: Mapping[str, str] = {
    "no_task": "imports",
    "ended": "two events",
    "cancelled": "two events",
    "calls_open": "imports",
    "needs_person": "nobody to ask",
    "asked": "few calls",
    "claimed": "two events",
    "content_filter": "refusals",
    "turns": "few calls",
    "tool_calls": "few calls",
    "tokens": "few tokens",
    "cost": "little money",
    "repeats": "repetitions",
    "spoke": "a dialogue",
    "talk_turns": "few calls",
    "truncated": "few calls",
    "reasoning": "every reply",
    "empty": "few calls",
    "filtered": "every reply",
    "repeating": "repetitions",
    "near_limit": "few calls",
    "round": "rounds",
    "talked": "imports",
    "think": "few calls",
}
"""Each rule, and the world in which it is missed.

Five are not among them: `seconds`, since no clock runs here; `not_ready`, without which every property
holds, only later or with a prompt over its budget; `tests/graph/test_path.py` misses it; and `children`,
`depth` and `tree_turns`, which no world of delegates reaches; `tests/delegates/` misses them.
"""

RULE_MUTATIONS: Mapping[str, Mutation] = {
    **{f"no rule {name!r}": Mutation(world, without(name), ()) for name, world in DROPPED.items()},
    "limits before control calls": Mutation("few calls", below("claimed", "turns"), ["a finish ends"]),
    "a claim before open calls": Mutation("imports", below("calls_open", "claimed"), ["rests on a finish"]),
    "open calls before a stop": Mutation("two events", below("cancelled", "calls_open"), [ENDS]),
    "a finish before a question": Mutation("imports", below("asked", "claimed"), ["a question is asked"]),
    "finish_reason stop ends the task": Mutation(
        "every reply", first(Rule("turns", Event.EXHAUSTED, _reason_stop)), ["real limits"]
    ),
    "finish_reason stop is another signal": Mutation(
        "every reply", first(Rule("turns", Event.EXHAUSTED, _reason_stop)), [TWINS]
    ),
    "finish_reason stop is a claim": Mutation(
        "few calls", first(Rule("claimed", Event.CLAIMED, _reason_stop)), [ENDS, "talk gets a reminder"]
    ),
    "an exploration that forgets how long it was only talk": Mutation(
        "few tokens", put(signoff.verify.explore, "_task", _forgetful), [FAITHFUL], thorough=True
    ),
    "a rule that remembers": Mutation("few calls", first(_remembered()), [RESTART], thorough=True),
}

NOT_TO_FINISH = [
    (s, e) for s, row in _TABLE.items() for e, target in row.items() if target is not State.FINISH
]
TO_FINISH = [(s, e) for s, row in _TABLE.items() for e, target in row.items() if target is State.FINISH]
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
        for event in _ENTRIES
    },
    # A thread that was killed before its newest message was taken up would look ended.
    "stop enters decide": Mutation("two events", begins(Event.STOP, State.DECIDE), ["its own task"]),
}

ALL: Mapping[str, Mutation] = {**RULE_MUTATIONS, **TABLE_MUTATIONS, **ENTRY_MUTATIONS, **NODE_MUTATIONS}
