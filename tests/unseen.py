"""Writes the table of `signoff/front/unseen.py` from Unicode's own properties: `python -m tests.unseen`.

The `regex` package brings them; Python's `unicodedata` has neither of the two that count here.
"""

import re
import sys
from itertools import groupby
from pathlib import Path

import regex  # type: ignore[import-untyped]  # the package has no types

TABLE = Path(__file__).parent.parent / "signoff/front/unseen.py"
PROPERTIES = (
    r"\p{Default_Ignorable_Code_Point}",
    r"\p{White_Space}",
    r"\p{Noncharacter_Code_Point}",
    # Format characters, but for those that enclose numbers and are seen.
    r"[\p{Format}--\p{Prepended_Concatenation_Mark}]",
)
# No property says that a glyph is empty; these are the ones whose name does: of Braille, hieroglyphs, Khitan
# script and music.
BLANK = {0x2800, 0x13441, 0x13442, 0x16FE4, 0x1D159}
AS_THEY_SEEM = {ord(" "), ord("\n")}


def unseen() -> set[int]:
    """All that the table has to hold."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    patterns = (regex.compile(pattern, regex.VERSION1) for pattern in PROPERTIES)
    codes = {ord(character) for pattern in patterns for character in pattern.findall(everything)}
    return (codes | BLANK) - AS_THEY_SEEM


def rows() -> list[str]:
    """The same as lines of the table: the first and the last of each row of neighbours."""
    numbered = groupby(enumerate(sorted(unseen())), lambda at: at[1] - at[0])
    neighbours = [[code for _, code in row] for _, row in numbered]
    return [f"    (0x{row[0]:04X}, 0x{row[-1]:04X}),\n" for row in neighbours]


if __name__ == "__main__":
    table = re.compile(r"(?<=^UNSEEN = \(\n)(    .*\n)*", re.MULTILINE)
    TABLE.write_text(table.sub(lambda _: "".join(rows()), TABLE.read_text("utf-8"), count=1), "utf-8")
