"""The console that a command prints to."""

import os
import sys
from typing import Any

from rich.console import Console


def stdout_console() -> Console:
    """Returns a console that moves the cursor only in a terminal.

    Elsewhere it uses colours if FORCE_COLOR asks for them and NO_COLOR does not forbid them.
    """
    live = sys.stdout.isatty()
    forced = os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR")
    options: dict[str, Any] = {} if live else {"color_system": "256" if forced else None, "width": 100}
    return Console(file=sys.stdout, force_terminal=live, highlight=False, **options)
