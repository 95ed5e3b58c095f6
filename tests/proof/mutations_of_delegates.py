"""Broken copies of what runs delegates."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

import signoff.graph.compiled.states
import signoff.graph.history.usage
import signoff.graph.outcome
import signoff.nodes.delegates.run
import signoff.nodes.journal
import signoff.nodes.node
import signoff.nodes.review
import signoff.nodes.tool_calls.closing
import signoff.verify.explore
import signoff.verify.tree
from signoff.graph.history.task import current_task
from signoff.graph.history.usage import Used
from signoff.graph.machine import State
from signoff.nodes.delegates import ledger, results
from signoff.nodes.delegates.run import ChildMachine
from signoff.verify.explore import ENDS, FAITHFUL
from signoff.verify.tree_properties import NO_DEADLOCK, NO_LOST_WAIT
from tests.proof.mutation import Break, Mutation
from tests.proof.mutations_of_nodes import put


def numbered() -> Break:
    """Machines are named in the order in which they are entered."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        number = count()
        patch.setattr(
            signoff.nodes.delegates.run, "namespace", lambda _, name, *__: f"{name}:{next(number) % 50}"
        )

    return apply


def descends(**changed: Any) -> Break:
    """Something else is handed down."""
    given = ChildMachine.descent
    return put(ChildMachine, "descent", lambda *args, **named: replace(given(*args, **named), **changed))


def _no_calls(entry: Any, name: str) -> Any:
    return 0 if name == "tool_calls" else _begun(entry, name)


def _first_wait(children: Any, results: Any) -> Any:
    waits = [found for found in results if isinstance(found, GraphInterrupt)]
    kept = [waits[0] if isinstance(found, GraphInterrupt) else found for found in results]
    try:
        return _settled(children, kept)
    except GraphInterrupt as all_of:
        raise GraphInterrupt(all_of.args[0][:1]) from None


def _gives_up(child: Any, *args: Any, **named: Any) -> Any:
    try:
        return (yield from _steps(child, *args, **named))
    except GraphInterrupt:
        return results.abandoned_result(child.call, (), results.NOTHING_USED, child.run)


def _as_done(call: Any, outcome: Any, *args: Any, **notes: Any) -> Any:
    return _ended(call, outcome.model_copy(update={"status": "success", "claim": "done"}), *args, **notes)


def _nothing_begun(*_: Any) -> Any:
    return None
    yield  # a part of a node


def _asks_again(*_: Any) -> Any:
    raise GraphInterrupt([Interrupt(value={"type": "question", "question": "Which?"}, id="again")])


def _never_stopped(*args: Any, **given: Any) -> Any:
    return replace(_current(*args, **given), stopped=False)


_begun, _settled, _steps = ledger._begun, signoff.nodes.delegates.run.settled, ChildMachine.steps
_ended, _current, _input = results.ended, current_task, ChildMachine._input

DELEGATE_MUTATIONS: Mapping[str, Mutation] = {
    "machines are named as they come": Mutation("a crash", numbered(), ["one machine"]),
    "a machine is given its task again": Mutation(
        "a crash", put(ChildMachine, "_input", lambda child, _: _input(child, None)), [ENDS]
    ),
    "two machines share one journal": Mutation(
        "a crash",
        put(
            signoff.nodes.journal,
            "_of",
            lambda run, reply_id, machine="": signoff.nodes.journal._namespace(
                run.thread_id, reply_id, machine
            ),
        ),
        ["reported has run"],
    ),
    "one that has ended is not looked at": Mutation(
        "a crash", put(ChildMachine, "result", lambda *_, **__: None), [ENDS]
    ),
    "only one of two waits is put": Mutation(
        "two ask", put(signoff.verify.tree, "settled", _first_wait), [NO_LOST_WAIT]
    ),
    "a wait is put without its path": Mutation(
        "two ask", put(signoff.nodes.delegates.run, "_with_path", lambda found, _: found), [NO_LOST_WAIT]
    ),
    "one that waits is taken for lost": Mutation(
        "two ask", put(ChildMachine, "steps", _gives_up), ["nothing is lost"]
    ),
    "no answer is enough": Mutation(
        "two ask",
        lambda patch: patch.setitem(signoff.graph.compiled.states.NODES, State.ASK_USER, _asks_again),
        [NO_DEADLOCK],
    ),
    "whatever it came to is told as done": Mutation(
        "again", put(results, "ended", _as_done), ["reported as it is"]
    ),
    "a failure may be passed over": Mutation(
        "again", put(signoff.graph.outcome, "passed_over", lambda *_: []), ["nothing passed over"]
    ),
    "nobody tells the model of a failure": Mutation(
        "again", put(signoff.nodes.review, "to_refuse", lambda *_: []), ["nothing passed over"]
    ),
    "policies are not handed down": Mutation(
        "two need approval", descends(policies=()), ["the stricter policy"]
    ),
    "limits are not handed down": Mutation("few tokens", descends(bounds=()), ["one bound"]),
    "limits are not handed down to one alone": Mutation(
        "few calls, one by one", descends(bounds=()), ["one bound"]
    ),
    "one beside others takes itself to be alone": Mutation("few calls", descends(alone=True), ["one bound"]),
    "what others have begun is not seen": Mutation(
        "few tokens", put(ledger, "_above", lambda *_: {}), ["one bound"]
    ),
    "calls of others are not reserved": Mutation(
        "few calls", put(ledger, "_begun", _no_calls), ["one bound"]
    ),
    "what waits is forgotten in a copy": Mutation(
        "few calls, and a copy", put(ledger.TreeMachine, "_open_calls", lambda _: []), ["one bound"]
    ),
    "what is used below does not count": Mutation(
        "few tokens",
        put(signoff.graph.history.usage, "of_child", lambda _: Used(children=1)),
        ["one bound"],
    ),
    "what was begun is told as not run": Mutation(
        "a message and a stop",
        put(signoff.nodes.tool_calls.closing, "_left", _nothing_begun),
        ["effects below are reported"],
    ),
    "a stop is overlooked": Mutation(
        "a message and a stop", put(signoff.nodes.node, "current_task", _never_stopped), ["a stop stops all"]
    ),
    "an exploration that forgets who failed": Mutation(
        "again", put(signoff.verify.explore, "_open_points", lambda *_: ()), [FAITHFUL], thorough=True
    ),
}
