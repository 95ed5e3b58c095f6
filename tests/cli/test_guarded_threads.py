"""Threads of agents with guards on the command line: `threads`, `show` and `stats` read them, and what would
go on with them says where they go on; `extend` and `retry` go on with them in their own program."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langgraph.types import Command
from typer.testing import CliRunner, Result

from signoff import extend, outcome_of, retry, sqlite_storage
from signoff.cli.app import app
from signoff.guards import Guards, guarded
from signoff.models.scripted import ScriptedModel, call
from tests.support.guarded import tools

pytestmark = pytest.mark.filterwarnings("ignore:Nothing guards the sub-agents")

DONE = call("finish_task", summary="All of it.")
LOOK, SAVE = call("look", name="a"), call("save", name="x")
ASKS = call("ask_user", question="Which one?")
GO: Any = {"messages": [("user", "do it")]}
MAKERS: Mapping[str, Callable[..., Any]] = {"create_agent": create_agent, "deepagents": create_deep_agent}

# How a thread ends: its script, the rules, and what the list says of it.
ENDS: Mapping[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "done": (["I will.", LOOK, SAVE, DONE], {}, {"status": "success", "reason": "finish_task", "turns": 4}),
    "limit": ([LOOK], {"limits": {"turns": 1}}, {"status": "limit", "reason": "turns", "turns": 1}),
    "error": ([RuntimeError("down")], {}, {"status": "error", "reason": "model_error", "turns": 0}),
    "asks": ([ASKS], {}, {"status": "waiting", "reason": None, "turns": 1}),
}


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def agent(maker: Callable[..., Any], storage: Any, script: Any, **rules: Any) -> Any:
    saved = {"checkpointer": storage.checkpointer, "store": storage.store}
    return guarded(maker(ScriptedModel(script), tools(), middleware=[Guards(**rules)], **saved))


@pytest.fixture(scope="module", params=MAKERS)
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[..., Any]]:
    """A database with a thread of each end, and what made its agents."""
    file, maker = tmp_path_factory.mktemp("guarded") / "threads.sqlite", MAKERS[request.param]
    with sqlite_storage(file) as storage:
        for name, (script, rules, _) in ENDS.items():
            agent(maker, storage, script, **rules).invoke(GO, config(name))
    return file, maker


def signoff(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--database", str(file)], env={"COLUMNS": "120"})


def told(file: Path, *words: str) -> Any:
    result = signoff(file, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_list_says_where_each_stands(made: tuple[Path, Any]) -> None:
    found = {one["thread_id"]: one for one in told(made[0], "threads")}
    assert {name: {key: found[name][key] for key in ends} for name, (_, _, ends) in ENDS.items()} == {
        name: ends for name, (_, _, ends) in ENDS.items()
    }
    assert found["asks"]["what"] == "Which one?"
    assert all(one["task"] == "do it" for one in found.values())


@pytest.mark.parametrize(
    ("thread", "words"),
    [
        (
            "done",
            ("I will.", "reminded", "look", "seen a", "saved x", "Asserted: done", "All of it."),
        ),
        ("limit", ("look", "Turn limit reached")),
        ("error", ("The model failed", "RuntimeError: down")),
        ("asks", ("do it", "Which one?")),
    ],
)
def test_a_thread_is_shown_turn_by_turn(made: tuple[Path, Any], thread: str, words: tuple[str, ...]) -> None:
    result = signoff(made[0], "show", thread)
    assert result.exit_code == 0, result.output
    assert [one for one in words if one not in result.stdout] == []
    told(made[0], "show", thread)


def test_stats_count_the_tasks_that_ended(made: tuple[Path, Any]) -> None:
    found = told(made[0], "stats")
    assert found["tasks"] == 3
    assert found["exits"]["status"] == {"success": 1, "limit": 1, "error": 1}


@pytest.mark.parametrize(
    "words",
    [
        ("extend", "limit", "3"),
        ("retry", "error"),
        ("resume", "asks", "red"),
        ("resume", "asks"),
        ("fork", "done"),
        ("fork", "asks", "--at", "1"),
    ],
)
def test_what_would_go_on_says_where_it_goes_on(made: tuple[Path, Any], words: tuple[str, ...]) -> None:
    before = told(made[0], "show", words[1])
    result = signoff(made[0], *words)
    assert result.exit_code != 0
    assert "continues only in its own program" in result.output
    assert told(made[0], "show", words[1]) == before


@pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
@pytest.mark.parametrize(("name", "more"), [("limit", extend), ("error", retry)])
def test_its_own_program_goes_on(maker: Any, name: str, more: Any, tmp_path: Path) -> None:
    script, rules, _ = ENDS[name]
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        agent(maker, storage, script, **rules).invoke(GO, config(name))
    with sqlite_storage(file) as storage:
        later = agent(maker, storage, [DONE], **rules)
        state = later.get_state(config(name))
        later.invoke(more(state, turns=2) if more is extend else more(state), config(name))
        assert outcome_of(later.get_state(config(name))).succeeded
    (row,) = told(file, "threads")
    assert (row["status"], row["reason"]) == ("success", "finish_task")


@pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
def test_what_was_answered_waits_no_more(maker: Any, tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        agent(maker, storage, [ASKS]).invoke(GO, config("one"))
        assert [one["status"] for one in told(file, "threads")] == ["waiting"]
        agent(maker, storage, [DONE]).invoke(Command(resume="The red one."), config("one"))
    assert [one["status"] for one in told(file, "threads")] == ["success"]
