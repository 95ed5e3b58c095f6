"""Private names of other packages: gathered in one file, and none of them is needed."""

import ast
import asyncio
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from signoff.graph.inside import private
from tests.support.sources import trees

PACKAGES = ("langgraph", "langchain", "langsmith", "pydantic")
LAST_PARTS = {path.rpartition(".")[2] for _, path in private.NAMES.values()}


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(PACKAGES):
                names = [*module.split("."), *(alias.name for alias in node.names)]
                yield from (name for name in names if name.startswith("_"))
            case ast.Import():
                names = [alias.name for alias in node.names if alias.name.startswith(PACKAGES)]
                yield from (name for name in names if "._" in name)
            case ast.Constant(value=str(text)) if text.startswith(("__pregel_", "__pydantic_")):
                yield text
            case ast.Attribute(attr=name) if name.startswith("_") and name in LAST_PARTS:
                yield name
            case ast.Attribute(attr=name) if name.startswith("__pydantic_"):
                yield name


def test_no_other_file_knows_one() -> None:
    assert [module for module, tree in trees().items() if list(private_names(tree))] == [private.__name__]


def test_the_installed_versions_have_every_name() -> None:
    # Else all would still be well, but slower, and nobody would see it.
    assert [name for name in private.NAMES if not private.has(name)] == []


@pytest.mark.slow
@pytest.mark.thorough
def test_without_any_one_of_them_a_thread_runs_crashes_and_ends_as_with_all(tmp_path: Path) -> None:
    ends = {name: end_without(name, tmp_path / f"without {name}") for name in ("", *private.NAMES)}
    outcome, said, effects, *asked = ends[""]
    assert (outcome, effects, asked) == (["success", "Done.", 6, 7], "paid-5 blown ", [2, 2])
    assert [text for _, text, _ in said if "red" in text or "blue" in text] == ["one: red", "two: blue"]
    assert [name for name, end in ends.items() if end != ends[""]] == []


def end_without(name: str, folder: Path) -> Any:
    """What the thread comes to without this name, in two processes."""
    folder.mkdir()
    assert exit_code(lambda: without(name).begin(folder)) == -signal.SIGKILL
    end = folder / "end"
    assert exit_code(lambda: end.write_text(json.dumps(asyncio.run(without(name).go_on(folder))))) == 0
    return json.loads(end.read_text())


def exit_code(act: Callable[[], object]) -> int:
    """The exit code of a process that does this."""
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child == 0:
        with ExitStack() as stack:
            stack.callback(os._exit, 1)
            act()
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def without(name: str) -> Any:
    """The program, with Signoff imported anew as if no installed version had this name."""
    for module in [one for one in sys.modules if one.split(".")[0] == "signoff"]:
        del sys.modules[module]
    anew = import_module(private.__name__)
    if name:
        setattr(anew, name, None)
    assert [one for one in anew.NAMES if not anew.has(one)] == [name] * bool(name)
    return import_module("tests.support.without_private_names")
