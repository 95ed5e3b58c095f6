"""Shows a terminal's screen in the application: as it changes, and scrolled back."""

import time
from contextlib import suppress

from rich.style import Style
from textual.app import RenderResult
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from signoff.ui.pane_backlog import Backlog, Words
from signoff.ui.screen import TerminalScreen
from signoff.ui.screen_cells import highlighted

_FRAME_SECONDS = 0.05
_BUSY_SECONDS = 0.02
_FOCUSED, _UNFOCUSED = Style(reverse=True), Style(underline=True)


class TerminalView(Widget):
    """The screen of a terminal. What it is to show is added in any thread, and drawn 20 times a second."""

    ALLOW_SELECT = True

    class Arrived(Message):
        """There is something to show."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.terminal = TerminalScreen()
        self.back = 0
        """How many lines it is scrolled back."""
        self._backlog = Backlog()
        self._cursor_row = 0
        self._next_frame: Timer | None = None

    def show(self, item: bytes | Words) -> None:
        """Adds output, or words of the application. May be called in any thread; does not block."""
        if self._backlog.add(item):
            self.post_from_anywhere(self.Arrived())

    def post_from_anywhere(self, message: Message) -> None:
        """Posts a message, unless the application is at its end."""
        with suppress(RuntimeError):
            # Its event loop is closed: nobody looks any more.
            self.post_message(message)

    def answer(self, data: bytes) -> None:
        """Takes what the terminal answers to the program that asked it something."""

    def scrolled_back(self) -> None:
        """Called after `back` has changed."""

    def on_terminal_view_arrived(self) -> None:
        if self._next_frame is None:
            self._frame()

    def _frame(self) -> None:
        """Shows what has come, for as long as it does not hold up the application."""
        self._next_frame = None
        end = time.monotonic() + _BUSY_SECONDS
        before, shown = self.terminal.scrolled_off, False
        while time.monotonic() < end and (item := self._backlog.take()) is not None:
            shown = True
            if isinstance(item, Words):
                self.terminal.say(item.words, over_prompt=item.over_prompt)
            else:
                self.terminal.feed(item)
                self.answer(self.terminal.answers())
        if shown:
            self._redraw(self.terminal.scrolled_off - before)
            self._next_frame = self.set_timer(_FRAME_SECONDS, self._frame)

    def _redraw(self, scrolled: int) -> None:
        changed = self.terminal.changed()
        if self.back:
            self.scroll_back(scrolled)
        elif scrolled or len(changed) > self.terminal.rows // 2:
            self.refresh()
        else:
            cursor = self.terminal.cursor
            changed |= {self._cursor_row, cursor[1] if cursor else 0}
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))
        self._cursor_row = (self.terminal.cursor or (0, 0))[1]

    def render(self) -> RenderResult:
        # Lines are rendered one by one, below.
        return ""

    def render_line(self, y: int) -> Strip:
        row, size = y - self.back, self.size
        if row >= self.terminal.rows or row < -self.terminal.history_lines:
            return Strip.blank(size.width, self.rich_style)
        line = self.terminal.line_with_cursor(row, _FOCUSED if self.has_focus else _UNFOCUSED)
        line = line.adjust_cell_length(size.width).apply_style(self.rich_style)
        if self.text_selection and (span := self.text_selection.get_span(y)):
            start, stop = span[0], size.width if span[1] < 0 else min(span[1], size.width)
            look = self.screen.get_component_rich_style("screen--selection")
            line = highlighted(line, start, max(stop - start, 0), look)
        return line.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        rows = range(-self.back, self.terminal.rows - self.back)
        return selection.extract("\n".join(self.terminal.line(row).text.rstrip() for row in rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def scroll_back(self, lines: int) -> None:
        """Shows what is so many lines further back."""
        most = 0 if self.terminal.alternate else self.terminal.history_lines
        self.back = min(max(self.back + lines, 0), most)
        self.scrolled_back()
        self.refresh()

    def copy_selected(self) -> None:
        """Copies what was selected with the mouse."""
        if selected := self.screen.get_selected_text():
            self.app.copy_to_clipboard(selected)
