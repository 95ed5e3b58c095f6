"""The screen of a terminal: takes whatever bytes a program writes, gives back harmless lines."""

import re
from collections.abc import Callable

from pyte import modes
from rich.style import Style
from textual.strip import Strip

from signoff.ui.screen_cells import PLAIN, highlighted, painted, strip
from signoff.ui.screen_escapes import Escapes, grouped_numbers, numbers
from signoff.ui.screen_functions import control_characters, control_sequences, escape_sequences, nothing
from signoff.ui.screen_grid import Grid

HISTORY = 3_000
"""How many lines are kept that scrolled off the top."""

_MOST_ANSWERED = 256
_MARK = re.compile(r"133;([AC])(?:;|\Z)")
_PRIVATE_MODES = {6: modes.DECOM, 7: modes.DECAWM, 25: modes.DECTCEM}
_ORDINARY_MODES = {4: modes.IRM, 20: modes.LNM}
_ALTERNATE = (47, 1047, 1049)


class TerminalScreen:
    """A screen of `rows` lines of `cols` cells, fed with the bytes that a program writes to its terminal.

    Whatever the bytes are, nothing raises and nothing is passed through: titles, clipboard, links and other
    strings for a terminal are dropped, deceiving characters are shown as symbols. What programs ask the
    terminal (where the cursor is, what it is) is answered in `answers` alone.
    """

    def __init__(self, rows: int = 24, cols: int = 80, *, history: int = HISTORY) -> None:
        self._grid = Grid(max(cols, 1), max(rows, 1), history)
        self._escapes = Escapes()
        self._answers = b""
        self._prompt: tuple[int, int] | None = None
        self._control: dict[str, Callable[[], object]] = control_characters(self._grid)
        self._escape: dict[str, Callable[[], object]] = escape_sequences(self._grid)
        self._csi: dict[str, Callable[[int], object]] = control_sequences(self._grid)
        self.application_cursor = False
        """Whether a program wants the cursor keys of `?1`."""
        self.bracketed_paste = False
        """Whether a program wants to know what is pasted (`?2004`)."""

    @property
    def rows(self) -> int:
        return self._grid.lines

    @property
    def cols(self) -> int:
        return self._grid.columns

    @property
    def cursor(self) -> tuple[int, int] | None:
        """Column and row of the cursor, from 0; None while a program hides it."""
        cursor = self._grid.cursor
        return None if cursor.hidden else (min(cursor.x, self.cols - 1), cursor.y)

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has the screen."""
        return self._grid.alternate

    @property
    def history_lines(self) -> int:
        """How many lines scrolled off the top and are still known."""
        return len(self._grid.history)

    @property
    def scrolled_off(self) -> int:
        """How many lines ever scrolled off the top."""
        return self._grid.scrolled_off

    @property
    def text(self) -> list[str]:
        """The lines of the screen, without the blanks at their ends."""
        return [self.line(y).text.rstrip() for y in range(self.rows)]

    def line(self, y: int) -> Strip:
        """A line as it looks, 0 being the top of the screen; below 0 lines of the history."""
        if y >= 0:
            return strip(self._grid.buffer[y], self.cols)
        return self._grid.history[y].adjust_cell_length(self.cols)

    def line_with_cursor(self, y: int, look: Style) -> Strip:
        """The line, with the cursor in the style `look` when it is there."""
        line, cursor = self.line(y), self.cursor
        if cursor is None or cursor[1] != y:
            return line
        x, cells = cursor[0], self._grid.buffer[y]
        wide = x + 1 < self.cols and not cells[x + 1].data
        return highlighted(line, x, 2 if wide and cells[x].data else 1, look)

    def changed(self) -> set[int]:
        """The lines that may look otherwise than at the last call."""
        found = {y for y in self._grid.dirty if 0 <= y < self.rows}
        self._grid.dirty.clear()
        return found

    def resize(self, rows: int, cols: int) -> None:
        """Makes the screen another size; what no longer fits above goes to the history."""
        before = self.scrolled_off
        self._grid.resize(max(rows, 1), max(cols, 1))
        self._prompt_moved(before)

    def answers(self) -> bytes:
        """What the program is to be told, for its input; at most a few hundred bytes, and only once."""
        found, self._answers = self._answers, b""
        return found

    def feed(self, data: bytes) -> None:
        """Shows what a program wrote."""
        for token in self._escapes.split(data):
            before = self.scrolled_off
            kind = token.lastgroup
            if kind == "text":
                self._grid.draw(token["text"])
            elif kind == "control":
                self._control.get(token["control"], nothing)()
                if token["control"] == "\n" and not self.alternate:
                    # Somebody has entered what was typed at the prompt.
                    self._prompt = None
            elif kind == "csi":
                self._run_csi(token)
            elif kind == "escape":
                self._run_escape(token["escape"])
            elif kind == "osc" and (found := _MARK.match(token["osc"])):
                self._marked(found[1])
            if self.scrolled_off != before:
                self._prompt_moved(before)

    def say(self, words: str, *, over_prompt: bool = False) -> None:
        """Shows `words`, which may hold escape sequences of ours, on lines of their own.

        over_prompt: in place of the shell's prompt and what was typed there. While a full-screen program
        has the screen nothing is shown.
        """
        if self.alternate:
            return
        grid = self._grid
        grid.margins, grid.cursor.attrs = None, PLAIN
        grid.mode |= {modes.DECAWM}
        grid.mode -= {modes.IRM, modes.DECOM}
        if not (over_prompt and self._erase_prompt()) and grid.cursor.x:
            grid.next_line()
        # The first character ends a sequence that was begun and not finished.
        self.feed(b"\x18" + words.replace("\n", "\r\n").encode() + b"\x1b[m\r\n")

    def _marked(self, kind: str) -> None:
        if self.alternate:
            return
        if kind == "C":
            # The agent's command begins; a prompt that came late, or is still there, is not its own.
            self._erase_prompt()
            return
        if self._grid.cursor.x:
            self._grid.next_line()
        self._prompt = (self._grid.cursor.x, self._grid.cursor.y)

    def _erase_prompt(self) -> bool:
        if self._prompt is None:
            return False
        self._grid.cursor.x, self._grid.cursor.y = self._prompt
        self._grid.erase_in_display(0)
        self._prompt = None
        return True

    def _prompt_moved(self, before: int) -> None:
        if self._prompt:
            x, y = self._prompt[0], self._prompt[1] - (self.scrolled_off - before)
            self._prompt = (x, y) if 0 <= y < self.rows and x < self.cols else None

    def _run_escape(self, sequence: str) -> None:
        if sequence == "c":
            self.application_cursor = self.bracketed_paste = False
        if len(sequence) == 2 and sequence[0] in "()":
            self._grid.choose_set(int(sequence[0] == ")"), sequence[1])
        self._escape.get(sequence, nothing)()

    def _run_csi(self, token: re.Match[str]) -> None:
        final, mark, between = token["csi"], token["mark"], token["between"]
        values = numbers(token)
        if final in "hl" and mark in ("", "?") and not between:
            for value in values:
                self._switch(value, private=bool(mark), on=final == "h")
        elif final in "cn" and not between:
            self._answer(mark + final, values[0])
        elif (mark, between, final) == ("", "!", "p"):
            self._soft_reset()
        elif mark or between:
            return
        elif final == "m":
            self._grid.cursor.attrs = painted(self._grid.cursor.attrs, grouped_numbers(token))
        elif final in "Hf":
            self._grid.cursor_position(values[0], values[1] if len(values) > 1 else 1)
        elif final == "r":
            self._margins(values[0], values[1] if len(values) > 1 else 0)
        elif final in self._csi:
            self._csi[final](values[0])

    def _margins(self, top: int, bottom: int) -> None:
        self._grid.margins = None
        if top > 1 or 0 < bottom < self.rows:
            self._grid.set_margins(top or 1, bottom or self.rows)
        self._grid.cursor_position()

    def _switch(self, value: int, *, private: bool, on: bool) -> None:
        grid = self._grid
        if not private:
            if value in _ORDINARY_MODES:
                (grid.set_mode if on else grid.reset_mode)(_ORDINARY_MODES[value])
        elif value in _PRIVATE_MODES:
            (grid.set_mode if on else grid.reset_mode)(value, private=True)
        elif value in _ALTERNATE:
            (grid.enter if on else grid.leave)()
        elif value == 1048:
            (grid.save_cursor if on else grid.restore_cursor)()
        elif value == 1:
            self.application_cursor = on
        elif value == 2004:
            self.bracketed_paste = on

    def _soft_reset(self) -> None:
        self._grid.margins, self._grid.cursor.attrs = None, PLAIN
        self._grid.cursor.hidden = self.application_cursor = False
        self._grid.mode = {modes.DECAWM, modes.DECTCEM}

    def _answer(self, what: str, value: int) -> None:
        x, y = min(self._grid.cursor.x, self.cols - 1), self._grid.cursor.y
        known = {
            ("c", 0): "\x1b[?6c",
            (">c", 0): "\x1b[>0;0;0c",
            ("n", 5): "\x1b[0n",
            ("n", 6): f"\x1b[{y + 1};{x + 1}R",
            ("?n", 6): f"\x1b[?{y + 1};{x + 1}R",
        }
        answer = known.get((what, value), "").encode()
        if len(self._answers) + len(answer) <= _MOST_ANSWERED:
            self._answers += answer
