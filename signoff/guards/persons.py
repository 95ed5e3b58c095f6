"""Decides who wrote new messages in the user's role: a person, or a tool or other middleware.

A task begins with an input. A message in the user's role that a tool or a hook writes during the task counts
as a reminder, as in the machine: else each one would begin a task with new limits. A person can write to a
thread at rest, by `update_state` or with a command; the checkpoints show which messages came that way.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from signoff.graph.inside.private import saver_of
from signoff.graph.messages import KEY, is_genuine
from signoff.nodes.requests import Operation, Part

_NS_SEPARATOR = "|"
_MESSAGES = "messages"


def in_users_role(messages: Iterable[BaseMessage]) -> list[HumanMessage]:
    """The messages that count as a person's without further checks."""
    return [one for one in messages if isinstance(one, HumanMessage) and is_genuine(one)]


def as_reminder(message: HumanMessage, kind: str) -> HumanMessage:
    """The message of a tool or a middleware, marked so that it begins no task and answers no question."""
    kept = {**message.additional_kwargs, KEY: {"nudge": kind}}
    return message.model_copy(update={"additional_kwargs": kept})


def by_person(
    messages: Iterable[BaseMessage], config: RunnableConfig, *, over: bool = False
) -> Part[set[str]]:
    """The ids of the messages that a person has written since the last hook of `Guards`, in a resumed run.
    None in a run whose input the first hook has processed.

    over: whether the task had ended by then, so that they may be an input that no hook has seen.
    """
    left = {message.id or "" for message in messages}
    configurable: Mapping[str, Any] = config.get("configurable", {})
    saver, thread_id = saver_of(configurable), configurable.get("thread_id")
    found = set[str]()
    if not saver or thread_id is None:
        return found
    ns = str(configurable.get("checkpoint_ns") or "").rpartition(_NS_SEPARATOR)[0]
    here = {"thread_id": thread_id, "checkpoint_ns": ns}
    at = (configurable.get("checkpoint_map") or {}).get(ns)
    newest: RunnableConfig = {"configurable": here}
    place: RunnableConfig | None = {"configurable": {**here, "checkpoint_id": at}} if at else newest
    # Messages that are not in this step's checkpoint came with the command that started the run.
    persons = bool(at)
    while left and place is not None:
        saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
        if saved is None:
            if place is newest:
                break
            # It is being saved in the background; `update_state` had saved before.
            persons, place = over, newest
            continue
        held = yield from _held(saver, saved)
        source = saved.metadata.get("source")
        # LangGraph applies an input in the step after the one that has saved it.
        if persons or (over and source == "input"):
            found |= left - held
        left &= held
        persons, place = source == "update", saved.parent_config
    return found


def _held(saver: Any, saved: Any) -> Part[set[str]]:
    """The ids of the messages that the thread held at this checkpoint."""
    values: Mapping[str, Any] = saved.checkpoint["channel_values"]
    if _MESSAGES in values:
        return _ids(values[_MESSAGES])
    # deepagents keeps them as what was written, with a copy now and then; what was taken out of them counts.
    given: dict[str, Any] = {"config": saved.config, "channels": [_MESSAGES]}
    history = yield Operation(
        partial(saver.get_delta_channel_history, **given), partial(saver.aget_delta_channel_history, **given)
    )
    written = [value for _, _, value in history[_MESSAGES]["writes"]]
    return _ids(history[_MESSAGES].get("seed")).union(*map(_ids, written))


def _ids(found: Any) -> set[str]:
    """The ids of messages: of a list, of one alone, or of a copy of a channel."""
    messages = getattr(found, "value", found)
    if isinstance(messages, BaseMessage):
        messages = [messages]
    return {one.id or "" for one in messages or () if isinstance(one, BaseMessage)}
