"""The commands that go on with a thread: `resume`, `extend`, `retry`, `pause` and `fork`."""

import json
import os
import sys
from typing import Annotated

import typer

from signoff.cli.database import Database, database
from signoff.cli.display import display_for
from signoff.cli.handing import hand_over, is_handed_over
from signoff.cli.launch import launch
from signoff.cli.names import checked_thread_id, forked_thread_id
from signoff.cli.options import (
    BaseUrl,
    DatabaseOption,
    Json,
    Model,
    ModelSeconds,
    Quiet,
    SystemPrompt,
    TalkTurns,
    Thread,
    Tools,
    Workspace,
)
from signoff.cli.plans import Plan, to_extend, to_resume, to_retry, unknown
from signoff.cli.report import ANSWER, MORE_TURNS, command
from signoff.cli.safe import plain
from signoff.cli.settings import Given, recall, remember
from signoff.graph.errors import SetupError, ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.decisions import Question
from signoff.session.moves import request_pause
from signoff.session.session import Session
from signoff.session.standing import reading_graph
from signoff.workers.submitting import of_workers
from signoff.workers.submitting import pause as pause_for_workers

_MOST_DIGITS = 9
_MOST_CHARACTERS = 100


def resume(
    thread: Thread,
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="[ANSWER]",
            help="The answer to its question; for an approval: approve@ID as printed with the calls, reject, "
            "'reject: why', or JSON; for a confirmation: yes, or what is wrong.",
            show_default=False,
        ),
    ] = None,
    workspace: Workspace = None,
    model: Model = None,
    base_url: BaseUrl = None,
    talk_turns: TalkTurns = None,
    model_seconds: ModelSeconds = None,
    tools: Tools = None,
    system_prompt: SystemPrompt = None,
    where: DatabaseOption = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a thread: answer it, decide on its calls, or continue after a stop."""
    file = database(where, os.environ)
    given = Given(
        workspace, model, base_url, None, talk_turns, system_prompt, tools, model_seconds=model_seconds
    )
    plan = to_resume(None if answer is None else valid_text(answer), file)
    finish(existing(thread, file), file, given, plan, as_json, quiet, bare=answer is None)


def extend(
    thread: Thread,
    turns: Annotated[int, typer.Argument(min=1, metavar="[TURNS]", help="How many turns more.")] = MORE_TURNS,
    workspace: Workspace = None,
    model: Model = None,
    base_url: BaseUrl = None,
    talk_turns: TalkTurns = None,
    model_seconds: ModelSeconds = None,
    tools: Tools = None,
    where: DatabaseOption = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a task that ended at a limit, with more turns."""
    file = database(where, os.environ)
    given = Given(workspace, model, base_url, None, talk_turns, None, tools, model_seconds=model_seconds)
    finish(existing(thread, file), file, given, to_extend(turns, file), as_json, quiet)


def retry(
    thread: Thread,
    workspace: Workspace = None,
    model: Model = None,
    base_url: BaseUrl = None,
    talk_turns: TalkTurns = None,
    model_seconds: ModelSeconds = None,
    tools: Tools = None,
    where: DatabaseOption = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try a task again that ended with an error."""
    file = database(where, os.environ)
    given = Given(workspace, model, base_url, None, talk_turns, None, tools, model_seconds=model_seconds)
    finish(existing(thread, file), file, given, to_retry(file), as_json, quiet)


def pause(thread: Thread, where: DatabaseOption = None) -> None:
    """Ask the process that runs a thread to pause it; it does at the next step boundary."""
    file = database(where, os.environ)
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
    print(plain(f"Asked. When it has paused, go on with: {command('resume', thread_id, file)}"))


def fork(
    thread: Thread,
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
    where: DatabaseOption = None,
    as_json: Json = False,
) -> None:
    """Copy a thread, as it was at some turn, to a new one that goes its own way; the old one stays."""
    file = database(where, os.environ)
    thread_id = existing(thread, file)
    with file.open() as storage:
        target = forked_thread_id(thread_id, storage.threads()) if to is None else checked_thread_id(to)
        session = Session(reading_graph(storage), thread_id).fork(_point(at), target)
        if settings := recall(storage.store, thread_id):
            remember(storage.store, session.thread_id, settings)
        waiting = session.standing().waiting
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
            f"--at is {at[:_MOST_CHARACTERS]!r}; give a number of turns, or the id of a checkpoint."
        )
    return at


def existing(thread: str, file: Database) -> str:
    """The id of a thread in a database that exists. Raises ThreadError when there is no database."""
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
    """Runs the thread, or tells the workers when it belongs to them; shows what it came to, and exits with
    its code. bare: the thread just goes on, with nothing new."""
    display = display_for(as_json, quiet)
    if is_handed_over(thread_id, file):
        result = hand_over(thread_id, file, given, plan, display, bare=bare)
    else:
        result = launch(thread_id, file, given, plan, display)
    display.end(result)
    raise typer.Exit(result.exit_code)
