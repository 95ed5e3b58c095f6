"""A folder for each file of tests, in which all its sessions work, and a file of its own for each test."""

from itertools import count
from pathlib import Path

import pytest

NUMBERS = count(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("protocol")


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / f"file{next(NUMBERS)}"


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""
