"""What a person's words do to a thread, and whether they came too late: one reading for every front end.

Each command here looks at the thread when it is held, so that of two who answer at once only one is heard.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage

from signoff.front.choices import SHELL, answer_of, choices, decision_of, option_of, still_waiting
from signoff.graph.errors import ThreadError
from signoff.session.commands import Answer, Choose, ThreadCommand, TooLate
from signoff.session.decisions import Action, Approval, Confirmation, PendingCall, Question, Waiting
from signoff.session.status import Condition, ThreadStatus

_GIVEN_UP = "The person did not want to decide."


class Known(ThreadError):
    """A message that the thread has already. Nothing was changed."""


def begin_task(text: str, message_id: str = "") -> Choose:
    """The command that begins a task. message_id: of the message, where its sender has given it one.

    It raises ThreadError where the thread waits for something: the words were not meant for that. It raises
    Known where the thread has a message of this id: what is sent again is not done again.
    """

    def task(status: ThreadStatus) -> ThreadCommand:
        if message_id and any(message.id == message_id for message in status.values.get("messages", ())):
            raise Known("The thread has this message already. Nothing was changed.")
        if status.waiting is not None:
            raise ThreadError("The thread waits for something by now; look at that first.")
        return [HumanMessage(text, id=message_id)] if message_id else text

    return Choose(task)


def give_answer(interrupt_id: str, shown: str, texts: Sequence[str], by: str = "") -> Choose:
    """The command that answers what a person was shown. shown: the short id of an approval. texts: what they
    said, or what they said of each call. by: who they are.

    It raises TooLate when somebody else has answered, ThreadError for an answer that does not fit.
    """

    def read(status: ThreadStatus) -> ThreadCommand:
        meant = answer_of(texts, still_waiting(status, interrupt_id), shown)
        return Answer(meant, interrupt_id, by or None)

    return Choose(read)


def give_values(interrupt_id: str, shown: str, values: Mapping[int, Any], by: str = "") -> Choose:
    """The command that answers with values, as a protocol carries them: any JSON, or what would be typed.

    values: the answer under 0; of an approval one for each call, by its place. None answers nothing: a
    question is told so, a call is rejected, a result is not confirmed, an action's outcome is not known. It
    raises what `give_answer` raises.
    """

    def read(status: ThreadStatus) -> ThreadCommand:
        waiting = still_waiting(status, interrupt_id)
        if shown != get_short_id(waiting):
            raise TooLate(
                "The thread waits for something else by now; look at that first. Nothing was changed."
            )
        return Answer(_read_values(waiting, shown, values), interrupt_id, by or None)

    return Choose(read)


def go_on() -> Choose:
    """The command that goes on with what was stopped. It raises TooLate when the task has ended."""

    def on(status: ThreadStatus) -> ThreadCommand:
        if status.condition not in (Condition.STOPPED, Condition.WAITING):
            raise TooLate("The thread has ended; there is nothing to go on with.")
        return None

    return Choose(on)


def make_too_late_error() -> TooLate:
    """The error for an answer to a thread that runs already."""
    return TooLate(
        "This came too late: the thread goes on already, by somebody else's answer. Nothing was changed."
    )


def get_asked(status: ThreadStatus) -> Waiting | None:
    """What a person is asked. A command that a front end runs itself, as soon as the thread goes on, is no
    question to anybody."""
    waiting = status.waiting
    runs_here = isinstance(waiting, Action) and waiting.tool == SHELL and not waiting.unknown
    return None if runs_here else waiting


def get_short_id(waiting: Waiting) -> str:
    """The short id of what waits, where a decision is bound to it; empty where none is."""
    return waiting.shown if isinstance(waiting, Approval | Confirmation) else ""


def _read_values(waiting: Waiting, shown: str, values: Mapping[int, Any]) -> Any:
    """What these values mean for what waits."""
    if isinstance(waiting, Approval):
        if sorted(values) != [*range(len(waiting.calls))]:
            raise ThreadError(f"There are {len(waiting.calls)} calls to decide on; decide on each of them.")
        found = [_read_decision(values[at], call) for at, call in enumerate(waiting.calls)]
        return {"shown": shown, "decisions": found}
    if sorted(values) != [0]:
        raise ThreadError("One answer is wanted here.")
    value = values[0]
    if value is None and isinstance(waiting, Confirmation):
        return _GIVEN_UP
    if value is None and isinstance(waiting, Action):
        return list(choices(waiting, None))[-1].answer
    if isinstance(waiting, Question) and isinstance(value, str):
        return option_of(value, waiting.options)
    return value


def _read_decision(value: Any, call: PendingCall) -> Any:
    if value is None:
        return {"type": "reject", "message": _GIVEN_UP}
    return decision_of(value, call) if isinstance(value, str) else value
