"""The journal: what happened to calls that have an effect, durable before the effect starts.

Each call has one entry in the store, under (thread, reply, call). An entry that says `started` after a crash
means: nobody knows whether the effect took place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.store.base import GetOp, PutOp

from signoff.graph.marks import KEY, result
from signoff.graph.replies import Call
from signoff.graph.section import decided
from signoff.graph.task import Task
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Store, Swap
from signoff.nodes.record import label

STARTED, WAITING, DONE = "started", "waiting", "done"


@dataclass(frozen=True)
class Entry:
    """What the journal says of one call. `attempt` counts its starts."""

    status: str
    attempt: int = 1
    answer: ToolMessage | None = None


def _namespace(run: Run, reply_id: str) -> tuple[str, ...]:
    return ("signoff", "journal", label(run.thread_id), label(reply_id))


def look(run: Run, reply_id: str, calls: Sequence[Call]) -> Part[Mapping[str, Entry]]:
    """A part of a node: the entries of `calls`, by call id, for those that have one."""
    if not calls:
        return {}
    items = yield Store([GetOp(_namespace(run, reply_id), call.id) for call in calls])
    return {call.id: _entry(call, item.value) for call, item in zip(calls, items, strict=True) if item}


def _entry(call: Call, value: Mapping[str, Any]) -> Entry:
    answer = None
    if value["status"] == DONE:
        kept = result(call.id, call.name, "", ok=value["ok"], **value["marks"])
        answer = kept.model_copy(update={"content": value["content"]})
    return Entry(value["status"], value["attempt"], answer)


def claim(run: Run, reply_id: str, call: Call, before: Entry | None, begun: Entry) -> Swap:
    """Asks to be the one that starts `call`; of two runners at the same moment one gets it."""
    known = None if before is None else _value(call, before)
    return Swap(_namespace(run, reply_id), call.id, known, _value(call, begun))


def note(run: Run, reply_id: str, call: Call, entry: Entry) -> PutOp:
    """The operation that writes `entry` for `call`."""
    return PutOp(_namespace(run, reply_id), call.id, _value(call, entry))


def _value(call: Call, entry: Entry) -> dict[str, Any]:
    value: dict[str, Any] = {"status": entry.status, "attempt": entry.attempt, "tool": call.name}
    if entry.answer is not None:
        value |= {
            "content": entry.answer.content,
            "ok": entry.answer.status != "error",
            "marks": entry.answer.additional_kwargs.get(KEY, {}),
        }
    return value


def unknown(call: Call, run: Run, words: str = "") -> ToolMessage:
    """The result of a call that had started when its process ended. `words` are what a person adds."""
    text = run.kit.texts.results["unknown_outcome"].format(name=call.name)
    return result(call.id, call.name, f"{text} {words}".rstrip(), ok=False, unknown=True)


def outcome_known(call: Call, entry: Entry | None, run: Run) -> ToolMessage | None:
    """The result of a call that will not run again: the recorded one, or "outcome unknown". None when the
    journal knows of no start."""
    if entry is None or entry.status == WAITING:
        return None
    return entry.answer if entry.answer is not None else unknown(call, run)


@dataclass(frozen=True)
class Unsettled:
    """The due calls that a person must decide on; `attempts` of those that were started before a crash."""

    calls: tuple[Call, ...]
    attempts: Mapping[str, int]


def unsettled(task: Task, run: Run) -> Part[Unsettled]:
    """A part of a node: which due calls wait for a person, by the policy and, where that is set, because a
    crash left their outcome unknown."""
    attempts: dict[str, int] = {}
    box = run.kit.toolbox
    if run.kit.ask_unknown and task.last is not None:
        effects = [call for call in task.due if box.is_effect(call.name) and not box.may_repeat(call.name)]
        entries = yield from look(run, task.last.message.id or "", effects)
        attempts = {key: entry.attempt for key, entry in entries.items() if entry.status == STARTED}
    asked = {call.id for call in task.undecided}
    for call in task.due:
        known = decided(call, task.decisions)
        if call.id in attempts and (known is None or known["attempt"] != attempts[call.id]):
            asked.add(call.id)
    return Unsettled(tuple(call for call in task.due if call.id in asked), attempts)
