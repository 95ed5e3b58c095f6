"""A project to work on, a database, and scripted models: what the benches of all front ends share."""

from pathlib import Path

from signoff.front.database import Database
from tests.support.benches.cli import SCRIPT


class ProjectBench:
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
