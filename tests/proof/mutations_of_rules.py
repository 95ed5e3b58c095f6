"""Broken copies of the rules."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import signoff.graph.rules
from signoff.graph.machine import Event
from signoff.graph.rules import RULES, Rule
from signoff.verify.explore import ENDS, RESTART, TWINS
from tests.proof.mutation import Break, Mutation


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


def _reason_stop(task: Any, _: Any) -> str | None:
    reason = task.fresh and task.fresh.message.response_metadata.get("finish_reason")
    return "the model stopped" if reason == "stop" else None


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
    "a rule that remembers": Mutation("few calls", first(_remembered()), [RESTART], thorough=True),
}
