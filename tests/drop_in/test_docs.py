"""docs/langchain.md: its programs run as they stand, and print what stands beside it."""

import re
from pathlib import Path

import pytest

from tests.support.prepared import run_python

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "langchain.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_each_part_has_a_program() -> None:
    assert [title.partition(":")[0] for title, _ in PROGRAMS] == ["Context", "State", "System prompt"]


@pytest.mark.parametrize(("title", "program"), PROGRAMS)
def test_a_program_prints_what_stands_beside_it(title: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = run_python("-W", "error", str(file), cwd=tmp_path)
    wanted = re.findall(r"^ *print\(.*\)  # (.*)$", program, re.M)
    assert (done.stdout.splitlines(), done.stderr) == (wanted, "")
    assert wanted


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []
