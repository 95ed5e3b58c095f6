"""The drawings of the machine say what its table says, and can be read."""

import re
import runpy
import socket
import sys
from pathlib import Path
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
    drawing = build_graph(ScriptedModel([])).get_graph()
    assert set(drawing.nodes) == {START, END, *map(str, State)}
    drawn = {(edge.source, edge.target): edge.data for edge in drawing.edges}
    table = {(source, target): label for source, target, label in table_edges()}
    assert set(drawn) == {*table, (START, "compress"), (LAST, END)}
    # The only edge of a state is not conditional there and has no label, but for the one of the last.
    lone = {at for at, row in TRANSITIONS.items() if len(set(row.values())) == 1} - {LAST}
    expected = {edge: label for edge, label in table.items() if edge[0] not in lone}
    assert {edge: label for edge, label in drawn.items() if label} == expected


SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_shows_every_state_and_every_event_on_the_line_to_its_target() -> None:
    """Each box and each line has a title, which says what a pointer on it shows."""
    titles = [title.text or "" for title in ElementTree.fromstring(svg()).iter(f"{SVG}title")]
    lines = [title.partition(": ") for title in titles]
    shown = [(line, event) for line, _, events in lines for event in events.split(" / ")]
    table = {(f"{at} to {to}", event) for at, row in TRANSITIONS.items() for event, to in row.items()}
    assert table <= {*shown}
    assert {*State} <= {line for line, _, _ in lines}


# The command, and a notebook.


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """Runs `python -m signoff.machine`; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["signoff.machine", *words])
    monkeypatch.delitem(sys.modules, "signoff.machine", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("signoff.machine", run_name="__main__")
    return ended.value.code


def test_the_command_prints_one_drawing_or_writes_both_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch) in (0, None)
    assert capsys.readouterr().out == mermaid()
    assert command(monkeypatch, "--svg") in (0, None)
    assert capsys.readouterr().out == svg()
    assert command(monkeypatch, "--output", str(tmp_path / "new")) in (0, None)
    written = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert written == {name: draw() for name, draw in FILES.items()}


def test_a_notebook_shows_the_picture_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    shown = build_graph(ScriptedModel([]), name="worker")._repr_mimebundle_()
    assert shown["image/svg+xml"] == svg()
    assert "worker" in shown["text/plain"]
