"""What is public is typed whole: for a reader of the package, and for a program that uses all of the door."""

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
PYRIGHT = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
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
    command = [*PYRIGHT, "--verifytypes", "signoff", "--ignoreexternal", "--outputjson"]
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


PROGRAM = """
from typing import assert_type

from pydantic import BaseModel

from signoff import (
    Action, Approval, Check, Ended, Graph, Limits, LoopPolicy, Outcome, Question, Session, build_graph,
    go_on, outcome_of, sqlite_storage, standard_controls,
)
from signoff.models import ScriptedModel, call


class Receipt(BaseModel):
    order: str


with sqlite_storage("t.sqlite") as storage:
    graph = build_graph(
        ScriptedModel([call("finish_task", summary="Done.")]),
        limits=Limits(turns=3),
        response_format=Receipt,
        checks=["pytest -q", Check("make", folder=".", seconds=3), lambda claim: True],
        approvals={"look": True, "write": ["approve", "reject"]},
        control_tools=standard_controls(rounds=True),
        storage=storage,
        policy=LoopPolicy(talk="strict"),
    )
    assert_type(graph, Graph[Receipt])
    assert_type(outcome_of(graph.invoke({"messages": [("user", "Go.")]})), Outcome[Receipt])
    graph.invoke(go_on(turns=3, id="a"), {"configurable": {"thread_id": "a"}})

session = Session(graph, "a", on_pending="refuse")
match session.run("Go."):
    case Ended(outcome=ended):
        print(ended.result.order if ended.result is not None else "")
    case Question(text=text, options=options):
        print(text, options)
    case Approval(calls=calls):
        print([pending.name for pending in calls])
    case Action(tool=tool, args=args):
        print(tool, args)


async def main() -> None:
    async for event in session.aevents("Go."):
        print(event.type)
"""
WRONG = """
from signoff import Session, build_graph
from signoff.models import ScriptedModel

Session(build_graph(ScriptedModel([]), tols=[]), 3)
"""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy"],
    "pyright": [*PYRIGHT, "--level", "error"],
}


def errors(checker: str, program: str, folder: Path) -> list[str]:
    """The errors that a type checker finds in a program."""
    (folder / "program.py").write_text(program)
    # Of basedpyright, what pyright itself reports by default.
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [*CHECKERS[checker], "program.py"]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "error:" in line or "- error" in line]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_program_of_a_user_is_right_and_a_wrong_one_is_not(checker: str, tmp_path: Path) -> None:
    assert errors(checker, PROGRAM, tmp_path) == []
    assert len(errors(checker, WRONG, tmp_path)) >= 2
