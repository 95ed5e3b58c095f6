"""The processes that Signoff starts for itself: never from a file in a workspace, nor with its modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import signoff
from signoff.graph.errors import SetupError
from signoff.models.local import server as child_module
from signoff.tools.processes.helpers import (
    base_python,
    find_program,
    isolated,
    module_with_packages,
    program_text,
    with_packages,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="programs are files with a mode")


def say(command: list[str], cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@posix
@pytest.mark.slow
def test_a_replaced_python_is_not_started(tmp_path: Path) -> None:
    """An environment in the workspace whose Python somebody has replaced, with Signoff running in it."""
    (tmp_path / "a.txt").write_text("needle")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    python = tmp_path / ".venv/bin/python"
    packages = Path(signoff.__path__[0]).parent, Path(os.path.dirname(pytest.__file__)).parent
    search = f"""
import os, sys
sys.path += {[str(folder) for folder in packages]!r}
import {", ".join(_editable())} os
from signoff.tools.files import workspace_tools
(search,) = (tool for tool in workspace_tools({str(tmp_path)!r}) if tool.name == "search_files")
os.unlink({str(python)!r})
with open({str(python)!r}, "w") as file:
    file.write("#!/bin/sh\\ntouch {tmp_path}/started\\n")
os.chmod({str(python)!r}, 0o755)
print(search.invoke({{"pattern": "needle"}}))
"""
    assert "a.txt:1: needle" in say([str(python), "-c", search], tmp_path)
    assert not (tmp_path / "started").exists()


def _editable() -> list[str]:
    """What makes this installation importable where its packages lie elsewhere."""
    found = [name for name in sys.modules if name.startswith("__editable__")]
    return [f"{name}; {name}.install();" for name in found][:1]


@posix
def test_nothing_of_the_workspace_or_the_environment_is_imported(tmp_path: Path) -> None:
    for name in ("json.py", "sitecustomize.py", "usercustomize.py", "signoff.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')")
    code = "import json, sys\nprint(json.__file__, sys.flags.isolated)"
    for command in (isolated(code), with_packages(code + "\nimport signoff")):
        assert command[0] == base_python() == os.path.realpath(command[0])
        assert say(command, tmp_path, PYTHONPATH=str(tmp_path)).endswith(" 1")
    assert not (tmp_path / "loaded").exists()


@posix
def test_with_packages_is_like_this_python(tmp_path: Path) -> None:
    code = (
        "import pydantic, signoff, sys\nprint(sys.prefix, sys.executable, signoff.__path__[0], sys.argv[1:])"
    )
    told = say(with_packages(code, "a b"), tmp_path)
    assert told == f"{sys.prefix} {sys.executable} {signoff.__path__[0]} ['a b']"
    assert say(module_with_packages("signoff.cli", "--help"), tmp_path).startswith("Usage: ")


def test_folders_of_the_workspace_are_not_taken_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    assert str(tmp_path) in with_packages("")[4]
    assert str(tmp_path) not in with_packages("", workspace=str(tmp_path))[4]
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in with_packages("")[4]


def test_programs_are_texts_and_not_files() -> None:
    assert program_text(child_module.__file__) == Path(child_module.__file__).read_text("utf-8")
    assert not os.path.exists(child_module._WORKER[:100])


@posix
def test_a_python_in_the_workspace_is_refused_unless_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    python = root / "pythons/3/bin/python3"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    (root / "a.txt").write_text("a")
    monkeypatch.setattr(sys, "base_prefix", str(root / "pythons/3"))
    monkeypatch.setattr(sys, "_base_executable", str(python))
    assert base_python() == base_python(str(tmp_path.parent / "other")) == str(python)
    with pytest.raises(SetupError, match=r"lies in the workspace .* accept it by name: .*'!pythons'"):
        base_python(str(root))
    assert base_python(str(root), ["!pythons"]) == str(python)


@posix
@pytest.mark.parametrize(
    ("path", "workspace", "expected"),
    [
        ("{work}/bin:{far}", "{work}", "{far}"),
        ("{work}/bin:{far}", None, "{work}/bin"),
        ("bin:.::{far}", None, "{far}"),
        ("{link}:{far}", "{work}", "{far}"),
        ("{work}/bin", "{work}", None),
    ],
)
def test_programs_on_the_path(path: str, workspace: str | None, expected: str | None, tmp_path: Path) -> None:
    places = {"work": tmp_path / "work", "far": tmp_path / "far", "link": tmp_path / "link"}
    for folder in (places["work"] / "bin", places["far"]):
        folder.mkdir(parents=True)
        (folder / "tool").touch(mode=0o755)
    places["link"].symlink_to(places["work"] / "bin")
    env = {"PATH": path.format(**places)}
    found = find_program("tool", workspace and workspace.format(**places), env)
    assert found == (f"{expected}/tool".format(**places) if expected else None)
