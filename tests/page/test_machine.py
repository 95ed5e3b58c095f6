"""The machine on a page: the path that a thread took, counted as its checkpoints hold it."""

import re
from asyncio import CancelledError
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.front.record.machine import count_path
from signoff.graph.drawing.diagram import lines
from signoff.graph.drawing.layout import BOXES, DOORS
from signoff.graph.machine import LAST, TRANSITIONS, Event, State
from signoff.session.path import Step, steps
from tests.support.benches.cli import CUT_OFF, Bench
from tests.support.benches.cli import steps as script
from tests.support.benches.page import Node, read, steps_of

pytestmark = pytest.mark.slow

DONE = 'call("finish_task", summary="All done.")'
EMPTY = 'call("finish_task", summary="")'
CONFIRM = 'call("finish_task", summary="x", requires_user_confirmation=True)'
LOOK = 'call("read_file", path="config.py")'
WRITE = 'call("write_file", path="new.md", content="x")'
ASK = 'call("ask_user", question="Which?")'

RUNS: dict[str, tuple[str, list[str], list[list[str]], str]] = {
    # script, options, the commands after it → the state that it has come to, and what it does there
    "done": (script(LOOK, LOOK, DONE), [], [], "finish ended here"),
    "talk, refusals": (script('"Hm."', EMPTY, LOOK, EMPTY, DONE), [], [], "finish ended here"),
    "a limit, extended": (
        script(*[LOOK] * 3, DONE),
        ["--turns", "2"],
        [["resume", "t1", "--turns", "3"]],
        "finish ended here",
    ),
    "an error": (script(LOOK, "ValueError('x')"), [], [], "finish ended here"),
    "a question": (script(LOOK, ASK), [], [], "ask_user waits here"),
    "an answer": (script(ASK, DONE), [], [["resume", "t1", "blue"]], "finish ended here"),
    "an approval": (script(WRITE, DONE), ["--approve", "write"], [], "approve waits here"),
    "approved": (
        script(f"[{LOOK}, {WRITE}, {LOOK}]", DONE),
        ["--approve", "write"],
        [["resume", "t1", "approve"]],
        "finish ended here",
    ),
    "confirmed": (
        script(CONFIRM, CONFIRM),
        [],
        [["resume", "t1", "no"], ["resume", "t1", "yes"]],
        "finish ended here",
    ),
    "two tasks": (script(LOOK, DONE, DONE), [], [["run", "More", "-t", "t1"]], "finish ended here"),
    "stopped": (script(LOOK, CUT_OFF), [], [], "call_llm stopped here"),
}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Node, list[Step], str]:
    """The picture of a run, its path, and where it stands."""
    bench = Bench(tmp_path)
    text, options, commands, here = RUNS[request.param]
    bench.model(text)
    with suppress(CancelledError):
        bench.run("Do it", *options)
    for words in commands:
        bench(*(bench.decide() if word == "approve" else word for word in words))
    with sqlite_storage(str(bench.database)) as storage:
        path = steps(storage.checkpointer, "t1")
    return read(bench("show", "t1", "--html", "-").stdout).one("aside"), path, here


def edges(aside: Node) -> dict[tuple[str, str, str], tuple[int, set[str]]]:
    """Of each line by its ends and the events that it names: how often it was taken, and its looks."""
    found = {}
    for group in aside.one("svg").all("g"):
        title = group.parts[0].text if isinstance(group.parts[0], Node) else ""
        if told := re.fullmatch(r"(\w+) to (\w+): (.+), (?:taken ([\d,]+) times?|not taken)", title):
            count = int((told[4] or "0").replace(",", ""))
            found[told[1], told[2], told[3]] = count, group.one("path").classes
    return found


@pytest.mark.sample(3)
def test_every_line_has_the_count_of_the_path(run: tuple[Node, list[Step], str]) -> None:
    aside, path, _ = run
    moves = Counter((step.state, step.event) for step in path if step.state)
    drawn = edges(aside)
    assert len(drawn) == len(lines())
    for (source, target, named), (count, looks) in drawn.items():
        events = [Event(name) for name in named.split(" / ")]
        assert {str(TRANSITIONS[State(source)][event]) for event in events} == {target}
        assert count == sum(moves[State(source), event] for event in events)
        assert ("pale" in looks) == (count == 0)
    total = sum(count for (state, event), count in moves.items() if event in TRANSITIONS[State(str(state))])
    assert sum(count for count, _ in drawn.values()) == total > 0
    pills = [int(node.text) for node in aside.all("g", "pill")]
    assert sorted(pills) == sorted(count for count, _ in drawn.values() if count)


@pytest.mark.sample(3)
def test_every_state_has_its_visits_and_the_last_is_marked(run: tuple[Node, list[Step], str]) -> None:
    aside, path, here = run
    visits = Counter(str(step.state) for step in path if step.state)
    boxes = {box.one("text", "name").text: box for box in aside.all("g", "box")}
    assert set(boxes) == set(State)
    for name, box in boxes.items():
        told = [node.text for node in box.all("text", "visits")]
        count = visits[name]
        assert told == ([f"{count} visit" + ("s" if count > 1 else "")] if count else [])
        assert ("lit" in box.classes) == bool(count)
    marked = [name for name, box in boxes.items() if "here" in box.classes]
    assert f"{marked[0]} {aside.one('g', 'flag').text}" == here
    assert len(marked) == 1


@pytest.mark.sample(3)
def test_the_tables_say_the_same(run: tuple[Node, list[Step], str]) -> None:
    aside, path, _ = run
    tables = [
        [tuple(cell.text for cell in row.all("td")) for row in table.one("tbody").all("tr")]
        for table in aside.all("table")
    ]
    visits = Counter(str(step.state) for step in path if step.state)
    moves = Counter(
        (str(step.state), step.event, str(TRANSITIONS[step.state][Event(step.event)]))
        for step in path
        if step.state and step.event in TRANSITIONS[step.state]
    )
    assert set(tables[0]) == {(name, str(count)) for name, count in visits.items()}
    assert {row[:3]: row[3] for row in tables[1]} == {move: str(count) for move, count in moves.items()}


@pytest.mark.sample(3)
def test_the_door_of_the_exit_is_lit(run: tuple[Node, list[Step], str]) -> None:
    aside, _, here = run
    lit = [door.text for door in aside.all("g", "door") if "pale" not in door.classes]
    assert bool(lit) == here.startswith("finish")


@pytest.mark.sample(1)
def test_the_doors_are_in_the_box_of_the_last_state(run: tuple[Node, list[Step], str]) -> None:
    aside, box = run[0], BOXES[LAST]
    doors = [door.one("rect") for door in aside.all("g", "door")]
    assert len(doors) == len(DOORS)
    for door in doors:
        x, y, width, height = (
            float(door.attributes[name] or "nan") for name in ("x", "y", "width", "height")
        )
        assert box.left < x < x + width < box.right
        assert box.top < y < y + height < box.bottom


def test_steps_that_this_version_does_not_know_are_counted_apart() -> None:
    path = steps_of((State.COMPRESS, "ready"), (State.COMPRESS, "an event of old"), (State.FINISH, "ended"))
    other = Step("", "c", None, "gone", "", "", (), "", "a_state_of_old")
    written = Step("", "c", None, "input", "", "", (), "", "")
    found = count_path([*path, other, written])
    assert found.unknown == 2
    assert found.moves == Counter({(State.COMPRESS, Event.READY): 1})
    assert found.visits == Counter({State.COMPRESS: 2, State.FINISH: 1})
