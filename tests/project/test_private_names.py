"""Private names of other packages: gathered in one file, and none of them is needed."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.graph.inside import private
from tests.support.sources import REPOSITORY, sources

PACKAGES = ("langgraph", "langchain", "langsmith", "pydantic")
LAST_PARTS = {path.rpartition(".")[2] for _, path in private.NAMES.values()}
# What a tool that is called directly needs.
OF_PLAIN = {"format_output", "config_param", "to_args"}


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
    trees = {module: ast.parse(path.read_text("utf-8")) for module, path in sources().items()}
    assert [module for module, tree in trees.items() if list(private_names(tree))] == [private.__name__]


def test_the_installed_versions_have_every_name() -> None:
    # Else all would still be well, but slower, and nobody would see it.
    assert [name for name in private.NAMES if not private.has(name)] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_without_any_one_of_them_a_thread_runs_crashes_and_ends_as_with_all(tmp_path: Path) -> None:
    # One program for all: the libraries are imported once.
    command = [sys.executable, "-m", "tests.support.without_private_names", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, check=True)
    whole, *others = map(json.loads, done.stdout.splitlines())
    assert (whole["killed"], whole["gone"], whole["outcome"]["status"]) == (True, [], "success")
    assert whole["asked"].count("'one'") == whole["asked"].count("approve'") == 1
    assert whole["effects"] == ["paid", "5", "blown"]
    expected = [
        {
            **whole,
            "name": name,
            "gone": [name],
            "lean": name not in private.LEAN,
            "plain": name not in OF_PLAIN,
        }
        for name in private.NAMES
    ]
    assert others == expected
