"""What other code may have left in a workspace holds no tool up: pipes, devices, links, odd names."""

import json
import os
import runpy
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff.graph import foreign_files
from signoff.graph.foreign_files import NotRegular, open_regular, read_regular
from signoff.tools.files import workspace_tools

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pipes and links are those of Unix"),
    # A tool that waits for somebody to write into a pipe waits for ever.
    pytest.mark.timeout(30),
]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(200 * 10**9)


def _nul(path: Path) -> None:
    path.write_bytes(b'[include]\n path = "a\0b"\nhome = /a\0b/bin\n')


def _deep(path: Path) -> None:
    path.write_text("[" * 300_000)


MAKES = [_pipe, _link_to_a_pipe, _socket, _endless, _loop, _folder, _sparse, _nul, _deep]
NAMES = [".gitignore", "sub/.gitignore", "sub/.git/config", "sub/.git", "sub/pyvenv.cfg", "sub/HEAD", "x"]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_waited_for(make: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "a.txt").write_text("needle\n")
    make(tmp_path / name)
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}

    def answer(tool: str, **arguments: Any) -> str:
        try:
            return str(tools[tool].invoke(arguments))
        except ToolException as refusal:
            return str(refusal)

    assert "a.txt (7 bytes)" in answer("list_files")
    assert "a.txt:1: needle" in answer("search_files", pattern="needle")
    assert answer("write_file", path="new/b.txt", content="x").startswith("Created")
    assert answer("edit_file", path="a.txt", old="needle", new="pin").startswith("Edited")
    # And it is itself read, or refused by a sentence.
    for tool, arguments in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old": "x", "new": "y"}),
        ("search_files", {"pattern": "x"}),
    ):
        assert answer(tool, path=name, **arguments).count(".") >= 1


@pytest.mark.parametrize("make", [_pipe, _link_to_a_pipe, _socket, _endless, _loop, _folder])
@pytest.mark.parametrize("write", [False, True])
def test_only_a_regular_file_is_opened(make: Callable[[Path], None], write: bool, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(NotRegular):
        open_regular(tmp_path / "x", write=write)


def test_a_file_is_read_to_the_bound(tmp_path: Path) -> None:
    _sparse(tmp_path / "x")
    assert read_regular(tmp_path / "x", 1_000) == bytes(1_000)
    for name in ("a\0b", "missing", "\ud800"):
        with pytest.raises(OSError):  # noqa: PT011  any of them is what callers handle
            read_regular(tmp_path / name, 1)


@pytest.mark.parametrize("lacking", ["O_NOFOLLOW", "O_NONBLOCK", "chown"])
def test_a_system_without_these_reads_and_writes(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has none of them."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("one\n")
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    monkeypatch.delattr(os, lacking)
    opens = runpy.run_path(foreign_files.__file__)
    assert opens["read_regular"](tmp_path / "sub/a.txt", 2) == b"on"
    with pytest.raises(OSError, match="regular"):
        opens["open_regular"](tmp_path / "sub")
    tools["write_file"].invoke({"path": "sub/a.txt", "content": "two\n"})
    assert (tmp_path / "sub/a.txt").read_text() == "two\n"


ODD = [
    "a\u00a0b",
    "a\u3000b",
    "a\u2028b",
    "a\u0085b",
    "a\rb",
    "a\nb",
    "a\udcffb",
    "'; rm -rf *",
    "-n",
    "a\\b",
    " ",
]


@pytest.mark.parametrize("name", ODD)
def test_a_name_may_be_anything(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    (folder / ".git").mkdir(parents=True)
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "x.log").write_text("needle\n")
    (folder / "a.txt").write_text("needle\n")
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    listed = tools["list_files"].invoke({})
    assert "a.txt (7 bytes)" in listed
    assert "x.log (" not in listed
    assert "a.txt:1: needle" in tools["search_files"].invoke({"pattern": "needle"})
    json.dumps(listed).encode()
    # As it is listed, it can be read, whatever it is made of.
    path = next(line for line in listed.splitlines() if "a.txt" in line).removesuffix(" (7 bytes)")
    assert tools["read_file"].invoke({"path": path}).endswith("1|needle")


@pytest.mark.timed
def test_two_thousand_repositories_and_environments(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / f"r{number}/.git").mkdir(parents=True)
        (tmp_path / f"e{number}/.venv").mkdir(parents=True)
    (tmp_path / "top.txt").write_text("x")
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    for number in range(20):
        assert tools["write_file"].invoke({"path": f"r{number}/a", "content": "x"}).startswith("Created")
        tools["write_file"].invoke({"path": "top.txt", "content": str(number)})
    assert "Stopped" not in tools["list_files"].invoke({})
