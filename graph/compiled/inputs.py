"""Checks the input of a graph before anything is saved, and makes the inputs that continue after an end.

LangGraph leaves a misspelt key alone and raises from deep within for a wrong type. It saves an input as it
came, in a checkpoint of its own, before its first step writes it to the history. A process that is killed in
between leaves a message that is in the database, and in no history: LangGraph's own reading shows the thread
as it was before, and its next input takes the message's place. So it does with what the last state wrote,
when a process was killed before the checkpoint of it.
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
from signoff.graph.machine import TRANSITIONS, Event, check_states, enters, has_command, next_states
from signoff.graph.messages import append_messages, as_messages, is_genuine, slim
from signoff.graph.outcome import current_outcome
from signoff.graph.schemas.context import ContextForm
from signoff.graph.state import Context
from signoff.nodes.delegates.graphs import deps_of
from signoff.nodes.requests import Operation


def go_on(snapshot: StateSnapshot) -> Command[Any] | None:
    """The input that continues a thread whose process ended, or whose history was changed by hand.

    `graph.invoke(go_on(graph.get_state(config)), config)`. It is None where LangGraph has something left to
    run, and the way back in where it has not. Raises ThreadError when the thread waits for an answer, or has
    ended: then there is nothing to continue.
    """
    if not isinstance(snapshot, StateSnapshot):
        raise SetupError("go_on takes what graph.get_state(config) gives, not the values in it.")
    if snapshot.interrupts:
        raise ThreadError("The thread waits; answer it by Command(resume={interrupt.id: answer}).")
    # An input that was saved and not yet taken up comes after every end.
    if START not in snapshot.next and current_outcome(snapshot.values) is not None:
        raise ThreadError("The thread has ended; send a new message to begin the next task.")
    return None if snapshot.tasks or snapshot.next else entering(Event.GO_ON)


def entry_update(event: Event, values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What `graph.update_state` is given so that `event` enters a thread, whatever that has left to run: what
    was pending is dropped, and nothing runs.

    LangGraph knows no writing from outside: it writes in the name of a node, and goes where its edges lead.
    So that of a state is taken from which the only way leads to where the event enters.
    """
    place = enters(event)
    name = next(state for state, row in TRANSITIONS.items() if {*row.values()} == {place})
    return {**values, "event": str(event)}, str(name)


# Under this channel LangGraph keeps that a task waits for an answer.
INTERRUPT = "__interrupt__"
# And under this one, what it was answered.
RESUME = "__resume__"
_ID_DIGITS = 32


class EntryGraph(Protocol):
    """What an entry needs of the graph; `nodes` are the names of its states."""

    @property
    def nodes(self) -> Container[str]: ...

    def get_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    def settle(self, config: RunnableConfig) -> None: ...

    async def asettle(self, config: RunnableConfig) -> None: ...


Entry = Generator[Operation, Any, Any]
"""Asks for what it needs of the thread, and returns the input that its run really begins with."""


def entry(graph: EntryGraph, given: Any, saver: BaseCheckpointSaver[Any], place: RunnableConfig) -> Entry:
    """How a run with the input `given` enters the thread at `place`, which the caller holds.

    A message does not take the place of one that was saved before it, nor of the end of the task before: that
    is taken up first. If it is the very same message, the run goes on with it. Raises ThreadError when there
    is no thread to go on with, and when a run that goes on stands in a state that this graph does not have.
    """
    newest = "checkpoint_id" not in place["configurable"]
    goes_on = given is None or isinstance(given, Command)
    if isinstance(given, Command):
        check_says_something(given)
    # Read in time: an input is saved before LangGraph reads it, and would come back with every reading.
    messages = [] if goes_on else messages_of(given)
    if not goes_on and not newest:
        return given
    saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
    if given is None and saved is None:
        raise ThreadError(
            f"There is no thread {place['configurable']['thread_id']!r:.80}; begin it with a task."
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
        # LangGraph would run both, each as if it were alone: nobody could read the thread any more.
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
    """The command, or None where another one is saved and still to be taken up: LangGraph would apply both in
    one step, and nobody could read the thread any more. Raises ThreadError for one that would be lost.

    saved: the newest checkpoint of the thread.
    """
    if saved is None or not (command.update or command.goto) or not has_command(saved):
        return command
    if not isinstance(command.update, Mapping) or command.update.get("event") != Event.GO_ON:
        raise ThreadError(
            f"Thread {saved.config['configurable']['thread_id']!r:.80} was killed as it took up a command; "
            "let it go on by invoke(None) first."
        )
    return None


def _has_delegates(graph: EntryGraph) -> bool:
    deps = deps_of(graph)
    return deps is not None and bool(deps.toolbox.delegates)


def _check_still_waits(command: Command[Any], saved: CheckpointTuple | None, place: RunnableConfig) -> None:
    """Raises ThreadError for an answer by an id under which nothing waits: LangGraph would drop it in
    silence."""
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
    """The answers that were given at a checkpoint."""
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
    """Raises ThreadError for another answer at a point that the thread has left behind: LangGraph would take
    the one that was given there before. saved: the checkpoint at `place`, which names it."""
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
        f"This point of thread {quote_id(thread_id)} was answered before "
        f"({reprlib.repr(before[-1])}), and that "
        "answer would be taken again in place of yours. Fork the thread there and answer the fork: "
        f"Session(graph, thread_id).fork({at!r}).resume(answer), or `signoff fork THREAD --at {at}`. Nothing "
        "was changed."
    )


def _names_interrupt(key: Any) -> bool:
    return isinstance(key, str) and len(key) == _ID_DIGITS


def messages_of(given: Any) -> list[BaseMessage]:
    """The messages of an input. Raises what LangChain raises for anything that is not a message."""
    return list(as_messages(_writes(given)))


def with_ids(given: Any) -> Any:
    """The input, its messages with the ids that they will have in the history.

    LangGraph would give an id to message objects and dicts when its first step writes them, and another one
    when a process that was killed is followed by a second one. (What has another form gets one that is made
    from its place and words, see `append_messages`.) A tuple alone would come back from the database as a
    list, which means something else.
    """
    writes = _writes(given)
    return {**given, "messages": [_with_id(write) for write in writes]} if writes else given


def with_input(snapshot: StateSnapshot, saved: CheckpointTuple | None) -> StateSnapshot:
    """The snapshot with the messages of an input that was saved as it came, as the first step will write
    them. LangGraph adds them itself once that step has run."""
    found = _input(saved) if START in snapshot.next else []
    if not found or not isinstance(snapshot.values, dict):
        return snapshot
    messages = append_messages(snapshot.values.get("messages"), [found])
    return snapshot._replace(values={**snapshot.values, "messages": messages})


def is_unsettled(saved: CheckpointTuple | None) -> bool:
    """Whether a thread, of which this is the newest checkpoint, was left with messages that no step has taken
    up, or by the end of a task of which there is no checkpoint. LangGraph drops either for what comes next;
    of an end that would be the outcome, which everybody was shown, and the message that tells it."""
    return bool(_input(saved)) or any(
        channel == "outcome" and value is not None
        for _, channel, value in (saved.pending_writes or () if saved else ())
    )


def is_repeated(given: Sequence[BaseMessage], values: Mapping[str, Any]) -> bool:
    """Whether these very messages are the last that the thread was given, and nothing has answered them.

    So it is when whoever sent them does not know that they were saved before the process was killed. A
    message with its own id is the same only under that id.
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
    """What the input adds to the history, one by one; nothing where it replaces the history as a whole."""
    found = given.get("messages") if isinstance(given, Mapping) else None
    if found is None or isinstance(found, Overwrite):
        return []
    return found if isinstance(found, list) else [found]


def _with_id(write: Any) -> Any:
    if not isinstance(write, BaseMessage | dict):
        return write
    (message,) = as_messages([write])
    return message if message.id else slim(message.model_copy(update={"id": str(uuid.uuid4())}))


def _is_at_rest(saved: CheckpointTuple | None) -> bool:
    """Whether nothing is left to do in the thread: it has not begun, has ended, or waits for a person."""
    if saved is None or any(channel == INTERRUPT for _, channel, _ in saved.pending_writes or ()):
        return True
    values = saved.checkpoint["channel_values"]
    return START not in values and not next_states(values)


def _input(saved: CheckpointTuple | None) -> list[BaseMessage]:
    """The messages of an input that was saved as it came; none for one that cannot be read."""
    if saved is None or saved.metadata.get("source") != "input":
        return []
    try:
        return messages_of(saved.checkpoint["channel_values"].get(START))
    except (TypeError, ValueError, NotImplementedError, LookupError):
        return []


EXAMPLE = '{"messages": [("user", "the task")]}'
_CONFIG = 'config={"configurable": {"thread_id": "my-thread"}}'


def check_input(given: Any) -> None:
    """Rejects an input that is not a message, and one whose messages stand under another key."""
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
    """Rejects an input with a key that is none of `channels`: the messages, and what the user has added."""
    unknown = [key for key in given if key not in channels] if isinstance(given, Mapping) else []
    if unknown and not nested():
        raise SetupError(
            f"The input has {str(unknown[0])[:40]!r}, which this graph does not know; it takes "
            f"{', '.join(channels)}."
        )


def channels_of(given: Any, channels: Collection[str]) -> dict[str, Any]:
    """What an input gives to these channels, the user's own."""
    update = _update_of(given) if isinstance(given, Command) else given
    return {key: update[key] for key in channels if key in update} if isinstance(update, Mapping) else {}


def with_channels(given: Any, values: Mapping[str, Any]) -> Any:
    """The input with these values in place of what it gives to their channels."""
    if isinstance(given, Command):
        return replace(given, update={**_update_of(given), **values})
    return {**given, **values}


def _update_of(command: Command[Any]) -> dict[str, Any]:
    """What a command writes, as a mapping. LangGraph takes pairs, too; with several for one channel they are
    not read here."""
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
    """The first line of what LangChain or pydantic says; the rest are links."""
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
    """Rejects a configuration of another shape, and a thread that is named where nothing looks for it."""
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
    """The error for a run that is to be saved and names no thread."""
    meant = get_close_matches(
        "thread_id", [key for key in configurable if isinstance(key, str)], n=1, cutoff=0.6
    )
    found = f" (it has {meant[0]!r})" if meant and meant[0] != "thread_id" else ""
    return SetupError(f"This graph saves its threads, and `configurable` names none{found}; write {_CONFIG}.")


def check_context(context: Any, form: type | None = None) -> None:
    """Rejects what cannot be a context; its keys and values are checked by its schema, `form`."""
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
    """Whether this is called within a run of LangGraph's, whose configuration then holds here, too."""
    try:
        get_config()
    except RuntimeError:
        return False
    return True
