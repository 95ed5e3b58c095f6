"""edit_file replaces one exact, unique text, or changes nothing and helps the model to find it."""

import re
from pathlib import Path

import pytest

from tests.support.benches.workspace import Bench, Call, Case, Link, calls, changes, check, refuses

CONFIG = "HOST = 'a'\nPORT = 3000\nDEBUG = True\n"
TWENTY = "".join(f"line {number}\n" for number in range(1, 21))
THREE = ["1|HOST = 'a'", "2|PORT = 3000", "3|DEBUG = True"]


def edit(old: str, new: str = "x", path: str = "f", **args: bool) -> Call:
    return calls("edit_file", path=path, old=old, new=new, **args)


def edits(before: str, old: str, new: str, after: str, *says: str, rows: list[str] | None = None) -> Case:
    return changes(edit(old, new), {"f": before}, {"f": after}, *says, rows=rows)


def everywhere(before: str, old: str, new: str, after: str, *says: str) -> Case:
    return changes(edit(old, new, replace_all=True), {"f": before}, {"f": after}, *says)


def misfits(before: str | bytes, old: str, *says: str, rows: list[str] | None = None) -> Case:
    return refuses(edit(old), {"f": before}, *says, rows=rows)


EDITS = {
    "a word": edits(CONFIG, "3000", "8080", CONFIG.replace("3000", "8080"), "f"),
    "no replacement pattern": edits("x = '\\d'\n", "'\\d'", r"'\g<0>\1'", "x = '\\g<0>\\1'\n"),
    "CRLF stays": edits("a\r\nb\r\nc\r\n", "b", "1\n2", "a\r\n1\r\n2\r\nc\r\n"),
    "CRLF is found by LF": edits("a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", "a\r\nx\r\nb\r\nc\r\n"),
    "of both, what is there": edits("a\r\n" * 5 + "c\nd\n", "c\nd", "c\nx\nd", "a\r\n" * 5 + "c\nx\nd\n"),
    "what is no text to a reader stays": edits(
        "\ufeffa\r\nb\n\x0c\x00\u2028c\rd\r\n\n", "b", "B", "\ufeffa\r\nB\n\x0c\x00\u2028c\rd\r\n\n"
    ),
    "the changed lines and those around are shown": edits(
        TWENTY,
        "line 10\n",
        "ten\nand more\n",
        TWENTY.replace("line 10\n", "ten\nand more\n"),
        rows=[
            *("7|line 7", "8|line 8", "9|line 9", "10|ten", "11|and more"),
            *("12|line 11", "13|line 12", "14|line 13", "15|line 14"),
        ],
    ),
    "all places": everywhere("a, b\na\n", "a", "x", "x, b\nx\n", "2", "1|x, b"),
    "very many": everywhere("ab\r\n" * 90_000, "a", "x\ny", "x\r\nyb\r\n" * 90_000, "90,000"),
    "through a link": changes(
        edit("b", "B", path="link"), {"f": "ab", "link": Link("f")}, {"f": "aB"}, rows=["1|aB"]
    ),
}


MISFITS = {
    "nothing": misfits(CONFIG, "", "old"),
    "no change": refuses(edit("PORT", "PORT"), {"f": CONFIG}, "old", "new"),
    "a missing file": refuses(edit("a", path="g"), {"f": CONFIG}, "g", "list_files"),
    "Latin-1": misfits(b"caf\xe9", "a", "f", "UTF-8"),
    "several places": misfits(CONFIG, " = ", "f", "1, 2, 3", "replace_all"),
    "too many for all": refuses(
        edit("a", "x", replace_all=True), {"f": "ab\n" * 110_000}, "100,000"
    ),
    "line numbers of a reading": misfits(CONFIG, "2|PORT = 3000\n3|DEBUG", "read_file", rows=[]),
    "other spaces": misfits(CONFIG, "PORT  =  3000", rows=THREE),
    "nothing close": misfits(CONFIG, "def main(argument):", "read_file", rows=[]),
    "very many lines": misfits(
        "".join(f"value_{n} = compute({n * 7919})\n" for n in range(100_000)), "value_1234 = compute()"
    ),
}  # fmt: skip


# What only looks the same is told apart: the file, old, and the characters that are named with their lines.
ALIKE = {
    "a form of the file": ("a\nnai\u0308ve = 1\n", "na\u00efve = 1", "line 2", "U+0308 COMBINING DIAERESIS"),
    "a space of the file": ("a b\nc\u00a0d\n", "a b\nc d", "line 2 the file has U+00A0 NO-BREAK SPACE"),
    "several": ("a\u2013b\u00a0c\n", "a-b\u2009c", "line 1", "U+00A0", "U+2013 EN DASH", "old has U+2009"),
    "what is not seen": ("pay\u200bpal\n", "paypal", "line 1", "U+200B ZERO WIDTH SPACE"),
    "a line separator": ("a\u2028b\n", "a\nb", "line 1", "U+2028 LINE SEPARATOR"),
    "many accents": ("e\u0301" * 400_000, "\u00e9" * 100_000, "U+0301 COMBINING ACUTE ACCENT"),
}  # fmt: skip
CASES = (
    EDITS | MISFITS | {name: misfits(content, old, *says) for name, (content, old, *says) in ALIKE.items()}
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CASES)
def test_an_edit_replaces_one_text_or_changes_nothing_and_helps(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path)


def test_what_is_shown_of_a_long_edit_is_bounded(tmp_path: Path) -> None:
    told = Bench(tmp_path, {"f": "a\n"})("edit_file", path="f", old="a", new="one more line\n" * 1_000)
    assert len(told) < 4_200
    assert ("1|one more line" in told, "1000|one more line" in told) == (True, True)


def test_a_change_in_the_middle_of_a_long_line_is_shown_and_can_be_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"f": "a" * 50_000 + "NEEDLE" + "b" * 50_000 + "\n"})
    told = bench("edit_file", path="f", old="NEEDLE", new="PIN")
    assert "aaaPINbbb" in told
    assert len(told) < 1_000
    # It says where the part stands; by that, it is read.
    place = int(re.findall(r"[\d,]{4,}", told)[0].replace(",", ""))
    assert "aaaPINbbb" in bench("read_file", path="f", start_character=place)
    assert "100,003 of 100,003" in bench.rows("read_file", path="f", start_character=100_001)[0]
