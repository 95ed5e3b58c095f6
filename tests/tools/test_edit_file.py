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
        (" = ", "=", "more than once in f, in lines 1, 2, 3; nothing was changed. Include more lines"),
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


NBSP, EN_DASH, ACUTE = "U+00A0 NO-BREAK SPACE", "U+2013 EN DASH", "U+0301 COMBINING ACUTE ACCENT"


@pytest.mark.parametrize(
    ("content", "old", "said"),
    [
        ("a\nnai\u0308ve = 1\n", "na\u00efve = 1", "in line 2 the file has U+0308 COMBINING DIAERESIS."),
        ("na\u00efve", "nai\u0308ve", "in line 1 old has U+0308 COMBINING DIAERESIS."),
        ("\ud55c", "\u1112\u1161\u11ab", 'line 1 is "\\ud55c"'),
        ("a b\nc\u00a0d\n", "a b\nc d", f"in line 2 the file has {NBSP}."),
        ("a b\r\nc d\r\n", "a\u202fb\nc d", "in line 1 old has U+202F NARROW NO-BREAK SPACE."),
        ("a\u00a0b c\n", "a b\u00a0c", 'line 1 is "a\\u00a0b c"'),
        ("a\u2013b\u00a0c\n", "a-b\u2009c", f"has {NBSP}, {EN_DASH}, in line 1 old has U+2009 THIN SPACE."),
        ("pay\u200bpal\n", "paypal", "in line 1 the file has U+200B ZERO WIDTH SPACE."),
        ("x\n\ufeffy\n", "x\ny", "in line 2 the file has U+FEFF ZERO WIDTH NO-BREAK SPACE."),
        ("say \u201chi\u201d\n", 'say "hi"', "the file has U+201C LEFT DOUBLE QUOTATION MARK, U+201D RIGHT"),
        ("it's\n", "it\u2019s", "in line 1 old has U+2019 RIGHT SINGLE QUOTATION MARK."),
        ("1\u20132\n", "1-2", f"in line 1 the file has {EN_DASH}."),
        ("x" * 3_000 + "\u00a0y\n", "x" * 2_000 + " y", f"in line 1 the file has {NBSP}."),
        ("a\nb\rc\nd\n", "b\nc\nd", "in line 2 the file has U+000D."),
        ("a\rb\u00a0c\n", "b c\n", f"in line 1 the file has {NBSP}."),
        ("a\u2028b\n", "a\nb", "in line 1 the file has U+2028 LINE SEPARATOR."),
        ("a\x85b\u00a0c\nd\n", "b c\nd\n", f"in line 1 the file has {NBSP}."),
        ("a\x85b\n", "a\nb", "in line 1 the file has U+0085."),
        ("a\nb\n", "a\u2029b", "in line 1 old has U+2029 PARAGRAPH SEPARATOR."),
        ("a b\n", "a\u3164b", "in line 1 old has U+3164 HANGUL FILLER."),
        ("`a`\n", "'a'", "in line 1 the file has U+0060 GRAVE ACCENT."),
        ("wait\u2026 a\n", "wait... a", "in line 1 the file has U+2026 HORIZONTAL ELLIPSIS."),
    ],
)
def test_what_only_looks_the_same_is_told_apart(bench: Bench, content: str, old: str, said: str) -> None:
    bench.put("f", content)
    assert said in bench.refusal("edit_file", path="f", old=old, new="x")
    assert (bench.root / "f").read_bytes().decode() == content


ALIKE = {
    "'": "\u00b4\u02bc\u02ca\u02cb\u1fef\u1ffd\u2018\u2032\u2035\uff07\uff40",
    '"': "\u02ba\u05f4\u201e\u2033\u2036\uff02",
    "-": "\u05be\u2010\u2011\u2014\u2212\ufe58\ufe63\uff0d",
    "(": "\uff08",
}


@pytest.mark.parametrize(("plain", "character"), [(each, one) for each in ALIKE for one in ALIKE[each]])
def test_a_sign_that_is_taken_for_a_plainer_one_is_named(bench: Bench, plain: str, character: str) -> None:
    bench.put("f", f"one{character}two\n")
    told = bench.refusal("edit_file", path="f", old=f"one{plain}two", new="x")
    assert f"in line 1 the file has U+{ord(character):04X} " in told


@pytest.mark.parametrize("line", [0, 57, 99])
def test_the_closest_place_is_shown_with_the_lines_around(bench: Bench, line: int) -> None:
    bench.put("f", "".join(f"value_{number * 7919} = compute({number})\n" for number in range(100)))
    told = bench.refusal("edit_file", path="f", old=f"value_{line * 7919} = compute( {line} )", new="x")
    shown = [row for row in told.splitlines() if "|" in row]
    numbers = [number for number in (line, line + 1, line + 2) if 1 <= number <= 100]
    assert [row.partition("|")[0] for row in shown] == [str(number) for number in numbers]


@pytest.mark.parametrize(("content", "old"), [("a\nb\nlast", "last\n"), ("a\r\nlast\r\n", "a\nlast\n\n")])
def test_line_ends_that_are_too_many_are_said(bench: Bench, content: str, old: str) -> None:
    bench.put("f", content)
    told = bench.refusal("edit_file", path="f", old=old, new="x")
    assert "It is there with other spaces, indentation or line breaks." in told
    assert "|last" in told


@pytest.mark.parametrize(
    ("content", "old", "lines"),
    [
        ("aaa", "aa", "lines 1;"),
        ("x\ny\nx\ny\nx\n", "x\ny\nx", "lines 1, 3;"),
        ("a, a\nb\na\n", "a", "lines 1, 3;"),
        ("a\n" * 50, "a", "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and"),
    ],
)
def test_overlapping_and_many_places_are_ambiguous(bench: Bench, content: str, old: str, lines: str) -> None:
    bench.put("f", content)
    assert f"in {lines}" in bench.refusal("edit_file", path="f", old=old, new="z")


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
        ("e\u0301" * 400_000, "é" * 100_000, "the file has U\\+0301 COMBINING ACUTE ACCENT"),
        ("a" + "\u200b" * 400_000 + "b", "ab", "the file has U\\+200B"),
        ("a" + "\u0301" * 400_000, "\u00e1" + "\u0301" * 10_000, "otherwise: line 1 is"),
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
    assert "compared" not in told


def test_it_says_how_far_it_looked_for_the_closest_lines(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "_SECONDS", 0.0)
    bench.put("f", "".join(f"line {number} of many\n" for number in range(2_000)))
    told = bench.refusal("edit_file", path="f", old="lines 1999 of many", new="x")
    assert "(only what is before character 1 of line 1 was compared)" in told


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "said"),
    [
        ("a, b\na\n", "a", "x", "x, b\nx\n", "in 2 places. The lines around the first are now:\n1|x, b"),
        ("aaaa\n", "aa", "b", "bb\n", "in 2 places. The lines around"),
        (
            "a\r\nb\r\na\r\nb\n",
            "a\nb",
            "1\n2\n3",
            "1\r\n2\r\n3\r\n1\r\n2\r\n3\n",
            "in 2 places. The lines around",
        ),
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
    assert "[characters 49,901 to 50,200 of 100,003; read_file" in told
    assert len(told) < 1_000
    read = bench("read_file", path="min.js", start_line=1, end_line=1, start_character=49_901)
    assert "aaaPINbbb" in read
    assert len(read) <= 20_000
    # And so on, to the end of the line.
    shown = re.compile(r"(\w+)(?:\.\.\.)? \[characters ([\d,]+) to ([\d,]+) of 100,003; read_file")
    line = ""
    while len(line) < 100_003:
        read = bench("read_file", path="min.js", start_character=len(line) + 1)
        part = shown.search(read)
        assert part
        start, end = (int(part[group].replace(",", "")) for group in (2, 3))
        assert start <= len(line) + 1 <= end == start - 1 + len(part[1])
        line = line[: start - 1] + part[1]
    assert line == "a" * 50_000 + "PIN" + "b" * 50_000


@pytest.mark.parametrize("place", [0, 299, 20_000, 47_983])
def test_the_closest_part_of_a_long_line_is_found_wherever_it_is(bench: Bench, place: int) -> None:
    line = "var q=1;" * 6_000
    bench.put("min.js", f"first\n{line[:place]}return total_price+shipping_cost;{line[place:]}\nlast\n")
    told = bench.refusal("edit_file", path="min.js", old="return total_price + shipping_cost;", new="x")
    rows = told.splitlines()[1:]
    assert [row.partition("|")[0] for row in rows] == ["1", "2", "3"]
    assert "return total_price+shipping_cost;" in rows[1]
    assert len(told) < 1_000


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
    ("count", "said"), [(90_000, "in 90,000 places. The lines around"), (110_000, "100,000 times")]
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
