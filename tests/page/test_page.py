"""`signoff show THREAD --html FILE`: what a page tells of a thread however it stands, and how it is built."""

import re
from asyncio import CancelledError
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel
from signoff.storage.sqlite import thread_lock
from tests.support.benches.cli import CUT_OFF, Bench, steps
from tests.support.benches.page import Node
from tests.support.benches.page_shown import (
    ASK,
    CONFIRM,
    DONE,
    EDIT,
    LOOK,
    Stand,
    badge,
    ended,
    facts,
    last_card,
    shown,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# How a thread stands.


def nothing(bench: Bench) -> None:
    with sqlite_storage(str(bench.database)) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "t1"}})


def interrupted(bench: Bench) -> None:
    bench.model(steps(LOOK, CUT_OFF))
    with suppress(CancelledError):
        bench.run("Do it")


BLOCKED = 'call("finish_task", summary="No rights.", outcome="blocked")'
STANDS: dict[str, tuple[Stand, str, str, str]] = {
    # how → what the head says and its colour, what the last card says
    "success": (ended(DONE), "◐ Asserted: done", "amber", "◐ Asserted: done"),
    "checked": (ended(DONE, options=("--check", "true")), "✓ Verified: done", "green", "✓ Verified: done"),
    "blocked": (ended(BLOCKED), "◐ Asserted: blocked", "amber", "◐ Asserted: blocked"),
    "limit": (ended(LOOK, options=("--turns", "1")), "■ Turn limit reached", "amber", "■ Turn limit reached"),
    "error": (ended(LOOK, "ValueError('x')"), "✗ The model failed", "red", "✗ The model failed"),
    "error at once": (ended("ValueError('x')"), "✗ The model failed", "red", "✗ The model failed"),
    "no task": (nothing, "✗ No task", "red", "✗ No task"),
    "stopped": (interrupted, "‖ Stopped", "amber", "‖ Stopped"),
    "question": (ended(ASK), "? Waiting for an answer", "violet", "? The model asks"),
    "approval": (
        ended(EDIT, options=("--approve", "write")),
        "? Waiting for approval",
        "violet",
        "? Waiting for approval",
    ),
    "confirmation": (
        ended(CONFIRM),
        "? Waiting for confirmation",
        "violet",
        "? Finished? Please confirm",
    ),
}


@pytest.mark.parametrize("case", STANDS)
def test_how_a_thread_stands(bench: Bench, case: str) -> None:
    stand, head, tone, card = STANDS[case]
    stand(bench)
    root = shown(bench)
    assert badge(root) == (head, {tone})
    assert last_card(root).all(class_="title")[0].text == card
    assert tone in last_card(root).classes
    assert root.one("h1").text == "t1"


WAITS = {
    "question": (ASK, [], ["Which port?", "8080", "9090", "signoff resume t1 'your answer'"]),
    "approval": (
        'call("write_file", path="a.md", content="one\\ntwo")',
        ["--approve", "write"],
        ["write_file", "a.md", "+ one", "+ two", "signoff resume t1 approve@", ": your reason"],
    ),
    "confirmation": (
        'call("finish_task", summary="Look.", pending_issues=["A hole"], requires_user_confirmation=True)',
        [],
        ["Look.", "A hole", "signoff resume t1 yes@", "'what is wrong'"],
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_what_a_thread_waits_for_and_how_to_answer(bench: Bench, case: str) -> None:
    script, options, expected = WAITS[case]
    ended(script, options=tuple(options))(bench)
    text = last_card(shown(bench)).text
    assert [part for part in expected if part not in text] == []
    assert str(bench.database) not in text


def test_a_running_thread(bench: Bench) -> None:
    bench.run()
    with thread_lock(bench.database, "t1"):
        root = shown(bench)
    assert badge(root) == ("▶ Running", {"blue"})
    assert "It was running when this page was made." in last_card(root).text


# What the head says.


def test_the_figures_are_the_sums_over_all_tasks(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("run", "And more", "--thread", "t1")
    told = bench.json("show", "t1")
    root = shown(bench)
    figures, about = facts(root, "figures"), facts(root, "about")
    used = sum(task["outcome"]["usage"]["total_tokens"] for task in told["tasks"])
    assert (figures["Tasks"], figures["Turns"], figures["Tokens"]) == ("2", "5", f"{used:,}")
    assert about["Model"] == f"scripted:{Path(told['settings']['model']).name}"
    assert about["Workspace"] == str(bench.workspace)
    assert about["Limit"] == "30 turns a task"
    assert re.fullmatch(r"\d+ \w+ 20\d\d, \d\d:\d\d UTC", about["Began"])
    assert root.one(class_="lead").text == "Change it"
    assert [node.text for node in root.all("h2")] == ["Task 1", "Task 2", "The machine"]


# How it is built.


def test_headings_are_in_order_and_landmarks_are_named(bench: Bench) -> None:
    bench.run("Change it")
    bench("resume", "t1", "8080")
    bench("run", "And more", "--thread", "t1")
    root = shown(bench)
    levels = [int(node.name[1]) for node in root.walk() if re.fullmatch(r"h\d", node.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    body = root.one("html").one("body")
    parts = [part.name for part in body.parts if isinstance(part, Node)]
    assert parts == ["a", "header", "div", "footer"]
    assert [node.name for node in root.one(class_="columns").parts if isinstance(node, Node)] == [
        "main",
        "aside",
    ]
    assert root.one("html").attributes["lang"] == "en"
    assert root.one("aside").attributes["aria-label"]
    assert root.one("nav").attributes["aria-label"] == "Turns"
