"""An application with a terminal pane, and a person in front of it."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input

from signoff.tools.pty.shell import ShellResult
from signoff.ui.pane import TerminalPane


class Desk(App[None]):
    """A prompt above a terminal, with keys of its own."""

    BINDINGS = [Binding("ctrl+q", "quit", priority=True), Binding("f5", "quit", priority=True)]  # noqa: RUF012  # as Textual has it

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def compose(self) -> ComposeResult:
        yield Input()
        yield TerminalPane(self.folder, env={"WHO": "agent", "HOME": str(self.folder)}, id="terminal")


class Person:
    """Somebody in front of the terminal."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        self.pane = pilot.app.query_one(TerminalPane)

    async def types(self, text: str) -> None:
        names = {" ": "space", "\n": "enter", "\x1b": "escape"}
        await self.pilot.press(*(names.get(each, each) for each in text))

    async def sees(self, true: Callable[[], bool], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"{self.title}\n" + "\n".join(self.lines)
            await self.pilot.pause(0.02)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, its prompt as `> `."""
        rows = (re.sub(r"^~ [#$](?: |$)", "> ", row) for row in self.pane.terminal.text)
        return "\n".join(rows).rstrip("\n").split("\n")

    @property
    def title(self) -> str:
        return Content.from_markup(self.pane.border_title or "").plain

    def at_prompt(self) -> bool:
        return self.lines[-1] == "> "

    def run(self, command: str, timeout: float = 30) -> "asyncio.Task[ShellResult]":
        return asyncio.create_task(asyncio.to_thread(self.pane.run, command, timeout))


@asynccontextmanager
async def desk(folder: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Person]:
    """The application with a person at its terminal, whose prompt is shown."""
    async with Desk(folder).run_test(size=size) as pilot:
        person = Person(pilot)
        person.pane.focus()
        await person.sees(person.at_prompt)
        yield person


def wheel(pane: TerminalPane) -> events.MouseScrollDown:
    """The mouse wheel, turned by one step."""
    return events.MouseScrollDown(pane, 1, 1, 0, 1, 0, False, False, False)
