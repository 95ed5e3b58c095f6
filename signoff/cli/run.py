"""The commands that run or continue a thread: `run`, `resume`, `extend`, `retry`, `pause` and `fork`."""

import json
import os
import sys
from typing import Annotated

import typer

from signoff.cli.display import Display, display_for
from signoff.cli.launch import Begin, Plan, launch, to_extend, to_resume, to_retry, to_undo, with_task
from signoff.front import report
from signoff.front.database import Database, unknown
from signoff.front.options import TO_BEGIN, TO_GO_ON, Json, Quiet, Task, Thread, takes, task_text
from signoff.front.report import ANSWER, MORE_TURNS, CommandReport, command
from signoff.front.settings import Given, recall, remember, settle
from signoff.front.text import plain, shell_command
from signoff.front.thread_ids import checked_thread_id, forked_thread_id, new_thread_id
from signoff.graph.compiled.graph import busy
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.commands import Answer, Extend, Retry, request_pause
from signoff.session.decisions import Question
from signoff.session.session import Session
from signoff.session.status import Condition, ThreadStatus, is_guarded, look, reading_graph
from signoff.storage.postgres import PostgresStorage
from signoff.workers.inbox import DEFAULT_QUEUE, Inbox, read_inbox
from signoff.workers.submitting import check, no_undo, of_workers, submit
from signoff.workers.submitting import pause as pause_for_workers

_MOST_DIGITS = 9
_MOST_CHARACTERS = 100


@takes(*TO_BEGIN)
def run(
    task: Task,
    given: Given,
    file: Database,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread",
            "-t",
            metavar="ID",
            help="Add the task to this thread; if the thread waits for an answer, the task is the answer "
            "(default: a new one).",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give the model a task and watch it work until it signs off.

    Exit codes: 0 done, 1 error, 2 wrong usage, 3 limit, 4 paused, 5 ended honestly without success.
    """
    words = task_text(task)
    if not words:
        raise SetupError("The task is empty; say what to do.")
    if thread is None:
        with file.open() as storage:
            thread_id = new_thread_id(storage.threads())
    else:
        thread_id = checked_thread_id(thread)
    refuse_handed_over(thread_id, file)
    finish(thread_id, file, given, with_task(words), as_json, quiet)


@takes(*TO_GO_ON, "system_prompt")
def resume(
    thread: Thread,
    given: Given,
    file: Database,
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="[ANSWER]",
            help="The answer to its question; for an approval: approve@ID as printed with the calls, reject, "
            "'reject: why', or JSON; for a confirmation: yes, or what is wrong.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID",
            help="What is answered, where several delegates wait: the beginning of its id.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a thread: answer it, decide on its calls, or go on after a stop."""
    if to is not None and answer is None:
        raise SetupError("--to says what an answer is for; give the answer, too.")
    plan = to_resume(None if answer is None else valid_text(answer), file, to)
    finish(existing(thread, file), file, given, plan, as_json, quiet, bare=answer is None)


@takes(*TO_GO_ON)
def extend(
    thread: Thread,
    given: Given,
    file: Database,
    turns: Annotated[int, typer.Argument(min=1, metavar="[TURNS]", help="How many more turns.")] = MORE_TURNS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a task that reached a limit, with more turns."""
    finish(existing(thread, file), file, given, to_extend(turns, file), as_json, quiet)


@takes(*TO_GO_ON)
def retry(
    thread: Thread,
    given: Given,
    file: Database,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Retry a task that ended with an error."""
    finish(existing(thread, file), file, given, to_retry(file), as_json, quiet)


@takes(*TO_GO_ON)
def undo(
    thread: Thread,
    given: Given,
    file: Database,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Undo the effects of a task that has ended, the newest first.

    Each is undone at most once. Effects without an undo (edits of files: git does that), and those with an
    unknown outcome, are listed as not undone.
    """
    thread_id = existing(thread, file)
    if is_handed_over(thread_id, file):
        raise no_undo(thread_id)
    finish(thread_id, file, given, to_undo(file), as_json, quiet)


@takes()
def pause(
    thread: Thread,
    file: Database,
) -> None:
    """Ask the process that runs a thread to pause at its next step."""
    thread_id = existing(thread, file)
    with file.open() as storage:
        if of_workers(storage, thread_id):
            pause_for_workers(storage, thread_id)
        elif not storage.checkpointer.is_running(thread_id):
            if thread_id not in storage.threads():
                raise unknown(thread_id, file)
            raise ThreadError(f"Thread {thread_id!r} is not running; there is nothing to pause.")
        else:
            request_pause(storage.store, thread_id)
    print(plain(f"Pause requested. When it has paused, go on with: {command('resume', thread_id, file)}"))


@takes()
def fork(
    thread: Thread,
    file: Database,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TURN|CHECKPOINT",
            help="As it was after this many turns of its current task, or at this checkpoint (default: as it "
            "is now).",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ID", help="The new thread's ID (default: made from its own)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a thread, as it was at some turn, to a new thread; the old one stays."""
    thread_id = existing(thread, file)
    refuse_guarded(thread_id, file)
    with file.open() as storage:
        target = forked_thread_id(thread_id, storage.threads()) if to is None else checked_thread_id(to)
        session = Session(reading_graph(storage, thread_id), thread_id).fork(_point(at), target)
        if settings := recall(storage.store, thread_id):
            remember(storage.store, session.thread_id, settings)
        waiting = session.status().waiting
    how = command("resume", target, file, *([ANSWER] if waiting else []))
    if as_json:
        found = {"thread_id": target, "forked_from": thread_id, "resume": how}
        waits = {"waits_for": waiting.waits_for, **waiting.document()} if waiting else {}
        sys.stdout.write(json.dumps({**found, **waits}) + "\n")
    elif isinstance(waiting, Question):
        print(plain(f"Forked to {target}, which waits for an answer: {waiting.text}\nAnswer it with: {how}"))
    else:
        print(plain(f"Forked to {target}. Go on with: {how}"))


def _point(at: str | None) -> int | str | None:
    if at is None:
        return None
    if at.isdecimal() and len(at) <= _MOST_DIGITS:
        return int(at)
    if not 0 < len(at) <= _MOST_CHARACTERS or at.isdecimal() or not at.isprintable() or at.startswith("-"):
        raise SetupError(
            f"--at is {at[:_MOST_CHARACTERS]!r}; pass a number of turns, or the id of a checkpoint."
        )
    return at


def existing(thread: str, file: Database) -> str:
    """Returns the id of a thread in a database that exists. Raises ThreadError when there is no database."""
    thread_id = checked_thread_id(thread)
    if not file.exists():
        raise unknown(thread_id, file)
    return thread_id


def finish(
    thread_id: str,
    file: Database,
    given: Given,
    plan: Plan,
    as_json: bool,
    quiet: bool,
    *,
    bare: bool = False,
) -> None:
    """Runs the thread, or hands it to its workers; shows the result and exits with its code.

    bare: the thread continues without anything new.
    """
    display = display_for(as_json, quiet)
    refuse_guarded(thread_id, file)
    if is_handed_over(thread_id, file):
        result = hand_over(thread_id, file, given, plan, display, bare=bare)
    else:
        result = launch(thread_id, file, given, plan, display)
    display.end(result)
    raise typer.Exit(result.exit_code)


def is_handed_over(thread_id: str, file: Database) -> bool:
    """Whether the thread belongs to the workers of this database."""
    if not file.is_postgres:
        return False
    with file.open() as storage:
        return of_workers(storage, thread_id)


def refuse_handed_over(thread_id: str, file: Database) -> None:
    """Raises ThreadError for a thread of the workers."""
    if is_handed_over(thread_id, file):
        raise ThreadError(
            f"Thread {thread_id!r} belongs to the workers; give it to them: {_next_task(thread_id, file)}"
        )


def refuse_guarded(thread_id: str, file: Database) -> None:
    """Raises ThreadError for a thread of an agent with guards."""
    if not file.exists():
        return
    with file.open() as storage:
        guarded = is_guarded(storage, thread_id)
    if guarded:
        raise ThreadError(
            f"Thread {thread_id!r} belongs to a LangChain agent with Guards, which continues only in its own "
            "program: invoke the agent with Command(resume=…), extend(…) or retry(…); with None and the "
            "config of an earlier checkpoint it forks."
        )


def _next_task(thread_id: str, file: Database) -> str:
    return shell_command(["signoff", "submit", "--thread", thread_id, *file.options, "the next task"])


def _just_goes_on(status: ThreadStatus, inbox: Inbox) -> bool:
    """Whether no further input is needed: an answer is still to be delivered, or the thread was only
    paused."""
    if waiting := status.waiting:
        return inbox.answers(waiting.interrupt_id)
    return inbox.paused or bool(inbox.orders)


def _begin(status: ThreadStatus, file: Database, plan: Plan) -> Begin:
    """Returns what to deliver to the thread. Raises ThreadError where nothing can be delivered."""
    thread_id = status.thread_id
    if status.condition is Condition.UNKNOWN:
        raise ThreadError(
            f"Thread {thread_id!r} is in the queue and has not begun; there is nothing to answer."
        )
    if status.outcome and status.outcome["status"] == "success":
        raise ThreadError(
            f"Thread {thread_id!r} has ended; give it another task: {_next_task(thread_id, file)}"
        )
    return plan(status)


def hand_over(
    thread_id: str, file: Database, options: Given, plan: Plan, display: Display, *, bare: bool
) -> CommandReport:
    """Tells the workers how the thread continues. bare: with whatever is left to do.

    Raises ThreadError, and changes nothing, if that is impossible in the thread's status.
    """
    with file.open() as storage:
        if storage.checkpointer.is_running(thread_id):
            raise busy(thread_id)
        status = look(reading_graph(storage), thread_id)
        inbox = read_inbox(storage.store, thread_id)
        just_on = bare and inbox is not None and _just_goes_on(status, inbox)
        begin = Begin() if just_on else _begin(status, file, plan)
        move = begin.move
        if begin.waiting:
            answer = display.ask(begin.waiting)
            if answer is None:
                return report.of_waiting(begin.waiting, thread_id, file)
            move = Answer(answer, begin.waiting.interrupt_id)
        assert isinstance(storage, PostgresStorage), "only such a database has threads of workers"
        assert move is None or isinstance(move, Answer | Extend | Retry), (
            "plans that continue a thread make no others"
        )
        check(storage, move, thread_id)
        if options.options:
            if inbox is not None and inbox.queue != DEFAULT_QUEUE:
                raise SetupError(
                    f"The graph of the queue {inbox.queue!r} has options of its own; leave these out."
                )
            remember(storage.store, thread_id, settle(options, recall(storage.store, thread_id), os.environ))
        submit(storage, move, thread_id)
    return report.of_queued(thread_id, file)
