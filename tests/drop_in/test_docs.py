"""docs/how-to/create-agent.md and docs/how-to/middleware.md: their programs run as they stand, and print what they say."""

import re
from pathlib import Path

import pytest

from tests.support.prepared import run_python

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("langchain.md", "middleware.md")}
PROGRAMS = [
    (title, program)
    for page in PAGES.values()
    for title, program in re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", page, re.M | re.S)
]


def test_each_part_has_a_program() -> None:
    titles = [title.partition(":")[0] for title, _ in PROGRAMS]
    assert titles[:4] == ["Context", "State", "System prompt", "In another graph"]
    assert titles[4:] == ["Todos and retries", "What runs when", "What a hook writes"]


@pytest.mark.parametrize(("title", "program"), PROGRAMS)
def test_a_program_prints_what_stands_beside_it(title: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = run_python("-W", "error", str(file), cwd=tmp_path)
    wanted = re.findall(r"^ *print\(.*\)  # (.*)$", program, re.M)
    said = [line for line in done.stdout.splitlines() if not line.startswith("before a model call: ")]
    assert (said, done.stderr) == (wanted, "")
    assert wanted


def test_every_link_leads_to_a_file() -> None:
    links = [link for page in PAGES.values() for link in re.findall(r"\]\(([^)]+)\)", page)]
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []
