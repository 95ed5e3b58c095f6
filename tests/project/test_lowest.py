"""The bounds of the dependencies, and what `python -m tests.lowest` tries them with."""

import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.lowest import TESTS, declared, direct, untrue

ROOT = Path(__file__).parents[2]
# Whose next major version breaks what is built on it: their names, their tables, their stored values.
BOUNDED = [
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain-core",
    "langchain",
    "langchain-openai",
    "langchain-mcp-adapters",
    "mcp",
    "pydantic",
    "pydantic-settings",
    "procrastinate",
]


def test_every_direct_dependency_is_touched_by_a_test() -> None:
    touched = {name for names in TESTS for name in names.split(", ")}
    # Those without which nothing runs at all; and the weights' server, which is only imported.
    assert set(direct()) - touched == {"langgraph", "langchain-core", "typing-extensions", "xllamacpp"}
    assert touched <= set(direct())


def test_what_is_to_be_run_is_there() -> None:
    places = [place.partition("::") for group in TESTS.values() for place in group]
    texts = {file: (ROOT / file).read_text("utf-8") for file, _, _ in places}
    missing = [name for file, _, name in places if not re.search(rf"(def|class) {name}\b", texts[file])]
    assert [name for name in missing if name] == []


@pytest.mark.parametrize("name", BOUNDED)
def test_the_next_major_version_is_not_allowed(name: str) -> None:
    (lowest,) = (one.version for one in direct()[name] if one.operator == ">=")
    assert direct()[name].contains(lowest)
    assert not direct()[name].contains(f"{int(lowest.partition('.')[0]) + 1}.0")


@pytest.mark.parametrize(
    ("pins", "found"),
    [
        ({"pydantic": "pydantic==2.11.2", "anyio": "anyio==4.12.0"}, {}),
        ({"pydantic": "pydantic==2.11.3"}, {"pydantic": SpecifierSet(">=2.11.2,<3")}),
        ({}, {}),
    ],
)
def test_a_bound_that_cannot_be_had_is_found(pins: dict[str, str], found: dict[str, SpecifierSet]) -> None:
    assert untrue(pins) == found


def test_the_lowest_python_is_the_one_that_is_required() -> None:
    (required,) = re.findall(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert declared()[0] == required
