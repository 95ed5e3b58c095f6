"""The drawings of the machine say what the table says, and can be read."""

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from signoff import build_graph
from signoff.cli.diagram import FILES, diagram
from signoff.graph import diagram as drawing
from signoff.graph.diagram import Line, lines, mermaid, svg
from signoff.graph.layout import BOXES, DOORS, HEIGHT, MAIN_PATH, ROUTES, WIDTH, Exit, Point
from signoff.graph.machine import FIRST, TRANSITIONS, Event, State, edges
from signoff.models import ScriptedModel

DIAGRAMS = Path(__file__).parent.parent / "diagrams"
START, END = "__start__", "__end__"

Edge = tuple[str, str, str]


def table_edges() -> set[Edge]:
    """What has to be drawn: from where, to where, with which label."""
    drawn = {(str(source), str(to), label) for source, row in edges().items() for to, label in row.items()}
    last = {(str(state), END, "") for state, row in TRANSITIONS.items() if not row}
    return {(START, str(FIRST), ""), *drawn, *last}


# --- the files in the repository ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_drawings_in_the_repository_are_what_the_code_draws(name: str) -> None:
    kept = (DIAGRAMS / name).read_text(encoding="utf-8")
    assert kept == FILES[name](), "run `signoff diagram --output diagrams`"


# --- Mermaid ------------------------------------------------------------------------------------------------


def test_mermaid_shows_every_edge_of_the_table_and_no_other() -> None:
    head, *rows = mermaid().splitlines()
    found = [re.fullmatch(r"\s+(\S+) --> (\S+?)(?:: (.+))?", row) for row in rows if "-->" in row]
    drawn = [(match[1], match[2], match[3] or "") for match in found if match]
    ends = {("[*]", 0): START, ("[*]", 1): END}
    named = [(ends.get((a, 0), a), ends.get((b, 1), b), label) for a, b, label in drawn]
    assert head == "stateDiagram-v2"
    assert len(named) == len(set(named)) == len(found)
    assert set(named) == table_edges()


# --- LangGraph's own drawing --------------------------------------------------------------------------------


def test_the_compiled_graph_has_the_states_and_labelled_edges_of_the_table() -> None:
    graph = build_graph(ScriptedModel([])).get_graph()
    only = {state: next(iter(row)) for state, row in edges().items() if len(row) == 1}
    expected = {
        (source, to, "" if only.get(State(source)) == to else label)
        for source, to, label in table_edges() - {(START, str(FIRST), "")}
    } | {(START, str(FIRST), "")}
    # LangGraph gives no label to an edge that is the only one of its state.
    drawn = [(edge.source, edge.target, str(edge.data or "")) for edge in graph.edges]
    assert set(graph.nodes) == {START, END, *map(str, State)}
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == expected
    assert {edge.conditional for edge in graph.edges if edge.data} == {True}
