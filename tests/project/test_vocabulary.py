"""One vocabulary: whatever says how a task ended, or what it waits for, has the words from one table."""

import re

from signoff.text import VERIFIED, WAITS, heading, stands
from tests.house import ROOT, product_files


def test_words_of_another_version_or_of_a_program_are_shown_as_they_are() -> None:
    assert stands("asleep").title == "asleep"
    assert "solar flare" in heading({"status": "error", "reason": "solar flare"}).title


def test_nothing_else_names_them() -> None:
    """A second table would soon say something else."""
    words = [*VERIFIED.values(), *WAITS.values()]
    phrases = "|".join(re.escape(word.meaning) for word in words)
    files = [path for path in product_files() if re.search(phrases, path.read_text("utf-8"))]
    assert files == [ROOT / "graph" / "vocabulary.py"]
