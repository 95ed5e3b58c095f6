"""The screen of a terminal and what control functions do to it, on top of pyte's screen.

pyte knows no alternate screen and no scrolling commands, keeps lines that blank ones should replace, erases
with more than the background, and lets savepoints grow without bound. Those parts are replaced here.
"""

from collections import defaultdict, deque
from typing import NamedTuple

from pyte.screens import Cursor, Margins, StaticDefaultDict
from textual.strip import Strip

from signoff.ui.screen_cells import PLAIN, Line, strip
from signoff.ui.screen_text import Drawn


class _Main(NamedTuple):
    """The main screen while the alternate one is shown."""

    buffer: dict[int, Line]
    cursor: Cursor
    margins: Margins | None
    saved: Cursor
    size: tuple[int, int]


class Grid(Drawn):
    """A screen of `lines` by `columns`, with the lines that scrolled off its top in `history`."""

    def __init__(self, columns: int, lines: int, history: int) -> None:
        self.history: deque[Strip] = deque(maxlen=history)
        self.scrolled_off = 0
        """How many lines ever went into the history."""
        self._main: _Main | None = None
        self._saved = Cursor(0, 0, PLAIN)
        super().__init__(columns, lines)

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has a screen of its own."""
        return self._main is not None

    def reset(self) -> None:
        self.leave()
        super().reset()
        self.cursor = Cursor(0, 0, PLAIN)
        self._saved = Cursor(0, 0, PLAIN)

    # --- scrolling ---

    def scroll(self, count: int, top: int | None = None) -> None:
        """Moves the lines between `top` (else the margin) and the lower margin up, or down below zero."""
        margins = self.margins or Margins(0, self.lines - 1)
        first, last = margins.top if top is None else top, margins.bottom
        rows = [self.buffer[y] for y in range(first, last + 1)]
        blanks = [self._blank() for _ in range(min(abs(count), len(rows)))]
        if count > 0:
            if first == 0 and top is None and not self.alternate:
                self._keep(rows[: len(blanks)])
            rows = rows[len(blanks) :] + blanks
        else:
            rows = blanks + rows[: len(rows) - len(blanks)]
        self.buffer.update(zip(range(first, last + 1), rows, strict=True))
        self.dirty.update(range(first, last + 1))

    def _keep(self, rows: list[Line]) -> None:
        self.history.extend(strip(row, self.columns) for row in rows)
        self.scrolled_off += len(rows)

    def _blank(self) -> Line:
        return StaticDefaultDict(PLAIN._replace(bg=self.cursor.attrs.bg))

    def index(self) -> None:
        bottom = self.margins.bottom if self.margins else self.lines - 1
        if self.cursor.y == bottom:
            self.scroll(1)
        else:
            self.cursor.y = min(self.cursor.y + 1, self.lines - 1)

    def reverse_index(self) -> None:
        if self.cursor.y == (self.margins.top if self.margins else 0):
            self.scroll(-1)
        else:
            self.cursor.y = max(self.cursor.y - 1, 0)

    def insert_lines(self, count: int | None = None) -> None:
        self._move_lines(-(count or 1))

    def delete_lines(self, count: int | None = None) -> None:
        self._move_lines(count or 1)

    def _move_lines(self, count: int) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if top <= self.cursor.y <= bottom:
            self.scroll(count, self.cursor.y)
            self.carriage_return()

    # --- erasing ---

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        x = min(self.cursor.x, self.columns - 1)
        self._erase(self.cursor.y, *{0: (x, None), 1: (0, x + 1)}.get(how, (0, None)))

    def erase_in_display(self, how: int = 0, *_: object, **__: object) -> None:
        if how == 3:
            self.history.clear()
        elif how <= 2:
            first = self.cursor.y + 1 if how == 0 else 0
            for y in range(first, self.cursor.y if how == 1 else self.lines):
                self._erase(y, 0, None)
            if how < 2:
                self.erase_in_line(how)

    def erase_characters(self, count: int | None = None) -> None:
        x = min(self.cursor.x, self.columns - 1)
        self._erase(self.cursor.y, x, min(x + (count or 1), self.columns))

    def _erase(self, y: int, start: int, end: int | None) -> None:
        """Erases cells of a line; without an `end` also those that only a wider screen would show."""
        self.dirty.add(y)
        if start == 0 and end is None:
            self.buffer[y] = self._blank()
            return
        line, blank = self.buffer[y], self._blank().default
        if end is None:
            for x in [x for x in line if x >= start]:
                del line[x]
            if blank == line.default:
                return
        line.update(dict.fromkeys(range(start, end or self.columns), blank))

    # --- cursor, modes, size ---

    def save_cursor(self) -> None:
        self._saved = _copy(self.cursor)

    def restore_cursor(self) -> None:
        hidden, self.cursor = self.cursor.hidden, _copy(self._saved)
        self.cursor.hidden = hidden
        self.ensure_hbounds()
        self.ensure_vbounds()

    def cursor_to_line(self, line: int | None = None) -> None:
        self.cursor_position(line, min(self.cursor.x, self.columns - 1) + 1)

    def next_line(self) -> None:
        """Moves the cursor to the beginning of the next line."""
        self.carriage_return()
        self.index()

    def tab(self) -> None:
        self.forward_tab(1)

    def forward_tab(self, count: int) -> None:
        """Moves the cursor by so many tab stops, at most to the end of the line."""
        stops = sorted(stop for stop in self.tabstops if self.cursor.x < stop < self.columns)
        self.cursor.x = [*stops, self.columns - 1][min(max(count, 1) - 1, len(stops))]

    def back_tab(self, count: int) -> None:
        """Moves the cursor back by so many tab stops, at most to the beginning of the line."""
        stops = sorted((stop for stop in self.tabstops if stop < self.cursor.x), reverse=True)
        self.cursor.x = [*stops, 0][min(max(count, 1) - 1, len(stops))]

    def enter(self) -> None:
        """Shows a blank screen in place of the main one, until `leave`."""
        if self._main is None:
            size = (self.columns, self.lines)
            self._main = _Main(self.buffer, _copy(self.cursor), self.margins, self._saved, size)
            self.buffer = defaultdict(lambda: StaticDefaultDict(PLAIN))
            self.margins = None
            self.dirty.update(range(self.lines))

    def leave(self) -> None:
        """Shows the main screen as it was, in the size that the screen has now."""
        if self._main is None:
            return
        main, size, hidden = self._main, (self.lines, self.columns), self.cursor.hidden
        self._main = None
        self.buffer, self.cursor, self.margins, self._saved = main[:4]
        self.columns, self.lines = main.size
        self.cursor.hidden = hidden
        self.resize(*size)
        self.dirty.update(range(self.lines))

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        if (lines, columns) == (self.lines, self.columns):
            return
        self.margins = None
        off = max(0, self.cursor.y + 1 - lines)
        if off:
            self.scroll(off)
            self.cursor.y -= off
        for y in [y for y in self.buffer if y >= lines]:
            del self.buffer[y]
        self.tabstops.update(range(self.columns + -self.columns % 8, columns, 8))
        self.lines, self.columns = lines, columns
        self.ensure_hbounds()
        self.ensure_vbounds()
        self.dirty = set(range(lines))


def _copy(cursor: Cursor) -> Cursor:
    result = Cursor(cursor.x, cursor.y, cursor.attrs)
    result.hidden = cursor.hidden
    return result
