"""The words for how a task ended and for what it waits, where they are of another version or of a program."""

from signoff.text import heading, stands


def test_words_of_another_version_or_of_a_program_are_shown_as_they_are() -> None:
    assert stands("asleep").title == "asleep"
    assert "solar flare" in heading({"status": "error", "reason": "solar flare"}).title
