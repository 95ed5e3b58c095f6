"""The house does not grow worse: what stands at the front, what one name means, how far one turn walks.

Its size is no matter of this test: new capabilities add to it. `python -m tests.house` prints all figures.
"""

import re
from collections.abc import Callable

import pytest

from signoff.graph.machine import State
from tests.house import ROOT, code_lines, front, product_files, shared_names, statements, walk_of_a_turn

MOST_AT_THE_FRONT = {"nodes": 17, "graph": 14}
MOST_SHARED_NAMES = 5
MOST_FILES_OF_A_TURN = 32


@pytest.mark.parametrize("folder", MOST_AT_THE_FRONT)
def test_the_front_of_a_folder_shows_what_one_reads_first(folder: str) -> None:
    assert len(front(folder)) <= MOST_AT_THE_FRONT[folder], front(folder)


def test_a_name_of_a_class_stands_for_one_thing() -> None:
    assert len(shared_names()) <= MOST_SHARED_NAMES, shared_names()


def test_a_turn_passes_through_few_files(figure: Callable[[str], None]) -> None:
    walk = walk_of_a_turn()
    figure(
        f"a turn with a tool and a finish: {len(walk.visits)} files of {len(product_files())}, "
        f"{walk.changes} changes of file"
    )
    assert {"graph/rules.py", "nodes/decide.py", "nodes/execute.py", "nodes/finish.py"} <= walk.visits.keys()
    assert len(walk.visits) <= MOST_FILES_OF_A_TURN, sorted(walk.visits)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ('"""A docstring."""\n\n# A comment.\n', 0),
        ("x = 1  # with a comment\n", 1),
        ('def f():\n    """Docstring\n\n    of many lines."""\n    return (\n        1\n    )\n', 4),
        ('TEXT = """a value\nof two lines"""\n', 2),
    ],
)
def test_lines_of_code_are_counted_without_what_explains_them(source: str, lines: int) -> None:
    assert code_lines(source) == lines


def test_statements_are_counted_however_they_are_laid_out() -> None:
    packed = 'def f(x):\n    """Docstring."""\n    if x: y = 1; return y\n'
    spread = "def f(\n    x,\n):\n    if x:\n        y = 1\n        return y\n"
    assert statements(packed) == statements(spread) == 4


def test_the_architecture_names_files_and_states_that_there_are() -> None:
    text = (ROOT / "docs" / "project" / "architecture.md").read_text("utf-8")
    paths = re.findall(r"`((?:graph|nodes|tools|signoff|tests)/[\w/]*(?:\.py)?)`", text)
    assert len(paths) > 50
    assert [path for path in paths if not (ROOT / path).exists()] == []
    named = {
        word
        for cell in re.findall(r"^\| \d+ \| ([^|]*)\|", text, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", cell)
    }
    assert named <= {str(state) for state in State}
    assert len(named) == 7
