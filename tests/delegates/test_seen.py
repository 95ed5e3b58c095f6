"""Where delegates are seen: the events of a session, the commands show, resume, replay and stats, the page,
and the drawing of the graph."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from typer.testing import CliRunner

from signoff import Answer, Graph, Question, Session, Storage, sqlite_storage
from signoff.cli.app import app
from signoff.events import (
    Answered,
    CallFinished,
    CallProgress,
    CallStarted,
    Decided,
    Said,
    SessionEvent,
    TaskEnded,
    Token,
    from_dict,
)
from signoff.models import call, reply
from tests.support.trees import ASK, DONE, GO, THREAD, by_turn, graph_of, hand_to, helper, look

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


# Events.


@tool
def pay(to: str) -> str:
    """Pay."""
    get_stream_writer()(f"paying {to}")
    return f"paid {to}"


SAYS_SO = reply("I am done.", call("finish_task", summary="Done."))


def two_sides(storage: Storage | None) -> Graph:
    """Two delegates beside each other; one of them has one, too, which asks."""
    deep = graph_of(by_turn(call("pay", to="deep"), ASK, SAYS_SO), [pay])
    left = graph_of(by_turn(hand_to("deep"), SAYS_SO), [helper(deep, "deep")])
    right = graph_of(by_turn(call("pay", to="right"), SAYS_SO), [pay])
    team = [helper(left, "left"), helper(right, "right")]
    model = by_turn(hand_to("left", "right"), SAYS_SO)
    return graph_of(model, team, limits={"tree_turns": 50}, storage=storage)


def of(events: Sequence[SessionEvent], path: tuple[str, ...], *kinds: type) -> list[Any]:
    return [event for event in events if event.path == path and isinstance(event, kinds)]


def test_what_happens_below_is_told_with_its_path(storage: Storage) -> None:
    session = Session(two_sides(storage), "t")
    events = list(session.events("go"))
    assert [one.name for one in of(events, (), CallStarted)] == ["left", "right"]
    assert [one.name for one in of(events, ("left",), CallStarted)] == ["deep"]
    for path in (("left", "deep"), ("right",)):
        (begun,), (ended,) = of(events, path, CallStarted), of(events, path, CallFinished)
        (wrote,) = of(events, path, CallProgress)
        assert (begun.name, ended.result, wrote.data) == ("pay", f"paid {path[-1]}", f"paying {path[-1]}")
        assert begun.call_id == ended.call_id == wrote.call_id
        assert [one.turn for one in of(events, path, Said)] == [1, 2]
    assert (len(of(events, ("right",), TaskEnded)), of(events, ("left", "deep"), TaskEnded)) == (1, [])
    assert isinstance(events[-1], Decided)
    assert isinstance(events[-1].decision, Question)
    assert events[-1].decision.path == ("left", "deep")
    # Its answer is told by the machine that asked; what it does then has the number of its turn.
    events = list(session.events(Answer("this")))
    (answered,) = of(events, ("left", "deep"), Answered)
    assert (answered.question, answered.answer) == ("Which one?", "this")
    assert [one.turn for one in of(events, ("left", "deep"), Said)] == [3]
    assert of(events, ("right",), Said, CallStarted, TaskEnded) == []
    assert [one.ok for one in of(events, (), CallFinished)] == [True, True]
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    assert [from_dict(one.to_dict()) for one in events] == events


def test_pieces_of_a_reply_below_are_its_own(storage: Storage) -> None:
    graph = graph_of(by_turn(hand_to("helper"), SAYS_SO), [helper(graph_of([SAYS_SO]))], storage=storage)
    events = list(Session(graph, "t").events("go"))
    for path in ((), ("helper",)):
        assert "".join(one.text for one in of(events, path, Token)) == "I am done."
        assert {one.message_id for one in of(events, path, Token)} == {of(events, path, Said)[-1].message_id}


@pytest.mark.parametrize("options", [{"delegates": False}, {"tokens": False}], ids=str)
def test_events_below_are_left_out_where_nobody_wants_them(options: Any, storage: Storage) -> None:
    events = list(Session(two_sides(storage), "t").events("go", **options))
    # What a tool below writes is not taken for a call of this machine that has the same id.
    assert ({event.path for event in events}, of(events, (), CallProgress)) == ({()}, [])


# Commands and pages.


def signoff(*words: str, database: Path) -> str:
    result = CliRunner().invoke(app, [*words, "--database", str(database)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*words: str, database: Path) -> Any:
    return json.loads(signoff(*words, "--json", database=database))


def team(storage: Any) -> Graph:
    """A lead with one that works, and one that asks below another."""
    middle = graph_of([hand_to("deep"), DONE], [helper(graph_of([ASK, DONE]), "deep")])
    works = graph_of([call("look", n=7), DONE], [look])
    below = [helper(works, "works"), helper(middle, "middle")]
    return graph_of([hand_to("works", "middle"), DONE], below, storage=storage)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A database with a thread in which the deepest one waits."""
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        team(storage).invoke(GO, THREAD)
    return tmp_path / "t.sqlite"


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        session = Session(team(storage), "t")
        session.run("go")
        session.resume("the blue one")
    return tmp_path / "t.sqlite"


def heads(shown: str) -> list[str]:
    """The lines that stand above the turns of a delegate, without what follows the name."""
    return [line.split(" · ")[0] for line in shown.splitlines() if "▸" in line or "▾" in line]


def test_show_has_the_turns_of_a_delegate_below_its_call_and_folds_them(ended: Path) -> None:
    shown, folded = (signoff("show", "t", *options, database=ended) for options in ((), ("--depth", "0")))
    assert heads(shown) == ["    ▾ works", "    ▾ middle", "        ▾ middle/deep"]
    assert heads(folded) == ["    ▸ works", "    ▸ middle"]
    assert ("look  n=7" in shown, "look  n=7" in folded) == (True, False)


def test_show_has_one_that_waits_before_its_call_has_a_result(waiting: Path) -> None:
    lines = signoff("show", "t", database=waiting).splitlines()
    waits = [line.split(" · ")[0].strip() for line in lines if "▾" in line and " · Waiting" in line]
    assert waits == ["▾ middle", "▾ middle/deep"]
    found = document("show", "t", database=waiting)
    (only,) = found["waits"]
    # One that waits alone needs no id.
    assert (only["path"], only["resume"]) == (["middle", "deep"], found["resume"])
    assert "--to" not in only["resume"]


def test_the_document_nests_them(ended: Path) -> None:
    works, middle = document("show", "t", database=ended)["tasks"][0]["turns"][0]["delegates"]
    assert (works["path"], works["status"], works["totals"]["turns"]) == (["works"], "success", 2)
    (deep,) = middle["tasks"][0]["turns"][0]["delegates"]
    assert deep["path"] == ["middle", "deep"]
    assert deep["tasks"][0]["turns"][0]["events"][0]["answer"] == "the blue one"


def several() -> Graph:
    looks = by_turn([call("look", n=1), call("look", n=2)], DONE)
    below = {"left": graph_of(by_turn(ASK, DONE)), "right": graph_of(by_turn(ASK, DONE))}
    below["looks"] = graph_of(looks, [look], approvals={"look": True})
    team = [helper(graph, name) for name, graph in below.items()]
    return graph_of(by_turn(hand_to(*below), DONE), team)


def test_all_that_waits_is_shown_each_with_the_command_that_answers_it(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    named = ["--graph", f"{__name__}:several", "--database", str(database)]

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*words, *named])
        return result.exit_code, result.output

    code, printed = run("run", "go", "--thread", "t")
    found = document("show", "t", database=database)
    assert (code, [one["path"] for one in found["waits"]]) == (4, [["left"], ["right"], ["looks"]])
    shown = signoff("show", "t", database=database)
    page = signoff("show", "t", "--html", "-", database=database)
    for wait in found["waits"]:
        assert wait["resume"] in shown
        assert f"--to {wait['interrupt_id'][:8]}" in page
    # What stops prints the command for the first that waits; an answer must say which one it is for.
    assert f"--to {found['waits'][0]['interrupt_id'][:8]}" in printed
    assert run("resume", "t", "this")[0] == run("resume", "t", "this", "--to", "nothing")[0] == 2
    codes = []
    for wait in reversed(found["waits"]):
        words = shlex.split(wait["resume"])
        to = ["--to", words[words.index("--to") + 1]]
        # The id of an approval is in what approves it.
        codes.append(run("resume", "t", words[-1], *([] if wait["type"] == "approval" else to))[0])
    assert codes == [4, 4, 0]


def html(database: Path) -> str:
    return signoff("show", "t", "--html", "-", database=database)


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_page_folds_them_draws_their_machines_and_unfolds_one_that_waits(
    is_ended: bool, request: pytest.FixtureRequest
) -> None:
    page = html(request.getfixturevalue("ended" if is_ended else "waiting"))
    assert page.count('<details class="delegate') == 3
    assert (page.count('class="machine-below"'), page.count("<svg")) == (3, 4)
    assert "seen 7" in page
    anchors = re.findall(r'<article class="turn" id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    assert len(re.findall(r'<details class="delegate [a-z]+" open>', page)) == (0 if is_ended else 2)


def test_the_figures_tell_them_apart(ended: Path) -> None:
    found = document("stats", database=ended)
    assert found["tasks"] == 1
    figures = {name: (one["calls"], one["done"], one["turns"]) for name, one in found["delegates"].items()}
    assert figures == {"middle": (1, 1, 4), "works": (1, 1, 2)}
    assert all(name in signoff("stats", database=ended) for name in figures)


# The drawing of LangGraph.


def itself() -> Graph:
    graph: Graph = graph_of([], [helper(lambda: graph, "again")])
    return graph


def two_of_one_name() -> Graph:
    search = helper(graph_of([]), "search")
    return graph_of([], [helper(graph_of([], [search]), name) for name in ("researcher", "execute")])


DRAWN: dict[str, tuple[Callable[[], Graph], list[str], int | bool, list[str]]] = {
    # The graph, its delegates, how deep is drawn, and the graphs that are drawn below it.
    "their names alone": (two_of_one_name, ["researcher", "execute"], False, []),
    "all levels, each with a name of its own": (
        two_of_one_name,
        ["researcher", "execute"],
        True,
        ["researcher", "search", "execute_2", "search_2"],
    ),
    "a graph that delegates to itself, once": (itself, ["again"], True, []),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_drawing_shows_which_delegates_a_graph_has(name: str) -> None:
    build, named, xray, drawn = DRAWN[name]
    graph = build().get_graph(xray=xray)
    assert (graph.nodes["execute"].metadata or {}).get("delegates", []) == named
    text = graph.draw_mermaid()
    assert (f"delegates = {', '.join(named)}" in text) is bool(named)
    assert re.findall(r"^\tsubgraph (\w+)$", text, re.MULTILINE) == drawn
