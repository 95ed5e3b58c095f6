"""Broken copies of what reads the history, and of the nodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import signoff.graph.compiled.states
import signoff.graph.finish.passed_over
import signoff.graph.history.reader
import signoff.graph.history.replies
import signoff.graph.history.task
import signoff.graph.history.usage
import signoff.graph.outcome
import signoff.graph.prompt.prompt
import signoff.nodes.compress
import signoff.nodes.execute
import signoff.nodes.finish
import signoff.nodes.finishing.case
import signoff.nodes.journal
import signoff.nodes.review
import signoff.nodes.route_tools
import signoff.nodes.tool_calls.closing
import signoff.nodes.tool_calls.done
import signoff.nodes.undo
import signoff.verify.explore
from signoff.graph.finish.standstill import idle_refusals
from signoff.graph.machine import State
from signoff.nodes.journal import Written
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.verify.explore import ENDS, FAITHFUL, LEGAL, RESTART
from tests.proof.mutation import Break, Mutation


def put(owner: Any, name: str, value: Any) -> Break:
    """One function in place of another."""
    return lambda patch: patch.setattr(owner, name, value)


def update_without(state: State, name: str) -> Break:
    """A node that does not write one of its values."""
    work = signoff.graph.compiled.states.NODES[state]

    def broken(given: Any, run: NodeContext) -> Steps:
        found = work(given, run)
        report = found if isinstance(found, Report) else (yield from found)
        return Report(report.event, {key: value for key, value in report.update.items() if key != name})

    return lambda patch: patch.setitem(signoff.graph.compiled.states.NODES, state, broken)


def _nothing(*_: Any, **__: Any) -> Any:
    return Written()
    yield  # a part of a node


def _no_entries(*_: Any, **__: Any) -> Any:
    return {}
    yield  # a part of a node


def _same_only(task: Any, finish: Any) -> Any:
    return idle_refusals(task, finish)[:1]


def _last_message_only(section: Any, verdicts: Any) -> Any:
    last = section.replies[-1] if section.replies else None
    call = last.control if last else None
    ends = call is not None and call.effect == "finish"
    return call if ends and last is not None and last.open(call) else None


def _raw(start: int, _turns: Any, reader: Any, _texts: Any, end: int | None = None) -> Any:
    return reader.messages[start:end]


_to_undo = signoff.nodes.finish._to_undo
_done_calls = signoff.nodes.tool_calls.done.done_calls


def _whatever_the_end(task: Any, ending: Any, state: Any, run: NodeContext) -> Any:
    failed: Any = {**ending, "status": "error"}
    return _to_undo(task, failed, state, run)


def _all_but_one(*given: Any) -> Any:
    return (yield from _done_calls(*given))[1:]


def _no_effects(*given: Any) -> Any:
    yield from ()
    return False


def _forgetful(task: Any, machine: Any) -> Any:
    return _whole(replace(task, talk_turns=0), machine)


_whole = signoff.verify.explore._task

NODE_MUTATIONS: Mapping[str, Mutation] = {
    "an exploration that forgets how long it was only talk": Mutation(
        "few tokens", put(signoff.verify.explore, "_task", _forgetful), [FAITHFUL], thorough=True
    ),
    "a message never begins a new task": Mutation(
        "two events",
        put(signoff.graph.history.reader.Reader, "_joins", lambda reader, _: bool(reader.section.messages)),
        ["its own task"],
    ),
    "the outcome of the task before stays": Mutation(
        "two events", update_without(State.COMPRESS, "outcome"), ["its own task"]
    ),
    "calls after a finish run": Mutation(
        "few calls",
        put(signoff.graph.history.replies.Reply, "before_control", property(lambda reply: reply.calls)),
        ["nothing after a finish"],
    ),
    "calls after a finish are not answered": Mutation(
        "two events", put(signoff.nodes.finish, "close", _nothing), ["answered once"]
    ),
    "stray calls are not answered": Mutation(
        "two events", put(signoff.nodes.compress, "close", _nothing), ["answered once"]
    ),
    "only the last message is looked at": Mutation(
        "imports",
        put(signoff.graph.history.reader.TaskSection, "finish", _last_message_only),
        ["a finish ends"],
    ),
    "a failed sibling is nothing": Mutation(
        "few calls",
        put(signoff.graph.history.replies.Reply, "failed", lambda *_: False),
        ["rests on a finish"],
    ),
    "calls of a reply that was cut off run": Mutation(
        "few calls", put(signoff.graph.history.replies, "_CUT", {}), ["no truncated call"]
    ),
    "nobody is asked": Mutation(
        "approvals",
        lambda patch: (
            patch.setattr(signoff.graph.history.reader, "undecided", lambda *_: ()),
            patch.setattr(signoff.graph.history.task, "undecided", lambda *_: ()),
            patch.setattr(signoff.nodes.execute, "_may_run", lambda *_: True),
        )[0],
        ["only approved calls"],
    ),
    "a call runs again after a crash": Mutation(
        "one event", put(signoff.nodes.execute, "runs_again", lambda *_: True), ["at most once"]
    ),
    "the journal is not read when calls are closed": Mutation(
        "two events", put(signoff.nodes.tool_calls.closing, "look", _no_entries), ["history shows what ran"]
    ),
    "verdicts are not kept": Mutation(
        "imports",
        put(
            signoff.nodes.finishing.case.Case, "verdicts", lambda case, _: {"task": case.task.id, "calls": {}}
        ),
        [ENDS],
    ),
    "a refusal says nothing": Mutation(
        "few calls",
        put(signoff.nodes.finishing.case.Case, "feedback", lambda *_, **__: []),
        ["a finish is answered"],
    ),
    "a finish that wants a person's yes is accepted without one": Mutation(
        "nobody to ask",
        put(signoff.nodes.review, "needs_confirmation", lambda *_: False),
        ["rests on a finish"],
    ),
    "no standstill is noticed": Mutation(
        "nobody to ask", put(signoff.nodes.finishing.case, "idle_refusals", lambda *_: []), ["no spin"]
    ),
    "refusals in a row are not counted": Mutation(
        "refused finishes",
        put(signoff.nodes.finishing.case, "idle_refusals", _same_only),
        ["repetition ends"],
    ),
    "every refusal in a row is one too many": Mutation(
        "refused finishes",
        put(signoff.nodes.finishing.case, "idle_refusals", lambda task, call: [(call, "")] * 9),
        ["real limits"],
    ),
    "every finish is a right one": Mutation(
        "few calls",
        put(signoff.nodes.review, "REVIEW", ()),
        ["rests on a finish"],
    ),
    "an unknown effect may be passed over": Mutation(
        "one event", put(signoff.graph.outcome, "passed_over", lambda *_: []), ["nothing passed over"]
    ),
    "nobody tells the model of an unknown effect": Mutation(
        "a result", put(signoff.nodes.review, "to_refuse", lambda *_: []), ["nothing passed over"]
    ),
    "whatever the model replies has looked": Mutation(
        "a result", put(signoff.graph.finish.passed_over, "_looks", lambda _: True), ["nothing passed over"]
    ),
    "a person may accept what has no result": Mutation(
        "a result",
        put(signoff.nodes.finishing.case.Case, "lacks_result", lambda *_: ""),
        ["a valid result"],
    ),
    "checks are not run": Mutation(
        "checks", put(signoff.nodes.review, "_is_done", lambda _: False), ["rests on a finish"]
    ),
    "ids stay as they come": Mutation(
        "odd ids", put(signoff.nodes.route_tools, "named_calls", lambda *_: None), ["answered once", LEGAL]
    ),
    "the prompt is the history as it is": Mutation(
        "odd ids", put(signoff.graph.prompt.prompt, "_repaired", _raw), ["whole prompts"]
    ),
    "an undo that was cut short runs again": Mutation(
        "undo",
        lambda patch: (
            patch.setattr(signoff.nodes.undo, "_may_run", lambda _: True),
            patch.setattr(signoff.nodes.undo, "_waits", lambda _: True),
        )[0],
        ["undone once"],
    ),
    "a success is undone, too": Mutation(
        "undo", put(signoff.nodes.finish, "_to_undo", _whatever_the_end), ["undone after a failure"]
    ),
    "an undo forgets an effect": Mutation(
        "undo", put(signoff.nodes.undo, "done_calls", _all_but_one), ["no effect forgotten"]
    ),
    "a task that failed is not undone": Mutation(
        "undo", put(signoff.nodes.finish, "may_have_effects", _no_effects), ["no effect forgotten"]
    ),
    "an extension adds to the limit alone, whatever was used": Mutation(
        "two events", put(signoff.graph.history.usage.Tally, "_note_grant", lambda *_: None), ["real limits"]
    ),
    "a reading is never looked at again": Mutation(
        "few calls",
        put(signoff.graph.history.reader.Reader, "holds", lambda *_: True),
        [RESTART, LEGAL],
        thorough=True,
    ),
}
