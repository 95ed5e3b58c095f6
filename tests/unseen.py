"""Writes the table of `signoff/front/unseen.py` from Unicode's own properties: `python -m tests.unseen`.

The `regex` package brings them; Python's `unicodedata` has neither of the two that count here.
"""

import sys
from itertools import groupby
from pathlib import Path

import regex  # type: ignore[import-untyped]  # the package has no types

TABLE = Path(__file__).parent.parent / "signoff/front/unseen.py"
PROPERTIES = ("Default_Ignorable_Code_Point", "White_Space", "Noncharacter_Code_Point")
# Format characters, but for those that enclose numbers and are seen.
FORMAT = r"[\p{Format}--\p{Prepended_Concatenation_Mark}]"
# No property says that a glyph is empty; these are the ones whose name does.
BLANK = {
    0x2800: "BRAILLE PATTERN BLANK",
    0x13441: "EGYPTIAN HIEROGLYPH FULL BLANK",
    0x13442: "EGYPTIAN HIEROGLYPH HALF BLANK",
    0x16FE4: "KHITAN SMALL SCRIPT FILLER",
    0x1D159: "MUSICAL SYMBOL NULL NOTEHEAD",
}
AS_THEY_SEEM = {ord(" "), ord("\n")}

_HEAD = '''"""Characters that show nothing, or only space: a table that `python -m tests.unseen` writes.

They are those with Unicode's property Default_Ignorable_Code_Point, White_Space or Noncharacter_Code_Point,
the format characters that are not seen, and the few whose glyph is empty by their name.
"""

'''


_ALL = "".join(chr(code) for code in range(sys.maxunicode + 1))


def having(name: str) -> set[int]:
    """The characters with a property, or of a set of `regex`."""
    pattern = regex.compile(name if name.startswith("[") else rf"\p{{{name}}}", regex.VERSION1)
    return {ord(found) for found in pattern.findall(_ALL)}


def unseen() -> set[int]:
    """All that the table has to hold."""
    found = set().union(*(having(name) for name in (*PROPERTIES, FORMAT)))
    return (found | set(BLANK)) - AS_THEY_SEEM


def ranges(codes: set[int]) -> list[tuple[int, int]]:
    """The same, as first and last of each row of neighbours."""
    rows = [
        [code for _, code in row] for _, row in groupby(enumerate(sorted(codes)), lambda at: at[1] - at[0])
    ]
    return [(row[0], row[-1]) for row in rows]


def written() -> str:
    """The module."""
    rows = "".join(f"    (0x{first:04X}, 0x{last:04X}),\n" for first, last in ranges(unseen()))
    return f'{_HEAD}UNSEEN = (\n{rows})\n"""The first and the last of each row of neighbours."""\n'


if __name__ == "__main__":
    TABLE.write_text(written())
