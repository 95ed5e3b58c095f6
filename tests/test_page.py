"""`signoff show THREAD --html FILE`: what a page tells of a thread, however it stands."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from signoff import build_graph
from signoff.locks import thread_lock
from signoff.models import ScriptedModel
from signoff.page import page
from signoff.session.events import CallFinished, Nudged
from signoff.session.history import Turn
from signoff.storage import sqlite_storage
from tests.cli_bench import Bench, steps
from tests.page_bench import TASK, Node, outcome, read, run_of

DONE = 'call("finish_task", summary="All is done.")'
LOOK = 'call("read_file", path="config.py")'
EDIT = 'call("edit_file", path="config.py", old="PORT = 3000\\n", new="PORT = 4000\\n")'
ASK = 'call("ask_user", question="Which port?", options=["8080", "9090"])'
SHELL = 'call("run_shell", command="echo 7 > new; exit 3")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shown(bench: Bench, thread: str = "t1") -> Node:
    found = bench("show", thread, "--html", "-")
    assert (found.exit_code, found.stderr) == (0, "")
    return read(found.stdout)


def facts(root: Node, class_: str) -> dict[str, str]:
    """The names and values of a list in the head."""
    rows = root.one("dl", class_).all("div")
    return {row.one("dt").text: row.one("dd").text for row in rows}


def badge(root: Node) -> tuple[str, set[str]]:
    found = root.one(class_="badge")
    return found.text, found.classes - {"badge"}


def titles(root: Node, tone: str) -> list[str]:
    """The titles of the cards of this colour, without their signs."""
    cards = [node for node in root.all("section", "card") if tone in node.classes]
    return [card.all(class_="title")[0].text.partition(" ")[2] for card in cards]


def last_card(root: Node) -> Node:
    return root.all("section", "card")[-1]


# How a thread stands.

Stand = Callable[[Bench], object]


def ended(*script: str, options: tuple[str, ...] = ()) -> Stand:
    def stand(bench: Bench) -> None:
        bench.model(steps(*script))
        bench.run("Do it", *options)

    return stand


def nothing(bench: Bench) -> None:
    with sqlite_storage(str(bench.database)) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "t1"}})


def interrupted(bench: Bench) -> None:
    bench.model(steps(LOOK, "KeyboardInterrupt()"))
    bench.run("Do it")


CONFIRM = 'call("finish_task", summary="Look.", requires_user_confirmation=True)'
BLOCKED = 'call("finish_task", summary="No rights.", outcome="blocked")'
STANDS: dict[str, tuple[Stand, str, str, str]] = {
    # how → what the head says and its colour, what the last card says
    "success": (ended(DONE), "✓ Done", "green", "✓ Done"),
    "blocked": (ended(BLOCKED), "◐ Blocked", "amber", "◐ Blocked"),
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
        ["write_file", "a.md", "+ one", "+ two", "signoff resume t1 approve", "reject: your reason"],
    ),
    "confirmation": (
        'call("finish_task", summary="Look.", pending_issues=["A hole"])',
        [],
        ["Look.", "Claim: done", "A hole", "signoff resume t1 yes", "'what is wrong'"],
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


# The timeline.


def test_each_turn_with_what_was_said_done_and_answered(bench: Bench) -> None:
    bench.model(steps(f'reply("I look.", {LOOK})', '"Hm."', ASK, EDIT, SHELL, DONE))
    bench.run("Change it", "--tools", "files,shell")
    bench("resume", "t1", "8080")
    root = shown(bench)
    turns = root.all("article", "turn")
    assert [turn.one(class_="number").text for turn in turns] == ["1", "2", "3", "4", "5", "6"]
    assert [turn.attributes["id"] for turn in turns] == [f"turn-1-{number}" for number in range(1, 7)]
    look, talk, ask, edit, shell, done = turns
    assert look.one(class_="said").text == "I look."
    assert look.one("details", "ok").one("code", "tool").text == "read_file"
    assert "PORT = 3000" in look.one("details", "ok").one("pre", "result").text
    assert "reminded the model: it answered with text only" in talk.one("details", "amber").text
    assert titles(ask, "violet") == ["The model asked"]
    assert ask.one(class_="answer").text.endswith("8080")
    assert [row.text for row in edit.one("pre", "diff").all("span", "del")] == ["- PORT = 3000\n"]
    assert [row.text for row in edit.one("pre", "diff").all("span", "add")] == ["+ PORT = 4000\n"]
    assert "Exit code 3" in shell.one("details", "bad").text
    assert "open" in shell.one("details", "bad").attributes
    assert "signed off" in done.text
    ways = [turn.one(class_="states").text.split(" → ") for turn in turns]
    told = [
        [step["state"] for step in turn["steps"]] for turn in bench.json("show", "t1")["tasks"][0]["turns"]
    ]
    assert ways == told
    signs = [link.attributes["title"] for link in root.one("nav", "overview").all("a")]
    assert [sign.partition(": ")[2] for sign in signs if sign] == [
        "worked", "reminded", "a person answered", "worked", "worked", "signed off"
    ]  # fmt: skip


def test_each_step_with_its_rule_and_why(bench: Bench) -> None:
    ended(LOOK, LOOK, options=("--turns", "2"))(bench)
    root = shown(bench)
    told = [
        (step["state"], step["event"], " ".join((step["rule"], step["why"])).strip())
        for turn in bench.json("show", "t1")["tasks"][0]["turns"]
        for step in turn["steps"]
    ]
    rows = [row.all("td") for turn in root.all("article") for row in turn.one("table").one("tbody").all("tr")]
    assert [tuple(cell.text for cell in row[1:]) for row in rows] == told
    rules = [node.text for node in root.all("p", "rule")]
    assert rules == ["Rule near_limit 1 of 2 turns are used", "Rule turns 2 of 2 turns are used"]
    first = root.all(class_="way")[0]
    assert first.one(class_="states").text == "compress → decide"


def test_thoughts_phases_and_refused_finishes_are_cards(bench: Bench) -> None:
    phase = 'call("finish_task", summary="Half.", completion_percentage=50, next_phase="The rest")'
    think = 'call("think", thought="First the port.", approach="Step by step", status="begun")'
    ended(think, phase, LOOK, 'call("finish_task", summary="")', DONE)(bench)
    root = shown(bench)
    assert titles(root, "blue") == ["Thought", "50 % done"]
    assert titles(root, "amber") == ["The finish was refused"]
    assert titles(root, "green") == ["Done"]
    thought, half = [card for card in root.all("section", "card") if "blue" in card.classes]
    assert [part in thought.text for part in ("First the port.", "Step by step", "begun")] == [True] * 3
    assert half.one("progress").attributes["value"] == "50"
    assert "Next: The rest" in half.text
    done = last_card(root)
    assert "Half." in done.text
    assert [badge.text for badge in done.one("ul", "badges").all("li")] == [
        "Claim: done", "Asserted: no check ran"
    ]  # fmt: skip


def test_a_finish_that_a_person_sent_back_and_one_that_a_person_confirmed(bench: Bench) -> None:
    bench.model(steps(CONFIRM, CONFIRM))
    bench.run("Do it")
    bench("resume", "t1", "the README is wrong")
    bench("resume", "t1", "yes")
    root = shown(bench)
    (sent,) = [card for card in root.all("section", "card") if "violet" in card.classes]
    assert sent.all(class_="title")[0].text == "↩ A person sent the finish back"
    assert "the README is wrong" in sent.text
    assert "A person confirmed it" in last_card(root).one("ul", "badges").text


DECISIONS = {
    "approve": ("approve", "✓ A person approved this call", "ok"),
    "reject": ("reject: not now", "✗ A person rejected this call: not now", "not-run"),
    "edit": (
        '[{"type": "edit", "edited_action": {"name": "write_file", "args": {"path": "b", "content": "y"}}}]',
        "✓ A person changed this call",
        "ok",
    ),
    "respond": ('[{"type": "respond", "message": "It is there."}]', "✓ A person answered in its place", "ok"),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_what_a_person_decided_on_a_call(bench: Bench, case: str) -> None:
    answer, told, look = DECISIONS[case]
    ended('call("write_file", path="a", content="x")', DONE, options=("--approve", "write"))(bench)
    bench("resume", "t1", answer)
    root = shown(bench)
    found = root.all("details", "call")[0]
    assert look in found.classes
    assert found.one("span", "person").text.startswith(told)


def test_a_decision_of_an_earlier_task_is_told_though_it_is_not_kept(bench: Bench) -> None:
    write = 'call("write_file", path="a", content="x")'
    ended(write, DONE, write, DONE, options=("--approve", "write"))(bench)
    bench("resume", "t1", "approve")
    bench("run", "More", "--thread", "t1")
    bench("resume", "t1", "approve")
    first, _, second, _ = shown(bench).all("article")
    assert "A person decided on calls of this turn." in first.text
    assert "A person approved this call" in second.text
    assert "A person decided on calls of this turn." not in second.text


def test_a_fork_says_where_it_left_its_thread(bench: Bench) -> None:
    ended(LOOK, LOOK, DONE)(bench)
    bench("fork", "t1", "--at", "1", "--to", "copy")
    bench("resume", "copy")
    root = shown(bench, "copy")
    assert "Forked" in facts(root, "about")
    (mark,) = root.all("div", "forked")
    (task,) = root.all("section", "task")
    order = [part for part in task.parts if isinstance(part, Node)]
    places = [at for at, part in enumerate(order) if part.name == "article"]
    assert places[0] < order.index(mark) < places[1]
    assert [bool(turn.all(class_="way")) for turn in root.all("article")] == [False, True, True]
    assert root.all("div", "forked") == [mark]
    assert shown(bench).all("div", "forked") == []


def test_an_extended_task_goes_on_in_the_same_timeline(bench: Bench) -> None:
    ended(LOOK, LOOK, DONE, options=("--turns", "2"))(bench)
    bench("extend", "t1", "1")
    root = shown(bench)
    assert [node.text for node in root.all(class_="number")] == ["1", "2", "3"]
    assert [node.text for node in root.all("p", "note")] == ["▸ The task goes on"]


SIGNS: dict[str, tuple[CallFinished | Nudged, str]] = {
    "a call that failed": (CallFinished(1, "a", {}, False, "no"), "a call failed"),
    "a finish that did not count": (CallFinished(1, "finish_task", {}, False, "no"), "finish did not count"),
    "a task that goes on is no reminder": (Nudged("resumed", ""), "replied"),
}


@pytest.mark.parametrize("case", SIGNS)
def test_the_sign_of_a_turn(case: str) -> None:
    event, told = SIGNS[case]
    turns = [Turn(TASK, number, "", (event,)) for number in range(1, 6)]
    link = read(page(run_of(*turns))).one("nav", "overview").all("a")[0]
    assert link.attributes["title"] == f"Turn 1: {told}"
    assert link.text.endswith(f"Turn 1: {told}")


RESULTS = {
    "JSON": ({"total": 12, "items": ["a"]}, '{"total": 12, "items": ["a"]}'),
    "text": ("twelve", "twelve"),
    "zero": (0, "0"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_the_result_of_a_task(case: str) -> None:
    value, told = RESULTS[case]
    root = read(page(run_of(Turn(TASK, 1, ""), ended=outcome(summary="x", result=value))))
    assert last_card(root).one("pre", "result").text == told


VERIFIED = {
    "verified": "Verified: its checks ran and passed",
    "asserted": "Asserted: no check ran",
    "unverified": "Unverified: its checks did not pass; a person accepted it",
}


@pytest.mark.parametrize("verified", VERIFIED)
def test_whether_it_was_checked(verified: str) -> None:
    root = read(page(run_of(Turn(TASK, 1, ""), ended=outcome(summary="x", verified=verified))))
    assert VERIFIED[verified] in last_card(root).one("ul", "badges").text


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
