"""`signoff ui` and `signoff serve`: the application, in the terminal and in the browser."""

import importlib.util
import os
import sys
from typing import Annotated

import typer

from signoff.front.database import Database, database
from signoff.front.options import (
    Approve,
    BaseUrl,
    Checks,
    Constitution,
    DatabaseOption,
    Model,
    ModelSeconds,
    Protocol,
    Rounds,
    Seconds,
    SystemPrompt,
    TalkTurns,
    Tokens,
    Tools,
    Turns,
    Workspace,
)
from signoff.front.settings import Given
from signoff.front.threads import checked_thread_id, new_thread_id
from signoff.graph.errors import SetupError

ThreadOption = Annotated[
    str | None,
    typer.Option("--thread", "-t", metavar="ID", help="Open this thread (default: a new one)."),
]


def ui(
    thread: ThreadOption = None,
    workspace: Workspace = None,
    model: Model = None,
    base_url: BaseUrl = None,
    turns: Turns = None,
    tokens: Tokens = None,
    seconds: Seconds = None,
    model_seconds: ModelSeconds = None,
    talk_turns: TalkTurns = None,
    tools: Tools = None,
    approve: Approve = None,
    protocol: Protocol = None,
    constitution: Constitution = None,
    rounds: Rounds = None,
    checks: Checks = None,
    system_prompt: SystemPrompt = None,
    where: DatabaseOption = None,
) -> None:
    """Open the application: the conversation, the machine, and a terminal that you share with the model."""
    _needs("textual")
    kept = (workspace, model, base_url, turns, talk_turns, system_prompt, tools, approve, tokens, seconds)
    file = database(where, os.environ)
    if not _is_web() and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SetupError("The application needs a terminal; `signoff run` and `signoff show` do without.")
    given = Given(*kept, protocol, rounds, model_seconds, constitution, checks)
    _open(file, given, None if thread is None else checked_thread_id(thread))


def serve(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="The port (0: any that is free).")
    ] = 0,
    thread: ThreadOption = None,
    where: DatabaseOption = None,
) -> None:
    """Show the application in a browser, on this machine only; takes the options of `signoff ui`, too."""
    _needs("textual_serve")
    file = database(where, os.environ)
    with file.open() as storage:
        thread_id = checked_thread_id(thread) if thread else new_thread_id(storage.threads())
    words = ["ui", f"--thread={thread_id}", *(["--database", where] if where else []), *context.args]
    _checked(words)
    # Its packages are an extra.
    from signoff.ui.serve import serve as serve_forever

    serve_forever(words, port, lambda address: typer.echo(f"Open {address}\nCtrl-C ends it."))


def _checked(words: list[str]) -> None:
    """Raises what is wrong with the options before a page opens that could not say it."""
    probe = typer.Typer()
    probe.command()(ui)
    typer.main.get_command(probe).make_context("signoff ui", words[1:])


def _open(file: Database, given: Given, thread_id: str | None) -> None:
    # Textual is an extra, and slow to import.
    from signoff.ui.app import run_app

    raise typer.Exit(run_app(file, given, thread_id))


def _is_web() -> bool:
    return "TEXTUAL_DRIVER" in os.environ


def _needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SetupError("The application needs its packages: pip install 'signoff[ui]'")
