"""Drawing text into the cells of a screen: wide, combined and strange characters, wrapping, insertion.

pyte drops what follows a zero-width character, lets combined characters grow without bound, and is slow.
"""

from collections.abc import Iterator

from pyte import modes
from pyte.charsets import VT100_MAP
from pyte.screens import Char, Screen

from signoff.ui.screen_cells import PLAIN, joined, shown, width

_MOST_KNOWN = 1_024
_LINES_AND_CORNERS = {code: VT100_MAP[code] for code in range(0x5F, 0x7F)}


class Drawn(Screen):
    """A screen of pyte whose text is drawn here."""

    def __init__(self, columns: int, lines: int) -> None:
        self._graphic = {0: False, 1: False}
        self._known: dict[str, Char] = {}
        self._known_for: Char = PLAIN
        super().__init__(columns, lines)

    @property
    def default_char(self) -> Char:
        return PLAIN

    def reset(self) -> None:
        super().reset()
        self._graphic = {0: False, 1: False}

    def draw(self, data: str) -> None:
        if self._graphic[self.charset]:
            data = data.translate(_LINES_AND_CORNERS)
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_plain(data)
        else:
            for character in data:
                for each in character if character.isascii() else shown(character):
                    self._put(each)
        self.dirty.add(self.cursor.y)

    def _draw_plain(self, data: str) -> None:
        at = 0
        while at < len(data):
            self._wrap(1)
            x = self.cursor.x
            part = data[at : at + self.columns - x]
            self.buffer[self.cursor.y].update(zip(range(x, x + len(part)), self._cells(part), strict=True))
            self.cursor.x += len(part)
            at += len(part)
            if modes.DECAWM not in self.mode and self.cursor.x == self.columns:
                # Everything else would go to the last column, one over the other.
                at = max(at, len(data) - 1)

    def _put(self, character: str) -> None:
        cells = width(character)
        if cells > self.columns:
            character, cells = "\ufffd", 1
        if not cells:
            self._combine(character)
            return
        self._wrap(cells)
        if modes.IRM in self.mode:
            self.insert_characters(cells)
        line, x = self.buffer[self.cursor.y], self.cursor.x
        (line[x],) = self._cells(character)
        if cells == 2:
            line[x + 1] = self.cursor.attrs._replace(data="")
        self.cursor.x += cells

    def _combine(self, mark: str) -> None:
        line, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and not line[x].data:
            x -= 1
        if x >= 0 and line[x].data:
            line[x] = joined(line[x], mark)

    def _wrap(self, cells: int) -> None:
        """Makes room for a character of so many cells where the cursor is at the end of the line."""
        if self.cursor.x + cells <= self.columns:
            return
        if modes.DECAWM in self.mode:
            self.dirty.add(self.cursor.y)
            self.carriage_return()
            self.index()
        else:
            self.cursor.x = self.columns - cells

    def _cells(self, characters: str) -> Iterator[Char]:
        if self._known_for is not self.cursor.attrs or len(self._known) > _MOST_KNOWN:
            self._known, self._known_for = {}, self.cursor.attrs
        for each in characters:
            cell = self._known.get(each)
            if cell is None:
                cell = self._known[each] = self._known_for._replace(data=each)
            yield cell

    def repeat(self, count: int) -> None:
        """Draws the character before the cursor again, at most a line of it."""
        x = min(self.cursor.x, self.columns) - 1
        if x >= 0 and (data := self.buffer[self.cursor.y][x].data):
            self.draw(data[0] * min(count, self.columns))

    def choose_set(self, which: int, code: str) -> None:
        """Makes the character set 0 or 1 the one with lines and corners (`0`) or the ordinary one."""
        self._graphic[which] = code == "0"
