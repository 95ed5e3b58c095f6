"""How a run begins, from where the thread stands: the rules of `signoff run` and `signoff resume`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from signoff.cli.launch import Plan, Start
from signoff.cli.report import MORE_TURNS, next_command, resume_command
from signoff.cli.standing import Condition, Standing
from signoff.cli.waits import Approval
from signoff.graph.again import extend, retry
from signoff.graph.errors import ThreadError


def with_task(task: str) -> Plan:
    """A new task for a new or an existing thread; the answer, when the thread waits for one."""

    def plan(thread: Standing) -> Start:
        if waiting := thread.waiting:
            what = "rejects the calls" if isinstance(waiting, Approval) else "is the answer"
            return Start(waiting.by_message(task), note=f"The thread waits: your message {what}.")
        note = ""
        if thread.condition is Condition.STOPPED:
            note = "The thread's unfinished task ends here; your message begins the next one."
        return Start({"messages": [HumanMessage(task)]}, note=note)

    return plan


def to_resume(answer: str | None, turns: int | None, again: bool, database: Path) -> Plan:
    """Going on with an existing thread: with an answer, more turns, another try, or just on."""

    def plan(thread: Standing) -> Start:
        if thread.condition is Condition.UNKNOWN:
            raise ThreadError(
                f"There is no thread {thread.thread_id!r} in {database}; `signoff threads` lists them."
            )
        if thread.outcome is not None:
            return _ended(thread, thread.outcome, answer, turns, again, database)
        if turns is not None or again:
            option = "--turns extends a task that ended at a limit" if turns else "--retry is for an error"
            raise ThreadError(f"Thread {thread.thread_id!r} has not ended, and {option}; resume it without.")
        if waiting := thread.waiting:
            given = None if answer is None else waiting.answered(answer)
            return Start(given, waiting=waiting if answer is None else None)
        if answer is not None:
            raise _nothing_waits(thread.thread_id, "stopped in the middle", database)
        return Start(thread.go_on)

    return plan


def _ended(
    thread: Standing,
    outcome: Mapping[str, Any],
    answer: str | None,
    turns: int | None,
    again: bool,
    database: Path,
) -> Start:
    thread_id, status = thread.thread_id, outcome["status"]
    if answer is not None:
        raise _nothing_waits(thread_id, "ended", database)
    if turns is not None and status == "limit":
        return Start(extend(thread.values, turns), extra_turns=turns)
    if again and status == "error":
        return Start(retry(thread.values))
    what = {
        "limit": f"give it more turns: {resume_command(thread_id, database, '--turns', str(MORE_TURNS))}",
        "error": f"try again: {resume_command(thread_id, database, '--retry')}",
        "success": f"give it another task: {next_command(thread_id, database)}",
    }[status]
    how = outcome["claim"] if status == "success" else outcome["reason"]
    raise ThreadError(f"Thread {thread_id!r} has ended ({status}, {how}); {what}")


def _nothing_waits(thread_id: str, state: str, database: Path) -> ThreadError:
    how = resume_command(thread_id, database) if state != "ended" else next_command(thread_id, database)
    return ThreadError(f"Thread {thread_id!r} has {state} and nothing waits for an answer; go on with: {how}")
