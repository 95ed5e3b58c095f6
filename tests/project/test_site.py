"""The pages of the docs as a site: it loads nothing from elsewhere, and says what the code says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.hooks.reference import PAGES, load, python_page
from signoff.graph.rules import RULES
from signoff.machine import TRANSITIONS
from tests.support.pages import DOCS, ROOT, read


@pytest.mark.slow
@pytest.mark.thorough
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, re.findall(r"^WARNING.*", done.stderr, re.M)) == (0, [])
    pages = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    loaded = {
        address
        for text in pages.values()
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text)
        if not re.search(r'rel="?canonical', tag)
        for address in re.findall(r'(?:src|href)="?(https?:[^" >]+)', tag)
    }
    assert loaded == set()


def test_every_name_of_the_package_stands_on_one_page() -> None:
    described = [line for page in PAGES for line in re.findall(r"^::: (.*)$", python_page(page), re.M)]
    assert len(described) == len(set(described))
    assert {f"signoff.{name}" for name in load("signoff").__all__} <= set(described)


def test_the_page_of_the_machine_lists_its_states_and_shows_its_picture() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", read("docs/concepts/machine.md"), re.M)
    assert sorted(rows) == sorted(TRANSITIONS)
    drawn = (ROOT / "diagrams" / "machine.svg").read_text("utf-8")
    assert (DOCS / "pictures" / "machine.svg").read_text("utf-8") == drawn, "copy it from diagrams/"


def test_the_page_of_the_rules_lists_them_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", read("docs/concepts/rules.md"), re.M)
    assert rows == [(rule.name, str(rule.event)) for rule in RULES]


@pytest.mark.parametrize("begins", ["CPU a turn, 200", "KB on disk a turn", "CPU a turn, a real"])
def test_the_figures_of_the_readme_are_those_that_were_recorded(begins: str) -> None:
    (row,) = [line for line in read("README.md").splitlines() if line.startswith(f"| {begins}")]
    numbers = [number for part in row.split("|")[2:4] for number in re.findall(r"[\d.]+", part)]
    for subject, number in zip(("**Signoff**", "create_agent"), numbers, strict=True):
        recorded = re.findall(rf"^\| {re.escape(subject)} \|.*", read("docs/benchmarks/overhead.md"), re.M)
        assert any(f"| {number} |" in line for line in recorded), number


@pytest.mark.parametrize(
    ("words", "row"), [("tasks under faults", "All tasks"), ("unit cases", "All unit cases")]
)
def test_the_readme_counts_what_the_conformance_suite_has_judged(words: str, row: str) -> None:
    # The sample stands first, with Signoff and create_agent in its first columns.
    line, *_ = re.findall(rf"^\| \*\*{row}\*\* \|(.*)$", read("docs/benchmarks/conformance.md"), re.M)
    counts = [f"{right} of {of}" for right, of in re.findall(r"(\d+)/(\d+)", line)]
    (told,) = [line for line in read("README.md").splitlines() if f"[{words}]" in line]
    assert told.endswith(f"| {counts[0]} | {counts[1]} |")
