"""The command that adds an extra is right for each way by which Signoff came onto this machine."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from signoff.graph.inside.installing import command_for, install_hint

REPOSITORY = Path(__file__).parents[2]
SOURCE = ("signoff", "graph", "nodes", "tools", "benchmarks")
GIT = {"vcs": "git", "commit_id": "0a1b", "requested_revision": "main"}

FROM: dict[str, tuple[dict[str, Any] | None, str]] = {
    "a package index": (None, 'pip install "signoff[web]"'),
    "a clone": (
        {"url": "file:///home/ada/my%20signoff", "dir_info": {"editable": True}},
        'pip install --editable "/home/ada/my signoff[web]"',
    ),
    "a clone, copied": (
        {"url": "file:///home/ada/signoff", "dir_info": {}},
        'pip install "signoff[web] @ file:///home/ada/signoff"',
    ),
    "git": (
        {"url": "https://git.example/signoff.git", "vcs_info": GIT},
        'pip install "signoff[web] @ git+https://git.example/signoff.git@0a1b"',
    ),
    "a built file": (
        {"url": "file:///tmp/signoff-1.0-py3-none-any.whl", "archive_info": {"hashes": {}}},
        'pip install "signoff[web] @ file:///tmp/signoff-1.0-py3-none-any.whl"',
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="its paths look different")
@pytest.mark.parametrize("origin", FROM)
def test_the_extra_comes_from_where_the_package_came_from(origin: str) -> None:
    recorded, command = FROM[origin]
    direct = json.dumps(recorded) if recorded else None
    assert command_for(direct, "pip\n", "web") == command
    assert command_for(direct, "pip\n", "web", "langchain-groq") == f"{command} langchain-groq"
    assert command_for(direct, "pip\n", "", "langchain-groq") == "pip install langchain-groq"


def test_an_environment_of_uv_holds_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert command_for(None, "uv", "web") == 'uv pip install "signoff[web]"'
    monkeypatch.delenv("VIRTUAL_ENV")
    assert command_for(None, "uv", "web").startswith("uv pip install --python ")


def test_without_metadata_there_is_a_command_all_the_same(tmp_path: Path) -> None:
    program = "from signoff.graph.inside.installing import install_hint as f; print(f('web'))"
    # Without site-packages nothing is installed.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == 'pip install "signoff[web]"\n'


def test_here_the_command_names_this_very_folder() -> None:
    assert "signoff[web]" in install_hint("web") or f'"{REPOSITORY}[web]"' in install_hint("web")


def test_no_message_writes_such_a_command_by_itself() -> None:
    fixed = re.compile(r"^.*pip install .{0,3}signoff.*$", re.MULTILINE)
    found = [
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for folder in SOURCE
        for path in (REPOSITORY / folder).rglob("*.py")
        if path.resolve() == path.absolute() and path.name != "installing.py"
        for line in fixed.findall(path.read_text("utf-8"))
    ]
    assert found == []
