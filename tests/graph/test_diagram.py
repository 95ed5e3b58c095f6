"""The drawings of the machine say what the table says, and can be read."""

import re
import socket
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from signoff import SetupError, build_graph
from signoff.cli.machine import FILES, diagram
from signoff.graph.drawing import diagram as drawing
from signoff.graph.drawing.diagram import Line, lines, mermaid, svg
from signoff.graph.drawing.layout import (
    ACROSS,
    BOXES,
    DOORS,
    ENTRIES_AT,
    HEIGHT,
    LINE_HEIGHT,
    MAIN_LINES,
    ROUTES,
    START_AT,
    WIDTH,
    Box,
    Point,
)
from signoff.graph.machine import ENTRIES, TRANSITIONS, Event, State, edges, entries
from signoff.models import ScriptedModel

DIAGRAMS = Path(__file__).parents[2] / "diagrams"
START, END = "__start__", "__end__"
LAST = State.FINISH

Edge = tuple[str, str, str]


def table_edges() -> set[Edge]:
    """What has to be drawn: from where, to where, with which label."""
    between = {(str(source), str(to), label) for source, row in edges().items() for to, label in row.items()}
    ways_in = {(START, str(state), label) for state, label in entries().items()}
    return {*ways_in, *between, (str(LAST), END, "")}


@pytest.mark.parametrize("name", FILES)
def test_the_drawings_in_the_repository_are_what_the_code_draws(name: str) -> None:
    kept = (DIAGRAMS / name).read_text(encoding="utf-8")
    assert kept == FILES[name](), "run `signoff diagram --output diagrams`"


def test_mermaid_shows_every_edge_of_the_table_and_no_other() -> None:
    head, direction, *rows = mermaid().splitlines()
    found = [re.fullmatch(r" {4}(\S+) --> ([^\s:]+)(?:: (.+))?", row) for row in rows]
    drawn = [(match[1], match[2], match[3] or "") for match in found if match]
    named = [(a.replace("[*]", START), b.replace("[*]", END), label) for a, b, label in drawn]
    assert (head, direction) == ("stateDiagram-v2", "    direction LR")
    assert len(drawn) == len(rows)
    assert sorted(named) == sorted(table_edges())


def langgraph_edges() -> set[Edge]:
    """The table as LangGraph draws it: the only edge of a state is not conditional and has no label. It knows
    one way in alone; whoever undoes a task on request enters by a `Command`."""
    only = {START, *(str(state) for state, row in edges().items() if len(row) == 1)} - {str(LAST)}
    drawn = {edge for edge in table_edges() if edge[:2] != (START, State.UNDO)}
    return {(source, to, "" if source in only else label) for source, to, label in drawn}


def test_langgraph_draws_the_states_and_labels_of_the_table() -> None:
    graph = build_graph(ScriptedModel([])).get_graph()
    drawn = [(edge.source, edge.target, str(edge.data or "")) for edge in graph.edges]
    assert set(graph.nodes) == {START, END, *map(str, State)}
    assert sorted(drawn) == sorted(langgraph_edges())


def test_langgraphs_mermaid_shows_the_same() -> None:
    text = build_graph(ScriptedModel([])).get_graph().draw_mermaid()
    plain = re.findall(r"^\t(\w+) -(?:->|\.->) (\w+);$", text, re.MULTILINE)
    labelled = re.findall(r"^\t(\w+) -\. &nbsp;(.+)&nbsp; \.-> (\w+);$", text, re.MULTILINE)
    drawn = [*((a, b, "") for a, b in plain), *((a, b, label) for a, label, b in labelled)]
    assert sorted(drawn) == sorted(langgraph_edges())
    assert set(re.findall(r"^\t(\w+)\(", text, re.MULTILINE)) == {START, END, *map(str, State)}


# The picture: what it says.


def picture() -> list[str]:
    """The titles in the picture, one for each state and each line."""
    root = ElementTree.fromstring(svg())
    return [title.text or "" for title in root.iterfind("{*}g/{*}title")]


def test_the_picture_shows_every_event_of_the_table_on_the_line_to_its_target() -> None:
    shown = {
        (source, to, event)
        for title in picture()
        if (match := re.fullmatch(r"(\w+) to (\w+): (.+)", title))
        for source, to, events in [match.groups()]
        for event in events.split(" / ")
    }
    ways_in = {("START", to, event) for event, to in ENTRIES.items()}
    assert shown == {(s, to, e) for s, row in TRANSITIONS.items() for e, to in row.items()} | ways_in


def test_the_picture_has_one_box_for_each_state() -> None:
    titles = [title.split(":")[0] for title in picture()]
    assert sorted(title for title in titles if " to " not in title) == sorted(State)


def test_the_main_path_is_drawn_as_such() -> None:
    main = {(line.source, line.target) for line in lines() if line.look == "main"}
    assert main == MAIN_LINES


@pytest.mark.parametrize(
    ("event", "look"),
    [
        (Event.ACCEPTED, "success"),
        (Event.CONFIRMED, "success"),
        (Event.EXHAUSTED, "limit"),
        (Event.FAILED, "error"),
        (Event.CANCELLED, "error"),
        (Event.ENDED, "as before"),
    ],
)
def test_what_ends_a_task_has_the_look_of_its_exit(event: Event, look: str) -> None:
    assert {line.look for line in lines() if event in line.events} == {look}


def test_the_states_that_wait_for_someone_share_a_colour_of_their_own() -> None:
    root = ElementTree.fromstring(svg())
    colours: dict[str, set[str]] = {}
    for group in root.iterfind("{*}g"):
        title, box = group.findtext("{*}title"), group.find("{*}rect")
        if title is not None and box is not None:
            colours.setdefault(box.attrib["fill"], set()).add(title.split(":")[0])
    assert {State.ASK_USER, State.APPROVE, State.HAND_OVER, State.CONFIRM} in colours.values()


def test_an_edge_or_a_state_without_a_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "ROUTES", {key: ROUTES[key] for key in list(ROUTES)[1:]})
    with pytest.raises(LookupError, match="edges: missing compress -> decide, left over none"):
        svg()
    monkeypatch.setattr(
        drawing, "BOXES", {state: BOXES[state] for state in BOXES if state is not State.NUDGE}
    )
    with pytest.raises(LookupError, match="states: missing nudge, left over none"):
        svg()


def test_what_enters_elsewhere_has_no_place_in_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    ways_in = {State.COMPRESS: "input", State.DECIDE: "stop", State.UNDO: "undo"}
    monkeypatch.setattr(drawing, "entries", lambda: ways_in)
    with pytest.raises(LookupError, match="ways in: missing decide, left over none"):
        svg()


def test_an_event_that_ends_a_task_in_no_known_way_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "EXITS", {})
    with pytest.raises(LookupError, match="no exit for the event"):
        lines()


# The picture: whether it can be read.


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Area") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


CHARACTER = 7.4  # pixels, more than 13 px text takes in any usual sans-serif font
SMALL = 6.6  # the same for the text under a name
NAME = 8.5  # the same for a name


def label_area(line: Line) -> Area:
    at = ROUTES[line.source, line.target, line.exit]
    width = CHARACTER * len(line.label)
    left = at.label.x - {"start": 0.0, "middle": width / 2, "end": width}[at.anchor]
    return Area(left, at.label.y - 10, left + width, at.label.y + 3)


def box_area(box: Box) -> Area:
    return Area(box.left, box.top, box.right, box.bottom)


def pieces(line: Line) -> list[Area]:
    """The straight pieces of a line, one pixel to either side."""
    return [
        Area(min(a.x, b.x) - 1, min(a.y, b.y) - 1, max(a.x, b.x) + 1, max(a.y, b.y) + 1)
        for a, b in pairwise(ROUTES[line.source, line.target, line.exit].points)
    ]


def on_border(point: Point, box: Box) -> bool:
    on_side = point.x in (box.left, box.right) and box.top < point.y < box.bottom
    return on_side or (point.y in (box.top, box.bottom) and box.left < point.x < box.right)


@pytest.mark.parametrize(
    "line", lines(), ids=lambda line: f"{line.source} to {line.target} {line.exit or ''}"
)
def test_a_line_runs_from_border_to_border_and_its_label_covers_nothing(line: Line) -> None:
    points = ROUTES[line.source, line.target, line.exit].points
    assert on_border(points[0], BOXES[line.source])
    assert on_border(points[-1], BOXES[line.target])
    assert all((a.x == b.x) != (a.y == b.y) for a, b in pairwise(points)), "straight across or straight down"
    label = label_area(line)
    assert 0 < label.left < label.right < WIDTH
    assert 0 < label.top < label.bottom < HEIGHT
    for state, box in BOXES.items():
        assert not label.meets(box_area(box)), f"the label covers {state}"
        inside = Area(box.left + 2, box.top + 2, box.right - 2, box.bottom - 2)
        assert not any(piece.meets(inside) for piece in pieces(line)), f"the line runs through {state}"
    for other in lines():
        assert not any(label.meets(piece) for piece in pieces(other)), (
            f"the label covers {other.label}'s line"
        )


def test_the_words_at_the_start_cover_nothing() -> None:
    for at, event in enumerate(ENTRIES):
        half, below = CHARACTER * len(event) / 2, ENTRIES_AT.y + at * LINE_HEIGHT
        word = Area(ENTRIES_AT.x - half, below - 10, ENTRIES_AT.x + half, below + 3)
        assert word.left > 0
        assert word.top > START_AT.y + 9
        assert not any(word.meets(box_area(box)) for box in BOXES.values())
        assert not any(word.meets(piece) for line in lines() for piece in pieces(line))
        assert not any(word.meets(label_area(line)) for line in lines())


def test_no_two_labels_and_no_two_boxes_overlap() -> None:
    for one, other in combinations(lines(), 2):
        assert not label_area(one).meets(label_area(other)), (one.label, other.label)
    for box, another in combinations(BOXES.values(), 2):
        assert not box_area(box).meets(box_area(another)), (box, another)


@pytest.mark.parametrize(("state", "box"), BOXES.items())
def test_name_and_caption_fit_into_the_box(state: State, box: Box) -> None:
    assert max(NAME * len(state), SMALL * len(box.caption)) < box.width


def test_lines_cross_or_join_only_on_the_way_to_the_same_box() -> None:
    flat = [line for line in lines() if (line.source, line.target) not in ACROSS]
    for one, other in combinations(flat, 2):
        if one.target is not other.target:
            assert not any(a.meets(b) for a in pieces(one) for b in pieces(other)), (one, other)


def test_each_exit_has_a_door_where_its_lines_arrive() -> None:
    arrivals = [(line.exit, ROUTES[line.source, line.target, line.exit].points[-1]) for line in lines()]
    on_the_left = {(exit, at.y) for exit, at in arrivals if exit and at.x == BOXES[LAST].left}
    assert on_the_left == set(DOORS.items())


# The command.

app = typer.Typer()
app.command()(diagram)


@pytest.mark.parametrize(("arguments", "text"), [([], mermaid()), (["--svg"], svg())])
def test_the_command_prints_one_drawing(arguments: list[str], text: str) -> None:
    assert CliRunner().invoke(app, arguments).stdout == text


def test_a_notebook_shows_the_picture_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    shown = build_graph(ScriptedModel([]), name="worker")._repr_mimebundle_()
    assert shown == {"text/plain": "DurableGraph 'worker'", "image/svg+xml": svg()}


def test_the_command_writes_both_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    done = CliRunner().invoke(app, ["--output", str(folder)])
    assert done.exit_code == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        n: draw() for n, draw in FILES.items()
    }


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["--output", str(tmp_path / "file")])
    assert isinstance(done.exception, SetupError)
    assert "choose another folder" in str(done.exception)


def test_printing_and_writing_at_once_is_a_usage_error(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["--svg", "--output", str(tmp_path)]).exit_code == 2
