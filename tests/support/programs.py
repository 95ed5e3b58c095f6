"""Runs a program as Python does, in the process of the tests: what it imports is there already."""

import runpy
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
