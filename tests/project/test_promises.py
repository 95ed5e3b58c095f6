"""The list of promises in docs/project/promises.md names every test file, and only files that are there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "project" / "promises.md"
ROWS = re.findall(r"^\| (.+?) \| ((?:`[\w/*]+\.py` ?)+) \|", PAGE.read_text("utf-8"), re.M)
PATTERNS = {pattern: promise for promise, files in ROWS for pattern in re.findall(r"`(.+?)`", files)}


def test_every_test_file_stands_in_a_row() -> None:
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    listed = {file for file in files if any(file.match(pattern) for pattern in PATTERNS)}
    assert len(ROWS) > 10
    assert sorted(map(str, files - listed)) == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_row_names_files_that_are_there(pattern: str) -> None:
    assert list(TESTS.glob(pattern))
