"""The processes that Signoff starts for itself: never from a file in a workspace, nor with its modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import signoff
from signoff import SetupError
from signoff.tools import Workspace, python_tool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are files with a mode")

MODULES = ("json.py", "ast.py", "sitecustomize.py", "usercustomize.py", "signoff.py")


def editable() -> list[str]:
    """What makes this installation importable where its packages lie elsewhere."""
    return [name for name in sys.modules if name.startswith("__editable__")][:1]


@pytest.mark.slow
def test_a_replaced_python_is_not_started(tmp_path: Path) -> None:
    """An environment in the workspace whose Python somebody has replaced, with Signoff running in it."""
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / ".venv/pyvenv.cfg").write_text(f"home = {os.path.dirname(python.resolve())}\n")
    packages = [str(Path(signoff.__path__[0]).parent), str(Path(os.path.dirname(pytest.__file__)).parent)]
    program = f"""
import os, sys
sys.path += {packages!r}
for name in {editable()!r}:
    __import__(name).install()
from signoff.tools import python_tool
os.unlink({str(python)!r})
with open({str(python)!r}, "w") as file:
    file.write("#!/bin/sh\\ntouch {tmp_path}/started\\n")
os.chmod({str(python)!r}, 0o755)
print(python_tool(None, {str(tmp_path)!r}).invoke({{"code": "print('ran')"}}))
"""
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "ran" in done.stdout
    assert not (tmp_path / "started").exists()


def test_nothing_of_the_workspace_or_the_environment_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODULES:
        (tmp_path / name).write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\nPLANTED = 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tool = python_tool(None, tmp_path, writable=True)
    told = tool.invoke({"code": "import json, sys\nprint(hasattr(json, 'PLANTED'), sys.flags.isolated)"})
    assert told.startswith("False 1")
    assert not (tmp_path / "loaded").exists()


def test_a_python_in_the_workspace_is_refused_unless_it_is_accepted() -> None:
    python = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    with pytest.raises(SetupError, match=f"'!{python.parent.name}'"):
        python_tool(None, python.parents[1])
    accepted = Workspace(python.parents[1], protect=[f"!{python.parent.name}"])
    assert python_tool(None, accepted).invoke({"code": "print('ran')"}) == "ran"
