"""How a run begins, from where the thread stands: the rules of `run`, `resume`, `extend` and `retry`."""

from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.messages import HumanMessage

from signoff.cli.database import Database
from signoff.cli.report import MORE_TURNS, command, next_command
from signoff.graph.compiled.inputs import is_repeated
from signoff.graph.errors import ThreadError
from signoff.session.decisions import Action, Approval, Confirmation, Waiting
from signoff.session.moves import Answer, Extend, Move, Retry
from signoff.session.standing import Condition, Standing


@dataclass(frozen=True)
class Begin:
    """What a run begins with: a move, or what a person has to answer first."""

    move: Move = None
    waiting: Waiting | None = None
    note: str = ""


Plan = Callable[[Standing], Begin]
"""Decides from where a thread stands how the run begins. Raises ThreadError when it cannot."""


def with_task(task: str) -> Plan:
    """A new task for a new or an existing thread; the answer, when the thread waits for one."""

    def plan(thread: Standing) -> Begin:
        if waiting := thread.waiting:
            return Begin(task, note=f"The thread waits: your message {_taken_as(waiting)}.")
        if thread.condition is not Condition.STOPPED:
            return Begin(task)
        if is_repeated([HumanMessage(task)], thread.values):
            return Begin(task, note="The thread has this message already, and goes on with it.")
        return Begin(task, note="The thread's unfinished task ends here; your message begins the next one.")

    return plan


def _taken_as(waiting: Waiting) -> str:
    match waiting:
        case Approval():
            return "rejects the calls"
        case Confirmation():
            return "sends the result back"
        case Action():
            return "takes the action back"
    return "is the answer"


def to_resume(answer: str | None, database: Database) -> Plan:
    """Going on with an existing thread: with an answer, or just on."""

    def plan(thread: Standing) -> Begin:
        _known(thread, database)
        if thread.outcome is not None:
            if answer is not None:
                raise _nothing_waits(thread.thread_id, "ended", database)
            raise _has_ended(thread, database)
        if waiting := thread.waiting:
            if answer is None:
                # An action is handed out by the session, which notes it.
                return Begin() if isinstance(waiting, Action) else Begin(waiting=waiting)
            if isinstance(waiting, Approval) and not waiting.says_which(answer):
                raise _for_which(thread, database)
            waiting.read(answer)
            return Begin(Answer(answer, waiting.interrupt_id))
        if answer is not None:
            raise _nothing_waits(thread.thread_id, "stopped in the middle", database)
        return Begin()

    return plan


def _for_which(thread: Standing, database: Database) -> ThreadError:
    how = command("resume", thread.thread_id, database)
    return ThreadError(
        "The answer does not say which calls it is for, and others may wait by now. See what waits, and the "
        f"commands that decide on it, with: {how}"
    )


def to_extend(turns: int, database: Database) -> Plan:
    """Going on after a limit."""

    def plan(thread: Standing) -> Begin:
        if _end(thread, database, "A limit") == "limit":
            return Begin(Extend(turns))
        raise _has_ended(thread, database)

    return plan


def to_retry(database: Database) -> Plan:
    """Trying again after an error."""

    def plan(thread: Standing) -> Begin:
        if _end(thread, database, "An error") == "error":
            return Begin(Retry())
        raise _has_ended(thread, database)

    return plan


def _end(thread: Standing, database: Database, needed: str) -> str:
    _known(thread, database)
    if thread.outcome is None:
        how = command("resume", thread.thread_id, database)
        raise ThreadError(
            f"Thread {thread.shown!r} has not ended. {needed} must have ended it; go on with: {how}"
        )
    return str(thread.outcome["status"])


def _known(thread: Standing, database: Database) -> None:
    if thread.condition is Condition.UNKNOWN:
        raise unknown(thread.thread_id, database)


def unknown(thread_id: str, database: Database) -> ThreadError:
    """The error for a thread that is not there."""
    shown = Standing(thread_id, Condition.UNKNOWN).shown
    return ThreadError(f"There is no thread {shown!r} in {database}; `signoff threads` lists them.")


def _has_ended(thread: Standing, database: Database) -> ThreadError:
    thread_id, outcome = thread.thread_id, thread.outcome or {}
    status = outcome["status"]
    what = {
        "limit": f"give it more turns: {command('extend', thread_id, database, str(MORE_TURNS))}",
        "error": f"try again: {command('retry', thread_id, database)}",
        "success": f"give it another task: {next_command(thread_id, database)}",
    }[status]
    how = outcome["claim"] if status == "success" else outcome["reason"]
    return ThreadError(f"Thread {thread.shown!r} has ended ({status}, {how}); {what}")


def _nothing_waits(thread_id: str, state: str, database: Database) -> ThreadError:
    how = command("resume", thread_id, database) if state != "ended" else next_command(thread_id, database)
    return ThreadError(f"Thread {thread_id!r} has {state} and nothing waits for an answer; go on with: {how}")
