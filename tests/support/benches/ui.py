"""The application on a bench: opened without a terminal on a real database, driven by keys."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from signoff.front.database import Database
from signoff.front.settings import Given
from signoff.ui.app import SignoffApp
from signoff.ui.conversation import Item
from tests.support.benches.cli import SCRIPT

SECONDS = 20.0


class UiBench:
    """A workspace with a config.py, a database, and scripted models."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "project"
        self.workspace.mkdir()
        self.config = self.workspace / "config.py"
        self.config.write_text("PORT = 3000\n")
        self.database = Database(str(folder / "threads.sqlite"), named=True)

    def model(self, steps: str, delay: float = 0.0) -> str:
        """The name of a model that plays `steps`, a list in Python."""
        file = self.folder / f"model{len(list(self.folder.glob('model*.py')))}.py"
        file.write_text(SCRIPT.format(steps=steps, delay=delay))
        return f"scripted:{file}"

    @asynccontextmanager
    async def opened(
        self, thread: str | None = "t1", size: tuple[int, int] = (140, 44), **given: Any
    ) -> AsyncIterator["Opened"]:
        """The application, with a terminal that closes with it."""
        with self.database.open() as storage:
            options = {"workspace": self.workspace, "tools": "files,shell", **given} if given else {}
            app = SignoffApp(self.database, storage, Given(**options), thread)
            try:
                async with app.run_test(size=size) as pilot:
                    opened = Opened(app, pilot)
                    await opened.until(lambda: app.desk.story is not None)
                    yield opened
            finally:
                app.desk.close_terminal()
                app.desk.models.close()


class Opened:
    """The application while it runs."""

    def __init__(self, app: SignoffApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot, self.desk = app, pilot, app.desk

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits until `condition` holds."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, f"not in time:\n{self.screen()}"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Types `text` into the prompt and presses Enter."""
        self.desk.prompt.focus()
        self.desk.prompt.value = text
        await self.pilot.press("enter")

    async def press(self, *keys: str) -> None:
        """Presses single keys, outside of the prompt."""
        if self.app.focused is self.desk.prompt:
            await self.pilot.press("escape")
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def rests(self, *, at: str | None = None) -> None:
        """Waits until nothing runs, and for the thing that then waits, if one is named."""
        await self.until(lambda: not self.desk.driving and self._waits() == at)

    def _waits(self) -> str | None:
        waiting = self.desk.asking.waiting
        return waiting.waits_for if waiting else None

    def said(self) -> str:
        """The whole conversation, as far as it can be searched."""
        return "\n".join(item.words for item in self.desk.conversation.query(Item))

    def screen(self) -> str:
        """All that stands on the screen."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in lines)

    def noted(self) -> str:
        """What was told beside the conversation, for a moment."""
        return "\n".join(note.message for note in self.app._notifications)

    @property
    def word(self) -> str:
        """What the status line says first."""
        return self.desk.status.facts.word

    @property
    def outcome(self) -> dict[str, Any]:
        """How the task ended."""
        assert self.desk.story is not None
        return dict(self.desk.story.status.outcome or {})
