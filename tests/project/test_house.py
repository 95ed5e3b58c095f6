"""What `python -m tests.house` prints is counted right, and the architecture names what there is."""

import re

import pytest

from signoff.machine import State
from tests.house import ROOT, code_lines, door


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ('"""A docstring."""\n\n# A comment.\n', 0),
        ('def f():\n    """Docstring\n\n    of many lines."""\n    return (\n        1\n    )\n', 4),
        ('TEXT = """a value\nof two lines"""\n', 2),
    ],
)
def test_lines_of_code_are_counted_without_what_explains_them(source: str, lines: int) -> None:
    assert code_lines(source) == lines


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


def test_the_door_is_no_wider_than_it_is() -> None:
    """A name, a parameter or a command more is a decision: it is made here, too."""
    numbers = [int(number) for number in re.findall(r"\d+", door())]
    assert numbers == [16, 12, 42, 128, 15, 15]
