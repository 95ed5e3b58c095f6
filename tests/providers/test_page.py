"""The docs' table of providers claims just the cases of the table of tests."""

import re
from itertools import chain
from pathlib import Path

from tests.providers.test_table import CELLS
from tests.support.providers.cases import CASES, COLUMNS
from tests.support.providers.clients import CLIENTS, Client

PAGE = (Path(__file__).parents[2] / "docs/how-to/models.md").read_text("utf-8")
NOT_HERE = "none"
PICTURES = {"result": "in the result", "message": "after the results", "text": "in words"}
PACKAGES = {
    "bedrock_converse": "langchain-aws",
    "google_genai": "langchain-google-genai",
}


def table() -> list[list[str]]:
    """The rows of the table, with its head."""
    section = PAGE.partition("## What is tested with which provider")[2]
    rows = re.findall(r"^\| (.+) \|$", section, re.M)
    return [[cell.strip() for cell in row.split(" | ")] for row in rows if not row.startswith("---")]


def cell(client: Client, column: str) -> str:
    """What the page may claim: only cases that are tried."""
    if not all((client, case) in CELLS for case in COLUMNS[column]):
        return NOT_HERE
    return PICTURES[client.pictures] if column == "pictures in a result" else "yes"


def test_every_case_is_claimed_once() -> None:
    assert sorted(chain.from_iterable(COLUMNS.values())) == sorted(CASES)


def test_the_page_claims_what_is_tried() -> None:
    head, *rows = table()
    assert head == ["provider", "client", *COLUMNS]
    packages = [
        PACKAGES.get(client.provider.package, f"langchain-{client.provider.package}") for client in CLIENTS
    ]
    assert rows == [
        [client.row, f"`{package}`", *(cell(client, column) for column in COLUMNS)]
        for client, package in zip(CLIENTS, packages, strict=True)
    ]
