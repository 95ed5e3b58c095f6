"""Events as lines: what a person reads while a thread runs, and later in `signoff show`."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from signoff.cli.calls import in_short
from signoff.cli.cards import Card, card
from signoff.cli.safe import cut, one_line, plain
from signoff.session.events import Answered, CallFinished, Event, Nudged, Said, Thought, Wrote

_SAID = 1200
WHY = {
    "talked": "it answered with text only",
    "empty": "its reply was empty",
    "reasoning": "it only thought",
    "truncated": "its reply was cut off",
    "filtered": "its reply was refused or filtered",
    "near_limit": "a limit is near",
    "repeating": "it does the same again and again",
    "round": "look at what came before the next round",
    "refused": "its finish was refused",
    "sent_back": "its finish was sent back",
}


@dataclass
class Lines:
    """Renders events in order; a turn's number stands at the first line of the turn.

    `boxed` draws cards as boxes and fits lines to the terminal; else everything is plain, unwrapped text.
    asked: the question that a card has just shown; only its answer is told then.
    """

    boxed: bool
    turn: int = 0
    asked: str = ""

    def render(self, event: Event) -> RenderableType | None:
        """What to print for `event`; None for one that is not shown as a line."""
        match event:
            case Wrote(text=text, answers=False):
                self.turn = 0
                return self._row("you", "bold cyan", Text(cut(plain(text.strip()), _SAID)))
            case Said(turn=turn) if said := event.text if event.beside is None else event.beside:
                return self._numbered(turn, Text(cut(plain(said), _SAID)))
            case CallFinished():
                return self._numbered(event.turn, *map(_fitted, in_short(event)))
            case Answered(turn=turn, question=question, answer=answer):
                asked = [] if question == self.asked else [Text(f"? {one_line(question)}", style="cyan")]
                return self._numbered(turn, *asked, Text(f"  {one_line(answer)}", style="bold"))
            case Thought(turn=turn):
                return self._numbered(turn, card(_thought(event), self.boxed))
            case Nudged(why=why):
                told = "the task goes on" if why == "resumed" else f"reminded: {WHY.get(why, one_line(why))}"
                return self._row("", "", Text(f"↻ {told}", style="dim yellow"))
        return None

    def remark(self, turn: int, text: str) -> RenderableType:
        """A line about a turn: the way of the machine through it."""
        return self._numbered(turn, Text(text, style="dim"))

    def _numbered(self, turn: int, *parts: RenderableType) -> RenderableType:
        fresh, self.turn = turn != self.turn, turn
        return self._row(str(turn) if fresh else "", "bold", *parts)

    def _row(self, mark: str, style: str, *parts: RenderableType) -> RenderableType:
        if not self.boxed:
            return _indented(mark, parts)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(width=3, justify="right", style=style)
        row.add_column(ratio=1, overflow="fold")
        row.add_row(Text(mark), Group(*parts))
        return row


def _indented(mark: str, parts: tuple[RenderableType, ...]) -> RenderableType:
    lines = "\n".join(str(part) for part in parts).split("\n")
    marks = [mark, *[""] * (len(lines) - 1)]
    return Text("\n".join(f"{left:>3} {line}".rstrip() for left, line in zip(marks, lines, strict=True)))


def _fitted(line: Text) -> Text:
    """One line of the terminal, the rest of it cut off."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _thought(thought: Thought) -> Card:
    facts = [f"{name}: {one_line(str(text))}" for name, text in
             (("approach", thought.approach), ("status", thought.status)) if text]  # fmt: skip
    return Card("think", "blue", cut(plain(thought.text.strip()), _SAID), facts)
