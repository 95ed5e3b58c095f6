"""Writes `docs/reference/words.md` from the vocabulary: `python -m tests.vocabulary`."""

from pathlib import Path

from signoff.front.report import Exit
from signoff.graph.vocabulary import STATUSES, TABLES, VERIFIED, Word

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "words.md"
_HEAD = """\
# The words for how a task ended

One table (`graph/vocabulary.py`) holds them. `run --json`, `show --json`,
`threads --json`, `result["outcome"]`, cards, lists, pages, the application and the figures all take theirs
from it; this page is printed by `python -m tests.vocabulary`, and a test compares the two.

**The first word and the colour of a success say what it rests on**, whatever the model says of itself. After
it comes what the model claims: “Verified: done” is green, “Asserted: done” amber. Exit codes follow the
claim: 0 for a success that claims “done”, 5 for one that claims less.
"""
_TITLES = {
    "status": ("How a thread stands", "`status`"),
    "waits_for": ("What it waits for", "`waits_for`"),
    "verified": ("What a success rests on", "`verified`"),
    "claim": ("What the model claims", "`claim`"),
    "reason": ("Why it has ended", "`reason`"),
}
_OF_SUCCESS = ", ".join(f"{word.tone}" for word in VERIFIED.values())
_ENDED = {
    "success": "what it rests on: what it claims",
    **dict.fromkeys(("limit", "error"), "the words of its reason"),
}


def page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for field, words in TABLES.items():
        title, name = _TITLES[field]
        coloured = any(word.tone for word in words.values())
        names = [name, "shown as", *(["colour"] if coloured else []), "meaning"]
        rows = [names, ["---"] * len(names)]
        rows += [_row(key, word, coloured=coloured) for key, word in words.items()]
        parts.append(f"## {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    return "\n".join(parts)


def _row(key: str, word: Word, *, coloured: bool) -> list[str]:
    tone = _OF_SUCCESS if word is STATUSES["success"] else f"{word.tone}"
    shown = _ENDED.get(key, word.shown) if coloured else word.shown
    return [f"`{key}`", shown, *([tone] if coloured else []), word.meaning]


if __name__ == "__main__":
    assert (Exit.SUCCESS, Exit.HONEST) == (0, 5), "the page names them"
    PAGE.write_text(page(), "utf-8")
