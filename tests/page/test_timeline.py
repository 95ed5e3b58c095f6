"""`signoff show THREAD --html FILE`: what the timeline of a page tells of each turn."""

from pathlib import Path

import pytest

from signoff.events import CallFinished, Nudged
from signoff.graph.vocabulary import VERIFIED as VOCABULARY
from signoff.page import Run, page
from signoff.session.history import Chapter, Turn
from tests.support.benches.cli import Bench, steps, undone_elsewhere
from tests.support.benches.page import TASK, Node, outcome, read, run_of
from tests.support.benches.page_shown import (
    ASK,
    CONFIRM,
    DONE,
    EDIT,
    LOOK,
    SHELL,
    ended,
    facts,
    last_card,
    shown,
    titles,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
    assert titles(root, "amber") == ["The finish was refused", "Asserted: done"]
    assert titles(root, "green") == []
    thought, half = [card for card in root.all("section", "card") if "blue" in card.classes]
    assert [part in thought.text for part in ("First the port.", "Step by step", "begun")] == [True] * 3
    assert half.one("progress").attributes["value"] == "50"
    assert "Next: The rest" in half.text
    done = last_card(root)
    assert "Half." in done.text
    assert [badge.text for badge in done.one("ul", "badges").all("li")] == [
        "Claim: done", f"Asserted: {VOCABULARY['asserted'].meaning}"
    ]  # fmt: skip


REFUSED = {
    "the summary": ('summary="In a"', "In a"),
    "the reason, where that is missing": ('reason="In b"', "In b"),
    "the reason, where that is empty": ('summary=" ", reason="In c"', "In c"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_finish_quotes_what_the_machine_takes_as_its_summary(bench: Bench, case: str) -> None:
    words, said = REFUSED[case]
    ended(f'[call("read_file", path="missing"), call("finish_task", {words})]', DONE)(bench)
    cards = shown(bench).all("section", "card")
    (refused,) = [card for card in cards if "The finish was refused" in card.text]
    assert refused.one("blockquote").text == said


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
    bench("resume", "t1", bench.decide(answer))
    root = shown(bench)
    found = root.all("details", "call")[0]
    assert look in found.classes
    assert found.one("span", "person").text.startswith(told)


def test_a_decision_of_an_earlier_task_is_told_though_it_is_not_kept(bench: Bench) -> None:
    write = 'call("write_file", path="a", content="x")'
    ended(write, DONE, write, DONE, options=("--approve", "write"))(bench)
    bench("resume", "t1", bench.decide())
    bench("run", "More", "--thread", "t1")
    bench("resume", "t1", bench.decide())
    first, _, second, _ = shown(bench).all("article")
    assert "A person decided on calls of this turn." in first.text
    assert "A person approved this call" in second.text
    assert "A person decided on calls of this turn." not in second.text


def test_what_was_undone_and_what_stands(bench: Bench) -> None:
    undone_elsewhere(bench)
    card = last_card(shown(bench))
    assert "done, and undone since" in card.text
    named = {part.one(class_="label").text: part.one("li").text for part in card.all("div", "named")}
    assert named["Undone"].endswith("Removed from blue.")
    assert "its tool has no undo" in named["Not undone, and standing"]


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
    bench("resume", "t1", "--turns", "1")
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


@pytest.mark.parametrize("verified", VOCABULARY)
def test_whether_it_was_checked(verified: str) -> None:
    root = read(page(run_of(Turn(TASK, 1, ""), ended=outcome(summary="x", verified=verified))))
    word = VOCABULARY[verified]
    assert f"{word.shown}: {word.meaning}" in last_card(root).one("ul", "badges").text


def test_the_time_of_calls_is_active_also_where_no_outcome_tells_it() -> None:
    """As in the tasks before a fork."""
    slow = CallFinished(1, "run_shell", {"command": "make"}, True, "made", seconds=3.0)
    run = run_of(Turn("earlier", 1, "x", (slow,), seconds=0.5))
    earlier = Run(run.status, [Chapter("earlier", ("Do it",), run.chapters[0].turns)], {}, [])
    assert earlier.totals.active == 3.5
