"""docs/project/versions.md: how the stored form is numbered, and what a newer version may add to it."""

import re
from typing import Any

from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.pages import ROOT, read


def number(file: str, name: str) -> str:
    """A constant of the product, from its source."""
    (found,) = re.findall(rf"^{name} = (\d+)$", (ROOT / file).read_text("utf-8"), re.M)
    return str(found)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = read("docs/project/versions.md")
    numbers = dict(re.findall(r"^\| of (?:the|a) (\w+)'s \w+, (\d+) \|", page, re.M))
    database = number("signoff/storage/base.py", "SCHEMA")
    assert numbers == {"database": database, "thread": number("graph/machine.py", "MACHINE")}
    assert f"form**, which is {database} " in read("docs/reference/storage.md")


def test_an_outcome_with_fields_of_a_newer_version_is_read() -> None:
    graph = build_graph(ScriptedModel([call("finish_task", summary="Done.")]))
    result = graph.invoke({"messages": [("user", "Do it.")]})
    newer: dict[str, Any] = {**result, "outcome": {**result["outcome"], "of_a_newer_version": 1}}
    assert outcome_of(newer) == outcome_of(result)
