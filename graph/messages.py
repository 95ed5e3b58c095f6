"""The messages of a thread: our marks on them, how writes merge into the history, and how it is stored.

Marks are kept under one key that is never sent to a provider. A human-role message with a `nudge` mark is
synthetic: it is written for the model and never counts as the user's message. A tool result with a `not_run`
mark answers a call that was not run. An `AIMessage` with an `answer` mark is not a reply of the model: it
tells the caller how a task ended.

Merging is deterministic: replaying the writes, in any batching, gives the same value.
"""

import secrets
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

NOTES_PREFIX = "signoff-"
NOTES = f"{NOTES_PREFIX}{secrets.token_hex(8)}"
"""The key of what the guard inside a model notes on a reply. It becomes our marks when the reply is received
(`graph/values.py`). Its word is of this process, so that no provider and no cache can set marks."""


class Marks(TypedDict, total=False):
    """All marks that Signoff puts on messages. They are stored, so their names are fixed:
    docs/reference/storage.md."""

    # On a reply of the model.
    at: float  # when it was complete, in seconds since 1970
    seconds: float  # how long its call took; on a tool result: how long the call ran
    shown: int  # the estimated tokens of its prompt
    dropped: bool  # its stream ended without a finish reason, so that none of its calls runs
    estimated: bool  # its usage is an estimate
    cut: int  # the number of its calls that were kept
    ended: str  # why it was cut off before it was complete
    stopped: bool  # it was stopped on request
    model: str  # the name of the model that replied, if a middleware has put it in place of the graph's
    retries: int  # how often its call was retried
    held: float  # seconds waited between the attempts
    order: list[int]  # the order of its calls, if the parser lost it
    offered: list[str]  # the working tools that were offered, if not all were
    dearer: float  # what it costs above the prices of the graph's model, if another model replied
    controls_only: bool  # only a control call was requested
    unstreamed: bool  # it came whole, since its provider refuses to stream
    call_refused: bool  # its provider refused it for a call in it, or for want of one; nothing of it came
    # On the message that tells how a task ended.
    answer: str  # the task
    after: str  # the id of the message before it; a thread with both knows it as its own
    accepted: bool  # a finish was accepted, so that the prompt of the next task shows it
    line: bool  # a prompt alone has it: the assistant's line before what is said after a result
    # On a tool result.
    not_run: str  # why the call was not run
    reply: str  # the id of the reply that made the call
    waited: float  # seconds spent waiting for a person
    edited: bool  # a person changed the arguments
    responded: bool  # a person answered in place of the tool
    answered: bool  # it is a person's answer to a question
    expired: bool  # it is the default answer, given at the deadline
    unknown: bool  # it is unknown whether the call took effect
    granted: int  # turns that were granted, on the message with which a task was extended
    at_turn: int  # on the same: the turns used by then; on a tool result only if these were above the limit
    sent_back: bool  # a person did not accept the finish
    confirmed: bool  # a person accepted the finish
    said: str  # the person's words with it, or with a rejection
    ran: dict[str, Any]  # the arguments that ran, where a person changed them
    by: str  # who decided or answered, if the answer named them
    phase: dict[str, Any]  # the part of the task that was accepted as done
    undone: dict[str, str]  # which of its effects were undone since, one line each
    delegate: dict[
        str, Any
    ]  # how the delegate's own task ended, and the totals of it and all delegates below
    # On a human-role message.
    nudge: str  # why Signoff wrote it
    finish: str  # the finish that it refers to, by `Reply.key`
    extended: dict[str, Any]  # the usage of the summaries when the task was extended
    again: dict[str, Any]  # the delegates that continue, their usage so far and extra turns
    approach: str | None  # the approach, from the summary
    status: str | None  # the status, from the summary
    begins: bool  # it began a task beside open calls
    answers: list[str]  # the ids of the calls that it answers
    wait: str  # what these calls waited for


_M = TypeVar("_M", bound=BaseMessage)


def marks(message: BaseMessage) -> Marks:
    """The marks on `message`; empty if there are none."""
    where = message.response_metadata if isinstance(message, AIMessage) else message.additional_kwargs
    # No `cast`, which is a call: this is asked for twenty times a turn.
    found: Marks | None = where.get(KEY)
    return found if isinstance(found, dict) else {}


def guard_notes(chunk: BaseMessage) -> Marks:
    """What the guard inside the model noted on this chunk, the last of a reply that it has ended."""
    found: Marks | None = chunk.response_metadata.get(NOTES)
    return found or {}


def add_notes(message: ToolMessage, notes: Mapping[str, Any]) -> ToolMessage:
    """The result with further marks; unchanged if there are none."""
    if not notes:
        return message
    kept = {**message.additional_kwargs, KEY: {**marks(message), **notes}}
    return message.model_copy(update={"additional_kwargs": kept})


def slim(message: _M) -> _M:
    """`message` as if all its fields had been set explicitly, as they are after loading. All messages then
    share one of pydantic's sets of field names; in a long history these sets take as much memory as the
    texts."""
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


def persons_words(message: BaseMessage) -> str:
    """What a person said by this message, word for word, with a note for each picture or document; empty if
    it is not a person's. A result has the words of an answer, of a rejection or of a judgement of a finish;
    the default that a question is answered with at its deadline is nobody's."""
    if is_genuine(message):
        content = message.content
        return content if isinstance(content, str) else "\n".join(map(_words_of_block, content))
    notes = marks(message)
    if notes.get("expired"):
        return ""
    return message.text if notes.get("answered") or notes.get("responded") else notes.get("said", "")


def _words_of_block(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    if block.get("type") == "text":
        return str(block.get("text", ""))
    names = [str(block[key]) for key in ("filename", "name", "title", "mime_type") if block.get(key)]
    return f"[{' '.join([str(block.get('type')), *names])}]"


def answer(text: str, task: str, after: str, *, accepted: bool = False, **fields: Any) -> AIMessage:
    """The message that reports how `task` ended. after: the id of the message that it follows. accepted:
    whether by an accepted finish."""
    notes = {"answer": task, "after": after, **({"accepted": True} if accepted else {})}
    return slim(AIMessage(text, response_metadata={KEY: notes}, **fields))


def line(text: str) -> AIMessage:
    """A message of the assistant for a prompt alone. Like an answer, it is no reply of the model."""
    return slim(AIMessage(text, response_metadata={KEY: {"answer": "", "after": "", "line": True}}))


def is_line(message: BaseMessage) -> bool:
    """Whether the message is such a line."""
    return isinstance(message, AIMessage) and "line" in marks(message)


def is_answer(message: BaseMessage) -> bool:
    """Whether the message reports how a task ended."""
    return isinstance(message, AIMessage) and "answer" in marks(message)


def is_reply(message: BaseMessage) -> TypeGuard[AIMessage]:
    """Whether the message is a reply of a model."""
    return isinstance(message, AIMessage) and not is_answer(message)


def result(call_id: str, name: str, content: str, *, ok: bool = True, **notes: Any) -> ToolMessage:
    """A tool result of ours; `notes` become its marks (`reply`: the id of the reply that made the call, since
    the call id alone might not be unique)."""
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


# A full copy of a channel is stored at most once in this many updates (see `HistoryChannel`); in between,
# only the writes. A lower number makes `get_state_history` faster and the database larger.
SNAPSHOT_EVERY = 1000

Messages = list[BaseMessage]


class History(list[BaseMessage]):
    """The messages of a thread: a list that never changes once the reducer has made it.

    ids: the message ids in it; passed on to the list that extends it, so that a long history is not read
    again for each message. lineage: shared by a list and those that extend it by appending only; of two lists
    with the same lineage, the shorter is a prefix of the longer.
    """

    lineage: object

    def __init__(self, messages: Iterable[BaseMessage] = ()) -> None:
        super().__init__(messages)
        self.lineage = object()

    def __copy__(self) -> Messages:
        return list(self)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        # A copy is an ordinary list.
        return list, (list(self),)

    def take_ids(self) -> set[str | None] | None:
        """The ids, for the first caller only."""
        ids: set[str | None] | None = self.__dict__.pop("ids", None)
        return ids

    def grown(self, ids: set[str | None], lineage: object | None) -> "History":
        """This list with its ids and its lineage; without one it starts a new lineage."""
        self.__dict__["ids"] = ids
        self.lineage = lineage or object()
        return self


def lineage(messages: Sequence[BaseMessage]) -> object | None:
    """The lineage of a history; None for any other list."""
    return messages.lineage if isinstance(messages, History) else None


def as_messages(write: Any) -> Iterable[BaseMessage]:
    """The messages of a write, which is one message or a list. Raises LangChain's error for anything else."""
    for item in write if isinstance(write, list) else [write]:
        message = item if isinstance(item, BaseMessage) else convert_to_messages([item])[0]
        yield message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def _stamped(message: BaseMessage, position: int, taken: set[str | None]) -> BaseMessage:
    """`message` with an id derived from its position and content, so that a replay gives the same id."""
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
        # Removing an unknown message is ignored: the write is already saved, and an error would recur at
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
            # By position: importing a long history replaces many messages at once.
            if places is None:
                places = {one.id: at for at, one in enumerate(merged)}
            merged[places[message.id]] = message
    whole = merged if isinstance(merged, History) else History(merged)
    return whole.grown(taken, lineage)


def foreseen(history: Sequence[BaseMessage], write: Any) -> tuple[list[Any], Any]:
    """The history after a write, and the write with exactly the message objects that will be added. The
    current history can still be appended to, so a reading of the future history stays valid."""
    after = append_messages(history, [write])
    if not isinstance(after, History) or lineage(after) is None or lineage(after) is not lineage(history):
        # Something was replaced, so the history is read anew in any case.
        return after, write
    added = after[len(history) :]
    ids = after.take_ids()
    if isinstance(history, History) and ids is not None:
        history.grown(ids - {message.id for message in added}, history.lineage)
    return after, added


def latest(before: Any, writes: Sequence[Any]) -> dict[str, Any]:
    """The reducer of the summary: the last write wins. Only writes are stored, not a copy of the summary in
    every checkpoint."""
    return (writes[-1] if writes else before) or {}


def follow(known: Sequence[BaseMessage], messages: Sequence[BaseMessage]) -> History:
    """`messages` as a history that extends `known`, if it begins with the same message objects, so that these
    are not read again. Loops other than this machine pass a new list to each step."""
    more = messages[len(known) :]
    ids = known.take_ids() if isinstance(known, History) and all(map(is_, known, messages)) else None
    if ids is None or len(known) > len(messages) or any(one.id is None or one.id in ids for one in more):
        return History(messages).grown({one.id for one in messages}, None)
    ids.update(one.id for one in more)
    return History(messages).grown(ids, lineage(known))


class HistoryChannel(DeltaChannel[list[Any]]):
    """LangGraph's DeltaChannel, with a full copy whenever the history has grown by half since the last one.

    With copies at a fixed interval, those of a long thread would outgrow the messages; this way they stay in
    proportion to the messages, and so does the amount to read when the thread is opened. LangGraph's own
    bound on the interval (5,000 super-steps) applies as well, except in Signoff's storages
    (`signoff.storage.base`). `snapshot_frequency`: the minimum number of updates between two copies.
    """

    @property
    def snapshot_frequency(self) -> int:
        # Half of the last copy is a third of the whole.
        return max(self._least, len(self.value) // 3) if self.is_available() else self._least

    @snapshot_frequency.setter
    def snapshot_frequency(self, least: int) -> None:
        self._least = least
