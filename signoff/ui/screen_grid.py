"""The cells of a terminal's screen, and the drawing and control functions on them, on top of pyte."""

import unicodedata
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from pyte import modes
from pyte.charsets import VT100_MAP
from pyte.screens import Char, Cursor, Margins, Screen, StaticDefaultDict
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from signoff.front.text import is_unseen

Line = StaticDefaultDict[int, Char]
Look = tuple[Any, ...]

PLAIN = Char(" ")
"""An empty cell. Colours are "default", "0" to "255", or "#rrggbb"; `blink` stands for faint text."""

_MOST_MARKS = 3
_LOOK = itemgetter(slice(1, None))
_UNSEEN = "\ufffd"
# Joiners, the emoji style and skin colours: left out, because terminals disagree on their width.
_LEFT_OUT = {0x200C, 0x200D, 0xFE0F, *range(0x1F3FB, 0x1F400)}
_OWN_LOOK = {0xA0: " ", 0xAD: "-"}
_SWITCHES: dict[int, dict[str, Any]] = {
    1: {"bold": True},
    2: {"blink": True},
    3: {"italics": True},
    4: {"underscore": True},
    7: {"reverse": True},
    9: {"strikethrough": True},
    21: {"underscore": True},
    22: {"bold": False, "blink": False},
    23: {"italics": False},
    24: {"underscore": False},
    27: {"reverse": False},
    29: {"strikethrough": False},
}
_MOST_KNOWN = 1_024
_LINES_AND_CORNERS = {code: VT100_MAP[code] for code in range(0x5F, 0x7F)}


@lru_cache(maxsize=4096)
def visible_character(character: str) -> str:
    """Returns what to draw for a non-ASCII character: usually itself, or nothing, or a visible symbol.

    Control characters, and those that reorder or hide text, must not reach a real terminal.
    """
    code = ord(character)
    if code in _LEFT_OUT:
        return ""
    if code in _OWN_LOOK:
        return _OWN_LOOK[code]
    category = unicodedata.category(character)
    if category in ("Cc", "Cn", "Cs"):
        return _UNSEEN
    # Programs draw with all kinds of spaces, and with the empty Braille cell.
    spacing = category == "Zs" or code == 0x2800
    return f"⟨U+{code:04X}⟩" if is_unseen(character) and not spacing else character


@lru_cache(maxsize=4096)
def width(character: str) -> int:
    """Returns how many cells a character takes: 1 or 2, or 0 if it joins the character before it."""
    return cell_len(character)


def joined(cell: Char, mark: str) -> Char:
    """Returns the cell with another combining mark, unless it has enough or would change its width."""
    data = unicodedata.normalize("NFC", cell.data + mark)
    if len(data) > 1 + _MOST_MARKS or cell_len(data) != cell_len(cell.data):
        return cell
    return cell._replace(data=data)


def painted(cell: Char, groups: list[list[int]]) -> Char:
    """Returns the cell with the colours and styles of an SGR sequence."""
    rest = list(reversed(groups))
    while rest:
        code, *more = rest.pop()
        if code == 0:
            cell = PLAIN
        elif code == 4 and more[:1] == [0]:
            cell = cell._replace(underscore=False)
        elif code in _SWITCHES:
            cell = cell._replace(**_SWITCHES[code])
        elif code in (38, 48):
            found = _colour(more or _following(rest))
            if found:
                cell = cell._replace(fg=found) if code == 38 else cell._replace(bg=found)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            cell = cell._replace(fg=str(code - 30 if code < 90 else code - 82))
        elif 40 <= code <= 47 or 100 <= code <= 107:
            cell = cell._replace(bg=str(code - 40 if code < 100 else code - 92))
        elif code == 39:
            cell = cell._replace(fg="default")
        elif code == 49:
            cell = cell._replace(bg="default")
    return cell


def _following(rest: list[list[int]]) -> list[int]:
    """Returns the numbers of a colour that semicolons separate."""
    kind = rest.pop()[0] if rest else 0
    count = {5: 1, 2: 3}.get(kind, 0)
    return [kind, *(rest.pop()[0] for _ in range(min(count, len(rest))))]


def _colour(numbers: list[int]) -> str | None:
    kind, *values = numbers
    if any(value > 255 for value in values):
        return None
    if kind == 5 and values:
        return str(values[0])
    if kind == 2 and len(values) >= 3:
        # With four numbers the first is a colour space.
        red, green, blue = values[1:4] if len(values) > 3 else values
        return f"#{red:02x}{green:02x}{blue:02x}"
    return None


def strip(line: Line, columns: int) -> Strip:
    """Returns the first `columns` cells of a line."""
    count = columns if line.default != PLAIN else min(columns, max(line, default=-1) + 1)
    cells = [line[x] for x in range(count)]
    text = "".join([cell.data for cell in cells])
    if len(text) != count or not text.isascii():
        cells = _whole(cells)
    segments = [_segment(list(group), look) for look, group in groupby(cells, key=_LOOK)]
    return Strip([*segments, Segment(" " * (columns - count))], columns)


def highlighted(line: Strip, x: int, cells: int, look: Style) -> Strip:
    """Returns the line with so many of its cells, from `x` on, in another style."""
    middle = line.crop(x, x + cells)
    return Strip.join(
        [line.crop(0, x), Strip(Segment.apply_style(middle, post_style=look), cells), line.crop(x + cells)]
    )


def _whole(cells: list[Char]) -> list[Char]:
    """Returns the cells, with blanks for halves of wide characters whose other half was overwritten."""
    result: list[Char] = []
    for x, cell in enumerate(cells):
        follows = x + 1 < len(cells) and not cells[x + 1].data
        if cell.data and (cell.data.isascii() or (width(cell.data[0]) == 2) == follows):
            result.append(cell)
        elif not cell.data and x and width(result[x - 1].data[:1] or " ") == 2:
            result.append(result[x - 1]._replace(data=""))
        else:
            result.append(cell._replace(data=" "))
    return result


def _segment(cells: list[Char], look: Look) -> Segment:
    text = "".join([cell.data for cell in cells])
    if not text.isascii() and cell_len(text) != len(cells):
        # Characters that are one when adjacent, such as the two halves of a flag.
        text = "".join(cell.data if cell.data.isascii() else _UNSEEN for cell in cells).ljust(len(cells))
    return Segment(text, style(look))


@lru_cache(maxsize=4096)
def style(look: Look) -> Style | None:
    """Returns the style of a cell with these fields after its text; None for plain text."""
    if look == _LOOK(PLAIN):
        return None
    cell = Char(" ", *look)
    return Style(
        color=_rich(cell.fg),
        bgcolor=_rich(cell.bg),
        bold=cell.bold or None,
        dim=cell.blink or None,
        italic=cell.italics or None,
        underline=cell.underscore or None,
        reverse=cell.reverse or None,
        strike=cell.strikethrough or None,
    )


def _rich(colour: str) -> Color | None:
    if colour == "default":
        return None
    return Color.parse(colour) if colour.startswith("#") else Color.from_ansi(int(colour))


class Drawn(Screen):
    """A pyte screen that draws text itself: wide, combined and special characters, wrapping, insertion.

    pyte drops what follows a zero-width character, lets combined characters grow without bound, and is slow.
    """

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
                for each in character if character.isascii() else visible_character(character):
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
                # All other characters would overwrite each other in the last column.
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
        """Makes room for a character of so many cells if the cursor is at the end of the line."""
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
        """Repeats the character before the cursor, for at most one line."""
        x = min(self.cursor.x, self.columns) - 1
        if x >= 0 and (data := self.buffer[self.cursor.y][x].data):
            self.draw(data[0] * min(count, self.columns))

    def choose_set(self, which: int, code: str) -> None:
        """Sets character set 0 or 1 to line drawing (`0`) or to the ordinary one."""
        self._graphic[which] = code == "0"


class _Main(NamedTuple):
    """The main screen while the alternate one is shown."""

    buffer: dict[int, Line]
    cursor: Cursor
    margins: Margins | None
    saved: Cursor
    size: tuple[int, int]


class Grid(Drawn):
    """A screen of `lines` by `columns`, with the lines that scrolled off its top in `history`.

    pyte has no alternate screen and no scrolling commands, keeps lines that blank ones should replace, erases
    with more attributes than the background, and lets savepoints grow without bound. These parts are replaced
    here.
    """

    def __init__(self, columns: int, lines: int, history: int) -> None:
        self.history: deque[Strip] = deque(maxlen=history)
        self.scrolled_off = 0
        """How many lines were ever added to the history."""
        self._main: _Main | None = None
        self._saved = Cursor(0, 0, PLAIN)
        super().__init__(columns, lines)

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program uses the alternate screen."""
        return self._main is not None

    def reset(self) -> None:
        self.leave()
        super().reset()
        self.cursor = Cursor(0, 0, PLAIN)
        self._saved = Cursor(0, 0, PLAIN)

    # --- scrolling ---

    def scroll(self, count: int, top: int | None = None) -> None:
        """Moves the lines from `top` (default: the upper margin) to the lower margin up; down if negative."""
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
        """Erases cells of a line; without `end` also those that only a wider screen would show."""
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
