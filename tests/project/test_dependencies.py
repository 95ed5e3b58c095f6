"""The bounds of the dependencies, and what `python -m tests.versions` tries them with."""

import pytest
from packaging.requirements import Requirement

from tests.versions import FILES, PROJECT, ROOT

EXTRAS = (one for extra in PROJECT["optional-dependencies"].values() for one in extra)
DIRECT = {one.name: one.specifier for one in map(Requirement, [*PROJECT["dependencies"], *EXTRAS])}
# Whose next major version breaks what is built on it: their names, their tables, their stored values.
BOUNDED = [
    name for name in DIRECT if name.startswith(("langgraph", "langchain", "mcp", "pydantic", "procrastinate"))
]


@pytest.mark.parametrize("name", BOUNDED)
def test_the_next_major_version_is_not_allowed(name: str) -> None:
    (lowest,) = (one.version for one in DIRECT[name] if one.operator == ">=")
    assert DIRECT[name].contains(lowest)
    assert not DIRECT[name].contains(f"{int(lowest.partition('.')[0]) + 1}.0")


def test_what_is_to_be_run_with_other_versions_is_there() -> None:
    assert [file for file in FILES if not (ROOT / file).exists()] == []
