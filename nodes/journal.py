"""The journal: what happened to calls that have an effect, durable before the effect starts.

Each call has one entry in the store, under (thread, reply, call). An entry that says `started` after a crash
means: nobody knows whether the effect took place.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage, message_to_dict, messages_from_dict
from langgraph.store.base import BaseStore, GetOp, PutOp

from signoff.graph.marks import result
from signoff.graph.replies import Call
from signoff.graph.section import decided
from signoff.graph.task import Task
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Store, Swap
from signoff.nodes.record import label
from signoff.tools.approvals import fingerprint

JOURNAL = "journal"
STARTED, WAITING, DONE = "started", "waiting", "done"


@dataclass(frozen=True)
class Entry:
    """What the journal says of one call. `attempt` counts its starts; `hash` is of the tool and the arguments
    that ran, `edited` those that a person put in place of the model's; `messages` are the result of a call
    that is done, and what its tool added."""

    status: str
    attempt: int = 1
    hash: str = ""
    edited: Mapping[str, Any] | None = None
    messages: tuple[BaseMessage, ...] = ()


def _namespace(thread_id: str | None, reply_id: str) -> tuple[str, ...]:
    return ("signoff", JOURNAL, label(thread_id), label(reply_id))


def look(run: Run, reply_id: str, calls: Sequence[Call]) -> Part[Mapping[str, Entry]]:
    """A part of a node: the entries of `calls`, by call id, for those that have one."""
    if not calls:
        return {}
    items = yield Store([GetOp(_namespace(run.thread_id, reply_id), call.id) for call in calls])
    return {call.id: _entry(call, item.value) for call, item in zip(calls, items, strict=True) if item}


def _entry(call: Call, value: Mapping[str, Any]) -> Entry:
    messages = tuple(messages_from_dict(value["messages"]))
    return Entry(value["status"], value["attempt"], value["hash"], value["edited"], messages)


def claim(thread_id: str | None, reply_id: str, call: Call, before: Entry | None, begun: Entry) -> Swap:
    """Asks to be the one that starts `call`; of two runners at the same moment one gets it."""
    known = None if before is None else _value(call, before)
    return Swap(_namespace(thread_id, reply_id), call.id, known, _value(call, begun))


def hand_out(thread_id: str, reply_id: str, call: Call) -> Swap:
    """Asks to be the first that a call is handed over to."""
    return claim(thread_id, reply_id, call, None, Entry(STARTED, hash=fingerprint(call.name, call.args)))


def copy_entries(store: BaseStore, threads: tuple[str, str], reply_id: str, calls: Sequence[Call]) -> None:
    """Copies what the journal says of `calls` from the first thread to the second."""
    source, target = (_namespace(thread_id, reply_id) for thread_id in threads)
    for call in calls:
        if item := store.get(source, call.id):
            store.put(target, call.id, item.value)


def note(run: Run, reply_id: str, call: Call, entry: Entry) -> PutOp:
    """The operation that writes `entry` for `call`."""
    return PutOp(_namespace(run.thread_id, reply_id), call.id, _value(call, entry))


def _value(call: Call, entry: Entry) -> dict[str, Any]:
    return {
        "status": entry.status,
        "attempt": entry.attempt,
        "tool": call.name,
        "hash": entry.hash,
        "edited": dict(entry.edited) if entry.edited is not None else None,
        "messages": [_plain(message) for message in entry.messages],
    }


def _plain(message: BaseMessage) -> dict[str, Any]:
    """The message as plain values; an artifact that is none is left out."""
    value = message_to_dict(message)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        value = message_to_dict(message.model_copy(update={"artifact": None}))
    return value


def unknown(call: Call, run: Run, edited: Mapping[str, Any] | None = None, words: str = "") -> ToolMessage:
    """The result of a call that had started when its process ended. `words` are what a person adds."""
    texts = run.kit.texts.results
    text = f"{texts['unknown_outcome'].format(name=call.name)} {words}".rstrip()
    notes = {}
    if edited is not None:
        text = texts["edited"].format(args=json.dumps(dict(edited), default=str), result=text)
        notes["edited"] = True
    return result(call.id, call.name, text, ok=False, unknown=True, **notes)


def outcome_known(call: Call, entry: Entry | None, run: Run) -> list[BaseMessage]:
    """What the history gets of a call that will not run again: the recorded messages, or "outcome unknown".
    Nothing when the journal knows of no start."""
    if entry is None:
        return []
    return list(entry.messages) if entry.status == DONE else [unknown(call, run, entry.edited)]


@dataclass(frozen=True)
class Unsettled:
    """The due calls that a person must decide on; `attempts` of those that were started before a crash."""

    calls: tuple[Call, ...]
    attempts: Mapping[str, int]

    @property
    def shown(self) -> dict[str, str]:
        """What a person is shown, as call ids and hashes of tools and arguments."""
        return {call.id: fingerprint(call.name, call.args) for call in self.calls}


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
