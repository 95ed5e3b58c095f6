"""Validates the input of a graph before anything is saved, and makes the inputs that continue a thread.

LangGraph ignores a misspelt key, and raises from deep within for a wrong type. It saves the input as it came,
in a separate checkpoint, before the first step writes it to the history. If the process is killed in between,
the message is in the database but not in the history: LangGraph then shows the thread as it was before, and
the next input replaces the message. The same happens to the writes of the last state if the process is killed
before their checkpoint.
"""

import reprlib
import uuid
from collections.abc import Collection, Container, Generator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.constants import START
from langgraph.types import Command, Overwrite, StateSnapshot
from pydantic import BaseModel

from signoff.graph.errors import SetupError, ThreadError, quote_id
from signoff.graph.finish.again import entering
from signoff.graph.foreign import valid_text
from signoff.graph.machine import TRANSITIONS, Event, check_states, enters, has_command, next_states
from signoff.graph.messages import append_messages, as_messages, is_genuine, slim
from signoff.graph.outcome import current_outcome
from signoff.graph.schemas.context import ContextForm
from signoff.graph.state import Context
from signoff.nodes.delegates.graphs import deps_of
from signoff.nodes.requests import Operation


def go_on(snapshot: StateSnapshot) -> Command[Any] | None:
    """The input that continues a thread whose process ended, or whose history was edited by hand.

    `graph.invoke(go_on(graph.get_state(config)), config)`. None if LangGraph has something left to run, else
    a command that enters the machine again. Raises ThreadError if the thread waits for an answer or has
    ended, since there is nothing to continue.
    """
    if not isinstance(snapshot, StateSnapshot):
        raise SetupError("go_on takes the snapshot of graph.get_state(config), not its values.")
    if snapshot.interrupts:
        raise ThreadError("The thread waits; answer it with Command(resume={interrupt.id: answer}).")
    # A saved input that is not yet applied comes after every end.
    if START not in snapshot.next and current_outcome(snapshot.values) is not None:
        raise ThreadError("The thread has ended; send a new message to begin the next task.")
    return None if snapshot.tasks or snapshot.next else entering(Event.GO_ON)


def entry_update(event: Event, values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments for `graph.update_state` by which `event` enters a thread, whatever is left to run there:
    pending work is dropped, and nothing runs.

    LangGraph has no update from outside: it writes as a node and follows that node's edges. So this picks a
    state whose only edge leads to where the event enters.
    """
    place = enters(event)
    name = next(state for state, row in TRANSITIONS.items() if {*row.values()} == {place})
    return {**values, "event": str(event)}, str(name)


# In this channel LangGraph records that a task waits for an answer.
INTERRUPT = "__interrupt__"
# And in this one, the answer.
RESUME = "__resume__"
_ID_DIGITS = 32


class EntryGraph(Protocol):
    """What `entry` needs from the graph; `nodes` are the names of its states."""

    @property
    def nodes(self) -> Container[str]: ...

    def get_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    def settle(self, config: RunnableConfig) -> None: ...

    async def asettle(self, config: RunnableConfig) -> None: ...


Entry = Generator[Operation, Any, Any]
"""Yields requests for what it needs from the thread, and returns the input that the run starts with."""


def entry(graph: EntryGraph, given: Any, saver: BaseCheckpointSaver[Any], place: RunnableConfig) -> Entry:
    """How a run with the input `given` enters the thread at `place`, which the caller holds.

    A new message does not replace one that was saved before it, nor the end of the previous task: that is
    applied first. If it is the same message, the run continues with it. Raises ThreadError when there is no
    thread to continue, and when the thread is in a state that this graph does not have.
    """
    newest = "checkpoint_id" not in place["configurable"]
    goes_on = given is None or isinstance(given, Command)
    if isinstance(given, Command):
        check_says_something(given)
    # Checked early: LangGraph saves an input before it reads it, so a bad one would fail at every reading.
    messages = [] if goes_on else messages_of(given)
    if not goes_on and not newest:
        return given
    saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
    if given is None and saved is None:
        raise ThreadError(
            f"There is no thread {place['configurable']['thread_id']!r:.80}; start it with a task."
        )
    if not goes_on:
        if _is_at_rest(saved):
            return with_ids(given)
        state = yield Operation(partial(graph.get_whole_state, place), partial(graph.aget_whole_state, place))
        if not is_repeated(messages, state.values):
            if is_unsettled(saved):
                yield Operation(partial(graph.settle, place), partial(graph.asettle, place))
            return with_ids(given)
        given = go_on(state)
    elif isinstance(given, Command) and newest and is_unsettled(saved):
        # LangGraph would run both, each as if it were alone, and the thread would become unreadable.
        yield Operation(partial(graph.settle, place), partial(graph.asettle, place))
    if not newest and isinstance(given, Command):
        yield from check_is_no_other(given, saved, saver, place)
    if newest and isinstance(given, Command):
        if _has_delegates(graph):
            _check_still_waits(given, saved, place)
        given = beside_saved(given, saved)
    check_states(saved, graph.nodes, newest=newest)
    return given


def beside_saved(command: Command[Any], saved: CheckpointTuple | None) -> Command[Any] | None:
    """The command, or None if an equal one is saved and not yet applied: LangGraph would apply both in one
    step, and the thread would become unreadable. Raises ThreadError for a command that would be lost.

    saved: the newest checkpoint of the thread.
    """
    if saved is None or not (command.update or command.goto) or not has_command(saved):
        return command
    if not isinstance(command.update, Mapping) or command.update.get("event") != Event.GO_ON:
        raise ThreadError(
            f"Thread {saved.config['configurable']['thread_id']!r:.80} was killed while it applied a "
            "command; continue it with invoke(None) first."
        )
    return None


def _has_delegates(graph: EntryGraph) -> bool:
    return bool(deps_of(graph).toolbox.delegates)


def _check_still_waits(command: Command[Any], saved: CheckpointTuple | None, place: RunnableConfig) -> None:
    """Raises ThreadError for an answer to an interrupt id that nothing waits under: LangGraph would silently
    drop it."""
    given = command.resume
    if not isinstance(given, dict) or not given or not all(map(_names_interrupt, given)):
        return
    written = (saved.pending_writes or ()) if saved else ()
    waits = {
        one.id: "/".join(one.value.get("path", ())) if isinstance(one.value, Mapping) else ""
        for _, channel, value in written
        if channel == INTERRUPT
        for one in value
    }
    if gone := [key for key in given if key not in waits]:
        told = ", ".join(f"{path or 'the thread itself'}: {key}" for key, path in waits.items()) or "nothing"
        thread_id = quote_id(place["configurable"]["thread_id"])
        raise ThreadError(
            f"Thread {thread_id} no longer waits for this answer (interrupt {gone[0]!r}); it waits for "
            f"{told}. Nothing was changed."
        )


def check_says_something(command: Command[Any]) -> None:
    """Raises ThreadError for an answer that LangGraph does not deliver."""
    if command.resume == {} or (command.resume is None and not command.update and not command.goto):
        raise ThreadError(
            f"The answer is {'empty' if command.resume == {} else 'null'} (resume={command.resume!r}), and "
            'nothing would be delivered; pass text or a JSON value, or "" for no answer. Nothing was changed.'
        )


def _answers(saved: CheckpointTuple | None) -> list[Any]:
    """The answers given at a checkpoint."""
    found = (
        [value for _, channel, value in (saved.pending_writes or ()) if channel == RESUME] if saved else []
    )
    return [one for value in found for one in (value if isinstance(value, list) else [value])]


def check_is_no_other(
    command: Command[Any],
    saved: CheckpointTuple | None,
    saver: BaseCheckpointSaver[Any],
    place: RunnableConfig,
) -> Generator[Operation, Any, None]:
    """Raises ThreadError for a different answer at a point that the thread has already passed: LangGraph
    would use the earlier answer. saved: the checkpoint that `place` names."""
    before = _answers(saved)
    if not before or command.resume is None:
        return
    newest: RunnableConfig = {"configurable": {**place["configurable"]}}
    del newest["configurable"]["checkpoint_id"]
    now = yield Operation(partial(saver.get_tuple, newest), partial(saver.aget_tuple, newest))
    at, given = place["configurable"]["checkpoint_id"], command.resume
    if now and now.config["configurable"]["checkpoint_id"] == at:
        return
    said = list(given.values()) if isinstance(given, dict) and all(map(_names_interrupt, given)) else [given]
    if all(one in before for one in said):
        return
    thread_id = place["configurable"]["thread_id"]
    raise ThreadError(
        f"This point of thread {quote_id(thread_id)} was already answered "
        f"({reprlib.repr(before[-1])}), and that "
        "answer would be used again instead of yours. Fork the thread there and answer the fork: "
        f"Session(graph, thread_id).fork({at!r}).resume(answer), or `signoff fork THREAD --at {at}`. Nothing "
        "was changed."
    )


def _names_interrupt(key: Any) -> bool:
    return isinstance(key, str) and len(key) == _ID_DIGITS


def messages_of(given: Any) -> list[BaseMessage]:
    """The messages of an input. Raises LangChain's error for anything that is not a message."""
    return list(as_messages(_writes(given)))


def with_ids(given: Any) -> Any:
    """The input, with its messages carrying the ids that they will have in the history.

    LangGraph would assign an id to message objects and dicts when its first step writes them, and a different
    one if the process is killed and the step runs again. (Other forms get an id derived from their position
    and text, see `append_messages`.) A bare tuple would come back from the database as a list, which has
    another meaning.
    """
    writes = _writes(given)
    return {**given, "messages": [_with_id(write) for write in writes]} if writes else given


def with_input(snapshot: StateSnapshot, saved: CheckpointTuple | None) -> StateSnapshot:
    """The snapshot with the messages of a saved but unapplied input, as the first step will write them.
    LangGraph adds them itself once that step has run."""
    found = _input(saved) if START in snapshot.next else []
    if not found or not isinstance(snapshot.values, dict):
        return snapshot
    messages = append_messages(snapshot.values.get("messages"), [found])
    return snapshot._replace(values={**snapshot.values, "messages": messages})


def is_unsettled(saved: CheckpointTuple | None) -> bool:
    """Whether the thread with this newest checkpoint has messages that no step has applied, or the end of a
    task without a checkpoint. LangGraph drops either when the next input arrives; for an end, that would be
    the outcome, which users have already seen, and the message that reports it."""
    return bool(_input(saved)) or any(
        channel == "outcome" and value is not None
        for _, channel, value in (saved.pending_writes or () if saved else ())
    )


def is_repeated(given: Sequence[BaseMessage], values: Mapping[str, Any]) -> bool:
    """Whether these same messages are the last input of the thread, and nothing has answered them.

    That happens when the sender does not know that they were saved before the process was killed. A message
    with an id is the same only as one with that id.
    """
    if current_outcome(values) is not None or not any(is_genuine(message) for message in given):
        return False
    newest = takewhile(lambda one: not isinstance(one, AIMessage), reversed(values.get("messages") or ()))
    before = [message for message in newest if is_genuine(message) or message.type == "system"][::-1]
    last = before[-len(given) :]
    return len(last) == len(given) and all(map(_same, given, last))


def _same(given: BaseMessage, saved: BaseMessage) -> bool:
    alike = (given.type, given.content, given.name) == (saved.type, saved.content, saved.name)
    return alike and given.id in (None, "", saved.id)


def _writes(given: Any) -> list[Any]:
    """The items that the input adds to the history; none if it replaces the whole history."""
    found = given.get("messages") if isinstance(given, Mapping) else None
    if found is None or isinstance(found, Overwrite):
        return []
    return found if isinstance(found, list) else [found]


def _with_id(write: Any) -> Any:
    if not isinstance(write, BaseMessage | dict):
        return write
    (message,) = as_messages([write])
    own = valid_text(message.id) if message.id else str(uuid.uuid4())
    return message if message.id == own else slim(message.model_copy(update={"id": own}))


def _is_at_rest(saved: CheckpointTuple | None) -> bool:
    """Whether nothing is left to do in the thread: it has not begun, has ended, or waits for a person."""
    if saved is None or any(channel == INTERRUPT for _, channel, _ in saved.pending_writes or ()):
        return True
    values = saved.checkpoint["channel_values"]
    return START not in values and not next_states(values)


def _input(saved: CheckpointTuple | None) -> list[BaseMessage]:
    """The messages of a saved but unapplied input."""
    if saved is None or saved.metadata.get("source") != "input":
        return []
    return messages_of(saved.checkpoint["channel_values"].get(START))


EXAMPLE = '{"messages": [("user", "the task")]}'
_CONFIG = 'config={"configurable": {"thread_id": "my-thread"}}'


def check_input(given: Any) -> None:
    """Rejects an input that is not a message, and one with its messages under another key."""
    if isinstance(given, Command):
        given = given.update if isinstance(given.update, Mapping) else None
    elif given is not None:
        _check_shape(given)
    if given is None:
        return
    if "messages" in given and given["messages"] is None:
        raise SetupError(f"The messages of the input are None; pass {EXAMPLE}.")
    try:
        messages_of(given)
    except (TypeError, ValueError, NotImplementedError, LookupError) as error:
        raise SetupError(
            f"The input holds something that is not a message ({reason(error)}); pass {EXAMPLE}."
        ) from error


def check_channels(given: Any, channels: Collection[str]) -> None:
    """Rejects an input with a key outside `channels`: the messages, and the channels that the user has
    added."""
    unknown = [key for key in given if key not in channels] if isinstance(given, Mapping) else []
    if unknown and not nested():
        raise SetupError(
            f"The input has {str(unknown[0])[:40]!r}, which this graph does not know; it takes "
            f"{', '.join(channels)}."
        )


def channels_of(given: Any, channels: Collection[str]) -> dict[str, Any]:
    """The values that an input has for these channels, the user's own."""
    update = _update_of(given) if isinstance(given, Command) else given
    return {key: update[key] for key in channels if key in update} if isinstance(update, Mapping) else {}


def with_channels(given: Any, values: Mapping[str, Any]) -> Any:
    """The input with these values for their channels."""
    if isinstance(given, Command):
        return replace(given, update={**_update_of(given), **values})
    return {**given, **values}


def _update_of(command: Command[Any]) -> dict[str, Any]:
    """The update of a command, as a mapping. LangGraph also accepts pairs; several pairs for one channel are
    ignored here."""
    given: Any = command.update
    try:
        found = dict(given or ())
    except (TypeError, ValueError):
        return {}
    return found if len(found) == len(given or ()) else {}


def _check_shape(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise SetupError(f"The input is {reprlib.repr(given)}; pass {EXAMPLE}.")
    if given and "messages" not in given and not nested():
        keys = ", ".join(repr(str(key)[:40]) for key in [*given][:5])
        raise SetupError(f"The input has {keys} and no 'messages'; pass {EXAMPLE}.")


def reason(error: Exception) -> str:
    """The first line of an error of LangChain or pydantic; the rest is links."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return ": ".join(lines[1:3]) if lines[:1] and "validation error" in lines[0] else "".join(lines[:1])


def check_pauses(options: Mapping[str, Any], states: Collection[str]) -> None:
    """Rejects a pause at a state that does not exist, which LangGraph would ignore."""
    for name in ("interrupt_before", "interrupt_after"):
        asked = options.get(name) or ()
        for one in () if asked == "*" else [asked] if isinstance(asked, str) else asked:
            if one not in states:
                raise SetupError(
                    f"{name}= names {one!r}, and this graph has no such state; its states are: "
                    f"{', '.join(states)}. To have a person decide on calls, build it with approvals={{…}}."
                )


def check_config(config: RunnableConfig | None) -> None:
    """Rejects a malformed configuration, and a thread id in the wrong place."""
    if config is None:
        return
    if not isinstance(config, Mapping):
        raise SetupError(f"config is {reprlib.repr(config)}; write {_CONFIG}.")
    configurable = config.get("configurable", {})
    if not isinstance(configurable, Mapping):
        raise SetupError(f"config['configurable'] is {reprlib.repr(configurable)}; write {_CONFIG}.")
    if "thread_id" in config and "thread_id" not in configurable:
        raise SetupError(f"The thread_id stands beside `configurable`, not in it; write {_CONFIG}.")


def no_thread(configurable: Mapping[str, Any]) -> SetupError:
    """The error for a run that would be saved but names no thread."""
    meant = get_close_matches(
        "thread_id", [key for key in configurable if isinstance(key, str)], n=1, cutoff=0.6
    )
    found = f" (it has {meant[0]!r})" if meant and meant[0] != "thread_id" else ""
    return SetupError(f"This graph saves its threads, and `configurable` names none{found}; write {_CONFIG}.")


def check_context(context: Any, form: type | None = None) -> None:
    """Rejects anything that cannot be a context; the schema, `form`, validates its keys and values."""
    if context is None or isinstance(context, Context):
        return
    if isinstance(context, Mapping):
        if strange := [key for key in context if not isinstance(key, str)]:
            raise SetupError(f"context has the key {reprlib.repr(strange[0])}; its keys must be strings.")
        return
    kind = type(context).__name__
    if isinstance(form, type) and issubclass(form, ContextForm):
        if form.takes(context):
            return
        raise SetupError(f"context is {reprlib.repr(context)}; pass a mapping, or {form.wanted()}.")
    if is_dataclass(context) or isinstance(context, BaseModel):
        raise SetupError(
            f"context is {reprlib.repr(context)}; pass a mapping, or the graph's Context, or build the graph "
            f"with context_schema={kind}."
        )
    raise SetupError(f"context is {reprlib.repr(context)}; pass a mapping, or the graph's Context.")


def nested() -> bool:
    """Whether this is called inside a LangGraph run, whose configuration then applies here, too."""
    try:
        get_config()
    except RuntimeError:
        return False
    return True
