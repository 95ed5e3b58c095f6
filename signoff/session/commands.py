"""The commands that `Session.run`, `step` and `events` accept, beside the text of a task.

Another process requests a pause through an entry in the store, which the run reads between states.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from langgraph.types import Command

from signoff.graph import clock
from signoff.graph.compiled.going_on import GoOn, Stop, Undo, continuation, instruction_of
from signoff.graph.compiled.inputs import is_repeated, names_interrupts, reason
from signoff.graph.errors import BadAnswer, SetupError, ThreadError, TooLate, quote_id, unknown_thread
from signoff.graph.finish.again import undoing
from signoff.graph.foreign import checked_thread_id, pause_place, valid_text, valid_values
from signoff.graph.messages import KEY, is_genuine
from signoff.graph.texts import Texts
from signoff.nodes.hand_over import timed
from signoff.session.decisions import Action, AnyWaiting
from signoff.session.status import Condition, Standing, ThreadStatus
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
class Choose:
    """Computes the command from the thread's status, by `command`. It is called while the thread is held, so
    that no other runner can change anything in between; if it raises, the run does not start."""

    command: Callable[[ThreadStatus], "ThreadCommand"]


ThreadCommand = str | Sequence[BaseMessage] | Answer | Command[Any] | Choose | None
"""What a session continues with: a task, messages, an answer, `go_on()`, `undo()`, `stop()`, LangGraph's
`Command(resume=…)`, or None to go on where work was left."""


@dataclass(frozen=True)
class Start:
    """The start of a run: the input of the graph.

    at_rest: nothing may run; the thread only says where it stands. interrupt_id, by: for an answer, the
    question that it answers, and who gave it.
    """

    given: Any
    how: str
    extra_turns: int = 0
    at_rest: bool = False
    interrupt_id: str = ""
    by: str = ""


def start(
    command: ThreadCommand,
    status: Standing,
    on_pending: OnPending,
    texts: Texts,
    turns: int,
    handed: Mapping[str, float] = MappingProxyType({}),
) -> Start:
    """How the run starts from the thread's status.

    turns: the turn limit of the run. handed: when actions were handed out, by interrupt id. Raises
    ThreadError if it cannot start, SetupError for anything that is not a command.
    """
    match command:
        case Choose(command=chosen):
            return start(chosen(status), status, on_pending, texts, turns, handed)
        case None:
            return _on(status)
        case Answer():
            given = _answered(command, status, handed)
            waiting = status.wait(command.interrupt_id)
            answers = waiting.interrupt_id if waiting else ""
            return Start(given, "answer", interrupt_id=answers, by=_name(command.by))
        case Command():
            return _commanded(command, status, handed, turns, texts)
    messages = _task(command)
    if status.condition.has_work_left and is_repeated(messages, status.values):
        # The sender does not know that it was saved before the process was killed.
        return _on(status)
    return Start({"messages": _fitting(messages, status, on_pending)}, "task")


def _on(status: Standing) -> Start:
    _known(status)
    return Start(status.go_on, "go on", at_rest=status.condition is Condition.ENDED)


def _known(status: ThreadStatus) -> None:
    if status.condition is Condition.UNKNOWN:
        raise unknown_thread(status.thread_id)


def _commanded(
    command: Command[Any], status: Standing, handed: Mapping[str, float], turns: int, texts: Texts
) -> Start:
    """How a run starts with a command of LangGraph's."""
    match instruction_of(command):
        case GoOn() as instruction:
            return _further(instruction, status, turns, texts)
        case Undo(ask=ask):
            _known(status)
            return Start(undoing(status.values, ask=ask), "undo")
        case Stop():
            _known(status)
            if status.condition is Condition.ENDED:
                raise ThreadError(f"Thread {quote_id(status.thread_id)} has ended; there is nothing to stop.")
            return Start(command, "stop")
    if command.resume is None or command.update or command.goto:
        raise SetupError(
            "A session takes no other command than go_on(), undo(), stop() and Command(resume=…)."
        )
    given: Any = command.resume
    if not names_interrupts(given):
        return start(Answer(given), status, "answer", texts, turns, handed)
    answers: dict[str, Any] = {}
    for name, value in given.items():
        answer: Any = _answered(Answer(value, name), status, handed).resume
        answers |= answer
    return Start(Command(resume=answers), "answer", interrupt_id=next(iter(answers)))


def _further(instruction: GoOn, status: Standing, turns: int, texts: Texts) -> Start:
    _known(status)
    if status.waits:
        return Start(None, "go on", at_rest=True)
    command = continuation(instruction, status.values, status.go_on, turns, texts)
    update = command.update if command is not None and isinstance(command.update, dict) else {}
    extra = (instruction.turns or turns) if "extra" in update else 0
    ended = status.condition is Condition.ENDED
    return Start(command, "go on", extra, at_rest=ended and command is None)


def meant(command: Answer, status: ThreadStatus) -> AnyWaiting:
    """What the answer is for. Raises ThreadUnknown or TooLate if nothing waits for it, and BadAnswer if it
    does not say which of several waits it is for."""
    _known(status)
    if not status.waits:
        state = "has ended" if status.condition is Condition.ENDED else "was stopped in the middle"
        raise TooLate(
            f"Thread {quote_id(status.thread_id)} {state} and does not wait for an answer. Nothing was "
            "changed."
        )
    if command.interrupt_id is None and len(status.waits) > 1:
        waits = ", ".join(f"{'/'.join(wait.path)}: {wait.interrupt_id}" for wait in status.waits)
        raise BadAnswer(
            f"Thread {quote_id(status.thread_id)} waits for {len(status.waits)} answers; say which one is "
            f"meant with interrupt_id= ({waits}). Nothing was changed."
        )
    waiting = status.wait(command.interrupt_id)
    if waiting is None:
        raise TooLate(
            f"Thread {quote_id(status.thread_id)} no longer waits for this answer (interrupt "
            f"{command.interrupt_id!r:.80}); check what it waits for now. Nothing was changed."
        )
    return waiting


def _answered(command: Answer, status: ThreadStatus, handed: Mapping[str, float]) -> Command[Any]:
    waiting = meant(command, status)
    # By id: an answer of None, or an empty one, cannot be delivered in any other way.
    value = waiting.read(command.value)
    if waiting._foreign:
        _name(command.by)
        return Command(resume={waiting.interrupt_id: value})
    if isinstance(waiting, Action) and (at := handed.get(waiting.interrupt_id)) is not None:
        value = timed(value, clock.monotonic() - at)
    return Command(resume={waiting.interrupt_id: signed(value, _name(command.by))})


def _name(by: Any) -> str:
    """The name of who answers, checked so that it can be saved."""
    if by is not None and not isinstance(by, str):
        raise SetupError(f"by= must be the name of who answers, as text, not {by!r:.80}.")
    return valid_text(by or "").strip()


def _fitting(messages: list[BaseMessage], status: Standing, on_pending: OnPending) -> list[BaseMessage]:
    open_work = status.condition is Condition.WAITING or status.condition.has_work_left
    if (waiting := status.wait()) and on_pending == "refuse":
        raise ThreadError(
            f"Thread {quote_id(status.thread_id)} waits for {waiting.document()['waits_for']}; answer that "
            "first. Nothing was changed."
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


def request_pause(store: BaseStore, thread_id: str, by: str = "request") -> None:
    """Asks the runner of the thread to pause, or with `by="stop"` to end its task. A run that starts later
    ignores the request."""
    store.put(*pause_place(checked_thread_id(thread_id)), {"at": clock.now(), "by": by})


def look_for_request(thread_id: str) -> GetOp:
    return GetOp(*pause_place(thread_id))


def drop_request(thread_id: str) -> PutOp:
    return PutOp(*pause_place(thread_id), None)


def requested(found: Sequence[Any]) -> str:
    """How a pause was requested; empty if it was not."""
    return str(found[0].value.get("by", "request")) if isinstance(found[0], Item) else ""
