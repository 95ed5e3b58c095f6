"""Collects the writes of hooks. They are validated, and visible to later hooks, before anything is saved. The
machine decides by the history, so a middleware may add to it and reword it, but not remove anything. A human
message from a middleware does not count as a person's message: it is marked like a reminder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite

from signoff.graph.history.reasons import without_reason
from signoff.graph.messages import KEY, append_messages, as_messages, marks, slim
from signoff.graph.schemas.state import Refused, after, checked_update, combined
from signoff.graph.state import MIDDLEWARE, AgentState, HookMarks
from signoff.graph.values import sound_id, sound_message
from signoff.nodes.node import NodeContext, Report

_JUMP = "jump_to"
PLACES = ("model", "tools", "end")
"""Where a hook may jump to."""


class CannotWrite(Exception):
    """A hook's return value cannot be written; the message says why, and what to do."""


@dataclass
class Changes:
    """The writes of hooks; `state` is the state with all of them applied."""

    state: AgentState
    run: NodeContext
    messages: dict[str, BaseMessage] = field(default_factory=dict)
    updates: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = self.state
        self._marks: HookMarks | None = None

    def take(self, given: Any) -> str:
        """Applies a hook's return value; returns where it jumps to, empty if it does not. Raises
        CannotWrite."""
        if isinstance(given, Command):
            if given.goto or given.resume or given.graph:
                raise CannotWrite("it returned a Command with goto, resume or graph; return only an update")
            given = given.update
        if given is None:
            return ""
        if not isinstance(given, Mapping):
            raise CannotWrite(f"it returned a {type(given).__name__} instead of a dict of channels")
        jump = given.get(_JUMP) or ""
        if jump and jump not in PLACES:
            raise CannotWrite(f"it jumps to {jump!r}; the places are: {', '.join(PLACES)}")
        channels = {key: value for key, value in given.items() if key not in ("messages", _JUMP)}
        if given.get("messages") is not None:
            self.say(given["messages"])
        if channels:
            self._write(channels)
        return jump

    def say(self, given: Any) -> None:
        """Adds messages, and replaces those with the same ids."""
        before = self.state["messages"]
        try:
            known = {one.id: one for one in before}
            after = append_messages(before, [[_sound(one, known) for one in _writes(given)]])
        except (TypeError, ValueError, NotImplementedError, LookupError) as error:
            raise CannotWrite(f"its messages cannot be read: {error}") from error
        if [one.id for one in after[: len(before)]] != [one.id for one in before]:
            raise CannotWrite(
                "it takes messages out of the history, by which the machine decides; to show the model less, "
                'write policy={"prompt_tokens": …}, or change request.messages in wrap_model_call'
            )
        news = [_in_place(new, old) for new, old in zip(after, before, strict=False) if new is not old]
        self.put([*news, *map(self._added, after[len(before) :])])

    def note(self, heard: HookMarks) -> None:
        """Records which hooks have run."""
        self.state = cast(AgentState, {**self.state, MIDDLEWARE: heard})
        self._marks = heard

    def put(self, messages: Sequence[BaseMessage]) -> None:
        """Writes messages that already have ids, unchanged."""
        if not messages:
            return
        self.messages |= {message.id or "": message for message in messages}
        self.state = {**self.state, "messages": append_messages(self.state["messages"], [list(messages)])}

    def _added(self, message: BaseMessage) -> BaseMessage:
        if isinstance(message, HumanMessage):
            message.additional_kwargs = {**message.additional_kwargs, KEY: {"nudge": MIDDLEWARE}}
        elif isinstance(message, ToolMessage) and self._is_work(message):
            message.additional_kwargs = {**message.additional_kwargs, KEY: {"not_run": MIDDLEWARE}}
        return slim(message)

    def _is_work(self, message: ToolMessage) -> bool:
        """Whether it answers a call of the last reply that would have run."""
        last = self.run.task(self.state).last
        calls = last.calls if last is not None else ()
        return any(call.id == message.tool_call_id and call.effect is None for call in calls)

    def _write(self, given: Mapping[str, Any]) -> None:
        channels, saved = self.run.deps.channels, self.run.can_ask or self.run.store is not None
        found = checked_update(given, channels, self.state, saved=saved)
        if isinstance(found, Refused):
            why = found.why if found.channel in channels else f"there are: {found.why or 'none'}"
            raise CannotWrite(f"the channel {found.channel!r} cannot take what it writes ({why})")
        self.state = cast(AgentState, {**self.state, **after(found, channels, self.state)})
        self.updates.append(found)

    def update(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The collected update, followed by `more`."""
        channels, given = self.run.deps.channels, dict(more or {})
        theirs = {key: given.pop(key) for key in list(given) if key in channels}
        updates = [*self.updates, theirs] if theirs else self.updates
        found = {**combined(updates, channels, self._before), **given} if updates else given
        if self._marks is not None:
            found[MIDDLEWARE] = self._marks
        if self.messages:
            found["messages"] = [*self.messages.values(), *given.get("messages", ())]
        return found

    def beside(self, report: Report) -> Report:
        """The report of the state that ran after the hooks."""
        return replace(report, update=self.update(report.update))


def _writes(given: Any) -> Iterator[BaseMessage]:
    """The messages of a write; if it replaces the history, preceded by a message that removes all others."""
    if isinstance(given, Overwrite):
        yield RemoveMessage(id=REMOVE_ALL_MESSAGES)
        given = given.value
    yield from as_messages(given)


def _sound(message: BaseMessage, known: Mapping[str | None, BaseMessage]) -> BaseMessage:
    """The message as it can be stored, without our marks; one of the history as it is there: middleware often
    returns the whole history."""
    old = known.get(sound_id(vars(message).get("id")))
    if old is not None and (old is message or old == message):
        return old
    return message if isinstance(message, RemoveMessage) else sound_message(message)


def _in_place(new: BaseMessage, old: BaseMessage) -> BaseMessage:
    """A message that replaces another, and keeps Signoff's marks on it."""
    if new.type != old.type:
        raise CannotWrite(f"it puts a message of type {new.type!r} into the place of one of {old.type!r}")
    noted = dict(marks(old))
    if not isinstance(new, AIMessage) or not isinstance(old, AIMessage):
        kept = {**new.additional_kwargs, KEY: noted} if noted else new.additional_kwargs
        return slim(new.model_copy(update={"additional_kwargs": kept}))
    if new.tool_calls != old.tool_calls:
        # The new calls are parsed values; these marks describe the old raw text.
        noted = {key: value for key, value in noted.items() if key not in ("cut", "order")}
        noted |= marks(new)
    usage = new.usage_metadata or old.usage_metadata
    metadata = {**provider_words(new, old), **({KEY: noted} if noted else {})}
    return slim(new.model_copy(update={"response_metadata": metadata, "usage_metadata": usage}))


def provider_words(new: AIMessage, old: AIMessage) -> dict[str, Any]:
    """The metadata of a reply that replaces another. Code that rewrites a message mostly omits them, and
    those of the old message still hold as long as one of its calls is there: calls of a truncated reply stay
    truncated in its copy."""
    words, noted = dict(old.response_metadata), marks(old)
    if new.tool_calls and all(one not in old.tool_calls for one in new.tool_calls):
        words, noted = without_reason(words), {}
    words = {**words, **new.response_metadata, KEY: {**noted, **marks(new)}}
    return words if words[KEY] else {key: value for key, value in words.items() if key != KEY}
