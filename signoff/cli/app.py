"""The command line: its commands, each imported when it is used, and the messages when one fails."""

import copy
import functools
import importlib
import importlib.metadata
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from signoff import SetupError, SignoffError
from signoff.graph.errors import IllegalEvent

ERROR, USAGE = 1, 2
"""Exit codes, as in `signoff.front.report`, which is slow to import."""

PANELS: Mapping[str, Sequence[str]] = {
    "Run a task": ("run", "resume", "undo", "pause", "serve"),
    "In other programs": ("acp", "mcp"),
    "Threads": ("threads", "show", "replay", "fork", "stats", "delete"),
    "Many machines": ("worker",),
    "Tools for developers": ("verify",),
}
"""The commands in the groups and order of the help."""

COMMANDS: Mapping[str, str] = {
    "run": "signoff.cli.run:run",
    "resume": "signoff.cli.run:resume",
    "undo": "signoff.cli.run:undo",
    "pause": "signoff.cli.run:pause",
    "fork": "signoff.cli.run:fork",
    "worker": "signoff.cli.workers:worker",
    "stats": "signoff.cli.stats:stats",
    "serve": "signoff.web.command:serve",
    "acp": "signoff.acp.command:acp",
    "mcp": "signoff.mcp.command:mcp",
    "threads": "signoff.cli.threads:threads",
    "show": "signoff.cli.threads:show",
    "replay": "signoff.cli.replay:replay",
    "delete": "signoff.cli.delete:delete",
    "verify": "signoff.cli.verify:verify",
}
"""The location of each command, a function. Importing all of them takes two seconds,
and the web application and the workers are extras; one command, or the version, does not need the others.
"""

SUMMARIES: Mapping[str, str] = {
    "run": "Give the model a task and watch it work until it signs off.",
    "resume": "Continue a thread: answer it, decide on its calls, or go on, whatever stopped it.",
    "undo": "Undo the effects of a task that has ended, the newest first.",
    "pause": "Ask the process that runs a thread to pause at its next step.",
    "replay": "Decide a stored thread again, without model and tools, and compare.",
    "fork": "Copy a thread, as it was at some turn, to a new thread; the old one stays.",
    "worker": "Run submitted threads; on a signal they stop and return to the queue.",
    "stats": "Show how tasks ended, how many turns they took, and what to improve.",
    "serve": "Open the application in the browser: threads, conversation, machine, terminal.",
    "acp": "Work in an editor such as Zed, by the Agent Client Protocol.",
    "mcp": "Give tasks to it from other agents, by the Model Context Protocol.",
    "threads": "List the threads: where each stands, and what it waits for.",
    "show": "Show a thread turn by turn: replies, calls, results, and the rules that fired.",
    "delete": "Delete a thread, or all that ended long ago; your files stay as they are.",
    "verify": "Model-check a graph without calling its model or tools.",
}
"""The summary of each command in `signoff --help` and in shell completion: the first paragraph of its own
help, so that listing the commands imports none of them. A command that is missing here is imported to be
listed.
"""


class Loaded(Mapping[str, Any]):
    """The commands by name, each created when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS


@functools.cache
def _command(name: str) -> Any:
    """Returns the command. Raises KeyError for an unknown name."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    command: Any = typer.main.get_command(alone)
    command.rich_help_panel = _panel(name)
    command.get_params = functools.partial(_params, command.get_params)
    return command


def _panel(name: str) -> str:
    return next(panel for panel, names in PANELS.items() if name in names)


def _params(own: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    return _without_types(own(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    """Returns the parameters without their types where these tell nothing in the help.

    That is `<bool>` of a flag, and the type next to an argument's name.

    Where typer asks in another way, they are shown.
    """
    for one in params:
        if one.param_type_name == "argument" or getattr(one, "is_flag", False):
            one.display_type_rich = _no_type
    return params


def _no_type(ctx: Any) -> None:
    return None


def load(words: Sequence[str]) -> None:
    """Imports what the command at the start of `words` needs."""
    if words and words[0] in COMMANDS:
        importlib.import_module(COMMANDS[words[0]].partition(":")[0])


class Sentences(TyperGroup):
    """A program whose errors are reported in one sentence on stderr."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def help_for(self, words: Sequence[str]) -> str:
        """Where to find the help for this command line."""
        return f"See: {self.name} --help"

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        try:
            _check_folder()
            code = super().main(words, *rest, **{**options, "standalone_mode": False})
        except typer.TyperException as error:
            code = _refuse(f"{error.format_message()} {self.help_for(words)}", USAGE, words)
        except SignoffError as error:
            code = _refuse(str(error), ERROR if isinstance(error, IllegalEvent) else USAGE, words)
        except sqlite3.Error as error:
            message = (
                f"The database cannot be used ({error}); repair it, or name another one with --database."
            )
            code = _refuse(message, USAGE, words)
        except Exception as error:
            if os.environ.get("SIGNOFF_DEBUG"):
                raise
            message = (
                f"Something unexpected went wrong ({type(error).__name__}: {error}). The thread is saved; "
                "SIGNOFF_DEBUG=1 shows where."
            )
            code = _refuse(message, ERROR, words)
        sys.exit(code or 0)


class Commands(Sentences):
    """The commands of `signoff`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Loaded()  # type: ignore[assignment]  # never modified

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in PANELS.values() for name in names]

    def help_for(self, words: Sequence[str]) -> str:
        command = f"{words[0]} " if words and words[0] in COMMANDS else ""
        return f"See: signoff {command}--help"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperGroup.format_help(self._listing(), ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        # The words of the command itself: those of a subcommand are completed by that one.
        listing = ctx.command = self._listing()
        return TyperGroup.shell_complete(listing, ctx, incomplete)

    def _listing(self) -> "Commands":
        """Returns these commands with their summaries, for listing, not for calling."""
        listing = copy.copy(self)
        listing.commands = {
            name: TyperCommand(name, help=SUMMARIES[name], rich_help_panel=_panel(name))
            if name in SUMMARIES
            else _command(name)
            for name in COMMANDS
        }
        return listing


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise SetupError("The current folder no longer exists; change to another one.") from error


def _refuse(message: str, code: int, words: Sequence[str]) -> int:
    # Imported only for an error, because the import is slow.
    from signoff.front.report import CommandReport, Exit, print_document
    from signoff.front.text import one_line

    sys.stderr.write(f"{one_line(message)}\n")
    if "--json" in words:
        print_document(CommandReport(None, "error", Exit(code), error=message))
    return code


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="An agent that ends only when it signs off, and continues after anything.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"signoff {importlib.metadata.version('signoff')}")
        raise typer.Exit


@app.callback()
def signoff(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An agent that ends only when it signs off, and continues after anything."""
