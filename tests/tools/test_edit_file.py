"""edit_file replaces one exact, unique text, or changes nothing and helps the model to find it."""

import time
from pathlib import Path

import pytest

from tests.support.benches.workspace import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


CONFIG = "HOST = 'a'\nPORT = 3000\nDEBUG = True\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (CONFIG, "3000", "8080", CONFIG.replace("3000", "8080")),
        (CONFIG, "PORT = 3000\n", "", "HOST = 'a'\nDEBUG = True\n"),
        (CONFIG, "'a'\nPORT", "'b'\n\nPORT", CONFIG.replace("'a'\n", "'b'\n\n")),
        (CONFIG, CONFIG, "x", "x"),
        ("a.b\naxb\n", "a.b", "c", "c\naxb\n"),
        ("x = '\\d'\n", "'\\d'", r"'\g<0>\1'", "x = '\\g<0>\\1'\n"),
        ("a\r\nb\r\nc\r\n", "b", "1\n2", "a\r\n1\r\n2\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", "a\r\nx\r\nb\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"),
        ("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n"),
        ("a\r\nb\r\nc\nd\n", "c\nd", "c\nx\nd", "a\r\nb\r\nc\nx\nd\n"),
        ("no end", "end", "end at all", "no end at all"),
        ("\ufeffmarked\n", "marked", "m", "\ufeffm\n"),
    ],
)
def test_an_edit_replaces_one_text_and_keeps_the_rest(
    bench: Bench, before: str, old: str, new: str, after: str
) -> None:
    bench.put("f", before)
    bench("edit_file", path="f", old=old, new=new)
    assert (bench.root / "f").read_bytes().decode() == after


def test_an_edit_shows_the_changed_lines_and_those_around(bench: Bench) -> None:
    bench.put("f", "".join(f"line {number}\n" for number in range(1, 21)))
    assert bench("edit_file", path="f", old="line 10\n", new="ten\nand more\n") == (
        "Edited f. The lines there are now:\n"
        "7|line 7\n8|line 8\n9|line 9\n10|ten\n11|and more\n12|line 11\n13|line 12\n14|line 13\n15|line 14"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "x", "old is empty"),
        ("PORT", "PORT", "old and new are the same"),
        ("PORT", "\ud83d", "not valid text"),
        (" = ", "=", "more than once in f, at lines 1, 2, 3; nothing was changed. Include more lines"),
        ("2|PORT = 3000", "x", "Leave out the line numbers"),
        ("2|PORT = 3000\n3|DEBUG", "x", "Leave out the line numbers"),
        ("PORT  =  3000", "x", "with other spaces, indentation or line breaks. The closest lines"),
        ("PORT = 8000", "x", "copy the text exactly.\n1|HOST = 'a'\n2|PORT = 3000\n3|DEBUG = True"),
        ("DEBUG = False", "x", "copy the text exactly.\n2|PORT = 3000\n3|DEBUG = True"),
        ("def main(argument):", "x", "No line comes close; read the file"),
        ("\n\n\n", "x", "No line comes close"),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing_and_helps(
    bench: Bench, old: str, new: str, said: str
) -> None:
    bench.put("f", CONFIG)
    assert said in bench.refusal("edit_file", path="f", old=old, new=new)
    assert (bench.root / "f").read_text() == CONFIG


@pytest.mark.parametrize(
    ("content", "old", "said"),
    [
        (
            "a\nnai\u0308ve = 1\n",
            "na\u00efve = 1",
            "line 2 has U+0069 LATIN SMALL LETTER I U+0308 COMBINING DIAERESIS where old has "
            "U+00EF LATIN SMALL LETTER I WITH DIAERESIS",
        ),
        (
            "na\u00efve",
            "nai\u0308ve",
            "line 1 has U+00EF LATIN SMALL LETTER I WITH DIAERESIS where old has U+0069",
        ),
        ("\ud55c", "\u1112\u1161\u11ab", "has U+D55C HANGUL SYLLABLE HAN where old has U+1112"),
        ("a b\nc\u00a0d\n", "a b\nc d", "line 2 has U+00A0 NO-BREAK SPACE where old has U+0020 SPACE"),
        (
            "a b\r\nc d\r\n",
            "a\u202fb\nc d",
            "line 1 has U+0020 SPACE where old has U+202F NARROW NO-BREAK SPACE",
        ),
        (
            "pay\u200bpal\n",
            "paypal",
            "line 1 has U+0079 LATIN SMALL LETTER Y U+200B ZERO WIDTH SPACE where old",
        ),
        (
            "x\n\ufeffy\n",
            "x\ny",
            "line 2 has U+FEFF ZERO WIDTH NO-BREAK SPACE U+0079 LATIN SMALL LETTER Y where",
        ),
        (
            "a\nb\nlast",
            "last\n",
            "has no line end behind line 3, its last one, where old has 1 line end: leave",
        ),
        ("a\nlast\n", "last\n\n", "has 1 line end behind line 2, its last one, where old has 2 line ends"),
        ("a\r\nlast", "a\nlast\n", "no line end behind line 2"),
    ],
)
def test_what_only_looks_the_same_is_told_apart(bench: Bench, content: str, old: str, said: str) -> None:
    bench.put("f", content)
    assert said in bench.refusal("edit_file", path="f", old=old, new="x")
    assert (bench.root / "f").read_bytes().decode() == content


def test_each_close_place_is_shown_once(bench: Bench) -> None:
    bench.put(
        "f", "".join(f"value_{number} = compute({number})\n" for number in range(5)) + "\n" * 9 + "value_9\n"
    )
    told = bench.refusal("edit_file", path="f", old="value_7 = compute(7)", new="x")
    shown = [line for line in told.splitlines() if "|" in line]
    assert len(shown) == len(set(shown)) >= 3


@pytest.mark.parametrize(
    ("content", "old", "lines"),
    [
        ("aaa", "aa", "line 1;"),
        ("x\ny\nx\ny\nx\n", "x\ny\nx", "lines 1, 3;"),
        ("a, a\nb\na\n", "a", "lines 1, 3;"),
        ("a\n" * 50, "a", "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and"),
    ],
)
def test_overlapping_and_many_places_are_ambiguous(bench: Bench, content: str, old: str, lines: str) -> None:
    bench.put("f", content)
    assert f"at {lines}" in bench.refusal("edit_file", path="f", old=old, new="z")


@pytest.mark.parametrize(("content", "said"), [(b"caf\xe9", "not UTF-8"), (b"\xff\xfea\0", "not UTF-8")])
def test_a_file_that_an_edit_would_damage_is_left_alone(bench: Bench, content: bytes, said: str) -> None:
    bench.put("f", content)
    assert said in bench.refusal("edit_file", path="f", old="a", new="b")
    assert (bench.root / "f").read_bytes() == content


@pytest.mark.timed
def test_the_closest_lines_of_a_large_file_are_found_in_reasonable_time(bench: Bench) -> None:
    bench.put("f", "".join(f"value_{number} = compute({number * 7919})\n" for number in range(100_000)))
    started = time.monotonic()
    assert "value_1234 = compute(" in bench.refusal(
        "edit_file", path="f", old="value_1234 = compute()", new="x"
    )
    assert time.monotonic() - started < 10
