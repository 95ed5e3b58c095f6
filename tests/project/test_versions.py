"""docs/project/versions.md: how the stored form is numbered, and what a newer version may add to it."""

import re
from typing import Any

from signoff import build_graph, outcome_of
from signoff.graph.machine import MACHINE
from signoff.models import ScriptedModel, call
from signoff.storage.schema import SCHEMA
from tests.support.pages import read


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = read("docs/project/versions.md")
    numbers = dict(re.findall(r"^\| of (?:the|a) (\w+)'s \w+, (\d+) \|", page, re.M))
    assert numbers == {"database": str(SCHEMA), "thread": str(MACHINE)}
    assert f"the number of its form**, which is {SCHEMA} " in read("docs/reference/storage.md")


def test_an_outcome_with_fields_of_a_newer_version_is_read() -> None:
    result = build_graph(ScriptedModel([call("finish_task", summary="Done.")])).invoke(
        {"messages": [("user", "Do it.")]}
    )
    newer: dict[str, Any] = {**result, "outcome": {**result["outcome"], "of_a_newer_version": 1}}
    assert outcome_of(newer) == outcome_of(result)
