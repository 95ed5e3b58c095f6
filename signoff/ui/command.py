"""`signoff ui`: the application in the terminal."""

import importlib.util
import os
import sys
from typing import Annotated

import typer

from signoff.front.database import Database
from signoff.front.options import TO_BEGIN, takes
from signoff.front.settings import Given, Options, theme_of
from signoff.front.thread_ids import checked_thread_id
from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint

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
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SetupError("The application needs a terminal; `signoff run` and `signoff show` do not.")
    # Textual is an extra, and slow to import.
    from signoff.ui.app import run_app

    opened = None if thread is None else checked_thread_id(thread)
    raise typer.Exit(run_app(file, given, opened, colours))


def _needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"The application needs its packages: {install_hint('ui')}")
