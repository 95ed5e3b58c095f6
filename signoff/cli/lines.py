"""Happenings as lines: what a person reads while a thread runs, and later in `signoff show`."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from signoff.cli.calls import in_short
from signoff.cli.cards import Card, card
from signoff.cli.drive import Answered, Called, Happening, Reminded, Said, Thought, Wrote
from signoff.cli.safe import cut, one_line, plain

_SAID = 1200
WHY = {
    "talked": "it answered with text only",
    "empty": "its reply was empty",
    "truncated": "its reply was cut off",
    "filtered": "its reply was refused or filtered",
    "near_limit": "few turns are left",
    "refused": "its finish was refused",
    "resumed": "the task goes on",
}


@dataclass
class Lines:
    """Renders happenings in order; a turn's number stands at the first line of the turn.

    `boxed` draws cards as boxes and fits lines to the terminal; else everything is plain, unwrapped text.
    """

    boxed: bool
    turn: int = 0

    def render(self, happening: Happening) -> RenderableType | None:
        """What to print for `happening`; None for one that is not shown as a line."""
        match happening:
            case Wrote(text=text):
                self.turn = 0
                return self._row("you", "bold cyan", Text(cut(plain(text.strip()), _SAID)))
            case Said(turn=turn, text=text):
                return self._numbered(turn, Text(cut(plain(text), _SAID)))
            case Called():
                return self._numbered(happening.turn, *map(_fitted, in_short(happening)))
            case Answered(turn=turn, question=question, answer=answer):
                asked = Text(f"? {one_line(question)}", style="cyan")
                return self._numbered(turn, asked, Text(f"  {one_line(answer)}", style="bold"))
            case Thought(turn=turn):
                return self._numbered(turn, card(_thought(happening), self.boxed))
            case Reminded(why=why):
                return self._row(
                    "", "", Text(f"↻ reminded: {WHY.get(why, one_line(why))}", style="dim yellow")
                )
        return None

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
