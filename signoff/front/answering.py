"""What a person's input does to a thread, and whether it came too late: the same for every front end.

Each command here checks the thread while holding it, so that of two simultaneous answers only one counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage

from signoff import Action, Answer, Approval, ThreadError, ThreadStatus, TooLate, Waiting, go_on
from signoff.front.choices import SHELL, answer_of, choices, still_waiting
from signoff.session import Choose, Condition, ThreadCommand

_GIVEN_UP = "The person did not want to decide."


class Known(ThreadError):
    """The thread already has this message. Nothing was changed."""


def begin_task(text: str, message_id: str = "") -> Choose:
    """Returns the command that begins a task. message_id: of the message, if its sender gave it one.

    The command raises ThreadError if the thread waits for something: the message was not meant as an answer.
    It raises Known if the thread has a message with this id: a repeated message has no effect.
    """

    def task(status: ThreadStatus) -> ThreadCommand:
        if message_id and any(message.id == message_id for message in status.values.get("messages", ())):
            raise Known("The thread already has this message. Nothing was changed.")
        if status.wait() is not None:
            raise ThreadError("The thread waits for something by now; look at that first.")
        return [HumanMessage(text, id=message_id)] if message_id else text

    return Choose(task)


def give_answer(interrupt_id: str, shown: str, texts: Sequence[str], by: str = "") -> Choose:
    """Returns the command that answers what a person was shown. shown: the short id of an approval. texts:
    the answer, or one per call. by: who answered.

    The command raises TooLate if someone else has answered, and ThreadError for an invalid answer.
    """

    def read(status: ThreadStatus) -> ThreadCommand:
        waiting = still_waiting(status, interrupt_id)
        meant = answer_of(texts, waiting, shown)
        # A face may ask this command alone, so that the person is asked again at once.
        waiting.read(meant)
        return Answer(meant, interrupt_id, by or None)

    return Choose(read)


def give_values(interrupt_id: str, shown: str, values: Mapping[int, Any], by: str = "") -> Choose:
    """Returns the command that answers with values from a protocol: any JSON, or text as it would be typed.

    values: the answer under 0; for an approval one per call, by position. None declines: a question gets that
    as its answer, a call is rejected, a result is not confirmed, an action's outcome is unknown. The command
    raises the errors of `give_answer`.
    """

    def read(status: ThreadStatus) -> ThreadCommand:
        waiting = still_waiting(status, interrupt_id)
        if shown != get_short_id(waiting):
            raise TooLate(
                "The thread waits for something else by now; look at that first. Nothing was changed."
            )
        return Answer(_read_values(waiting, shown, values), interrupt_id, by or None)

    return Choose(read)


def go_further(turns: int | None = None) -> Choose:
    """Returns the command that continues a task, whatever stopped it. It raises TooLate if the task has ended
    in success."""

    def on(status: ThreadStatus) -> ThreadCommand:
        if status.outcome is not None and status.outcome.status == "success":
            raise TooLate("The thread has ended; there is nothing to continue.")
        return None if status.condition is Condition.WAITING else go_on(turns)

    return Choose(on)


def make_too_late_error() -> TooLate:
    """Returns the error for an answer to a thread that already runs."""
    return TooLate(
        "This came too late: someone else has answered, and the thread continues. Nothing was changed."
    )


def get_asked(status: ThreadStatus) -> Waiting | None:
    """Returns what a person is asked. A command that a front end runs itself when the thread continues is not
    a question."""
    waiting = status.wait()
    runs_here = isinstance(waiting, Action) and waiting.tool == SHELL and not waiting.unknown
    return None if runs_here else waiting


def get_short_id(waiting: Waiting) -> str:
    """Returns the short id that a decision on this wait is bound to; empty if decisions are not bound."""
    return str(waiting.document().get("shown", ""))


def _read_values(waiting: Waiting, shown: str, values: Mapping[int, Any]) -> Any:
    """Returns what these values mean as an answer."""
    if isinstance(waiting, Approval):
        if sorted(values) != [*range(len(waiting.calls))]:
            raise ThreadError(f"{len(waiting.calls)} calls need a decision; decide on each of them.")
        given_up = {"type": "reject", "message": _GIVEN_UP}
        return {
            "shown": shown,
            "decisions": [given_up if v is None else v for _, v in sorted(values.items())],
        }
    if sorted(values) != [0]:
        raise ThreadError("Give exactly one answer here.")
    if values[0] is None and isinstance(waiting, Action):
        return list(choices(waiting, None))[-1].answer
    return values[0]
