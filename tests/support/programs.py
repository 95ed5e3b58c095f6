"""Runs a program of Python: in the process of the tests, where what it imports is there already, or in one of
its own, for what must be killed or sees only what was written."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path


@contextmanager
def started_as(file: Path, *words: str) -> Iterator[None]:
    argv, path, modules = sys.argv, sys.path, set(sys.modules)
    sys.argv, sys.path = [str(file), *words], [str(file.parent), *path]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path
        for name in set(sys.modules) - modules:
            # The program's own: another one may have the same name.
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(file.parent)):
                del sys.modules[name]


def run_program(file: Path, *words: str, folder: Path) -> str:
    """What the program prints in this folder."""
    printed = StringIO()
    with started_as(file, *words), chdir(folder), redirect_stdout(printed):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise AssertionError(f"{file} ended with {ended.code}") from ended
    return printed.getvalue()


def run_python(*words: str | Path, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """A program in a process of its own, to its end. words: what stands after `python`."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder)
