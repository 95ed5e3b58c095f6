"""One vocabulary: how a task ended has the same words in a document, a card, a list and on a page."""

import re
from pathlib import Path

import pytest

from signoff.text import VERIFIED, WAITS, heading, stands
from tests.house import ROOT, product_files
from tests.support.benches.cli import Bench, steps
from tests.support.benches.page_shown import badge, shown

DONE = 'call("finish_task", summary="x")'
BLOCKED = 'call("finish_task", summary="x", outcome="blocked")'
ENDS: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    # a step of the model, options, the status, the colour
    "verified": (DONE, ("--check", "true"), "success", "green"),
    "asserted": (DONE, (), "success", "amber"),
    "less than done": (BLOCKED, (), "success", "amber"),
    "a limit": ("'talk'", ("--turns", "1"), "limit", "amber"),
    "an error": ("RuntimeError('down')", (), "error", "red"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_words_and_the_colour_of_an_end_are_the_same_everywhere(case: str, tmp_path: Path) -> None:
    step, options, status, tone = ENDS[case]
    bench = Bench(tmp_path)
    bench.model(steps(step))
    card = bench.run("Do it", *options).stdout
    document = bench.json("show", "t1")
    found = heading(document["outcome"])
    assert (document["status"], found.tone) == (status, tone)
    assert f"\n{found.title}" in card
    assert f"t1      {found.title}" in bench("threads").stdout
    assert badge(shown(bench)) == (f"{found.sign} {found.title}", {tone})


def test_words_of_another_version_or_of_a_program_are_shown_as_they_are() -> None:
    assert stands("asleep").title == "asleep"
    assert "solar flare" in heading({"status": "error", "reason": "solar flare"}).title


def test_nothing_else_names_them() -> None:
    """A second table would soon say something else."""
    words = [*VERIFIED.values(), *WAITS.values()]
    phrases = "|".join(re.escape(word.meaning) for word in words)
    files = [path for path in product_files() if re.search(phrases, path.read_text("utf-8"))]
    assert files == [ROOT / "graph" / "vocabulary.py"]
