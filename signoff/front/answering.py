"""What a person's words do to a thread, and whether they came too late: one reading for every front end.

Each command here looks at the thread when it is held, so that of two who answer at once only one is heard.
"""

from collections.abc import Sequence
from typing import Any

from signoff.front.choices import decisions_of, option_of
from signoff.graph.errors import ThreadError
from signoff.session.commands import Answer, Choose, ThreadCommand, TooLate
from signoff.session.decisions import Approval, Confirmation, Question, Waiting
from signoff.session.status import Condition, ThreadStatus


def beginning(text: str) -> Choose:
    """The command that begins a task. It raises ThreadError where the thread waits for something: the words
    were not meant for that."""

    def task(status: ThreadStatus) -> ThreadCommand:
        if status.waiting is not None:
            raise ThreadError("The thread waits for something by now; look at that first.")
        return text

    return Choose(task)


def answering(interrupt_id: str, shown: str, texts: Sequence[str], by: str = "") -> Choose:
    """The command that answers what a person was shown. shown: the short id of an approval. texts: what they
    said, or what they said of each call. by: who they are.

    It raises TooLate when somebody else has answered, ThreadError for an answer that does not fit.
    """

    def read(status: ThreadStatus) -> ThreadCommand:
        waiting = still_waiting(status, interrupt_id)
        return Answer(_meant(waiting, shown, texts), interrupt_id, by or None)

    return Choose(read)


def going_on() -> Choose:
    """The command that goes on with what was stopped. It raises TooLate when the task has ended."""

    def on(status: ThreadStatus) -> ThreadCommand:
        if status.condition not in (Condition.STOPPED, Condition.WAITING):
            raise TooLate("The thread has ended; there is nothing to go on with.")
        return None

    return Choose(on)


def still_waiting(status: ThreadStatus, interrupt_id: str) -> Waiting:
    """What was shown, if the thread still waits for it first. Raises TooLate otherwise."""
    if status.waiting is None or status.waiting.interrupt_id != interrupt_id:
        raise TooLate("This came too late: somebody else has answered already. Nothing was changed.")
    return status.waiting


def overtaken() -> TooLate:
    """The error for an answer to a thread that runs already."""
    return TooLate(
        "This came too late: the thread goes on already, by somebody else's answer. Nothing was changed."
    )


def shown_as(waiting: Waiting) -> str:
    """The short id of what waits, where a decision is bound to it; empty where none is."""
    return waiting.shown if isinstance(waiting, Approval | Confirmation) else ""


def _meant(waiting: Waiting, shown: str, texts: Sequence[str]) -> Any:
    """What the person's words mean for what waits, bound to what they were shown."""
    if isinstance(waiting, Approval):
        # One word for all calls, as on a command line.
        every = [*texts] * len(waiting.calls) if len(texts) == 1 else texts
        return decisions_of(every, waiting, shown)
    (text,) = texts
    if isinstance(waiting, Question):
        return option_of(text, waiting)
    return text
