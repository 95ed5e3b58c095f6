"""`signoff show THREAD --html FILE`: what the page of a run tells, however the thread stands."""

import re
from asyncio import CancelledError
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.machine import State
from tests.support.benches.cli import CUT_OFF, Bench, steps, undone_elsewhere
from tests.support.benches.cli_steps import CONFIRM, DONE, LOOK
from tests.support.benches.page import Node
from tests.support.benches.page_shown import (
    ASK,
    Stand,
    badge,
    ended,
    facts,
    last_card,
    shown,
    titles,
)

EDIT = 'call("edit_file", path="config.py", old="PORT = 3000\\n", new="PORT = 4000\\n")'
SHELL = 'call("run_shell", command="echo 7 > new; exit 3")'
BLOCKED = 'call("finish_task", summary="No rights.", outcome="blocked")'
WRITE = 'call("write_file", path="a", content="one\\ntwo")'
TALK = f'reply("I look.", {LOOK})', '"Hm."', ASK, EDIT, SHELL, DONE


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def interrupted(bench: Bench) -> None:
    bench.model(steps(LOOK, CUT_OFF))
    with suppress(CancelledError):
        bench.run("Do it")


# How a thread stands, what the head says and its colour, the title of the last card, what it tells.
STANDS: dict[str, tuple[Stand, str, str, list[str]]] = {
    "success": (ended(DONE), "◐ Asserted: done", "amber", ["All done."]),
    "checked": (ended(DONE, options=("--check", "true")), "✓ Verified: done", "green", ["All done."]),
    "blocked": (ended(BLOCKED), "◐ Asserted: blocked", "amber", ["No rights."]),
    "confirmed": (ended(CONFIRM, answers=("yes",)), "◐ Asserted: done", "amber", ["A person confirmed"]),
    "limit": (ended(LOOK, options=("--turns", "1")), "■ Turn limit reached", "amber", []),
    "error": (ended(LOOK, "ValueError('x')"), "✗ The model failed", "red", ["ValueError"]),
    "undone": (undone_elsewhere, "↶ Asserted: done, and undone since", "amber", ["Removed from blue."]),
    "stopped": (interrupted, "‖ Stopped", "amber", []),
    "question": (
        ended(ASK), "? Waiting for an answer", "violet", ["Which port?", "9090", "signoff resume t1"]
    ),
    "approval": (
        ended(WRITE, options=("--approve", "write")), "? Waiting for approval", "violet",
        ["write_file", "+ one", "+ two", "signoff resume t1 approve@"],
    ),
    "confirmation": (
        ended(CONFIRM), "? Waiting for confirmation", "violet", ["All done.", "signoff resume t1 yes@"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STANDS)
def test_how_a_thread_stands(bench: Bench, case: str) -> None:
    stand, head, tone, tells = STANDS[case]
    stand(bench)
    root = shown(bench)
    assert badge(root) == (head, {tone})
    card = last_card(root)
    assert tone in card.classes
    assert [part for part in tells if part not in card.text] == []
    assert str(bench.database) not in card.text
    assert root.one("h1").text == "t1"


def test_a_running_thread(bench: Bench) -> None:
    bench.run()
    with sqlite_storage(bench.database) as storage, storage.runner("t1"):
        root = shown(bench)
    assert badge(root) == ("▶ Running", {"blue"})


def test_each_turn_with_what_was_said_done_and_answered(bench: Bench) -> None:
    ended(*TALK, options=("--tools", "files,shell"), answers=("8080",))(bench)
    root = shown(bench)
    turns = root.all("article", "turn")
    assert [turn.attributes["id"] for turn in turns] == [f"turn-1-{number}" for number in range(1, 7)]
    look, talk, ask, edit, run, _ = turns
    assert look.one(class_="said").text == "I look."
    assert look.one("details", "ok").one("code", "tool").text == "read_file"
    assert "PORT = 3000" in look.one("details", "ok").one("pre", "result").text
    assert talk.all("details", "amber")
    assert titles(ask, "violet") == ["The model asked"]
    assert ask.one(class_="answer").text.endswith("8080")
    assert [row.text for row in edit.one("pre", "diff").all("span", "del")] == ["- PORT = 3000\n"]
    assert [row.text for row in edit.one("pre", "diff").all("span", "add")] == ["+ PORT = 4000\n"]
    assert "Exit code 3" in run.one("details", "bad").text
    assert "open" in run.one("details", "bad").attributes
    told = [turn["steps"] for turn in bench.json("show", "t1")["tasks"][0]["turns"]]
    ways = [turn.one(class_="states").text.split(" → ") for turn in turns]
    assert ways == [[step["state"] for step in path] for path in told]
    signs = [link.attributes["title"] or "" for link in root.one("nav", "overview").all("a")]
    assert [sign.partition(": ")[2] for sign in signs if sign] == [
        "worked", "reminded", "a person answered", "worked", "worked", "signed off"
    ]  # fmt: skip


def test_thoughts_phases_and_refused_finishes_are_cards(bench: Bench) -> None:
    phase = 'call("finish_task", summary="Half.", completion_percentage=50, next_phase="The rest")'
    think = 'call("think", thought="First the port.", approach="Step by step", status="begun")'
    refused = [
        f'[call("read_file", path="missing"), call("finish_task", {words})]'
        for words in ('summary="In a"', 'reason="In b"')
    ]
    ended(think, phase, *refused, DONE)(bench)
    root = shown(bench)
    assert titles(root, "blue") == ["Thought", "50 % done"]
    assert titles(root, "amber") == ["The finish was refused"] * 2 + ["Asserted: done"]
    thought, half, *cards, done = root.all("section", "card")
    assert [part in thought.text for part in ("First the port.", "Step by step", "begun")] == [True] * 3
    assert half.one("progress").attributes["value"] == "50"
    assert "The rest" in half.text
    assert [card.one("blockquote").text for card in cards] == ["In a", "In b"]
    assert "Half." in done.text


# What a person decides on a call, and how the page marks it and shows the call.
DECISIONS = {
    "reject: not now": ("✗", "not now", "not-run"),
    '[{"type": "respond", "message": "x"}]': ("✓", "", "ok"),
}


@pytest.mark.parametrize("answer", DECISIONS)
def test_what_a_person_decided_on_a_call(bench: Bench, answer: str) -> None:
    sign, words, look = DECISIONS[answer]
    ended(WRITE, DONE, options=("--approve", "write"), answers=(answer,))(bench)
    call = shown(bench).all("details", "call")[0]
    assert look in call.classes
    told = call.one("span", "person").text
    assert (told[0], words in told) == (sign, True)


def test_a_fork_says_where_it_left_its_thread(bench: Bench) -> None:
    ended(LOOK, LOOK, DONE)(bench)
    bench("fork", "t1", "--at", "1", "--to", "copy")
    bench("resume", "copy")
    root = shown(bench, "copy")
    (mark,) = root.all("div", "forked")
    parts = [part for part in root.one("section", "task").parts if isinstance(part, Node)]
    turns = [at for at, part in enumerate(parts) if part.name == "article"]
    assert turns[0] < parts.index(mark) < turns[1]
    assert [bool(turn.all(class_="way")) for turn in root.all("article")] == [False, True, True]
    assert shown(bench).all("div", "forked") == []


def test_the_figures_of_all_tasks_and_headings_in_order(bench: Bench) -> None:
    ended(LOOK, LOOK, DONE, DONE, options=("--turns", "2"))(bench)
    bench("resume", "t1", "--turns", "3")
    bench("run", "And more", "--thread", "t1")
    told = bench.json("show", "t1")
    root = shown(bench)
    figures, about = facts(root, "figures"), facts(root, "about")
    used = sum(task["outcome"]["usage"]["total_tokens"] for task in told["tasks"])
    assert (figures["Tasks"], figures["Turns"], figures["Tokens"]) == ("2", "4", f"{used:,}")
    assert about["Workspace"] == str(bench.workspace)
    assert [node.text for node in root.all(class_="number")] == ["1", "2", "3", "1"]
    levels = [int(node.name[1]) for node in root.walk() if re.fullmatch(r"h\d", node.name)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert root.one("html").attributes["lang"] == "en"
    assert all(root.one(name).attributes["aria-label"] for name in ("aside", "nav"))


def test_the_machine_has_the_path_that_the_thread_took(bench: Bench) -> None:
    STANDS["question"][0](bench)
    root = shown(bench)
    visits = Counter(row.all("td")[1].text for row in root.one("main").all("tr") if row.all("td"))
    boxes = {box.one("text", "name").text: box for box in root.one("aside").all("g", "box")}
    assert set(boxes) == set(State)
    for name, box in boxes.items():
        told = "".join(node.text for node in box.all("text", "visits"))
        assert int(told.split()[0] if told else 0) == visits[name]
        assert ("lit" in box.classes) == bool(visits[name])
    assert [name for name, box in boxes.items() if "here" in box.classes] == ["ask_user"]
