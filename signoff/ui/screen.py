"""The screen of a terminal: turns arbitrary bytes of a program into lines without control codes."""

import codecs
import re
from collections.abc import Callable, Iterator

from pyte import modes
from rich.style import Style
from textual.strip import Strip

from signoff.ui.screen_grid import PLAIN, Grid, highlighted, painted, strip

_MOST_HELD = 4_096
_MOST_NUMBER = 9_999
_STRING = r"[^\x07\x18\x1a\x1b]*"

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f]+)"
    r"|\x1b\[(?P<mark>[<-?]?)(?P<numbers>[0-9:;]*)(?P<between>[ -/]*)(?P<csi>[@-~])"
    rf"|\x1b\](?P<osc>{_STRING})(?:\x07|\x1b\\)"
    rf"|\x1b[PX^_](?P<string>{_STRING})(?:\x07|\x1b\\)"
    r"|\x1b(?P<escape>[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
)
_UNFINISHED = re.compile(rf"\x1b(?:\[[ -?]*|[\]PX^_]{_STRING}\x1b?|[ -/]*)\Z")
_BROKEN = re.compile(rf"\x1b(?:\[[ -?]*[@-~]?|[\]PX^_]{_STRING}|[ -/]*)")
_STRING_BEGUN = re.compile(r"\x1b[\]PX^_]")
_STRING_ENDS = re.compile(r"[\x07\x18\x1a\x1b]")
_NUMBERS_END = re.compile(r"[^ -?]")
HISTORY = 3_000
"""How many lines that scrolled off the top are stored."""
_MOST_ANSWERED = 256
_MARK = re.compile(r"133;([AC])(?:;|\Z)")
_PRIVATE_MODES = {6: modes.DECOM, 7: modes.DECAWM, 25: modes.DECTCEM}
_ORDINARY_MODES = {4: modes.IRM, 20: modes.LNM}
_ALTERNATE = (47, 1047, 1049)


class Escapes:
    """Splits a stream of bytes into tokens, even where a character or a sequence comes in pieces.

    A token is a match whose `lastgroup` says what it is: `text`, `control`, `csi` (with the groups `mark`,
    `numbers` and `between`), `osc`, `string` (DCS and the like) or `escape`. Sequences that are malformed, or
    that come in pieces and are longer than some thousand characters, are left out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._until: re.Pattern[str] | None = None

    def split(self, data: bytes) -> Iterator[re.Match[str]]:
        """Yields the tokens of `data`; must be read to its end."""
        text, self._held = self._held + self._decoder.decode(data), ""
        at = self._skipped(text)
        while at < len(text):
            if found := _TOKEN.match(text, at):
                yield found
                at = found.end()
            elif _UNFINISHED.match(text, at):
                self._hold(text[at:])
                return
            else:
                broken = _BROKEN.match(text, at)
                at = broken.end() if broken else at + 1

    def _hold(self, unfinished: str) -> None:
        if len(unfinished) <= _MOST_HELD:
            self._held = unfinished
            return
        self._until = _STRING_ENDS if _STRING_BEGUN.match(unfinished) else _NUMBERS_END
        # It may be the first half of a string terminator.
        self._held = "\x1b" if unfinished.endswith("\x1b") else ""

    def _skipped(self, text: str) -> int:
        """Returns where to continue when `text` begins in a sequence that is too long to store."""
        if self._until is None:
            return 0
        end = self._until.search(text)
        if end is None:
            return len(text)
        self._until = None
        return end.start() if end[0] == "\x1b" else end.end()


def numbers(token: re.Match[str]) -> list[int]:
    """Returns the parameters of a `csi` token, 0 for omitted ones."""
    return [_number(each) for each in re.split("[;:]", token["numbers"])]


def grouped_numbers(token: re.Match[str]) -> list[list[int]]:
    """Returns the parameters of a `csi` token, each with those that colons join to it."""
    return [[_number(each) for each in group.split(":")] for group in token["numbers"].split(";")]


def _number(digits: str) -> int:
    return min(int(digits[-9:] or 0), _MOST_NUMBER) if len(digits) < 10 else _MOST_NUMBER


def nothing() -> None:
    """Does nothing, like most control characters."""


def control_characters(grid: Grid) -> dict[str, Callable[[], object]]:
    """Returns the actions of single control characters."""
    return {
        "\b": grid.backspace,
        "\t": grid.tab,
        "\n": grid.linefeed,
        "\x0b": grid.linefeed,
        "\x0c": grid.linefeed,
        "\r": grid.carriage_return,
        "\x0e": grid.shift_out,
        "\x0f": grid.shift_in,
    }


def escape_sequences(grid: Grid) -> dict[str, Callable[[], object]]:
    """Returns the characters that follow ESC, and their actions."""
    return {
        "c": grid.reset,
        "D": grid.index,
        "E": grid.next_line,
        "M": grid.reverse_index,
        "H": grid.set_tab_stop,
        "7": grid.save_cursor,
        "8": grid.restore_cursor,
        "#8": grid.alignment_display,
    }


def control_sequences(grid: Grid) -> dict[str, Callable[[int], object]]:
    """Returns the final characters of control sequences (CSI) that take one number, 0 when omitted."""
    return {
        "@": grid.insert_characters,
        "A": grid.cursor_up,
        "B": grid.cursor_down,
        "C": grid.cursor_forward,
        "D": grid.cursor_back,
        "E": grid.cursor_down1,
        "F": grid.cursor_up1,
        "G": grid.cursor_to_column,
        "I": grid.forward_tab,
        "J": grid.erase_in_display,
        "K": grid.erase_in_line,
        "L": grid.insert_lines,
        "M": grid.delete_lines,
        "P": grid.delete_characters,
        "S": lambda count: grid.scroll(count or 1),
        "T": lambda count: grid.scroll(-(count or 1)),
        "X": grid.erase_characters,
        "Z": grid.back_tab,
        "`": grid.cursor_to_column,
        "a": grid.cursor_forward,
        "b": grid.repeat,
        "d": grid.cursor_to_line,
        "e": grid.cursor_down,
        "g": grid.clear_tab_stop,
        "s": lambda _: grid.save_cursor(),
        "u": lambda _: grid.restore_cursor(),
    }


class TerminalScreen:
    """A screen of `rows` lines of `cols` cells, fed with the bytes that a program writes to its terminal.

    Whatever the bytes are, nothing raises and nothing is passed through: titles, clipboard, links and other
    strings for a terminal are dropped, deceptive characters are shown as symbols. Queries of programs to the
    terminal (cursor position, terminal type) are answered only through `answers`.
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
        """Whether a program asked for application cursor keys (`?1`)."""
        self.bracketed_paste = False
        """Whether a program asked for bracketed paste (`?2004`)."""

    @property
    def rows(self) -> int:
        return self._grid.lines

    @property
    def cols(self) -> int:
        return self._grid.columns

    @property
    def cursor(self) -> tuple[int, int] | None:
        """Returns column and row of the cursor, from 0; None while a program hides it."""
        cursor = self._grid.cursor
        return None if cursor.hidden else (min(cursor.x, self.cols - 1), cursor.y)

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program uses the screen."""
        return self._grid.alternate

    @property
    def history_lines(self) -> int:
        """Returns how many lines that scrolled off the top are still stored."""
        return len(self._grid.history)

    @property
    def scrolled_off(self) -> int:
        """Returns how many lines ever scrolled off the top."""
        return self._grid.scrolled_off

    @property
    def text(self) -> list[str]:
        """Returns the lines of the screen, without trailing blanks."""
        return [self.line(y).text.rstrip() for y in range(self.rows)]

    def line(self, y: int) -> Strip:
        """Returns a styled line; 0 is the top of the screen, negative numbers are lines of the history."""
        if y >= 0:
            return strip(self._grid.buffer[y], self.cols)
        return self._grid.history[y].adjust_cell_length(self.cols)

    def line_with_cursor(self, y: int, look: Style) -> Strip:
        """Returns the line, with the cursor in the style `look` if it is on this line."""
        line, cursor = self.line(y), self.cursor
        if cursor is None or cursor[1] != y:
            return line
        x, cells = cursor[0], self._grid.buffer[y]
        wide = x + 1 < self.cols and not cells[x + 1].data
        return highlighted(line, x, 2 if wide and cells[x].data else 1, look)

    def changed(self) -> set[int]:
        """Returns the lines that may have changed since the last call."""
        found = {y for y in self._grid.dirty if 0 <= y < self.rows}
        self._grid.dirty.clear()
        return found

    def resize(self, rows: int, cols: int) -> None:
        """Resizes the screen; lines that no longer fit at the top go to the history."""
        before = self.scrolled_off
        self._grid.resize(max(rows, 1), max(cols, 1))
        self._prompt_moved(before)

    def answers(self) -> bytes:
        """Returns the responses for the program's input, at most a few hundred bytes, and empties them."""
        found, self._answers = self._answers, b""
        return found

    def feed(self, data: bytes) -> None:
        """Draws what a program wrote."""
        for token in self._escapes.split(data):
            before = self.scrolled_off
            kind = token.lastgroup
            if kind == "text":
                self._grid.draw(token["text"])
            elif kind == "control":
                self._control.get(token["control"], nothing)()
                if token["control"] == "\n" and not self.alternate:
                    # A line typed at the prompt was entered.
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
        """Shows `words`, which may contain escape sequences of ours, on lines of their own.

        over_prompt: in place of the shell's prompt and the text typed there. Shows nothing while a
        full-screen program uses the screen.
        """
        if self.alternate:
            return
        grid = self._grid
        grid.margins, grid.cursor.attrs = None, PLAIN
        grid.mode |= {modes.DECAWM}
        grid.mode -= {modes.IRM, modes.DECOM}
        if not (over_prompt and self._erase_prompt()) and grid.cursor.x:
            grid.next_line()
        # The first character ends an unfinished sequence.
        self.feed(b"\x18" + words.replace("\n", "\r\n").encode() + b"\x1b[m\r\n")

    def _marked(self, kind: str) -> None:
        if self.alternate:
            return
        if kind == "C":
            # The agent's command begins; a late or remaining prompt does not belong to it.
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
