"""The messages of a thread: our marks on them, how writes merge into the history, and how it is stored.

Marks stand under one key, where no provider is ever sent them. A human-role message with a `nudge` mark is
synthetic: it is there for the model's sake and never counts as the user's word. A tool result with a
`not_run` mark answers a call that was not run. An `AIMessage` with an `answer` mark is not a reply of the
model: it tells whoever asked how a task ended.

Merging is deterministic: a replay of the writes, in whatever batches, makes the same value.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import is_
from typing import Any, TypedDict, TypeGuard, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.channels import DeltaChannel
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from signoff.graph.inside.private import with_fields_set

KEY = "signoff"


class Marks(TypedDict, total=False):
    """All notes that Signoff leaves on messages. What is stored keeps its name: docs/reference/storage.md."""

    # On a reply of the model.
    at: float  # when it was whole, in seconds since 1970
    seconds: float  # how long its call took; on a tool result: how long the call ran
    shown: int  # the tokens of its prompt, by estimate
    checked: bool  # its arguments were read by the strict parser
    estimated: bool  # its usage is an estimate
    cut: int  # the number of its calls that were kept
    ended: str  # why it was ended before it was whole
    stopped: bool  # somebody asked it to stop
    model: str  # the name of the model that spoke, where there are several
    retries: int  # how often its call was tried again
    held: float  # seconds waited between the tries
    order: list[int]  # the order of its calls, where the parser lost it
    offered: list[str]  # the working tools that it was offered, where not all were
    controls_only: bool  # only a control call was asked for
    # On the message that tells how a task ended.
    answer: str  # the task
    after: str  # the id of the message before it, which with its own thread holds what it says
    # On a tool result.
    not_run: str  # why the call was not run
    reply: str  # the id of the reply that made the call
    waited: float  # seconds spent waiting for a person
    edited: bool  # a person changed the arguments
    responded: bool  # a person answered in place of the tool
    answered: bool  # it is a person's answer to a question
    expired: bool  # it is the answer by default, after the deadline
    unknown: bool  # nobody knows whether the call took place
    granted: int  # turns that were granted
    sent_back: bool  # a person did not accept the finish
    confirmed: bool  # a person accepted the finish
    said: str  # the person's words with it
    ran: dict[str, Any]  # the arguments that ran, where a person changed them
    by: str  # who decided or answered, where whoever handed the answer in said so
    phase: dict[str, Any]  # the part of the task that was accepted as done
    undone: dict[str, str]  # what of its effects was undone since, a line for each
    delegate: dict[str, Any]  # how the delegate's own task ended, and what it and all below have come to
    # On a human-role message.
    nudge: str  # why Signoff wrote it
    finish: str  # the finish that it is about, by `Reply.key`
    extended: dict[str, Any]  # what the summaries had cost when the task was extended
    again: dict[str, Any]  # the delegates that go on, with what they had used, and how many turns they get
    approach: str | None  # what the summary says of the approach
    status: str | None  # what the summary says of the status
    begins: bool  # it began a task beside open calls
    answers: list[str]  # the ids of the calls that it answers
    wait: str  # what these calls waited for


_M = TypeVar("_M", bound=BaseMessage)


def marks(message: BaseMessage) -> Marks:
    """The notes on `message`; empty when there are none."""
    where = message.response_metadata if isinstance(message, AIMessage) else message.additional_kwargs
    # No `cast`, which is a call: this is asked for twenty times a turn.
    found: Marks | None = where.get(KEY)
    return found if isinstance(found, dict) else {}


def add_notes(message: ToolMessage, notes: Mapping[str, Any]) -> ToolMessage:
    """The result with more notes on it; as it is when there are none."""
    if not notes:
        return message
    kept = {**message.additional_kwargs, KEY: {**marks(message), **notes}}
    return message.model_copy(update={"additional_kwargs": kept})


def slim(message: _M) -> _M:
    """`message` as if all its fields had been given, as they are when it is loaded again. Pydantic's record
    of them is then one for all messages; in a long history it takes as much memory as the texts."""
    return with_fields_set(message, _all_fields(type(message)))


@cache
def _all_fields(kind: type[BaseMessage]) -> set[str]:
    return set(kind.model_fields)


def nudge(kind: str, text: str, **notes: Any) -> HumanMessage:
    """A synthetic reminder. `kind` says why it was written; `notes` become marks beside it."""
    return slim(HumanMessage(content=text, additional_kwargs={KEY: {"nudge": kind, **notes}}))


def nudge_kind(message: BaseMessage) -> str | None:
    """Why a synthetic message was written; None for every other message."""
    return marks(message).get("nudge") if isinstance(message, HumanMessage) else None


def is_genuine(message: BaseMessage) -> bool:
    """Whether a person (or the calling program) wrote this message."""
    return isinstance(message, HumanMessage) and nudge_kind(message) is None


def answer(text: str, task: str, after: str, **fields: Any) -> AIMessage:
    """The message that tells how `task` ended. after: the id of the message that it follows."""
    return slim(AIMessage(text, response_metadata={KEY: {"answer": task, "after": after}}, **fields))


def is_answer(message: BaseMessage) -> bool:
    """Whether the message tells how a task ended. What a model sends never does: a reply has its time."""
    return isinstance(message, AIMessage) and "answer" in (found := marks(message)) and "at" not in found


def is_reply(message: BaseMessage) -> TypeGuard[AIMessage]:
    """Whether the message is a reply of a model."""
    return isinstance(message, AIMessage) and not is_answer(message)


def result(call_id: str, name: str, content: str, *, ok: bool = True, **notes: Any) -> ToolMessage:
    """A tool result of ours; `notes` become its marks (`reply`: the id of the reply that made the call,
    where the call's own id might not be unique)."""
    message = ToolMessage(
        content=content,
        tool_call_id=call_id,
        name=name,
        status="success" if ok else "error",
        additional_kwargs={KEY: notes} if notes else {},
    )
    return slim(message)


def not_run(call_id: str, name: str, content: str, why: str, **notes: Any) -> ToolMessage:
    """The answer to a call that was not run."""
    return result(call_id, name, content, ok=False, not_run=why, **notes)


# A full copy of a channel is stored once in this many updates of it, or less often (`HistoryChannel`);
# between two of them only what was written. Lower makes `get_state_history` faster and the database larger.
SNAPSHOT_EVERY = 1000

Messages = list[BaseMessage]


class History(list[BaseMessage]):
    """The messages of a thread: a list that is never changed once the reducer has made it.

    ids: the ids in it; handed over to the list that is appended to it, so that a long history is not read
    again for each message. lineage: the same for a list and for those that grew from it by appending alone;
    of two with one lineage the shorter is how the longer one begins.
    """

    lineage: object

    def __init__(self, messages: Iterable[BaseMessage] = ()) -> None:
        super().__init__(messages)
        self.lineage = object()

    def __copy__(self) -> Messages:
        return list(self)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        # A copy is a list like any other.
        return list, (list(self),)

    def take_ids(self) -> set[str | None] | None:
        """The ids, to whoever asks first."""
        ids: set[str | None] | None = self.__dict__.pop("ids", None)
        return ids

    def grown(self, ids: set[str | None], lineage: object | None) -> "History":
        """This list with what it is known by; without a lineage it begins one of its own."""
        self.__dict__["ids"] = ids
        self.lineage = lineage or object()
        return self


def lineage(messages: Sequence[BaseMessage]) -> object | None:
    """What two histories share of which one grew from the other; None for a list of another make."""
    return messages.lineage if isinstance(messages, History) else None


def as_messages(write: Any) -> Iterable[BaseMessage]:
    """The messages of a write: of one, or of a list. Raises what LangChain raises for anything else."""
    for item in write if isinstance(write, list) else [write]:
        message = item if isinstance(item, BaseMessage) else convert_to_messages([item])[0]
        yield message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def _stamped(message: BaseMessage, position: int, taken: set[str | None]) -> BaseMessage:
    """`message` with an id made from its place and content: a replay of the writes makes the same one."""
    salt = 0
    while True:
        name = f"{position}:{salt}:{message.type}:{message.content}"
        stamp = str(uuid.uuid5(uuid.NAMESPACE_OID, name.encode(errors="backslashreplace").decode()))
        if stamp not in taken:
            return slim(message.model_copy(update={"id": stamp}))
        salt += 1


def _merge(history: Messages, message: BaseMessage, taken: set[str | None]) -> Messages:
    """`history` with one message appended or removed; `history` may be changed in place."""
    if isinstance(message, RemoveMessage):
        if message.id == REMOVE_ALL_MESSAGES:
            taken.clear()
            return []
        # What cannot be removed is ignored: the write is saved already, and an error would come back with
        # every reading of the thread.
        taken.discard(message.id)
        return [kept for kept in history if kept.id != message.id]
    if message.id is None:
        message = _stamped(message, len(history), taken)
    taken.add(message.id)
    history.append(message)
    return history


def append_messages(history: Sequence[BaseMessage] | None, writes: Sequence[Any]) -> list[Any]:
    """The reducer of the history: append by copy, replace by id, remove by `RemoveMessage`.

    A write is what `add_messages` accepts: one message or a list, as objects, tuples, dicts or strings.
    Deterministic and batching-invariant, as `DeltaChannel` needs it.
    """
    before = history if history is not None else ()
    merged: Messages = History(before)
    ids = before.take_ids() if isinstance(before, History) else None
    lineage = before.lineage if isinstance(before, History) and ids is not None else None
    taken = {message.id for message in merged} if ids is None else ids
    places: dict[str | None, int] | None = None
    for write in writes:
        for message in as_messages(write):
            removes = isinstance(message, RemoveMessage)
            if removes or message.id in taken:
                lineage = None
            if removes or message.id is None or message.id not in taken:
                merged, places = _merge(merged, message, taken), None
                continue
            # By its place: many are replaced at once where a long history is imported.
            if places is None:
                places = {one.id: at for at, one in enumerate(merged)}
            merged[places[message.id]] = message
    whole = merged if isinstance(merged, History) else History(merged)
    return whole.grown(taken, lineage)


def foreseen(history: Sequence[BaseMessage], write: Any) -> tuple[list[Any], Any]:
    """The history as it will be, and the write with the very messages that will be added. The history can be
    appended to as before; so a reading of what is foreseen holds for what comes."""
    after = append_messages(history, [write])
    if not isinstance(after, History) or lineage(after) is None or lineage(after) is not lineage(history):
        # Something was replaced: that is read anew in any case.
        return after, write
    added = after[len(history) :]
    ids = after.take_ids()
    if isinstance(history, History) and ids is not None:
        history.grown(ids - {message.id for message in added}, history.lineage)
    return after, added


def latest(before: Any, writes: Sequence[Any]) -> dict[str, Any]:
    """The reducer of the summary: the last write counts. Only what is written is stored, not a copy of the
    summary with every checkpoint."""
    return (writes[-1] if writes else before) or {}


def follow(known: Sequence[BaseMessage], messages: Sequence[BaseMessage]) -> History:
    """`messages` as a history that has grown from `known`, where it begins with the very same messages: so
    nothing of those is read again. Another loop than this machine's gives each step a list of its own."""
    more = messages[len(known) :]
    ids = known.take_ids() if isinstance(known, History) and all(map(is_, known, messages)) else None
    if ids is None or len(known) > len(messages) or any(one.id is None or one.id in ids for one in more):
        return History(messages).grown({one.id for one in messages}, None)
    ids.update(one.id for one in more)
    return History(messages).grown(ids, lineage(known))


class HistoryChannel(DeltaChannel[list[Any]]):
    """LangGraph's DeltaChannel, with a full copy once the history is half as long again as in the last one.

    At a fixed distance the copies of a long thread outgrow the messages themselves; so they stay in
    proportion to them, and so does what has to be read to open the thread. LangGraph's own bound on the
    distance (5,000 super-steps) holds as well where the storage is not one of ours (`signoff.storage.steps`).
    `snapshot_frequency`: at least so many updates between two copies.
    """

    @property
    def snapshot_frequency(self) -> int:
        # What is half of the copy is a third of the whole.
        return max(self._least, len(self.value) // 3) if self.is_available() else self._least

    @snapshot_frequency.setter
    def snapshot_frequency(self, least: int) -> None:
        self._least = least
