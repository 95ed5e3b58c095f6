"""What other code may have left in a workspace holds no tool up: pipes, devices, links, odd names."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff.tools import workspace_tools

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pipes and links are those of Unix"),
    # A tool that waits for somebody to write into a pipe waits for ever.
    pytest.mark.timeout(60),
]


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(200 * 10**9)


NOT_REGULAR: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
}
REGULAR: dict[str, Callable[[Path], object]] = {
    "a huge file": sparse,
    "a NUL": lambda path: path.write_bytes(b'[include]\n path = "a\0b"\nhome = /a\0b/bin\n'),
}
# Files that the tools themselves look into, each in a folder of its own.
NAMES = (".gitignore", "a/.gitignore", "b/.git/config", "c/.git", "d/pyvenv.cfg", "e/HEAD", "f/x")
USES: dict[str, dict[str, Any]] = {
    "read_file": {},
    "search_files": {"pattern": "x"},
    "edit_file": {"old": "y", "new": "z"},
    "write_file": {"content": "x"},
}


@pytest.mark.parametrize("kind", NOT_REGULAR | REGULAR)
def test_nothing_is_waited_for(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    names = NAMES[::6] if kind == "a huge file" else NAMES
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (NOT_REGULAR | REGULAR)[kind](tmp_path / name)
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    assert "a.txt (7 bytes)" in tools["list_files"].invoke({})
    assert "a.txt:1: needle" in tools["search_files"].invoke({"pattern": "needle"})
    tools["write_file"].invoke({"path": "new/b.txt", "content": "x"})
    tools["edit_file"].invoke({"path": "a.txt", "old": "needle", "new": "pin"})
    assert ((tmp_path / "new/b.txt").read_text(), (tmp_path / "a.txt").read_text()) == ("x", "pin\n")
    # And it is itself read and written, or refused.
    for name in names:
        refused, mode = set(), (tmp_path / name).lstat().st_mode
        for tool, arguments in USES.items():
            try:
                assert tools[tool].invoke({"path": name, **arguments})
            except ToolException:
                refused.add(tool)
        assert "edit_file" in refused
        if kind in NOT_REGULAR:
            assert {"read_file", "write_file"} <= refused
            assert (tmp_path / name).lstat().st_mode == mode


ODD = ("a\u2028b", "a\u0085b", "a\rb", "a\nb", "a\udcffb", "'; rm *", "-n", "a\\b", " ")


def test_a_name_may_be_anything(tmp_path: Path) -> None:
    for name in ODD:
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / ".gitignore").write_text("*.log\n")
        (tmp_path / name / "x.log").write_text("needle\n")
        (tmp_path / name / "a.txt").write_text("needle\n")
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    listed = tools["list_files"].invoke({})
    json.dumps(listed).encode()
    assert "x.log (" not in listed
    paths = [line.removesuffix(" (7 bytes)") for line in listed.splitlines() if "a.txt" in line]
    assert len(paths) == len(ODD)
    assert tools["search_files"].invoke({"pattern": "needle"}).count("a.txt:1: needle") == len(ODD)
    # As it is listed, it can be read, whatever it is made of.
    for path in paths:
        assert tools["read_file"].invoke({"path": path}).endswith("1|needle")
