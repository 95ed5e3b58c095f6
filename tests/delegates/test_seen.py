"""Where delegates are seen: what a thread's record, its page and the figures tell of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command
from typer.testing import CliRunner, Result

from signoff import build_graph, delegate, sqlite_storage
from signoff.cli.app import app
from signoff.front.record.reading import read_run
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.web.render import RenderedThread, Stand

THREAD: Any = {"configurable": {"thread_id": "t"}}
ASK = call("ask_user", question="Which one?")
DONE = call("finish_task", summary="Found it.")
pytestmark = pytest.mark.filterwarnings("ignore:approvals= needs a checkpointer")


def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


look.metadata = {"kind": "read"}  # type: ignore[attr-defined]  # a function takes any attribute


def team(storage: Any) -> Graph:
    """A lead with one that works, and one that asks below another."""
    deep = delegate("deep", build_graph(ScriptedModel([ASK, DONE])), description="Asks.")
    middle = build_graph(ScriptedModel([call("deep", task="Ask it."), DONE]), [deep])
    works = build_graph(ScriptedModel([call("look", n=7), DONE]), [look])
    made = [
        delegate("works", works, description="Works."),
        delegate("middle", middle, description="Delegates."),
    ]
    lead = [call("works", task="Look."), call("middle", task="Have it asked.")]
    return build_graph(ScriptedModel([lead, call("finish_task", summary="All.")]), made, storage=storage)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A thread in which the deepest one waits."""
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        team(storage).invoke({"messages": [("user", "go")]}, THREAD)
    return tmp_path / "t.sqlite"


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = team(storage)
        graph.invoke({"messages": [("user", "go")]}, THREAD)
        graph.invoke(Command(resume="the blue one"), THREAD)
    return tmp_path / "t.sqlite"


def signoff(*words: str, database: Path) -> Result:
    return CliRunner().invoke(app, [*words, "--database", str(database)], env={"COLUMNS": "120"})


def said(*words: str, database: Path) -> list[str]:
    result = signoff("show", "t", *words, database=database)
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def test_the_turns_of_a_delegate_stand_indented_below_the_call(ended: Path) -> None:
    shown = said(database=ended)
    heads = [line for line in shown if "▾" in line]
    assert [line.split(" · ")[0] for line in heads] == [
        "    ▾ works",
        "    ▾ middle",
        "        ▾ middle/deep",
    ]
    assert "      1 ✓ look  n=7" in shown
    asked = next(line for line in shown if "Which one?" in line)
    assert asked.startswith(" " * 8)


@pytest.mark.parametrize(
    ("depth", "heads"),
    [
        ("0", ["▸ works", "▸ middle"]),
        ("1", ["▾ works", "▾ middle", "▸ middle/deep"]),
        ("2", ["▾ works", "▾ middle", "▾ middle/deep"]),
    ],
)
def test_they_fold(ended: Path, depth: str, heads: list[str]) -> None:
    shown = said("--depth", depth, database=ended)
    found = [line.split(" · ")[0].strip() for line in shown if "▸" in line or "▾" in line]
    assert found == heads
    assert any("look  n=7" in line for line in shown) == (depth != "0")


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A thread that waits for three: two questions, and an approval."""
    asking = {name: build_graph(ScriptedModel([ASK, DONE])) for name in ("left", "right")}
    looks = ScriptedModel([[call("look", n=1), call("look", n=2)], DONE])
    asking["looks"] = build_graph(looks, [look], approvals={"look": True})
    made = [delegate(name, graph, description="Asks.") for name, graph in asking.items()]
    lead = [call(one.name, task="Go.") for one in made]
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([lead, DONE]), made, storage=storage)
        graph.invoke({"messages": [("user", "go")]}, THREAD)
    return tmp_path / "t.sqlite"


SEVERAL = ["left", "right", "looks"]


def test_all_that_waits_is_shown_each_with_the_command_that_answers_it(several: Path) -> None:
    shown = said(database=several)
    heads = [line for line in shown if line.endswith(":") and "(" in line]
    assert [re.findall(r"\((\w+)\)", line)[0] for line in heads] == SEVERAL
    document = json.loads("\n".join(said("--json", database=several)))
    waits = document["waits"]
    assert [(one["type"], one["path"]) for one in waits] == [
        ("question", ["left"]),
        ("question", ["right"]),
        ("approval", ["looks"]),
    ]
    for one in waits:
        assert f" --to {one['interrupt_id'][:8]} " in one["resume"]
        assert any(line.endswith(one["resume"]) for line in shown)


def test_one_that_waits_alone_needs_no_id(waiting: Path) -> None:
    document = json.loads("\n".join(said("--json", database=waiting)))
    (only,) = document["waits"]
    assert (only["path"], only["resume"]) == (["middle", "deep"], document["resume"])
    assert "--to" not in only["resume"]


def test_the_page_shows_all_that_waits(several: Path) -> None:
    page = several.with_suffix(".html")
    assert signoff("show", "t", "--html", str(page), database=several).exit_code == 0
    text = page.read_text("utf-8")
    assert text.count("Which one?") == 2
    assert len(set(re.findall(r"--to [0-9a-f]{8}", text))) == 3


def test_the_document_nests_them(ended: Path) -> None:
    document = json.loads("\n".join(said("--json", database=ended)))
    works, middle = document["tasks"][0]["turns"][0]["delegates"]
    assert (works["path"], works["status"], works["totals"]["turns"]) == (["works"], "success", 2)
    (deep,) = middle["tasks"][0]["turns"][0]["delegates"]
    assert deep["path"] == ["middle", "deep"]
    assert deep["tasks"][0]["turns"][0]["events"][0]["answer"] == "the blue one"
    folded = json.loads("\n".join(said("--json", "--depth", "1", database=ended)))
    assert (
        "tasks" not in folded["tasks"][0]["turns"][0]["delegates"][1]["tasks"][0]["turns"][0]["delegates"][0]
    )


def test_one_that_waits_is_shown_before_its_call_has_a_result(waiting: Path) -> None:
    shown = said(database=waiting)
    assert [line.split(" · ")[:2] for line in shown if "▾" in line] == [
        ["    ▾ works", "Asserted: done"],
        ["    ▾ middle", "Waiting for an answer"],
        ["        ▾ middle/deep", "Waiting for an answer"],
    ]


def html(database: Path) -> str:
    result = signoff("show", "t", "--html", "-", database=database)
    assert result.exit_code == 0, result.output
    return result.stdout


def web(database: Path) -> str:
    with sqlite_storage(database) as storage:
        parts = RenderedThread().parts(read_run(storage, "t"), Stand())
    return "".join(parts.values())


SURFACES = pytest.mark.parametrize("surface", [html, web])


@SURFACES
def test_a_page_folds_them_and_draws_their_machines(ended: Path, surface: Callable[[Path], str]) -> None:
    page = surface(ended)
    assert page.count('<details class="delegate') == 3
    assert page.count('class="machine-below"') == 3
    assert page.count("<svg") == 4
    assert "seen 7" in page
    anchors = re.findall(r'<article class="turn" id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors)) == 8


@SURFACES
def test_a_page_shows_one_that_waits_unfolded(waiting: Path, surface: Callable[[Path], str]) -> None:
    page = surface(waiting)
    assert len(re.findall(r'<details class="delegate [a-z]+" open>', page)) == 2


def test_the_figures_tell_them_apart(ended: Path) -> None:
    document = json.loads(signoff("stats", "--json", database=ended).stdout)
    assert document["tasks"] == 1
    assert {
        name: (one["calls"], one["done"], one["turns"]) for name, one in document["delegates"].items()
    } == {
        "middle": (1, 1, 4),
        "works": (1, 1, 2),
    }
    assert "delegates" in signoff("stats", database=ended).stdout
    assert "works 1, 1 done (100%): 2 turns · 1 tool calls" in signoff("stats", database=ended).stdout
