"""The commands that `Session.run`, `step` and `events` accept, beside the text of a task.

Another process requests a pause through an entry in the store, which the run reads between states.
"""

import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from langgraph.types import Command

from signoff.graph.compiled.inputs import is_repeated, reason
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.finish.again import extend, marked, retry, undo
from signoff.graph.foreign import checked_thread_id, pause_place, valid_text, valid_values
from signoff.graph.messages import KEY, is_genuine
from signoff.graph.texts import Texts
from signoff.nodes.hand_over import timed
from signoff.session.decisions import Action
from signoff.session.status import Condition, ThreadStatus
from signoff.tools.answers import signed

OnPending = Literal["answer", "supersede", "refuse"]


@dataclass(frozen=True)
class Answer:
    """The answer to what the thread waits for; `interrupt_id` names the question that it answers. by: who
    answers, which is stored with it."""

    value: Any
    interrupt_id: str | None = None
    by: str | None = None


@dataclass(frozen=True)
class Extend:
    """Continue after a limit, with this many more turns. id: the id of the message in the history that
    records it."""

    turns: int
    id: str | None = None


@dataclass(frozen=True)
class Retry:
    """Try again after an error; after a success nothing runs, and it is told once more. id: the id of the
    message in the history that records it."""

    id: str | None = None


@dataclass(frozen=True)
class Undo:
    """Undo the effects of a task that has ended. ask: a person must approve every undo."""

    ask: bool = False


@dataclass(frozen=True)
class Stop:
    """End the task as cancelled."""


@dataclass(frozen=True)
class Choose:
    """Computes the command from the thread's status, by `command`. It is called while the thread is held, so
    that no other runner can change anything in between; if it raises, the run does not start."""

    command: Callable[[ThreadStatus], "ThreadCommand"]


class TooLate(ThreadError):
    """The answer came too late: the question no longer waits. Nothing was changed."""


ThreadCommand = str | Sequence[BaseMessage] | Answer | Extend | Retry | Undo | Stop | Choose | None
"""What a session continues with: a task, messages, an answer, more turns, a retry, an undo, a stop, or None
to go on."""


@dataclass(frozen=True)
class Start:
    """The start of a run: the input of the graph, or an update of the state (`stop`).

    interrupt_id, by: for an answer, the question that it answers, and who gave it.
    """

    given: Any
    how: str
    extra_turns: int = 0
    stop: bool = False
    interrupt_id: str = ""
    by: str = ""


def start(
    command: ThreadCommand,
    status: ThreadStatus,
    on_pending: OnPending,
    texts: Texts,
    handed: Mapping[str, float] = MappingProxyType({}),
) -> Start:
    """How the run starts from the thread's status. handed: when actions were handed out, by interrupt id.
    Raises ThreadError if it cannot start, SetupError for anything that is not a command."""
    match command:
        case Choose(command=chosen):
            return start(chosen(status), status, on_pending, texts, handed)
        case None:
            return _on(status)
        case Answer():
            given = _answered(command, status, handed)
            answers = command.interrupt_id or (status.waiting.interrupt_id if status.waiting else "")
            return Start(given, "answer", interrupt_id=answers, by=_name(command.by))
        case Extend(turns=turns, id=mark):
            if not isinstance(turns, int) or isinstance(turns, bool):
                raise SetupError(f"Extend by a whole number of turns, not {turns!r}.")
            return Start(marked(extend(status.values, turns, texts), mark), "extend", extra_turns=turns)
        case Retry() if status.outcome is not None and status.outcome["status"] == "success":
            # Nothing is left to try: the caller learns that it succeeded.
            return _on(status)
        case Retry(id=mark):
            return Start(marked(retry(status.values, texts), mark), "retry")
        case Undo(ask=ask):
            _known(status)
            return Start(undo(status.values, ask=ask), "undo")
        case Stop():
            return _stopped(status)
    messages = _task(command)
    if status.condition is Condition.STOPPED and is_repeated(messages, status.values):
        # The sender does not know that it was saved before the process was killed.
        return _on(status)
    return Start({"messages": _fitting(messages, status, on_pending)}, "task")


def _on(status: ThreadStatus) -> Start:
    _known(status)
    return Start(status.go_on, "go on")


def _known(status: ThreadStatus) -> None:
    if status.condition is Condition.UNKNOWN:
        raise ThreadError(f"There is no thread {status.quoted_id!r}; start it with a task.")


def _stopped(status: ThreadStatus) -> Start:
    _known(status)
    if status.condition is Condition.ENDED:
        raise ThreadError(f"Thread {status.quoted_id!r} has ended; there is nothing to stop.")
    return Start(None, "stop", stop=True)


def _answered(command: Answer, status: ThreadStatus, handed: Mapping[str, float]) -> Command[Any]:
    _known(status)
    waiting = status.waiting
    if waiting is None:
        state = "has ended" if status.condition is Condition.ENDED else "was stopped in the middle"
        raise TooLate(
            f"Thread {status.quoted_id!r} {state} and does not wait for an answer; nothing was changed."
        )
    if command.interrupt_id is None and len(status.waits) > 1:
        waits = ", ".join(f"{'/'.join(found.path)}: {found.interrupt_id}" for found in status.waits)
        raise ThreadError(
            f"Thread {status.quoted_id!r} waits for {len(status.waits)} answers; say which one is meant with "
            f"interrupt_id= ({waits}). Nothing was changed."
        )
    if command.interrupt_id is not None:
        waiting = status.wait(command.interrupt_id)
    if waiting is None:
        raise TooLate(
            f"Thread {status.quoted_id!r} no longer waits for this answer (interrupt "
            f"{command.interrupt_id!r}); check what it waits for now. Nothing was changed."
        )
    # By id: an answer of None, or an empty one, cannot be delivered in any other way.
    value = waiting.read(command.value)
    if waiting.foreign:
        _name(command.by)
        return Command(resume={waiting.interrupt_id: value})
    if isinstance(waiting, Action) and (at := handed.get(waiting.interrupt_id)) is not None:
        value = timed(value, time.monotonic() - at)
    return Command(resume={waiting.interrupt_id: signed(value, _name(command.by))})


def _name(by: Any) -> str:
    """The name of who answers, checked so that it can be saved."""
    if by is not None and not isinstance(by, str):
        raise SetupError(f"by= must be the name of who answers, as text, not {by!r:.80}.")
    return valid_text(by or "").strip()


def _fitting(messages: list[BaseMessage], status: ThreadStatus, on_pending: OnPending) -> list[BaseMessage]:
    open_work = status.condition in (Condition.WAITING, Condition.STOPPED)
    if status.waiting and on_pending == "refuse":
        raise ThreadError(
            f"Thread {status.quoted_id!r} waits for {status.waiting.waits_for}; answer that first. "
            "Nothing was changed."
        )
    if open_work and on_pending == "supersede":
        first = next(at for at, message in enumerate(messages) if is_genuine(message))
        marked = {**messages[first].additional_kwargs, KEY: {"begins": True}}
        messages[first] = messages[first].model_copy(update={"additional_kwargs": marked})
    return messages


def _task(command: Any) -> list[BaseMessage]:
    """The task as messages, with valid text."""
    if isinstance(command, str):
        if not command.strip():
            raise SetupError("The task is empty; say what to do.")
        return [HumanMessage(valid_text(command))]
    if isinstance(command, Mapping) and "messages" in command:
        # The input of a graph.
        command = command["messages"]
    try:
        messages = convert_to_messages(list(command) if isinstance(command, list | tuple) else [command])
    except (TypeError, ValueError, NotImplementedError) as error:
        raise SetupError(
            f"{reprlib.repr(command)} is not a valid task ({reason(error)}); pass a string or a list of "
            "messages."
        ) from error
    if not any(is_genuine(message) for message in messages):
        raise SetupError("The messages hold no task; pass at least one human message.")
    return [message.model_copy(update={"content": valid_values(message.content)}) for message in messages]


def request_pause(store: BaseStore, thread_id: str) -> None:
    """Asks the runner of the thread to pause. A run that starts later ignores the request."""
    store.put(*pause_place(checked_thread_id(thread_id)), {"at": time.time()})


def look_for_request(thread_id: str) -> GetOp:
    return GetOp(*pause_place(thread_id))


def drop_request(thread_id: str) -> PutOp:
    return PutOp(*pause_place(thread_id), None)


def requested(found: Sequence[Any]) -> bool:
    """Whether a pause was requested."""
    return isinstance(found[0], Item)
