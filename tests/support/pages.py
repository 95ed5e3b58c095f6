"""README and the pages of the docs, and the blocks that they fence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCED = re.compile(r'^( *)(`{3,})(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^\1\2$', re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block. title: the file that it is. after: the text block that directly follows it."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    after: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """The paths of all pages, from the root of the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """The blocks of a page, in order."""
    return tuple(_blocks(page))


def _blocks(page: str) -> Iterator[Block]:
    text = read(page)
    found = list(_FENCED.finditer(text))
    for at, one in enumerate(found):
        margin, _, language, title, inside = one.groups()
        following = found[at + 1] if at + 1 < len(found) else None
        near = following is not None and len(text[one.end() : following.start()].strip()) < _NEAR
        printed = following[5] if following and near and following[3] == "text" else None
        line = text.count("\n", 0, one.start()) + 1
        plain = re.sub(rf"^{margin}", "", inside, flags=re.M)
        yield Block(page, line, language, title, plain, printed)


# Between a program and what it prints there may be a few words: "It prints:".
_NEAR = 40
