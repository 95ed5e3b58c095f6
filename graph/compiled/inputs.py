"""Validates the input of a graph before anything is saved, and makes the inputs that continue a thread.

LangGraph ignores a misspelt key, and raises from deep within for a wrong type. It saves the input as it came,
in a separate checkpoint, before the first step writes it to the history. If the process is killed in between,
the message is in the database but not in the history: LangGraph then shows the thread as it was before, and
the next input replaces the message. The same happens to the writes of the last state if the process is killed
before their checkpoint.
"""

import re
import reprlib
import uuid
from collections.abc import Collection, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import takewhile
from typing import Any, Protocol, TypeGuard, cast

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.constants import END, START
from langgraph.store.base import PutOp
from langgraph.types import Command, Interrupt, Overwrite, StateSnapshot
from pydantic import BaseModel

from signoff.graph.compiled.going_on import (
    GONE_ON,
    GoOn,
    Instruction,
    Stop,
    Undo,
    continuation,
    instruction_of,
    turn_limit,
)
from signoff.graph.errors import BadAnswer, SetupError, ThreadError, TooLate, quote_id, unknown_thread
from signoff.graph.finish.again import entering, undoing
from signoff.graph.foreign import paused_place, valid_text, valid_values
from signoff.graph.history.task import read
from signoff.graph.machine import FIRST, TRANSITIONS, Event, check_states, enters, has_command, next_states
from signoff.graph.messages import append_messages, as_messages, is_genuine, marks, slim
from signoff.graph.outcome import current_outcome
from signoff.graph.schemas.context import ContextForm
from signoff.graph.state import AgentState, Context
from signoff.nodes.delegates.graphs import deps_of
from signoff.nodes.requests import Operation, Store
from signoff.tools.answers import ACTION, APPROVAL, QUESTION, delivered, is_own, is_yes


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
# Of these, none is what a task has come to.
_MARKS = {INTERRUPT, RESUME, "__error__", "__error_source_node__"}
_INTERRUPT_ID = re.compile("[0-9a-f]{32}")


class EntryGraph(Protocol):
    """What `entry` needs from the graph; `nodes` are the names of its states."""

    @property
    def nodes(self) -> Container[str]: ...

    def update_state(self, config: RunnableConfig, values: Any, as_node: str | None = None) -> Any: ...

    async def aupdate_state(self, config: RunnableConfig, values: Any, as_node: str | None = None) -> Any: ...

    def get_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot: ...

    def settle(self, config: RunnableConfig) -> None: ...

    async def asettle(self, config: RunnableConfig) -> None: ...


Entry = Generator[Operation | Store, Any, Any]
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
    saved = yield from _taken_up(saver, place)
    if given is None and saved is None:
        raise unknown_thread(place["configurable"]["thread_id"])
    if not goes_on:
        if problem := no_answer(messages, saved):
            check_states(saved, graph.nodes)
            return NoAnswer(problem)
        if _is_at_rest(saved):
            return with_ids(given)
        state = yield Operation(partial(graph.get_whole_state, place), partial(graph.aget_whole_state, place))
        if not is_repeated(messages, state.values):
            if is_unsettled(saved):
                yield Operation(partial(graph.settle, place), partial(graph.asettle, place))
            return with_ids(given)
        check_states(saved, graph.nodes)
        return what_is_left(state)
    # First of all: what another version waits for, this one cannot read.
    check_states(saved, graph.nodes, newest=newest)
    if isinstance(given, Command) and newest and is_unsettled(saved):
        # LangGraph would run both, each as if it were alone, and the thread would become unreadable.
        yield Operation(partial(graph.settle, place), partial(graph.asettle, place))
    if not newest and isinstance(given, Command):
        yield from check_is_no_other(given, saved, saver, place)
    if newest and isinstance(given, Command):
        given = beside_saved(with_answers(given, saved, place), saved)
    return given


def _taken_up(saver: BaseCheckpointSaver[Any], place: RunnableConfig) -> Entry:
    """The checkpoint from which somebody goes on: from now on no person has paused the thread."""
    saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
    if not _is_at_rest(saved):
        yield Store([PutOp(*paused_place(place["configurable"]["thread_id"]), None)])
    return saved


def instructed(
    graph: EntryGraph,
    instruction: Instruction,
    saver: BaseCheckpointSaver[Any],
    place: RunnableConfig,
    context: Any,
) -> Entry:
    """The input by which LangGraph follows an instruction, for a run with this context. The caller holds the
    thread at `place`."""
    saved = yield Operation(partial(saver.get_tuple, place), partial(saver.aget_tuple, place))
    thread_id = place["configurable"]["thread_id"]
    if saved is None:
        raise unknown_thread(thread_id)
    check_states(saved, graph.nodes, newest="checkpoint_id" not in place["configurable"])
    if isinstance(instruction, GoOn) and has_command(saved):
        # It was killed while it went on: the saved command comes first, and may be this one.
        return None
    state = yield Operation(partial(graph.get_whole_state, place), partial(graph.aget_whole_state, place))
    deps = deps_of(graph)
    match instruction:
        case Stop():
            yield from _stop(graph, state, place)
            return None
        case Undo(ask=ask):
            enters = undoing(state.values, ask=ask)
            if state.tasks:
                # The copy of a task that has ended would be entered beside the undo.
                yield from _drop_rest(graph, place)
            return enters
    # A saved input that is not yet applied comes after every end.
    if state.interrupts or START in state.next:
        return None
    turns = turn_limit(context, deps.limits.turns)
    return continuation(instruction, state.values, what_is_left(state), turns, deps.texts)


def _stop(graph: EntryGraph, state: StateSnapshot, place: RunnableConfig) -> Generator[Operation, Any, None]:
    """Enters the thread to end its task as cancelled. What is left to run is dropped, but not what a killed
    process has saved of it."""
    if START in state.next:
        yield Operation(partial(graph.settle, place), partial(graph.asettle, place))
        state = yield Operation(partial(graph.get_whole_state, place), partial(graph.aget_whole_state, place))
    elif current_outcome(state.values) is not None:
        thread_id = quote_id(place["configurable"]["thread_id"])
        raise ThreadError(f"Thread {thread_id} has ended; there is nothing to stop.")
    elif not state.interrupts:
        yield from _drop_rest(graph, place)
    task = read(cast(AgentState, state.values), deps_of(graph).toolbox).id
    given = (place, *entry_update(Event.STOP, {"stop": task}))
    yield Operation(partial(graph.update_state, *given), partial(graph.aupdate_state, *given))


def _drop_rest(graph: EntryGraph, place: RunnableConfig) -> Generator[Operation, Any, None]:
    """Nothing of what is left to run in the thread runs any more."""
    left = (place, None, END)
    yield Operation(partial(graph.update_state, *left), partial(graph.aupdate_state, *left))


def what_is_left(state: StateSnapshot) -> Command[Any] | None:
    """The input that continues a thread without an end: None if LangGraph has something left to run, else a
    command that enters the machine again, as after an edit of the history by hand."""
    return None if state.tasks or state.next else entering(Event.GO_ON)


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


@dataclass(frozen=True)
class NoAnswer:
    """A person's message that is no answer to what waits: nothing changes, and the wait says how to
    answer."""

    problem: str


def no_answer(messages: Sequence[BaseMessage], saved: CheckpointTuple | None) -> str:
    """Why a message is no answer to what a thread waits for; empty if it is, or if nothing waits.

    A message names no wait: it is never an approval, and while several wait it is for none of them.
    saved: the newest checkpoint of the thread.
    """
    waits = {key: wait for key, wait in _waits(saved).items() if is_own(wait.value)}
    words = [message.text for message in messages if is_genuine(message)]
    if not waits or not words or any("begins" in marks(message) for message in messages):
        return ""
    if len(waits) > 1:
        told = _told(waits)
        return f"A message is no answer while {len(waits)} are waited for; answer each by its id ({told})."
    (wait,) = waits.values()
    kind = wait.value["type"]
    if kind == APPROVAL and all(map(is_yes, words)):
        return "A message approves nothing: approve this by its id, or write what is wrong."
    if kind == ACTION and all(map(is_yes, words)):
        return "The program runs this call: answer it by its id with its output, or write what to do instead."
    if kind == QUESTION:
        try:
            delivered(wait.value, wait.id, words[-1])
        except BadAnswer as error:
            return str(error)
    return ""


def with_answers(command: Command[Any], saved: CheckpointTuple | None, place: RunnableConfig) -> Command[Any]:
    """The command with its answers as they are delivered, each to the wait that it was given for.

    saved: the newest checkpoint of the thread. Raises TooLate for an answer that nothing waits for, which
    LangGraph would silently drop or deliver to another wait, and BadAnswer for one that does not fit.
    """
    given = command.resume
    if given is None:
        return command
    waits = _waits(saved)
    thread_id = quote_id(place["configurable"]["thread_id"])
    if saved is None:
        raise unknown_thread(place["configurable"]["thread_id"])
    if not waits:
        raise TooLate(f"Thread {thread_id} does not wait for an answer. Nothing was changed.")
    if names_interrupts(given):
        if gone := [key for key in given if key not in waits]:
            raise TooLate(
                f"Thread {thread_id} no longer waits for this answer (interrupt {gone[0]!r}); it waits for "
                f"{_told(waits)}. Nothing was changed."
            )
        return replace(command, resume={key: _delivered(waits[key], answer) for key, answer in given.items()})
    if len(waits) > 1:
        raise BadAnswer(
            f"Thread {thread_id} waits for several answers; say by its id which one is meant "
            f"({_told(waits)}). Nothing was changed."
        )
    (wait,) = waits.values()
    return replace(command, resume={wait.id: _delivered(wait, given)})


def _waits(saved: CheckpointTuple | None) -> dict[str, Interrupt]:
    """What a thread waits for, by id. saved: its newest checkpoint."""
    written = (saved.pending_writes or ()) if saved else ()
    # A task that has ended waits no longer, though its process died before its step was saved.
    ended = {task for task, channel, _ in written if channel not in _MARKS}
    waits = [value for task, channel, value in written if channel == INTERRUPT and task not in ended]
    found = [one for value in waits for one in value]
    return {wait.id: wait for wait in found if isinstance(wait, Interrupt)}


def _told(waits: Mapping[str, Interrupt]) -> str:
    paths = {
        key: "/".join(wait.value.get("path", ())) if isinstance(wait.value, Mapping) else ""
        for key, wait in waits.items()
    }
    return ", ".join(f"{path or 'the thread itself'}: {key}" for key, path in paths.items())


def _delivered(wait: Interrupt, answer: Any) -> Any:
    """The answer to a wait as it is saved. Raises BadAnswer for one that does not fit."""
    # What a person sends must not make the thread unreadable; other code gets the types that it waits for.
    return delivered(wait.value, wait.id, answer) if is_own(wait.value) else valid_values(answer)


def check_says_something(command: Command[Any]) -> None:
    """Raises BadAnswer for an answer that LangGraph does not deliver."""
    if command.resume == {} or (command.resume is None and not command.update and not command.goto):
        raise BadAnswer(
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
    said = list(given.values()) if names_interrupts(given) else [given]
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


def names_interrupts(answer: Any) -> TypeGuard[dict[str, Any]]:
    """Whether an answer is a mapping of answers by interrupt id."""
    return isinstance(answer, dict) and bool(answer) and all(map(_names_interrupt, answer))


def _names_interrupt(key: Any) -> bool:
    return isinstance(key, str) and _INTERRUPT_ID.fullmatch(key) is not None


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
        return tuple(map(valid_values, write)) if isinstance(write, tuple) else valid_values(write)
    (message,) = as_messages([write])
    if (content := valid_values(message.content)) != message.content:
        message = message.model_copy(update={"content": content})
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


def _check_command(command: Command[Any]) -> None:
    """Rejects a command that LangGraph would take and that leaves a thread where nothing goes on: an update
    that no state follows, and a state to go to that the machine has not reached."""
    if command.graph is not None or instruction_of(command) is not None:
        return
    update = command.update if isinstance(command.update, Mapping) else {}
    # Those that a session sends, and the state at which every input enters.
    if GONE_ON in update or "event" in update or command.goto == FIRST:
        return
    if command.goto:
        raise SetupError(
            f"Command(goto={command.goto!r:.80}) would skip states of the machine; go on by go_on(), and say "
            f"something by {EXAMPLE}."
        )
    if command.update and not command.goto and command.resume is None:
        raise SetupError(
            f"Command(update={command.update!r:.80}) starts nothing; pass {EXAMPLE}, or one of go_on(), "
            "undo() and stop(), and write a channel by graph.update_state."
        )


def check_input(given: Any) -> None:
    """Rejects an input that is not a message, and one with its messages under another key."""
    if isinstance(given, Command):
        _check_command(given)
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
