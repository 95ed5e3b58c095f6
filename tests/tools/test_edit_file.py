"""edit_file replaces one exact, unique text, or changes nothing and helps the model to find it."""

import re
import time
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.tools.filesystem import edits
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
        ("say \u201chi\u201d\n", 'say "hi"', "has U+201C LEFT DOUBLE QUOTATION MARK where old has U+0022"),
        ("it's\n", "it\u2019s", "has U+0027 APOSTROPHE where old has U+2019 RIGHT SINGLE QUOTATION MARK"),
        ("1\u20132\n", "1-2", "line 1 has U+2013 EN DASH where old has U+002D HYPHEN-MINUS"),
        (
            "x" * 3_000 + "\u00a0y\n",
            "x" * 2_000 + " y",
            "line 1 has U+00A0 NO-BREAK SPACE where old has U+0020 SPACE",
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


@pytest.mark.timed
@pytest.mark.parametrize(
    ("content", "old", "said"),
    [
        (
            "a" * 100_000 + "\u00a0" + "b" * 60_000,
            "a" * 40_000 + " " + "b" * 40_000,
            r"U\+00A0 NO-BREAK SPACE",
        ),
        ("a" * 2_000_000, "a" * 40_000 + "b", "The closest lines are below"),
        ("ab" * 1_000_000, "ab" * 20_000 + "b", "more than once|is not in f"),
        ("é" * 200_000, "e" * 100_000, "is not in f"),
        ("e\u0301" * 400_000, "é" * 100_000, "U\\+0301 COMBINING ACUTE ACCENT where old has"),
        ("a" + "\u200b" * 400_000 + "b", "ab", "399,991 more"),
        ("a" + "\u0301" * 400_000, "\u00e1" + "\u0301" * 10_000, "otherwise: from line 1 on"),
    ],
)
def test_a_huge_line_is_looked_through_in_reasonable_time(
    bench: Bench, content: str, old: str, said: str
) -> None:
    bench.put("f", content)
    started = time.process_time()
    assert re.search(said, bench.refusal("edit_file", path="f", old=old, new="x"))
    assert time.process_time() - started < 6


def test_the_closest_lines_are_looked_for_in_the_whole_file(bench: Bench) -> None:
    bench.put("f", "".join(f"def func_{n}(a, b):\n    return a + b * {n}\n\n" for n in range(6_000)))
    told = bench.refusal("edit_file", path="f", old="def func_5999(a,b):\n    return a+b*5999", new="x")
    assert "17998|def func_5999(a, b):\n17999|    return a + b * 5999" in told
    assert "were compared" not in told


def test_it_says_how_far_it_looked_for_the_closest_lines(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "_SECONDS", 0.0)
    bench.put("f", "".join(f"line {number} of many\n" for number in range(2_000)))
    told = bench.refusal("edit_file", path="f", old="lines 1999 of many", new="x")
    assert "(only the first 256 lines were compared)" in told or "(only the first 0 lines" in told


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "said"),
    [
        ("a, b\na\n", "a", "x", "x, b\nx\n", "2 places, in lines 1, 2; around the first"),
        ("aaaa\n", "aa", "b", "bb\n", "2 places, in lines 1; around"),
        ("a\r\nb\r\na\r\nb\n", "a\nb", "1\n2\n3", "1\r\n2\r\n3\r\n1\r\n2\r\n3\n", "2 places, in lines 1, 4"),
        ("one\n", "one", "two", "two\n", "The lines there are now:\n1|two"),
        ("\\1 \\1\n", "\\1", "\\g<0>", "\\g<0> \\g<0>\n", "2 places"),
    ],
)
def test_all_places_are_changed_by_an_explicit_choice(
    bench: Bench, before: str, old: str, new: str, after: str, said: str
) -> None:
    bench.put("f", before)
    assert said in bench("edit_file", path="f", old=old, new=new, replace_all=True)
    assert (bench.root / "f").read_bytes().decode() == after


def test_a_change_in_the_middle_of_a_long_line_is_shown_and_can_be_read(bench: Bench) -> None:
    bench.put("min.js", "a" * 50_000 + "NEEDLE" + "b" * 50_000 + "\n")
    told = bench("edit_file", path="min.js", old="NEEDLE", new="PIN")
    assert "aaaPINbbb" in told
    assert "[characters 49,901 to 50,200 of 100,003 in this line]" in told
    assert len(told) < 1_000
    read = bench("read_file", path="min.js", start_line=1, end_line=1, start_character=49_901)
    assert "aaaPINbbb" in read
    assert len(read) <= 20_000
    # And so on, to the end of the line.
    way = re.search(r"start_line=1, start_character=(\d+) shows them", read)
    seen = 0
    while way:
        seen = int(way[1])
        read = bench("read_file", path="min.js", start_character=seen)
        way = re.search(r"start_line=1, start_character=(\d+) shows them", read)
    assert read.endswith("b" * (100_003 - seen + 1))


def test_what_is_around_an_edit_stays_as_it_is(bench: Bench) -> None:
    """Also what is no text to a reader, the mode, and the link by which the file was named."""
    before = "\ufeffa\r\nb\n\x0c\x00\u2028c\rd\r\n\n"
    bench.put("f", before)
    (bench.root / "f").chmod(0o640)
    (bench.root / "link").symlink_to("f")
    bench("edit_file", path="link", old="b", new="B")
    assert (bench.root / "f").read_bytes().decode() == before.replace("b", "B")
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o640
    assert (bench.root / "link").is_symlink()


@pytest.mark.timed
@pytest.mark.parametrize(
    ("count", "said"), [(90_000, "in 90,000 places, in lines 1, 3, 5, 7, 9 and"), (110_000, "100,000 times")]
)
def test_very_many_places_are_changed_or_refused_in_reasonable_time(
    bench: Bench, count: int, said: str
) -> None:
    bench.put("f", "ab\r\n" * count)
    started = time.process_time()
    try:
        told = bench("edit_file", path="f", old="a", new="x\ny", replace_all=True)
    except ToolException as refusal:
        told = str(refusal)
    assert said in told
    assert time.process_time() - started < 6
