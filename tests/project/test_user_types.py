"""A program that uses every part of the door is right to mypy (strict) and to pyright; a wrong one is not."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]

PROGRAM = '''
from typing import Any, assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command
from pydantic import BaseModel

from signoff import (
    Action, Approval, Check, Ended, Graph, Limits, LoopPolicy, Message, Outcome, Paused, Question, Session,
    build_graph, go_on, outcome_of, sqlite_storage, standard_controls, stop, undo,
)
from signoff.models import ScriptedModel, call


class Receipt(BaseModel):
    """A receipt."""

    order: str


def look(place: str) -> str:
    """Look somewhere."""
    return place


config: RunnableConfig = {"configurable": {"thread_id": "a"}}
with sqlite_storage("t.sqlite") as storage:
    graph = build_graph(
        ScriptedModel([call("finish_task", summary="Done.")]),
        tools=[look],
        limits=Limits(turns=3),
        response_format=Receipt,
        checks=["pytest -q", Check("make", folder=".", seconds=3), lambda claim: True],
        approvals={"look": True, "write": ["approve", "reject"]},
        control_tools=standard_controls(rounds=True),
        storage=storage,
        policy=LoopPolicy(talk="strict"),
    )
    assert_type(graph, Graph[Receipt])
    result = graph.invoke({"messages": [("user", "Go.")]}, config)
    outcome = outcome_of(result)
    assert_type(outcome, Outcome[Receipt])
    if outcome.result is not None:
        print(outcome.result.order)
    for command in (go_on(), go_on(turns=3, id="a"), undo(ask=True), stop(), Command[Any](resume="yes")):
        graph.invoke(command, config)
    for wait in Session(graph, "a").status().waits:
        print(wait.interrupt_id, wait.path, wait.problem, wait.document())

untyped: Graph[Any] = build_graph(ScriptedModel([]), tools=[look], policy={"talk": "strict"})
session = Session(graph, "a", on_pending="refuse")
match session.run("Go."):
    case Ended(outcome=ended):
        if ended.result is not None:
            print(ended.result.order)
    case Question(text=text, options=options):
        print(text, options)
    case Approval(calls=calls):
        print([pending.name for pending in calls])
    case Action(tool=tool, args=args):
        print(tool, args)
    case Paused(by=by):
        print(by)
    case Message(text=words):
        print(words)


async def main() -> None:
    print(await session.ago_on(turns=1), await session.astop(), await session.astatus())
    async for event in session.aevents("Go."):
        print(event.type)
    async for part in graph.astream({"messages": [("user", "Go.")]}, config):
        print(part)
'''
WRONG = """
from signoff import Limits, Session, build_graph, go_on
from signoff.models import ScriptedModel

graph = build_graph(ScriptedModel([]), tols=[])
go_on(turns="3")
Session(graph, 3)
Limits(turn=3)
"""
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])}
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy"],
    "pyright": [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable],
}


def checked(checker: str, program: str, folder: Path) -> list[str]:
    """The errors that a type checker finds in a program."""
    (folder / "program.py").write_text(program)
    # Of basedpyright, what pyright itself reports by default.
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    done = subprocess.run(
        [*CHECKERS[checker], "program.py"], cwd=folder, env=ENV, capture_output=True, text=True, timeout=500
    )
    return [line for line in done.stdout.splitlines() if "error:" in line or "- error" in line]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_program_of_a_user_is_right_and_a_wrong_one_is_not(checker: str, tmp_path: Path) -> None:
    assert checked(checker, PROGRAM, tmp_path) == []
    assert len(checked(checker, WRONG, tmp_path)) >= 3
