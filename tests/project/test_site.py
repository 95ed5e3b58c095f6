"""The pages of the docs as a site: what is built loads nothing from elsewhere, and a fault is an error."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.hooks.reference import PAGES, load, python_page
from signoff.graph.machine import WHAT_IT_DOES
from signoff.graph.rules import RULES
from tests.support.pages import DOCS, ROOT, read

CONFIG = ROOT / "mkdocs.yml"


def build(folder: Path, config: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(tmp_path, CONFIG)
    assert (done.returncode, re.findall(r"^WARNING.*", done.stderr, re.M)) == (0, [])
    pages = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    loaded = {
        address
        for text in pages.values()
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text)
        if "rel=canonical" not in tag and 'rel="canonical"' not in tag
        for address in re.findall(r'(?:src|href)="?(https?:[^" >]+)', tag)
    }
    assert loaded == set()


FAULTS = {
    "a page of the navigation is missing": "'gone.md' is included in the 'nav'",
    "a page stands in no navigation": "- unlisted.md",
    "a link leads nowhere": "a link 'nowhere.md'",
    "a link leads to a heading that there is not": "a link '#nothing'",
    "a name that there is not": "signoff.no_such_name",
}


@pytest.fixture(scope="module")
def told_of_faults(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the build says of a site with each of these faults."""
    folder = tmp_path_factory.mktemp("faults")
    shutil.copytree(DOCS / "hooks", folder / "docs" / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs" / "index.md").write_text("# One\n\n[a](nowhere.md)\n\n[b](#nothing)\n")
    (folder / "docs" / "unlisted.md").write_text("# Two\n")
    config, nav = folder / "mkdocs.yml", "nav:\n  - index.md\n  - gone.md\n"
    config.write_text(f"INHERIT: {CONFIG}\ndocs_dir: {folder}/docs\nextra_css: []\nhooks: []\n{nav}")
    done = build(folder / "built", config)
    (folder / "docs" / "index.md").write_text("# One\n\n::: signoff.no_such_name\n")
    named = build(folder / "built", config)
    assert 0 not in (done.returncode, named.returncode)
    return done.stderr + named.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_pages_ends_the_build(fault: str, told_of_faults: str) -> None:
    assert FAULTS[fault] in told_of_faults


def test_every_name_of_the_package_stands_on_one_page() -> None:
    described = [line for page in PAGES for line in re.findall(r"^::: (.*)$", python_page(page), re.M)]
    assert len(described) == len(set(described))
    assert {f"signoff.{name}" for name in vars(load("signoff"))["__all__"]} <= set(described)


def test_the_page_of_the_rules_lists_them_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", read("docs/concepts/rules.md"), re.M)
    assert rows == [(rule.name, str(rule.event)) for rule in RULES]


def test_the_page_of_the_machine_lists_its_states_and_shows_its_picture() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", read("docs/concepts/machine.md"), re.M)
    assert rows == [str(state) for state in WHAT_IT_DOES]
    drawn = (ROOT / "diagrams" / "machine.svg").read_text("utf-8")
    assert (DOCS / "pictures" / "machine.svg").read_text("utf-8") == drawn, "copy it from diagrams/"


def cell(page: str, words: str, row: str, column: str) -> str:
    """What stands in a table: in the first one behind `words`."""
    lines = iter(read(page).partition(words)[2].partition("| --- |")[0].splitlines())
    head = next(line for line in lines if line.startswith("|"))
    body = read(page).partition(words)[2].partition(head)[2]
    found = next(line for line in body.splitlines() if line.startswith(f"| {row} |"))
    return found.split("|")[head.split("|").index(f" {column} ")].strip()


OVERHEAD = "docs/benchmarks/overhead.md"
QUOTED = {
    "CPU a turn, 200 turns": (OVERHEAD, "with every step saved in SQLite", "200"),
    "KB on disk a turn, 1,000 turns": (OVERHEAD, "KB on disk per turn.", "1,000"),
    "CPU a turn, a real client": (OVERHEAD, "## With a real client", "300 chunks"),
}


@pytest.mark.parametrize("begins", QUOTED)
def test_the_figures_of_the_readme_are_those_that_were_recorded(begins: str) -> None:
    page, words, column = QUOTED[begins]
    (row,) = [line for line in read("README.md").splitlines() if line.startswith(f"| {begins}")]
    told = [found for one in row.split("|")[2:4] for found in re.findall(r"[\d.]+", one)]
    assert told == [cell(page, words, subject, column) for subject in ("**Signoff**", "create_agent")]


def test_the_readme_counts_what_the_conformance_suite_has_judged() -> None:
    page = read("docs/benchmarks/conformance.md")
    assert "| promise | Signoff" in page
    assert "| LangChain create_agent" in page
    for words, row in (("tasks under faults", "All tasks"), ("unit cases", "All unit cases")):
        # The sample stands first.
        line, *_ = re.findall(rf"^\| \*\*{row}\*\* \|(.*)$", page, re.M)
        counts = [" of ".join(one) for one in re.findall(r"(\d+)/(\d+)", line)]
        (told,) = [line for line in read("README.md").splitlines() if f"[{words}]" in line]
        assert told.endswith(f"| {counts[0]} | {counts[1]} |")
    ((tasks, right, runs),) = re.findall(r"^\| all \| (\d+) \| (\d+)/(\d+) ", page, re.M)
    ten = f"Of all {tasks} tasks under ten seeds Signoff is right in {int(right):,} of {int(runs):,} runs."
    assert ten in " ".join(read("README.md").split())
