"""What is public is typed whole: a type checker that reads the installed package finds nothing unknown."""

import inspect
import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.hooks.reference import PUBLIC, load

ROOT = Path(__file__).parents[2]
# LangGraph is a namespace package, in which a type checker finds no `py.typed`: its classes are unknown to
# it, and so is what derives from them.
OF_LANGGRAPH = ("Type of base class unknown", "Type of metaclass unknown")
DERIVED = ("DurableGraph", "GuardedGraph", "StepSaver", "PostgresStorage", "SqliteStorage")


def found() -> list[dict[str, Any]]:
    """The symbols of the package, each with what is wrong with its type."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable),
            *("--verifytypes", "signoff", "--ignoreexternal", "--outputjson"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    symbols: list[dict[str, Any]] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    return symbols


def is_public(symbol: str, names: set[str]) -> bool:
    """Whether a symbol, by the module that defines it, is a public name or an attribute of one."""
    parts = symbol.split(".")
    return any(
        ".".join(parts[:end]) in names and not any(part.startswith("_") for part in parts[end:])
        for end in range(1, len(parts) + 1)
    )


def is_of_langgraph(message: str) -> bool:
    partial = "partially unknown" in message and any(name in message for name in DERIVED)
    return partial or message in OF_LANGGRAPH


@pytest.mark.slow
def test_the_types_of_what_is_public_are_known() -> None:
    values = [(name, each, getattr(load(name), each)) for name in PUBLIC for each in load(name).__all__]
    names = {f"{module}.{each}" for module, each, _ in values} | {
        f"{value.__module__}.{value.__qualname__}"
        for _, _, value in values
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    symbols = found()
    assert len(symbols) > 1_000
    wrong = [
        f"{symbol['name']}: {each['message'].splitlines()[0]}"
        for symbol in symbols
        if is_public(symbol["name"], names)
        for each in symbol["diagnostics"]
        if each["severity"] == "error" and not is_of_langgraph(each["message"])
    ]
    assert wrong == []
