"""The commands that run or continue a thread: `run`, `resume`, `undo`, `pause` and `fork`."""

import json
import os
import sys
from dataclasses import replace
from typing import Annotated

import typer
from langgraph.types import Command as LangGraphCommand

from signoff import Answer, Question, Session, SetupError, ThreadError, ThreadStatus
from signoff.cli.display import Display, display_for
from signoff.cli.launch import Begin, Plan, launch, to_resume, to_undo, with_task
from signoff.front import report
from signoff.front.database import Database, unknown
from signoff.front.options import (
    TO_BEGIN,
    TO_GO_ON,
    Json,
    OwnGraph,
    Quiet,
    Task,
    Thread,
    check_own_graph,
    takes,
    task_text,
)
from signoff.front.programs import naming_graph
from signoff.front.report import ANSWER, CommandReport, command
from signoff.front.settings import Given, recall, remember, settle
from signoff.front.text import plain, shell_command
from signoff.front.thread_ids import checked_thread_id, forked_thread_id, new_thread_id
from signoff.graph.compiled.holds import busy
from signoff.session import Condition, request_pause
from signoff.session.status import is_guarded, look, reading_graph
from signoff.storage import PostgresStorage
from signoff.text import valid_text
from signoff.workers import pause as pause_for_workers
from signoff.workers import submit
from signoff.workers.inbox import DEFAULT_QUEUE, Inbox, read_inbox
from signoff.workers.submitting import check, no_undo, of_workers

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
    to_workers: Annotated[
        bool,
        typer.Option("--submit", help="Give the task to the workers, one of which runs it; do not wait."),
    ] = False,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="With --submit, which workers run it: `module:graph` for those of a graph of your own "
            "(default: the thread's own, else those of the command line's graph).",
        ),
    ] = None,
    graph: OwnGraph = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give the model a task and watch it work until it signs off.

    Exit codes: 0 done, or submitted; 1 error, 2 wrong usage, 3 limit, 4 paused, 5 ended honestly without
    success.
    """
    words = task_text(task)
    if not words:
        raise SetupError("The task is empty; say what to do.")
    file = with_graph(file, graph, given)
    if to_workers:
        if graph is not None:
            raise SetupError("--submit gives the task to workers, which have their graph; leave out --graph.")
        from signoff.cli.workers import submit as submit_task  # its packages are those of the workers

        display_for(as_json, quiet).end(submit_task(words, given, file, thread, queue))
        return
    if queue is not None:
        raise SetupError("--queue is for --submit; without it, the task runs here.")
    if thread is None:
        with file.open() as storage:
            thread_id = new_thread_id(storage.checkpointer.threads())
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
            "'reject: why', or JSON; for a finish: yes, or what is wrong.",
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
    turns: Annotated[
        int | None,
        typer.Option(
            "--turns",
            min=1,
            metavar="N",
            help="After a limit: how many more turns (default: as many as the limit).",
            show_default=False,
        ),
    ] = None,
    graph: OwnGraph = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a thread: answer it, decide on its calls, or go on, whatever stopped it."""
    if to is not None and answer is None:
        raise SetupError("--to says what an answer is for; give the answer, too.")
    if turns is not None and answer is not None:
        raise SetupError("--turns goes on after a limit, and an answer to what waits; give only one of them.")
    file = with_graph(file, graph, given)
    plan = to_resume(None if answer is None else valid_text(answer), file, to, turns)
    finish(existing(thread, file), file, given, plan, as_json, quiet, bare=answer is None)


@takes(*TO_GO_ON)
def undo(
    thread: Thread,
    given: Given,
    file: Database,
    graph: OwnGraph = None,
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
    file = with_graph(file, graph, given)
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
            if thread_id not in storage.checkpointer.threads():
                raise unknown(thread_id, file)
            raise ThreadError(f"Thread {thread_id!r} is not running; there is nothing to pause.")
        else:
            request_pause(storage.store, thread_id)
        file = naming_graph(file, storage, thread_id)
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
        target = (
            forked_thread_id(thread_id, storage.checkpointer.threads())
            if to is None
            else checked_thread_id(to)
        )
        session = Session(reading_graph(storage, thread_id), thread_id).fork(_point(at), target)
        if settings := recall(storage.store, thread_id):
            remember(storage.store, session.thread_id, settings)
        waiting = session.status().wait()
        file = naming_graph(file, storage, target)
    how = command("resume", target, file, *([ANSWER] if waiting else []))
    if as_json:
        found = {"thread_id": target, "forked_from": thread_id, "resume": how}
        waits = waiting.document() if waiting else {}
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


def with_graph(file: Database, named: str | None, given: Given) -> Database:
    """Returns the database for a command that runs the graph `named`, which it also repeats."""
    check_own_graph(named, given)
    return replace(file, graph=named)


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
        if file.graph is not None:
            raise SetupError(f"Workers run thread {thread_id!r}, with their graph; leave out --graph.")
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
            "program: invoke the agent with Command(resume=…) or go_on(); with None and the "
            "config of an earlier checkpoint it forks."
        )


def _next_task(thread_id: str, file: Database) -> str:
    return shell_command(
        ["signoff", "run", "--submit", "--thread", thread_id, *file.options, "the next task"]
    )


def _just_goes_on(status: ThreadStatus, inbox: Inbox) -> bool:
    """Whether no further input is needed: an answer is still to be delivered, or the thread was only
    paused."""
    if waiting := status.wait():
        return inbox.answers(waiting.interrupt_id)
    return inbox.paused or bool(inbox.orders)


def _begin(status: ThreadStatus, file: Database, plan: Plan) -> Begin:
    """Returns what to deliver to the thread. Raises ThreadError where nothing can be delivered."""
    thread_id = status.thread_id
    if status.condition is Condition.UNKNOWN:
        raise ThreadError(
            f"Thread {thread_id!r} is in the queue and has not begun; there is nothing to answer."
        )
    if status.outcome and status.outcome.status == "success":
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
                return report.of_waiting(begin.waiting, thread_id, file, beside=len(status.waits) > 1)
            move = Answer(answer, begin.waiting.interrupt_id)
        assert isinstance(storage, PostgresStorage), "only such a database has threads of workers"
        assert move is None or isinstance(move, Answer | LangGraphCommand), "plans make no others"
        check(storage, move, thread_id)
        if options.options:
            if inbox is not None and inbox.queue != DEFAULT_QUEUE:
                raise SetupError(
                    f"The graph of the queue {inbox.queue!r} has options of its own; leave these out."
                )
            remember(storage.store, thread_id, settle(options, recall(storage.store, thread_id), os.environ))
        submit(storage, move, thread_id)
    return report.of_queued(thread_id, file)
