"""What a terminal shows below what has happened so far, while something runs."""

import time

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from signoff.cli.safe import one_line
from signoff.cli.streamed import Streamed
from signoff.cli.tail import Tail
from signoff.graph.foreign import counted
from signoff.session.events import CallStarted, Entered

_LIVE_LINES = 8


class LiveArea:
    """What a command writes now, and a line with state, turn n of N, tokens and time."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.entered: Entered | None = None
        self.running: CallStarted | None = None
        self.streamed: Streamed | None = None
        self.spinner = Spinner("dots", style="cyan")
        self.tail = Tail()

    def __rich__(self) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        row.add_row(self.spinner, _fitted(self._text()))
        call = self.running
        if call is None or call.name != "run_shell":
            return row
        head = Text.assemble(("    $ ", "dim"), (one_line(str(call.args.get("command", ""))), "bold"))
        lines = [Text(f"      {line}", style="dim") for line in self.tail.lines(_LIVE_LINES)]
        return Group(*map(_fitted, [head, *lines]), row)

    def _text(self) -> Text:
        now, coming = self.entered, self.streamed.pieces if self.streamed else 0
        if now is None:
            return Text("starting", style="bold")
        thinking = 1 if now.state == "call_llm" else 0
        parts = [f"turn {min(now.turn + thinking, now.turns)} of {now.turns}"]
        if now.tokens or coming:
            parts.append(counted(now.tokens + coming, "token"))
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        parts.append(f"{minutes}:{seconds:02}")
        state = f"{now.state} {one_line(self.running.name) if self.running else ''}".strip()
        return Text.assemble((state, "bold"), ("  " + " · ".join(parts), "dim"))


def _fitted(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
