"""The status line: what goes on, turn n of N, tokens, working time, model and thread."""

import time
from dataclasses import dataclass

from rich.text import Text
from textual.widgets import Static

from signoff.cli.safe import cut, one_line
from signoff.graph.foreign import counted
from signoff.session.events import Entered

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_NAME = 40


@dataclass
class Facts:
    """What the line says. word: what goes on, in one or two words. seconds: of work in the current task, up
    to when the run began."""

    word: str = "ready"
    style: str = "dim"
    turn: int = 0
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    thread: str = ""
    begun: float | None = None


class Status(Static):
    """Renders the facts, four times a second while something goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts()

    def on_mount(self) -> None:
        self.set_interval(0.25, self._tick)

    def begin(self, seconds: float) -> None:
        """The thread runs from now on; it has worked for so long already."""
        self.facts.seconds, self.facts.begun = seconds, time.monotonic()
        self.tell("starting", "bold cyan")

    def worked(self, seconds: float) -> None:
        """So long has been worked in the current task, by what is saved; until more is known nothing runs."""
        self.facts.seconds, self.facts.begun = seconds, None

    def end(self, word: str, style: str) -> None:
        if self.facts.begun is not None:
            self.facts.seconds += time.monotonic() - self.facts.begun
        self.facts.begun = None
        self.tell(word, style)

    def tell(self, word: str, style: str) -> None:
        self.facts.word, self.facts.style = word, style
        self.refresh()

    def entered(self, event: Entered) -> None:
        thinking = 1 if event.state == "call_llm" else 0
        self.facts.turn, self.facts.turns = min(event.turn + thinking, event.turns), event.turns
        self.facts.tokens = event.tokens
        self.tell(str(event.state), "bold cyan")

    def streamed(self) -> None:
        """A piece of a reply came in: about a token."""
        self.facts.tokens += 1

    def render(self) -> Text:
        facts, now = self.facts, time.monotonic()
        spinner = _SPINNER[int(now * 8) % len(_SPINNER)] if facts.begun is not None else "●"
        minutes, seconds = divmod(int(facts.seconds + (now - facts.begun if facts.begun else 0)), 60)
        parts = [f"turn {facts.turn} of {facts.turns}"] if facts.turns else []
        parts += [counted(facts.tokens, "token")] if facts.tokens else []
        parts += [f"{minutes}:{seconds:02} active"]
        parts += [cut(one_line(part), _NAME) for part in (facts.model, facts.thread) if part]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {spinner} {facts.word}  ", style=facts.style)
        return text.append(" · ".join(parts), style="dim")

    def _tick(self) -> None:
        if self.facts.begun is not None:
            self.refresh()
