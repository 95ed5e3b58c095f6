"""The drawings of the machine say what its table says, and can be read."""

import re
import runpy
import socket
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from signoff import build_graph
from signoff.machine import TRANSITIONS, Event, State, mermaid, svg
from signoff.models import ScriptedModel

DIAGRAMS = Path(__file__).parents[2] / "diagrams"
FILES = {"machine.mmd": mermaid, "machine.svg": svg}
START, END = "__start__", "__end__"
LAST = "finish"
ENTERING = set(Event) - {event for row in TRANSITIONS.values() for event in row}
"""The events that come from outside."""

Edge = tuple[str, str, str]


def table_edges() -> list[Edge]:
    """What has to be drawn between states: from where, to where, with which label."""
    labels: dict[tuple[str, str], list[str]] = {}
    for source, row in TRANSITIONS.items():
        for event, target in row.items():
            labels.setdefault((str(source), str(target)), []).append(str(event))
    return sorted((source, target, " / ".join(events)) for (source, target), events in labels.items())


@pytest.mark.parametrize("name", FILES)
def test_the_drawings_in_the_repository_are_what_the_code_draws(name: str) -> None:
    kept = (DIAGRAMS / name).read_text(encoding="utf-8")
    assert kept == FILES[name](), "run `python -m signoff.machine --output diagrams`"


def test_mermaid_shows_every_edge_of_the_table_and_no_other() -> None:
    head, direction, *rows = mermaid().splitlines()
    drawn = [re.fullmatch(r" {4}(\S+) --> ([^\s:]+)(?:: (.+))?", row) for row in rows]
    edges = [(match[1], match[2], match[3] or "") for match in drawn if match]
    assert (head, direction.strip(), len(edges)) == ("stateDiagram-v2", "direction LR", len(rows))
    assert sorted(edge for edge in edges if "[*]" not in edge[:2]) == table_edges()
    entering = [event for source, _, label in edges if source == "[*]" for event in label.split(" / ")]
    assert sorted(entering) == sorted(ENTERING)
    assert [source for source, target, _ in edges if target == "[*]"] == [LAST]


def test_langgraph_draws_the_states_and_labels_of_the_table() -> None:
    """The only edge of a state is not conditional there and has no label."""
    drawing = build_graph(ScriptedModel([])).get_graph()
    edges = [(edge.source, edge.target, str(edge.data or "")) for edge in drawing.edges]
    targets = {
        source: {to for name, to, _ in table_edges() if name == source} for source, _, _ in table_edges()
    }
    lone = {source for source, found in targets.items() if len(found) == 1} - {LAST}
    expected = [(source, to, "" if source in lone else label) for source, to, label in table_edges()]
    assert set(drawing.nodes) == {START, END, *map(str, State)}
    assert sorted(edges) == sorted([*expected, (START, "compress", ""), (LAST, END, "")])
    text = drawing.draw_mermaid()
    assert all(
        f"{source} -. &nbsp;{label}&nbsp; .-> {to};" in text for source, to, label in expected if label
    )


# The picture.


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Area") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def within(self, other: "Area") -> bool:
        sides = other.left <= self.left and self.right <= other.right
        return sides and other.top <= self.top and self.bottom <= other.bottom


# Pixels of a character, more than its text takes in any usual sans-serif font.
WIDTHS = {"": 7.4, "caption": 6.6, "name": 8.5}
LEFT_OF = {"start": 0.0, "middle": 0.5, "end": 1.0}
SVG = "{http://www.w3.org/2000/svg}"


class Picture:
    """What is to be seen in the picture: boxes with their colour, lines with their points, words."""

    def __init__(self) -> None:
        root = ElementTree.fromstring(svg())
        _, _, wide, high = map(float, root.attrib["viewBox"].split())
        self.whole = Area(0, 0, wide, high)
        self.titles: list[str] = []
        self.boxes: dict[str, Area] = {}
        self.fills: dict[str, str] = {}
        self.doors: dict[str, Area] = {}
        self.lines: dict[str, list[tuple[float, float]]] = {}
        self.labels: dict[str, Area] = {}
        self.inside: dict[str, list[Area]] = {}
        for group in root.iterfind(f"{SVG}g"):
            self.take(group)

    def take(self, group: ElementTree.Element) -> None:
        title, box, path = (group.find(f"{SVG}{name}") for name in ("title", "rect", "path"))
        words = [(text.text or "", area_of(text)) for text in group.iterfind(f"{SVG}text")]
        if title is None or not title.text:
            assert box is not None, "an exit of the last state"
            self.doors[words[0][0]] = area(box)
            return
        self.titles.append(title.text)
        if box is not None:
            name = title.text.split(":")[0]
            self.boxes[name], self.fills[name] = area(box), box.attrib["fill"]
            self.inside[name] = [place for _, place in words]
            return
        assert path is not None
        self.lines[title.text] = corners(path.attrib["d"])
        self.labels |= {f"{title.text}: {word}": place for word, place in words}


def area(box: ElementTree.Element) -> Area:
    left, top, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return Area(left, top, left + width, top + height)


def area_of(text: ElementTree.Element) -> Area:
    width = WIDTHS[text.attrib.get("class", "")] * len(text.text or "")
    left = float(text.attrib["x"]) - width * LEFT_OF[text.attrib.get("text-anchor", "start")]
    return Area(left, float(text.attrib["y"]) - 10, left + width, float(text.attrib["y"]) + 3)


def corners(drawn: str) -> list[tuple[float, float]]:
    """The points of a line; where it is rounded, the corner itself."""
    found: list[tuple[float, float]] = []
    for step, numbers in re.findall(r"([MLQ])([^MLQ]+)", drawn):
        x, y = map(float, numbers.split()[:2])
        if step == "Q":
            found.pop()
        found.append((x, y))
    return found


def pieces(points: list[tuple[float, float]]) -> list[Area]:
    """The straight pieces of a line, one pixel to either side."""
    return [
        Area(min(a[0], b[0]) - 1, min(a[1], b[1]) - 1, max(a[0], b[0]) + 1, max(a[1], b[1]) + 1)
        for a, b in pairwise(points)
    ]


PICTURE = Picture()
BETWEEN = [title for title in PICTURE.lines if not title.startswith("START")]


def ends_of(title: str) -> tuple[str, str]:
    """The states at both ends of a line."""
    match = re.fullmatch(r"(\w+) to (\w+): .+", title)
    assert match
    return match[1], match[2]


def test_the_picture_shows_every_event_of_the_table_on_the_line_to_its_target() -> None:
    drawn = [(*ends_of(title), event) for title in BETWEEN for event in title.split(": ")[1].split(" / ")]
    table = [
        (str(source), str(to), str(event)) for source, row in TRANSITIONS.items() for event, to in row.items()
    ]
    assert sorted(drawn) == sorted(table)
    entering = [title.split(": ")[1].split(" / ") for title in PICTURE.lines if title.startswith("START")]
    assert sorted(event for events in entering for event in events) == sorted(ENTERING)


def test_the_picture_has_one_box_for_each_state() -> None:
    assert sorted(PICTURE.boxes) == sorted(State)
    assert len(PICTURE.titles) == len(PICTURE.boxes) + len(PICTURE.lines)


def test_the_states_that_wait_for_someone_share_a_colour_of_their_own() -> None:
    colour = PICTURE.fills["ask_user"]
    alike = {name for name, fill in PICTURE.fills.items() if fill == colour}
    assert alike == {"ask_user", "approve", "hand_over", "confirm"}


EXITS = {
    "success": ("accepted", "confirmed"),
    "limit": ("exhausted", "deadlock"),
    "error": ("failed", "cancelled"),
    "as before": ("ended",),
}


@pytest.mark.parametrize("way", EXITS)
def test_what_ends_a_task_arrives_at_the_door_of_its_exit(way: str) -> None:
    door = PICTURE.doors[way]
    arriving = [title for title in BETWEEN if set(title.split(": ")[1].split(" / ")) & set(EXITS[way])]
    beside = [title for title in arriving if PICTURE.lines[title][-2][1] == PICTURE.lines[title][-1][1]]
    assert beside
    assert all(door.top < PICTURE.lines[title][-1][1] < door.bottom for title in beside)


@pytest.mark.parametrize("title", BETWEEN)
def test_a_line_runs_from_box_to_box_and_through_none(title: str) -> None:
    points = PICTURE.lines[title]
    assert all((a[0] == b[0]) != (a[1] == b[1]) for a, b in pairwise(points)), "straight across or down"
    reach = 12  # pixels, for the arrow
    for state, (x, y) in zip(ends_of(title), (points[0], points[-1]), strict=True):
        assert Area(x - reach, y - reach, x + reach, y + reach).meets(PICTURE.boxes[state])
    for state, box in PICTURE.boxes.items():
        inside = Area(box.left + 2, box.top + 2, box.right - 2, box.bottom - 2)
        assert not any(piece.meets(inside) for piece in pieces(points)), state


def test_no_word_covers_anything_and_all_are_within_the_picture() -> None:
    lines = [piece for points in PICTURE.lines.values() for piece in pieces(points)]
    for word, place in PICTURE.labels.items():
        assert place.within(PICTURE.whole), word
        assert not any(place.meets(other) for other in [*PICTURE.boxes.values(), *lines]), word
    for (name, place), (other, there) in combinations([*PICTURE.labels.items(), *PICTURE.boxes.items()], 2):
        assert not place.meets(there), (name, other)
    for state, box in PICTURE.boxes.items():
        assert all(words.within(box) for words in PICTURE.inside[state]), state


# The command, and a notebook.


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """Runs `python -m signoff.machine`; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["signoff.machine", *words])
    monkeypatch.delitem(sys.modules, "signoff.machine", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("signoff.machine", run_name="__main__")
    return ended.value.code


def test_the_command_prints_one_drawing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch) in (0, None)
    assert capsys.readouterr().out == mermaid()
    assert command(monkeypatch, "--svg") in (0, None)
    assert capsys.readouterr().out == svg()


def test_the_command_writes_both_into_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new"
    assert command(monkeypatch, "--output", str(folder)) in (0, None)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        n: draw() for n, draw in FILES.items()
    }


def test_a_folder_that_cannot_be_written_and_two_ways_at_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command(monkeypatch, "--output", str(tmp_path / "file")) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert command(monkeypatch, "--svg", "--output", str(tmp_path)) == 2


def test_a_notebook_shows_the_picture_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    shown = build_graph(ScriptedModel([]), name="worker")._repr_mimebundle_()
    assert shown["image/svg+xml"] == svg()
    assert "worker" in shown["text/plain"]
