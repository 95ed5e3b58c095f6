"""The machine as a live picture: states, edges with how often each was taken, the current state lit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from signoff.graph.drawing.layout import MAIN_PATH, PAUSES
from signoff.graph.machine import State, edges
from signoff.ui.story import Edge

_EDGES: Mapping[State, Mapping[State, str]] = edges()
_MOST_ROWS = len(_EDGES) + sum(map(len, _EDGES.values()))


class _Row(NamedTuple):
    """One line of the picture, and the number at its end."""

    text: Text
    number: Text
    lit: bool = False


class MachineView(Static):
    """Shows where the machine stands in the current task and which way it came.

    Where there is no room for all edges, those that were never taken are left out, except the ones that
    lead away from the current state; where there is still none, the part around that state is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.border_title = "machine"
        self.at: State | None = None
        self.taken: Counter[Edge] = Counter()
        self.last: Edge | None = None

    def reset(self, at: State | None = None, taken: Counter[Edge] | None = None) -> None:
        """Shows another task."""
        self.at, self.taken, self.last = at, Counter(taken or ()), None
        self.refresh(layout=True)

    def enter(self, state: State, source: State) -> None:
        """The machine went from `source` to `state`."""
        self.at, self.last = state, (source, state)
        self.taken[source, state] += 1
        self.refresh(layout=True)

    def render(self) -> RenderableType:
        every = self.size.height >= _MOST_ROWS
        rows = [row for state in _EDGES for row in self._rows(state, every)]
        height = max(1, self.size.height)
        lit = next((place for place, row in enumerate(rows) if row.lit), 0)
        first = max(0, min(lit - height // 2, len(rows) - height))
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1, no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        for row in rows[first : first + height]:
            grid.add_row(row.text, row.number)
        return grid

    def _rows(self, state: State, every: bool) -> Iterator[_Row]:
        lit, visits = state is self.at, self._visits(state)
        style = f"bold {_colour(state)}" if visits or lit else "dim"
        name = Text(f" {state} ", style=f"{style} reverse" if lit else style)
        yield _Row(Text.assemble("● " if lit else "  ", name), Text(str(visits or ""), style="bold"), lit)
        shown = [to for to in _EDGES[state] if every or lit or self.taken[state, to]]
        for to in shown:
            yield _Row(*self._edge(state, to, to is shown[-1]))

    def _edge(self, state: State, to: State, is_last: bool) -> tuple[Text, Text]:
        count, now = self.taken[state, to], (state, to) == self.last
        style = "bold yellow" if now else "" if count else "dim"
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"   {'└' if is_last else '├'}{'━' if now else '─'}▶ ", style="yellow" if now else "dim")
        text.append(f"{to:<12}", style=style)
        text.append(_EDGES[state][to], style="yellow" if now else "dim")
        return text, Text(str(count or ""), style=style)

    def _visits(self, state: State) -> int:
        left = sum(count for (source, _), count in self.taken.items() if source is state)
        entered = sum(count for (_, to), count in self.taken.items() if to is state)
        return max(left, entered)


def _colour(state: State) -> str:
    if state is State.FINISH:
        # How it ended is for the card to say.
        return "white"
    return "magenta" if state in PAUSES else "blue" if state in MAIN_PATH else "cyan"
