"""The console that a command prints to."""

import sys
from typing import Any

from rich.console import Console


def stdout_console() -> Console:
    """A console that writes control codes to a terminal only, whatever the environment asks for."""
    live = sys.stdout.isatty()
    options: dict[str, Any] = {} if live else {"color_system": None, "width": 100}
    return Console(file=sys.stdout, force_terminal=live, highlight=False, **options)
