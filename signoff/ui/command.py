"""`signoff ui` and `signoff serve`: the application, in the terminal and in the browser."""

import importlib.util
import os
import sys
from typing import Annotated

import typer

from signoff.front.database import Database
from signoff.front.options import TO_BEGIN, takes
from signoff.front.settings import Given, Options, theme_of
from signoff.front.thread_ids import checked_thread_id, new_thread_id
from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint

_SERVED_BY = "SIGNOFF_SERVED_BY"

ThreadOption = Annotated[
    str | None,
    typer.Option("--thread", "-t", metavar="ID", help="Open this thread (default: a new one)."),
]


ThemeOption = Annotated[
    str | None,
    typer.Option("--theme", metavar="NAME", help=Options.model_fields["theme"].description),
]


@takes(*TO_BEGIN)
def ui(
    given: Given,
    file: Database,
    thread: ThreadOption = None,
    theme: ThemeOption = None,
) -> None:
    """Open the application: conversation, machine, terminal."""
    _needs("textual")
    colours = theme_of(theme, os.environ, given.config)
    if not _is_web() and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SetupError("The application needs a terminal; `signoff run` and `signoff show` do not.")
    # Textual is an extra, and slow to import.
    from signoff.ui.app import run_app

    server = os.environ.get(_SERVED_BY)
    opened = None if thread is None else checked_thread_id(thread)
    raise typer.Exit(run_app(file, given, opened, None if server is None else int(server), colours))


@takes()
def serve(
    context: typer.Context,
    file: Database,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="The port (0: any that is free).")
    ] = 0,
    thread: ThreadOption = None,
) -> None:
    """Open the application in a browser of this machine; takes the options of `ui`."""
    _needs("textual_serve")
    with file.open() as storage:
        thread_id = checked_thread_id(thread) if thread else new_thread_id(storage.threads())
    # Includes the password, which the displayed address leaves out.
    named = ["--database", file.where] if file.named else []
    config = ["--config", file.config] if file.config else []
    words = ["ui", f"--thread={thread_id}", *named, *config, *context.args]
    _checked(words)
    # So that the application ends with this process, even when this process is killed.
    os.environ[_SERVED_BY] = str(os.getpid())
    # These packages are an extra.
    from signoff.ui.serve import serve as serve_forever

    serve_forever(words, port, lambda address: typer.echo(f"Open {address}\nCtrl-C ends it."))


def _checked(words: list[str]) -> None:
    """Checks the options first, because a page could not report an error in them."""
    probe = typer.Typer()
    probe.command()(ui)
    typer.main.get_command(probe).make_context("signoff ui", words[1:])


def _is_web() -> bool:
    return "TEXTUAL_DRIVER" in os.environ


def _needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"The application needs its packages: {install_hint('ui')}")
