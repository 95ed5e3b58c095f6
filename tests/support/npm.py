"""The packages of npm that other people's clients come in, installed once for all tests."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

CLIENTS = Path(__file__).parent / "clients"
_KEPT = Path(__file__).parents[2] / ".bench" / "npm"
_SECONDS = 240


def node_in(folder: Path) -> str:
    """The program Node, for which the packages stand in `folder`.

    Skips the test where Node or npm is missing, or npm cannot install.
    """
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("Node and npm are not installed")
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(_installed())
    return node


def _installed() -> Path:
    wanted = CLIENTS / "package.json"
    # By what is wanted: another version of the repository may want something else.
    kept = _KEPT / hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(kept / "lock"):
        if not (kept / "done").exists():
            shutil.copy(wanted, kept)
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            try:
                subprocess.run(command, cwd=kept, capture_output=True, timeout=_SECONDS, check=True)
            except subprocess.SubprocessError as error:
                pytest.skip(f"npm cannot install the clients: {error}")
            (kept / "done").touch()
    return kept / "node_modules"
