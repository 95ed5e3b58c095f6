"""What nodes keep in the store: the journal of calls with effects, and the record of ended tasks.

Each such call has one entry, under (thread, reply, call), which is durable before the effect starts. After a
crash, an entry with status `started` means that it is unknown whether the effect took place. A call that will
never run is closed with the journal's result, with "outcome unknown", or with a reason. An ended task has one
entry for its outcome and one for the figures of the analytics.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages import BaseMessage, ToolMessage, message_to_dict, messages_from_dict
from langgraph.store.base import BaseStore, GetOp, PutOp

from signoff.graph import clock
from signoff.graph.finish.figures import figures
from signoff.graph.finish.recorded import Figures
from signoff.graph.foreign import FIGURES, OUTCOMES, label, place, strict_serde
from signoff.graph.history.reader import decided
from signoff.graph.history.replies import Call, Reply, fingerprint
from signoff.graph.history.task import Task
from signoff.graph.messages import nudge, result
from signoff.graph.outcome import Outcome
from signoff.graph.schemas.state import combined
from signoff.graph.state import AgentState
from signoff.graph.texts import Texts
from signoff.graph.values import is_sound, sound
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part, Store, Swap


def record(outcome: Outcome) -> PutOp:
    """The operation that records `outcome`. The same task is recorded once, however often this runs."""
    return PutOp(*place(OUTCOMES, outcome.thread_id, outcome.task), outcome.model_dump())


def look_up(outcome: Outcome) -> GetOp:
    """The operation that reads the recorded outcome of the same task."""
    return GetOp(*place(OUTCOMES, outcome.thread_id, outcome.task))


def recorded(store: BaseStore, thread_id: str) -> list[Outcome]:
    """The outcomes of a thread, in the order in which its tasks ended."""
    items = store.search(("signoff", OUTCOMES, label(thread_id)), limit=1000)
    ordered = sorted(items, key=lambda item: item.created_at)
    return [Outcome.model_validate(item.value) for item in ordered]


JOURNAL = "journal"
_PAGE = 1_000
_LONGEST_KEY = 200
STARTED, WAITING, DONE = "started", "waiting", "done"


@dataclass(frozen=True)
class JournalEntry:
    """What the journal says of one call. `attempt` counts its starts; `hash` identifies the tool and the
    arguments that ran; `edited` holds the arguments that a person substituted; `messages` are the result of a
    completed call and what its tool added; `update` is its update of the user's channels; `at` is when it
    completed; `copied`: another thread, of which this one is a fork, started the call."""

    status: str
    attempt: int = 1
    hash: str = ""
    edited: Mapping[str, Any] | None = None
    messages: tuple[BaseMessage, ...] = ()
    update: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0
    copied: bool = False


@dataclass
class Written:
    """The writes of settled calls to the state: messages, and updates of the user's channels, in order."""

    messages: list[BaseMessage] = field(default_factory=list)
    updates: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, other: "Written") -> None:
        self.messages += other.messages
        self.updates += other.updates

    def channels(self, state: AgentState, run: NodeContext) -> dict[str, Any]:
        """The updates combined into one."""
        return combined(self.updates, run.deps.channels, state) if self.updates else {}


def _namespace(thread_id: str | None, reply_id: str, machine: str = "") -> tuple[str, ...]:
    """machine: the namespace of a delegate's machine; two machines may use the same reply id."""
    here = (label(machine),) if machine else ()
    return ("signoff", JOURNAL, label(thread_id), *here, label(reply_id))


def _of(run: NodeContext, reply_id: str) -> tuple[str, ...]:
    return _namespace(run.thread_id, reply_id, run.descent.ns if run.descent is not None else "")


def key_of(call_id: str) -> str:
    """The key of a call: its id, or a hash of one that is longer than what a database takes as a key."""
    if len(call_id) <= _LONGEST_KEY:
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()


def look(run: NodeContext, reply_id: str, calls: Sequence[Call]) -> Part[Mapping[str, JournalEntry]]:
    """A part of a node: the entries of `calls`, by call id, for those that have one."""
    if not calls:
        return {}
    items = yield Store([GetOp(_of(run, reply_id), key_of(call.id)) for call in calls])
    return {call.id: _entry(call, item.value) for call, item in zip(calls, items, strict=True) if item}


def _entry(call: Call, value: Mapping[str, Any]) -> JournalEntry:
    messages = tuple(messages_from_dict(value["messages"]))
    update = _update(value["update"]) if "update" in value else {}
    told = value["status"], value["attempt"], value["hash"], value["edited"]
    return JournalEntry(*told, messages, update, value.get("at", 0.0), value.get("copied", False))


def claim_start(
    run: NodeContext, reply_id: str, call: Call, before: JournalEntry | None, begun: JournalEntry
) -> Swap:
    """Requests the right to start `call`; of two concurrent runners only one gets it."""
    known = None if before is None else _value(call, before)
    return Swap(_of(run, reply_id), key_of(call.id), known, _value(call, begun))


def hand_out(thread_id: str, reply_id: str, call: Call, machine: str = "") -> Swap:
    """Requests the right to receive a call that is handed over; only the first request gets it. machine: the
    namespace of the delegate that makes the call."""
    begun = JournalEntry(STARTED, hash=fingerprint(call.name, call.args))
    return Swap(_namespace(thread_id, reply_id, machine), key_of(call.id), None, _value(call, begun))


def handed_to(thread_id: str, reply_id: str, call: Call, machine: str = "") -> GetOp:
    """The operation that reads whether a call was handed over; None when it was not."""
    return GetOp(_namespace(thread_id, reply_id, machine), key_of(call.id))


def copy_entries(store: BaseStore, threads: tuple[str, str], reply_id: str, calls: Sequence[Call]) -> None:
    """Copies the journal entries of `calls` from the first thread to the second."""
    source, target = (_namespace(thread_id, reply_id) for thread_id in threads)
    for call in calls:
        if item := store.get(source, key_of(call.id)):
            store.put(target, key_of(call.id), {**item.value, "copied": True})


def copy_entries_below(store: BaseStore, threads: tuple[str, str], machines: Sequence[str]) -> None:
    """Copies the journals of these machines, by their namespaces, from the first thread to the second."""
    source, target = (label(thread_id) for thread_id in threads)
    for ns in machines:
        place = ("signoff", JOURNAL, source, label(ns))
        at = 0
        while found := store.search(place, limit=_PAGE, offset=at):
            for item in found:
                if item.namespace[3] == place[3]:
                    there = (*item.namespace[:2], target, *item.namespace[3:])
                    store.put(there, item.key, {**item.value, "copied": True})
            at += len(found)


def note(run: NodeContext, reply_id: str, call: Call, entry: JournalEntry) -> PutOp:
    """The operation that writes `entry` for `call`."""
    return PutOp(_of(run, reply_id), key_of(call.id), _value(call, entry))


def take_back(run: NodeContext, reply_id: str, call: Call, before: JournalEntry | None) -> PutOp:
    """The operation that restores the journal entry of `call` from `before` its last start."""
    return PutOp(_of(run, reply_id), key_of(call.id), None if before is None else _value(call, before))


def _value(call: Call, entry: JournalEntry) -> dict[str, Any]:
    more: dict[str, Any] = {"update": _plain_update(entry.update)} if entry.update else {}
    if entry.at:
        more["at"] = entry.at
    if entry.copied:
        more["copied"] = True
    return {
        "status": entry.status,
        "attempt": entry.attempt,
        "tool": call.name,
        "hash": entry.hash,
        "edited": dict(entry.edited) if entry.edited is not None else None,
        "messages": [_plain(message) for message in entry.messages],
        **more,
    }


def _plain_update(update: Mapping[str, Any]) -> dict[str, Any]:
    """An update as plain values: `{"plain": …}` if possible, else `{"typed": [type, bytes]}` as in a
    checkpoint."""
    if is_sound(update):
        return {"plain": dict(update)}
    kind, data = strict_serde().dumps_typed(dict(update))
    return {"typed": [kind, base64.b64encode(data).decode()]}


def _update(kept: Mapping[str, Any]) -> dict[str, Any]:
    if "plain" in kept:
        return dict(kept["plain"])
    kind, data = kept["typed"]
    found: dict[str, Any] = strict_serde().loads_typed((kind, base64.b64decode(data)))
    return found


def _plain(message: BaseMessage) -> dict[str, Any]:
    """The message as plain values; an artifact that cannot be one is omitted."""
    try:
        value: dict[str, Any] = sound(message_to_dict(message))
    except ValueError:
        value = sound(message_to_dict(message.model_copy(update={"artifact": None})), drops=True)
    return value


def unknown(
    call: Call,
    run: NodeContext,
    edited: Mapping[str, Any] | None = None,
    words: str = "",
    *,
    why: str = "unknown_outcome",
    **notes: Any,
) -> ToolMessage:
    """The result of a call that had started when its process ended, or may have. why: a key of
    `Texts.results`. `words` are a person's comment."""
    texts = run.deps.texts.results
    text = f"{texts[why].format(name=call.name)} {words}".rstrip()
    if edited is not None:
        text = texts["edited"].format(args=json.dumps(dict(edited), default=str), result=text)
        notes |= {"edited": True, "ran": dict(edited)}
    return result(call.id, call.name, text, ok=False, unknown=True, **notes)


def outcome_known(call: Call, entry: JournalEntry | None, run: NodeContext) -> Written:
    """The writes for a call that will not run again: its recorded result, or "outcome unknown". Nothing if
    the journal has no start of it.

    An update is written together with the result, in one step: if the result is missing, so is the update."""
    if entry is None:
        return Written()
    if entry.status != DONE:
        return Written([unknown(call, run, entry.edited)])
    # A rebuilt graph may have lost a channel.
    known = entry.update if run.deps.any_channel else run.deps.channels
    update = {key: value for key, value in entry.update.items() if key in known}
    return Written(list(entry.messages), [update] if update else [])


@dataclass(frozen=True)
class Unsettled:
    """The due calls that a person must decide on; `attempts` of those that were started before a crash."""

    calls: tuple[Call, ...]
    attempts: Mapping[str, int]

    @property
    def hashes(self) -> dict[str, str]:
        """The calls shown to a person, as call ids with hashes of tool and arguments."""
        return {call.id: fingerprint(call.name, call.args) for call in self.calls}


def unsettled(task: Task, run: NodeContext) -> Part[Unsettled]:
    """A part of a node: the due calls that wait for a person, by the policy or, if so configured, because a
    crash left their outcome unknown."""
    attempts: dict[str, int] = {}
    box = run.deps.toolbox
    if run.deps.ask_unknown and task.last is not None:
        effects = [c for c in task.due if box.is_journalled(c.name) and not box.may_repeat(c.name)]
        entries = yield from look(run, task.last.message.id or "", effects)
        attempts = {key: entry.attempt for key, entry in entries.items() if entry.status == STARTED}
    asked = {call.id for call in task.undecided}
    for call in task.due:
        known = decided(call, task.decisions)
        if call.id in attempts and (known is None or known["attempt"] != attempts[call.id]):
            asked.add(call.id)
    return Unsettled(tuple(call for call in task.due if call.id in asked), attempts)


def record_end(
    task: Task, outcome: Outcome, nudges: Sequence[tuple[str, int]], run: NodeContext
) -> Part[None]:
    """A part of a node: records `outcome` with the figures of `task`. The same task is recorded once.

    nudges: the reminders of the task, each with the number of replies before it.
    """
    if run.store is None or run.descent is not None:
        # The end of a delegate's task is reported in the result of its call.
        return
    where = place(FIGURES, outcome.thread_id, outcome.task)
    (known,) = yield Store([GetOp(*where)])
    found = figures(
        task,
        outcome,
        nudges,
        changes=run.deps.toolbox.is_effect,
        earlier=cast(Figures, known.value) if known else None,
        at=clock.now(),
    )
    yield Store([record(outcome), PutOp(*where, cast(dict[str, Any], found))])


def rejection(reply: Reply, call: Call, feedback: str, texts: Texts, **notes: Any) -> BaseMessage:
    """The message to the model about a finish that a person did not accept: the result of its call, or a
    reminder if an imported history already has a result."""
    if reply.open(call):
        text = texts.results["sent_back"].format(feedback=feedback)
        own = {"reply": reply.message.id or "", "sent_back": True, **notes}
        return result(call.id, call.name, text, ok=False, **own)
    return nudge(
        "sent_back", texts.nudges["sent_back"].format(feedback=feedback), finish=reply.key(call), **notes
    )
