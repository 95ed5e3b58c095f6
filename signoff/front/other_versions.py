"""Another version of Signoff on this machine, and its replay of a stored thread."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from signoff.front.database import OpenStorage
from signoff.front.text import shell_command
from signoff.graph.errors import SetupError
from signoff.session.copying import copy_thread
from signoff.storage.sqlite import sqlite_storage

_WHO = "import importlib.util as u; print(u.find_spec('signoff').origin)"
_SECONDS = 600
_MOST_SHOWN = 300
_PYTHONS = (Path("bin") / "python", Path("Scripts") / "python.exe")


@dataclass(frozen=True)
class OtherVersion:
    """A Python that imports another Signoff: its command, and the additions to the environment."""

    place: Path
    python: str
    checkout: Path | None = None

    @property
    def _environment(self) -> dict[str, str]:
        # Variables that point this process to its own packages would point that one there, too.
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return {**kept, **({"PYTHONPATH": str(self.checkout)} if self.checkout else {})}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs its Python with these arguments. Raises SetupError if it cannot run or does not end."""
        try:
            return subprocess.run(
                # Without the current folder, which may contain a Signoff.
                [self.python, "-P", *words],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError(f"{self.python} cannot be run as the other version ({error}).") from error


def other_version(named: str) -> OtherVersion:
    """Returns the version at a path: a checkout, an environment in which it is installed, or a Python.

    Raises SetupError if there is no Signoff.
    """
    place = Path(named).expanduser().absolute()
    found: OtherVersion | None = None
    inside = _python_in(place)
    if (place / "signoff" / "__init__.py").is_file():
        own = next(
            (str(place / ".venv" / one) for one in _PYTHONS if (place / ".venv" / one).is_file()), None
        )
        found = OtherVersion(place, own or sys.executable, place)
    elif inside:
        found = OtherVersion(place, inside)
    elif place.is_file() and os.access(place, os.X_OK):
        found = OtherVersion(place, str(place))
    if found is None:
        how = shell_command(["python3", "-m", "venv", "other"])
        raise SetupError(
            f"{named} is not a checkout of Signoff and not an environment; name a folder with either. For an "
            f"environment run {how}, and install that version into it."
        )
    result = found.run("-c", _WHO)
    if result.returncode or not result.stdout.strip():
        raise SetupError(
            f"No Signoff is installed at {named} ({_last_line(result.stderr)}); install it there."
        )
    return found


def _python_in(environment: Path) -> str | None:
    return next((str(environment / one) for one in _PYTHONS if (environment / one).is_file()), None)


def decided_by(
    other: OtherVersion, storage: OpenStorage, thread_id: str, options: Sequence[str]
) -> dict[str, Any]:
    """Returns the document that `signoff replay --json` of that version prints for a copy of the thread.

    Raises SetupError if that version cannot replay a thread.
    """
    with TemporaryDirectory(prefix="signoff-replay-") as folder:
        file = str(Path(folder) / "thread.sqlite")
        with sqlite_storage(file) as copy:
            copy_thread(storage, thread_id, copy)
        words = ["replay", "--json", "--database", file, "--config", "none", *options, "--", thread_id]
        done = other.run("-m", "signoff.cli", *words)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("differences"), list):
        return document
    if "No such command" in done.stderr:
        raise SetupError(
            f"The Signoff at {other.place} has no `signoff replay`: it is older than that command, and "
            "cannot replay a stored thread."
        )
    said = document.get("error") if isinstance(document, dict) else None
    raise SetupError(
        f"The Signoff at {other.place} could not replay the thread: {said or _last_line(done.stderr)}"
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:_MOST_SHOWN] if lines else "it printed nothing"
