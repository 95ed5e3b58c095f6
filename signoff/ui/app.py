"""The application: its keys, its dialogs, and how it ends."""

import gc
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static, TextArea

from signoff.front.choices import arguments_text
from signoff.front.database import Database, OpenStorage
from signoff.front.report import command
from signoff.front.settings import Given
from signoff.front.text import cut, one_line
from signoff.front.threads import Row, ago, find_threads, in_words
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import valid_text
from signoff.session.decisions import read_json
from signoff.ui.asking import Asking
from signoff.ui.desk import Desk
from signoff.ui.prompt import Prompt

_ABOUT = 60

HELP = """\
[bold]Working[/]
  Enter        send what is in the prompt: a task, an answer, a decision
  Ctrl-J       begin a new line in it
  Escape       leave the prompt, so that single keys work; i: back to it
  p   F5       pause at the next state, or continue
  s   F8       end the task now
  x   F4       ten more turns after a limit; try again after an error
[bold]Deciding[/]
  a e r w      approve, edit, reject, or answer in place of a call
  1 … 9        an option of a question;  y  confirm a result
[bold]Looking[/]
  t   F2       the threads: open another one, or begin a new one
  /   F3       search; Enter goes to the next place
  Enter        on a call: open or close it
  m   F7       show or hide the machine
  l   F10      light or dark
  F6           the terminal: type into it; Ctrl-] leaves it
  c   F9       copy the command that continues this thread
  q   Ctrl-Q   leave; everything is saved"""
_THREADS = 200
# The sixteen colours that cards and lines are made of: black to white, then the bright ones. Each can be read
# on the ground of its theme.
_DARK = TerminalTheme(
    (17, 20, 24),
    (230, 237, 243),
    [(48, 54, 61), (248, 81, 73), (63, 185, 80), (210, 153, 34),
     (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)],
    [(110, 118, 129), (255, 123, 114), (86, 211, 100), (227, 179, 65),
     (121, 192, 255), (210, 168, 255), (86, 212, 221), (240, 246, 252)],
)  # fmt: skip
_LIGHT = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    [(36, 41, 47), (182, 35, 36), (26, 107, 48), (125, 78, 0),
     (9, 88, 186), (112, 57, 184), (15, 101, 108), (87, 96, 106)],
    [(87, 96, 106), (164, 14, 38), (26, 107, 48), (99, 60, 1),
     (9, 88, 186), (112, 57, 184), (15, 101, 108), (36, 41, 47)],
)  # fmt: skip
THEMES = {"dark": "textual-dark", "light": "textual-light"}
_ON_THE_BOARD = frozenset(
    ("pause", "stop", "more", "threads", "search", "terminal", "machine", "prompt", "out", "press", "copy")
)


class Threads(ModalScreen[str | None]):
    """Returns the id of the chosen thread, "" for a new one, None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "close"),
        Binding("n", "dismiss('')", "new thread"),
    ]

    def __init__(self, rows: Sequence[Row], current: str) -> None:
        super().__init__()
        self.rows, self.current = rows, current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "threads"
            box.border_subtitle = "Enter opens · n begins a new one · Escape closes"
            yield DataTable(cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        table.add_columns("thread", "status", "turns", "changed", "about")
        now = datetime.now(UTC)
        for at, row in enumerate(self.rows):
            title = row.what or row.task
            name, about = (Text(cut(one_line(text), _ABOUT)) for text in (row.thread_id, title))
            since = Text(ago(row.changed, now))
            table.add_row(name, in_words(row), Text(str(row.turns)), since, about, key=str(at))
        here = next((at for at, row in enumerate(self.rows) if row.thread_id == self.current), 0)
        table.move_cursor(row=here)
        table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.dismiss(self.rows[int(event.row_key.value or 0)].thread_id)


class Editor(ModalScreen[str | None]):
    """Returns the edited text; None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave"),
        Binding("ctrl+s", "keep", "use it", priority=True),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.heading, self.text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = self.heading
            box.border_subtitle = "Ctrl-S uses it · Escape leaves it as it was"
            yield TextArea(self.text)

    def action_keep(self) -> None:
        self.dismiss(self.query_one(TextArea).text)


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,question_mark,enter", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small") as box:
            box.border_title = "keys"
            box.border_subtitle = "Escape closes"
            yield Static(HELP)


class SignoffApp(App[None]):
    """The application on an open database. thread_id: None begins a new thread."""

    CSS_PATH = "app.tcss"
    TITLE = "signoff"
    ENABLE_COMMAND_PALETTE = False
    # Textual declares these as attributes of an instance.
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (24, "-middle"), (32, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "keys", key_display="F1"),
        Binding("t,f2", "threads", "threads", key_display="F2"),
        Binding("slash,f3", "search", "search", key_display="F3"),
        Binding("x,f4", "more", "more", key_display="F4"),
        Binding("p,f5", "pause", "pause", key_display="F5"),
        Binding("f6", "terminal", "terminal", key_display="F6"),
        Binding("s,f8", "stop", "stop", key_display="F8"),
        Binding("ctrl+q,q", "leave", "leave", key_display="^q"),
        Binding("c,f9", "copy", "copy", show=False),
        Binding("l,f10", "light", "light", show=False),
        Binding("m,f7", "machine", "machine", show=False),
        Binding("i", "prompt", "prompt", show=False),
        Binding("escape", "out", "out", show=False),
        *[Binding(key, f"press('{key}')", show=False) for key in "aerwguy123456789"],
    ]

    def __init__(
        self,
        database: Database,
        storage: OpenStorage,
        given: Given,
        thread_id: str | None,
        theme: str = "dark",
    ) -> None:
        super().__init__()
        self.ansi_theme_dark, self.ansi_theme_light = _DARK, _LIGHT
        self.theme = THEMES[theme]
        self.database = database
        self.desk = Desk(database, storage, given, thread_id)
        self.searching = self.leaving = False

    def compose(self) -> ComposeResult:
        yield self.desk
        yield Footer(compact=True)

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        text = valid_text(event.value).strip()
        if not text:
            return
        if self.searching:
            if not self.desk.conversation.find(text):
                self.notify("Not found.", severity="warning")
            return
        if self.desk.driving or self.desk.watching:
            self.notify("It is running; F5 pauses it.", severity="warning")
            return
        try:
            self.desk.typed(text)
        except ThreadError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            event.prompt.clear()

    def on_asking_wanted(self, event: Asking.Wanted) -> None:
        if event.key != "e":
            self.desk.prompt.value = "reject: " if event.key == "r" else "respond: "
            self.desk.prompt.focus()
            return
        call = event.call

        def edited(text: str | None) -> None:
            if text is None:
                return
            try:
                args = read_json(text)
                self.desk.asking.take({"type": "edit", "edited_action": {"name": call.name, "args": args}})
            except (ThreadError, ValueError) as error:
                self.notify(f"That does not fit: {error}", severity="error", markup=False)

        self.push_screen(Editor("the arguments", arguments_text(call)), edited)

    def on_app_focus(self) -> None:
        """A page or a window may open without the focus; then no widget has it."""
        if self.focused is None and len(self.screen_stack) == 1:
            self.desk.prompt.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables the keys of the board while a dialog is open above it."""
        return len(self.screen_stack) == 1 or action not in _ON_THE_BOARD

    def action_pause(self) -> None:
        self.desk.pause()

    def action_stop(self) -> None:
        self.desk.stop()

    def action_more(self) -> None:
        self.desk.more()

    def action_press(self, key: str) -> None:
        try:
            self.desk.asking.press(key)
        except ThreadError as error:
            self.notify(str(error), severity="error", markup=False)

    def action_threads(self) -> None:
        if self.desk.driving:
            self.notify("Pause it first (F5); one thread runs at a time here.", severity="warning")
            return
        found = find_threads(self.database, _THREADS).rows

        async def chosen(thread_id: str | None) -> None:
            if thread_id is not None:
                await self.desk.open(thread_id)

        self.push_screen(Threads(found, self.desk.thread_id), chosen)

    def action_search(self) -> None:
        self.searching = True
        self.desk.prompt.clear()
        self.desk.prompt.placeholder = "search; Enter goes to the next place, Escape ends it"
        self.desk.prompt.focus()

    def action_out(self) -> None:
        """Leaves the search, then the prompt, so that single keys work."""
        if self.searching:
            self.searching = False
            self.desk.prompt.clear()
            self.desk.conversation.find("")
            self.desk.hint()
        else:
            self.desk.conversation.focus()

    def action_prompt(self) -> None:
        self.desk.prompt.focus()

    def action_terminal(self) -> None:
        self.desk.to_terminal()

    def action_machine(self) -> None:
        self.desk.toggle_class("-no-machine")

    def action_light(self) -> None:
        """Switches between light and dark."""
        self.theme = THEMES["light" if self.theme == THEMES["dark"] else "dark"]

    def action_copy(self) -> None:
        how = command("resume", self.desk.thread_id, self.database)
        self.copy_to_clipboard(how)
        self.notify(how, title="Copied", markup=False)

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_leave(self) -> None:
        """Leaves; a run is paused first; a second request leaves at once."""
        if not self.desk.driving or self.leaving:
            self.exit()
            return
        self.leaving = True
        self.desk.pause()
        self.notify(
            "It stops after this step, then leaves. Press again to leave at once.", severity="warning"
        )

    def on_desk_rested(self) -> None:
        if self.leaving:
            self.exit()


def run_app(database: Database, given: Given, thread_id: str | None, theme: str = "dark") -> int:
    """Runs the application until the person leaves; returns the exit code."""
    with database.open() as storage:
        app = SignoffApp(database, storage, given, thread_id, theme)
        # Imported objects stay: without this a full garbage collection halts the screen for half a second.
        gc.freeze()
        try:
            app.run()
        finally:
            app.desk.models.close()
            app.desk.close_terminal()
        if app.desk.driving:
            # A model call cannot be cancelled from here, and everything finished is saved.
            os._exit(0)
    return app.return_code or 0
