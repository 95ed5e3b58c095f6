"""What is public is typed whole. That programs fit the types, `tests/door/test_typed.py` and mypy show."""

import inspect
import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from docs.hooks.reference import PUBLIC, load

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])}
# LangGraph is a namespace package, in which a type checker finds no `py.typed`: its classes are unknown to
# it, and so is what derives from them.
OF_LANGGRAPH = ("Type of base class unknown", "Type of metaclass unknown")
DERIVED = ("DurableGraph", "GuardedGraph", "StepSaver", "PostgresStorage", "SqliteStorage")


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


def test_the_types_of_what_is_public_are_known() -> None:
    values = [(f"{name}.{each}", getattr(load(name), each)) for name in PUBLIC for each in load(name).__all__]
    names = {name for name, _ in values} | {
        f"{value.__module__}.{value.__qualname__}"
        for _, value in values
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    pyright = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    command = [*pyright, "--verifytypes", "signoff", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, env=ENV, cwd=ROOT, capture_output=True, text=True)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    assert len(symbols) > 1_000
    wrong = [
        (symbol["name"], each["message"])
        for symbol in symbols
        if is_public(symbol["name"], names)
        for each in symbol["diagnostics"]
        if each["severity"] == "error" and not is_of_langgraph(each["message"])
    ]
    assert wrong == []
