"""Starts Signoff's helper processes with a safe Python and a safe import path.

The model may change the workspace. So no helper starts from a file in it: its interpreter is the base
interpreter of the environment, in isolated mode (`-I`: no environment variables, no current folder, no user
site folder), and its program is text that was read when Signoff itself was imported.
"""

import os
import shutil
import site
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from signoff.graph.errors import SetupError
from signoff.tools.protected import Protected, within

_LIKE_THIS_ONE = """
import site, sys
sys.prefix, sys.exec_prefix, sys.executable = {prefix!r}, {exec_prefix!r}, {executable!r}
for folder in {folders!r}:
    site.addsitedir(folder)
sys.path += [folder for folder in {others!r} if folder not in sys.path]
"""
_MODULE = """
import runpy
runpy.run_module({name!r}, run_name="__main__", alter_sys=True)
"""


def base_python(workspace: str | None = None, protect: Collection[str] | None = None) -> str:
    """The base interpreter of all virtual environments, with links resolved.

    Raises SetupError if Python does not know its own path, or if that is inside `workspace`, unless `protect`
    (as in `signoff.tools.protected`) allows it.
    """
    if not sys.executable:
        raise SetupError("This Python does not know its own executable; run Signoff from a normal Python.")
    found = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    if workspace and within(found, workspace) and Protected(workspace, protect).why(found):
        top = found[len(workspace) :].strip(os.sep).split(os.sep)[0]
        raise SetupError(
            f"Python itself ({found}) lies in the workspace {workspace}, and nothing is started from there. "
            f"Take a smaller folder as the workspace, or accept it by name: protect=['!{top}']."
        )
    return found


def isolated(
    code: str,
    *words: str,
    workspace: str | None = None,
    protect: Collection[str] | None = None,
) -> list[str]:
    """The command that runs `code` with only the standard library; `words` are its arguments.

    workspace, protect: as for `base_python`.
    """
    return [base_python(workspace, protect), "-I", "-S", "-c", code, *words]


def with_packages(code: str, *words: str, workspace: str | None = None) -> list[str]:
    """Like `isolated`, but with the packages of this Python, as if it were the same environment.

    Other folders on this Python's import path are included unless they are in `workspace`, which defaults to
    the current folder.
    """
    base_python(workspace)
    avoided = os.path.realpath(workspace or os.getcwd())
    packages = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    others = [folder for folder in sys.path if os.path.isabs(folder) and folder not in packages]
    begin = _LIKE_THIS_ONE.format(
        prefix=sys.prefix,
        exec_prefix=sys.exec_prefix,
        executable=sys.executable,
        folders=[folder for folder in packages if folder in sys.path],
        others=[folder for folder in others if not within(os.path.realpath(folder), avoided)],
    )
    return isolated(begin + code, *words)


def module_with_packages(name: str, *words: str, workspace: str | None = None) -> list[str]:
    """The command that runs a module of this Python's packages, like `python -m NAME`."""
    return with_packages(_MODULE.format(name=name), *words, workspace=workspace)


def program_text(file: str | os.PathLike[str]) -> str:
    """The text of one of our programs, read once and early."""
    return Path(file).read_text(encoding="utf-8")


def find_program(name: str, workspace: str | None = None, env: Mapping[str, str] = os.environ) -> str | None:
    """The path of the program `name` on PATH, ignoring relative entries and those in `workspace`."""
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    avoided = os.path.realpath(workspace) if workspace else None
    kept = [
        folder
        for folder in folders
        if os.path.isabs(folder) and not (avoided and within(os.path.realpath(folder), avoided))
    ]
    return shutil.which(name, path=os.pathsep.join(kept))
