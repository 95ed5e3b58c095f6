"""How the command line is run: whatever goes wrong is one sentence on stderr, and an exit code."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from signoff.cli import report
from signoff.cli.report import Exit, Report
from signoff.cli.safe import one_line
from signoff.graph.errors import IllegalEvent, SetupError, SignoffError


class Commands(TyperGroup):
    """The commands; whatever is wrong with a command line is told in one sentence on stderr."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        try:
            _check_folder()
            code = super().main(words, *rest, **{**options, "standalone_mode": False})
        except typer.TyperException as error:
            code = _refuse(error.format_message(), Exit.USAGE, words)
        except SignoffError as error:
            broken = isinstance(error, IllegalEvent)
            code = _refuse(str(error), Exit.ERROR if broken else Exit.USAGE, words)
        except sqlite3.Error as error:
            told = (
                f"The database cannot be used ({error}); put it right, or name another one with --database."
            )
            code = _refuse(told, Exit.USAGE, words)
        except Exception as error:
            if os.environ.get("SIGNOFF_DEBUG"):
                raise
            told = (
                f"Something unexpected went wrong ({type(error).__name__}: {error}). The thread is saved; "
                "SIGNOFF_DEBUG=1 shows where."
            )
            code = _refuse(told, Exit.ERROR, words)
        sys.exit(code or 0)


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise SetupError("The folder that you are in does not exist any more; go to another one.") from error


def _refuse(told: str, code: Exit, words: Sequence[str]) -> Exit:
    sys.stderr.write(f"{one_line(told)}\n")
    if "--json" in words:
        report.print_document(Report(None, "error", code, error=told))
    return code
