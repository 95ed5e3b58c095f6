"""A real terminal in the application: the agent's commands appear in it, and a person may type."""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar

from langchain_core.tools import ToolException
from rich.style import Style
from textual import events
from textual.app import RenderResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from signoff.front.pane_shell import (
    PROMPT,
    Backlog,
    Guard,
    PaneShell,
    Words,
    announced,
    pasted,
    remark,
    typed,
)
from signoff.front.text import cut, one_line
from signoff.graph.errors import SetupError
from signoff.tools.pty.shell import Shell, ShellResult
from signoff.ui.screen import TerminalScreen
from signoff.ui.screen_grid import highlighted

_TITLE = 60
_ASKS = {"line": "asks for a line of input", "password": "asks for a password"}
_FRAME_SECONDS = 0.05
_BUSY_SECONDS = 0.02
_FOCUSED, _UNFOCUSED = Style(reverse=True), Style(underline=True)
LEAVE_KEY = "ctrl+right_square_bracket"
"""Leaves the terminal; every other key goes to the shell."""
_LOOK_SECONDS = 0.25
_WHEEL_LINES = 3
_OURS = {LEAVE_KEY, "shift+pageup", "shift+pagedown", "shift+home", "shift+end"}
_COPY = {"ctrl+shift+c", "super+c"}


def title(running: str | None, waiting_for: str | None) -> str:
    """Returns what the terminal does: nothing, a command of the agent, or a question to the person."""
    if running is None:
        return "terminal · idle"
    if waiting_for in _ASKS:
        return f"terminal · {_ASKS[waiting_for]}"
    return f"terminal · $ {cut(one_line(running), _TITLE)}"


class TerminalView(Widget):
    """The screen of a terminal. Output may be added in any thread and is drawn 20 times a second."""

    ALLOW_SELECT = True

    class Arrived(Message):
        """There is new output to draw."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.terminal = TerminalScreen()
        self.back = 0
        """How many lines it is scrolled back."""
        self._backlog = Backlog()
        self._cursor_row = 0
        self._next_frame: Timer | None = None

    def show(self, item: bytes | Words) -> None:
        """Adds output, or a line of the application. May be called in any thread; does not block."""
        if self._backlog.add(item):
            self.post_from_anywhere(self.Arrived())

    def post_from_anywhere(self, message: Message) -> None:
        """Posts a message, unless the application is shutting down."""
        with suppress(RuntimeError):
            # Its event loop is closed: nothing is displayed any more.
            self.post_message(message)

    def answer(self, data: bytes) -> None:
        """Passes the terminal's response on to the program that queried it."""

    def scrolled_back(self) -> None:
        """Called after `back` has changed."""

    def on_terminal_view_arrived(self) -> None:
        if self._next_frame is None:
            self._frame()

    def _frame(self) -> None:
        """Draws the new output, for as long as that does not block the application."""
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
        """Scrolls back by so many lines."""
        most = 0 if self.terminal.alternate else self.terminal.history_lines
        self.back = min(max(self.back + lines, 0), most)
        self.scrolled_back()
        self.refresh()

    def copy_selected(self) -> None:
        """Copies the text selected with the mouse."""
        if selected := self.screen.get_selected_text():
            self.app.copy_to_clipboard(selected)


class TerminalPane(TerminalView, can_focus=True):
    """A shell in `cwd` on a screen of its own, started when it is first used or gets the focus.

    env: variables in addition to the few that a shell inherits. The border shows what it does: idle, the
    agent's command, or that the command asks for input. With the focus every key goes to the shell except
    Ctrl-], which leaves the terminal, and Shift with PageUp, PageDown, Home and End, which scroll like the
    mouse wheel.

    `run`, `interrupt`, `write` and `close` may be called in any thread.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(LEAVE_KEY, "leave", "leave the terminal", key_display="ctrl+]")
    ]
    DEFAULT_CSS = """
    TerminalPane {
        height: 1fr;
        background: $background;
        color: $foreground;
        border: round $foreground 35%;
        border-title-color: $text-muted;
        border-subtitle-color: $text-muted;
        &:focus { border: heavy $accent; border-title-color: $accent; }
        &.-running { border-title-color: $success; }
        &.-asks { border: heavy $warning; border-title-color: $warning; border-title-style: bold; }
    }
    """

    class Left(Message):
        """The person pressed the key that leaves the terminal; the focus has moved on."""

    class Changed(Message):
        """A command of the agent began or ended."""

    def __init__(
        self,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.running: str | None = None
        """The agent's running command."""
        self._cwd, self._env = cwd, dict(env or {})
        self._guard = Guard()
        self._shell = PaneShell(self._started, self._remark, self._guard)
        self._turn = threading.Lock()
        self._looks: Timer | None = None

    # --- what the application uses ---

    def run(self, command: str, timeout: float) -> ShellResult:
        """Shows and runs a command of the agent; returns when it has ended.

        Blocks: call it in a worker. timeout: seconds, after which it is stopped. A person may type meanwhile.
        Raises ToolException when it cannot run (another one runs, a person's program has the terminal, the
        pane was closed), and SetupError where no shell is possible.
        """
        if not self._turn.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise ToolException("The terminal is still running another command; try again when it has ended.")
        try:
            self._now(command)
            self.show(Words(announced(command), over_prompt=True))
            return self._shell.run(command, timeout)
        except (ToolException, SetupError) as error:
            self._remark(f"not run: {error}")
            raise
        finally:
            self._now(None)
            self._turn.release()

    def interrupt(self) -> None:
        """Presses ^C, even where the running program gave that key another meaning."""
        self._shell.interrupt()

    def write(self, data: bytes) -> None:
        """Types `data` without waiting for it."""
        self._shell.write(data)

    def close(self) -> None:
        """Ends the shell and everything it started; a running command fails. May be called again."""
        self._shell.close()

    # --- what comes from the shell, in its threads ---

    def _started(self) -> Shell:
        return Shell(
            self._cwd,
            env={"PROMPT_DIRTRIM": "3", **self._env, **self._guard.variables},
            rows=self.terminal.rows,
            cols=self.terminal.cols,
            on_output=self.show,
            interactive=True,
            prompt=PROMPT,
        )

    def _remark(self, words: str) -> None:
        self.show(Words(remark(words)))

    def _now(self, command: str | None) -> None:
        self.running = command
        self.post_from_anywhere(self.Changed())

    # --- showing it ---

    def on_mount(self) -> None:
        self._looks = self.set_interval(_LOOK_SECONDS, self._entitle, pause=True)
        self._entitle()

    def on_unmount(self) -> None:
        # Not in another thread: it must finish before the application ends.
        self.close()

    def on_terminal_pane_changed(self) -> None:
        if self._looks:
            (self._looks.resume if self.running is not None else self._looks.pause)()
        self._entitle()

    def answer(self, data: bytes) -> None:
        # A program that reads whole lines would get it as part of its next line.
        if data and self._shell.reads_keys():
            self._shell.write(data)

    def scrolled_back(self) -> None:
        self._entitle()

    def _entitle(self) -> None:
        waits = self._shell.waiting_for if self.running is not None else None
        self.border_title = Content(title(self.running, waits))
        self.set_class(self.running is not None, "-running")
        self.set_class(waits in ("line", "password"), "-asks")
        if self.back:
            self.border_subtitle = Content(f"↑ {self.back} lines back · shift+end returns")
        else:
            self.border_subtitle = Content("ctrl+] leaves" if self.screen.focused is self else "")

    # --- the person ---

    def on_resize(self, event: events.Resize) -> None:
        if self.size:
            self.terminal.resize(self.size.height, self.size.width)
            self._shell.resize(self.size.height, self.size.width)
            self.scroll_back(0)

    def on_focus(self) -> None:
        self._shell.open()
        self._entitle()

    def on_blur(self) -> None:
        # Otherwise the agent's next output would not be visible.
        self.scroll_back(-self.back)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        # Otherwise bindings of the application would take keys from the shell.
        return key != LEAVE_KEY

    def on_key(self, event: events.Key) -> None:
        if event.key == LEAVE_KEY:
            return
        event.stop()
        event.prevent_default()
        page = max(self.size.height - 1, 1)
        if event.key in _COPY:
            self.copy_selected()
        elif event.key in _OURS and not self.terminal.alternate:
            everything = self.terminal.history_lines
            moves = {"shift+pageup": page, "shift+pagedown": -page, "shift+home": everything}
            self.scroll_back(moves.get(event.key, -everything))
        elif data := typed(event.key, event.character, application=self.terminal.application_cursor):
            self._press(data)

    def _press(self, data: bytes) -> None:
        if self.back:
            self.scroll_back(-self.back)
        if data == b"\x03":
            # It must not wait behind input that no program reads.
            self._shell.forget()
        if len(data) == 1 or not data.startswith(b"\x1b") or self._shell.reads_keys():
            # For a program that reads lines, cursor keys would become part of the line.
            self._shell.write(data)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._shell.write(pasted(event.text, bracketed=self.terminal.bracketed_paste))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._wheel("up", _WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._wheel("down", -_WHEEL_LINES)

    def _wheel(self, key: str, lines: int) -> None:
        if not self.terminal.alternate:
            self.scroll_back(lines)
        elif self._shell.reads_keys():
            self._shell.write(typed(key, None, application=self.terminal.application_cursor) * abs(lines))

    def action_leave(self) -> None:
        """Moves the focus to the next widget, or to none."""
        self.screen.focus_next()
        if self.screen.focused is self:
            self.screen.set_focus(None)
        self.post_message(self.Left())
