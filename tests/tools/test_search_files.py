"""search_files finds lines by a regular expression, in bounded time, whatever the expression."""

import os
import random
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException

from signoff.tools.filesystem import search
from tests.support.benches.workspace import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_search_shows_file_line_and_text(bench: Bench) -> None:
    bench.put("a.py", "import os\r\nPORT = 1\r\n")
    bench.put("src/b.py", "\ufeffPORT = 2\n\n# PORT")
    bench.put("src/c.md", "PORT")
    bench.put("image.bin", b"PORT\0")
    bench.put(".git/config", "PORT")
    assert bench("search_files", pattern="^PORT = \\d$").splitlines() == [
        "a.py:2: PORT = 1",
        "src/b.py:1: PORT = 2",
        "2 matching lines in 3 files. Not searched (not entered unless passed as path): .git. "
        "Not searched (binary): image.bin.",
    ]
    assert bench("search_files", pattern="PORT", path="src", glob="*.py").splitlines() == [
        "src/b.py:1: PORT = 2",
        "src/b.py:3: # PORT",
        "2 matching lines in 1 file (names that match *.py).",
    ]
    assert bench("search_files", pattern="(?i)port$", path="src/c.md").startswith("src/c.md:1: PORT\n")
    assert bench("search_files", pattern="^$", path="a.py") == "No matches.\n0 matching lines in 1 file."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": ""}, "The pattern is empty"),
        ({"pattern": "main("}, "no regular expression (missing ), unterminated"),
        ({"pattern": "*"}, "nothing to repeat"),
        ({"pattern": "a{99999999999999999999}"}, "too large"),
        ({"pattern": "x" * 1_001}, "longer than 1000 characters"),
        ({"pattern": "x", "path": "missing"}, "There is no missing"),
        (
            {"pattern": "x", "path": "image.bin"},
            "Nothing was searched in image.bin. Not searched (binary): image.bin.",
        ),
        ({"pattern": "x", "glob": "*.rs"}, "no text file to search in the workspace (names that match *.rs)"),
    ],
)
def test_a_search_that_cannot_be_made(bench: Bench, arguments: dict[str, str], said: str) -> None:
    bench.put("a.py", "x")
    bench.put("image.bin", b"\0")
    assert said in bench.refusal("search_files", **arguments)


@pytest.mark.parametrize("pattern", ["\ud800", "\0", "x"])
def test_odd_patterns_and_texts_do_no_harm(bench: Bench, pattern: str) -> None:
    bench.put("a.txt", b"\xff x \xed\xa0\x80\n")
    assert "1 file" in bench("search_files", pattern=pattern)


def test_hits_are_bounded_and_kept_whole_for_reading(bench: Bench) -> None:
    bench.put("many.txt", "".join(f"hit {number} {'x' * 1_000}\n" for number in range(1_500)))
    found = bench("search_files", pattern="hit")
    assert len(found) <= 20_000
    assert found.endswith(
        "500 matching lines in 1 file. Stopped after 500 lines: make the pattern narrower, or pass a path or "
        "a glob, to see others."
    )
    kept = found.split("the full text is in ")[1].split(" ...]")[0]
    assert "300|many.txt:300: hit 299 xxx" in bench("read_file", path=kept, start_line=300, end_line=300)
    assert (bench.root / ".signoff/.gitignore").read_text() == "*\n"
    assert "passed as path): .signoff." in bench("search_files", pattern="hit 299 ")


def test_a_hit_in_a_huge_line_shows_what_is_around_it(bench: Bench) -> None:
    bench.put("min.js", "a" * 50_000 + "needle" + "b" * 50_000)
    line = bench("search_files", pattern="needle").splitlines()[0]
    assert "aaaneedlebbb" in line
    assert len(line) < 420


def test_a_file_too_large_to_search_is_named(bench: Bench) -> None:
    bench.put("big.log", b"x" * 2_000_001)
    bench.put("a.txt", "x")
    assert bench("search_files", pattern="x").endswith(
        "Not searched (larger than 2,000,000 bytes, unless passed as path): big.log."
    )


def test_a_large_file_that_is_named_is_searched_or_refused_by_its_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put("big.log", (b"x" * 99 + b"\n") * 120_000 + b"needle\n")
    assert bench("search_files", pattern="needle", path="big.log").startswith("big.log:120001: needle\n")
    assert "Nothing was searched in the workspace. Not searched (larger than 2,000,000 bytes" in (
        bench.refusal("search_files", pattern="needle")
    )
    monkeypatch.setattr(search, "MOST_SEARCHED_BYTES", 12_000_006)
    assert "larger than 12,000,006 bytes, read parts of it with read_file): big.log." in bench.refusal(
        "search_files", pattern="needle", path="big.log"
    )


EXPONENTIAL = "(a|aa)+$"


@pytest.mark.timed
def test_a_pattern_that_takes_for_ever_is_stopped(bench: Bench) -> None:
    bench.put("z.txt", "a" * 60 + "b")
    started = time.process_time()
    said = bench.refusal("search_files", pattern=EXPONENTIAL)
    assert "took too long, and found nothing before; use a simpler pattern" in said
    assert time.process_time() - started < 5


@pytest.mark.timed
@pytest.mark.parametrize("pattern", [EXPONENTIAL, "(a|aa)+$(?<!c)"])
def test_many_files_share_one_deadline(bench: Bench, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a file is reached with no time left."""
    monkeypatch.setattr(search, "SECONDS", 1.5)
    for number in range(20):
        bench.put(f"{number}.txt", "a" * 60 + "b")
    started = time.process_time()
    assert "took too long" in bench.refusal("search_files", pattern=pattern)
    assert time.process_time() - started < 5


def test_what_was_found_before_the_time_was_up_is_shown(bench: Bench) -> None:
    bench.put("a.txt", "a\n" * 3)
    bench.put("z.txt", "a" * 60 + "b")
    found = bench("search_files", pattern=EXPONENTIAL).splitlines()
    assert found[:3] == ["a.txt:1: a", "a.txt:2: a", "a.txt:3: a"]
    assert "Not searched (to the end, since the pattern takes too long): z.txt" in found[-1]


@pytest.mark.timed
@pytest.mark.parametrize(
    "pattern",
    [
        "((((a{99}){99}){99}){99}){99}",
        "(a{1,100}){1,100}b",
        "(.)*[cd]",
        "(?:(?:a|ab|b)*?)*[cd]",
        "(?:a?){19999}b",
        "(?R)",
        "(" * 500 + ")" * 500,
        "\\" * 999,
        "[",
        "\0",
    ],
)
def test_no_pattern_takes_the_time_or_the_memory_of_others(bench: Bench, pattern: str) -> None:
    bench.put("a.txt", "a" * 60 + "b\n" + "ab" * 100_000 + "\n")
    started = time.monotonic()
    # Refused or not, by a sentence.
    with suppress(ToolException):
        bench("search_files", pattern=pattern)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        # As it is, and where that finds nothing, as plain text.
        ("price(order)", "plain text. 1 matching line"),
        ("$5.00", "plain text. 1 matching line"),
        ("price(order)[0]", "plain text. 1 matching line"),
        ("price\\(order\\)", "1: total = price(order)[0]"),
        ("main(", "no regular expression"),
        ("f'{e}'", "3: main(f'{e}')"),
        ("5.00", "2: cost = '$5.00'"),
        ("nothing(here)", "No matches."),
        ("total.*\\ncost", "within one line"),
        ("total\ncost", "within one line"),
    ],
)
def test_a_pattern_is_also_looked_for_as_plain_text(bench: Bench, pattern: str, found: str) -> None:
    bench.put("c.py", "total = price(order)[0]\ncost = '$5.00'\nmain(f'{e}')\n")
    assert found in bench("search_files", pattern=pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^b$",
        "(?<!x)b$",
        "\\Ab\\Z",
        "(?=b)",
        "[^ab]",
        "b(?!\\w)",
        "(?i)B",
        "(?<!\\s)b",
        "^(?>b[^c]*)$",
        "(?<!a)b",
        "b(?![^b])",
        "(?<![ab])b",
        "^b[^a]*+$",
        "b(?!.)",
        "(?-m:^b)",
        "(?-m:^)b$",
        "(?:^|,)b",
        "(b)(?(1)$|x)",
        "(?x) ^ b $",
        "(?s)^b.*$",
        "\\bb\\Z",
        "[(?]*b",
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_pattern_matches_within_a_line(bench: Bench, pattern: str, line_end: str) -> None:
    bench.put("f", line_end.join(["a", "b", "", "a"]))
    rows = bench("search_files", pattern=pattern).splitlines()
    assert rows[:-1] == (["No matches."] if pattern == "[^ab]" else ["f:2: b"])


# Parts of patterns: what matches a line end, looks around it, keeps what it has, or changes the flags.
PARTS = [
    *(
        "a",
        "b",
        "^",
        "$",
        ".",
        "a?",
        "b*",
        "a++",
        ".*+",
        "(?:a|b)",
        "(a)",
        "|",
        " ",
        ",",
        "[ab]",
        "[^a]",
        "[.]",
    ),
    *(
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "\\d",
        "\\D",
        "\\b",
        "\\B",
        "\\n",
        "\n",
        "\\x0a",
        "\\A",
        "\\Z",
        "[\\s]",
        "[\t-z]",
    ),
    *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?<!\\s)", "(?=$)", "(?<!^)", "(?<=\\n)", "(?>a*)", "(?>\\s*)"),
    *("(?-m:^)", "(?m:^)", "(?s:.)", "(?i:A)", "(?i)"),
]


@pytest.mark.parametrize("seed", range(4))
def test_no_line_that_matches_is_missed(bench: Bench, seed: int) -> None:
    """Whatever the way in which a pattern is looked for: as if each line were searched alone."""
    chosen = random.Random(seed)
    for _ in range(150):
        pattern = "".join(chosen.choices(PARTS, k=chosen.randint(1, 4)))
        lines = ["".join(chosen.choices(["a", "b", " ", ",", ""], k=chosen.randint(0, 4))) for _ in range(4)]
        try:
            re.compile(pattern)
            matching = [number for number, line in enumerate(lines, 1) if regex.search(pattern, line)]
        except (re.error, regex.error):
            continue
        bench.put("f", "\n".join(lines) + "\n")
        rows = bench("search_files", pattern=pattern).splitlines()[:-1]
        shown = [int(row.split(":")[1]) for row in rows if row.startswith("f:")]
        # Where nothing matches, it is looked for as plain text.
        assert shown == matching or not matching, (pattern, lines, rows)


@pytest.mark.timed
@pytest.mark.parametrize("pattern", ["INFO", "INF(?=O)", "^INFO$", "(?<=I)NF(?!A)", "(I)NFO|(?(1)x|y)"])
def test_a_search_stops_at_as_many_lines_as_are_shown(bench: Bench, pattern: str) -> None:
    bench.put("nums.txt", "INFO\n" * 9_900_000)
    started = time.process_time()
    rows = bench("search_files", pattern=pattern, path="nums.txt").splitlines()
    assert rows[0] == "nums.txt:1: INFO"
    assert "500 matching lines in 1 file. Stopped after 500 lines" in rows[-1]
    assert time.process_time() - started < 5


def test_what_was_found_in_a_file_before_the_time_was_up_is_shown(bench: Bench) -> None:
    bench.put("a.txt", "a\n" * 3 + "a" * 60 + "b\n" + "a\n")
    rows = bench("search_files", pattern="(?:a|aa)+$(?<!c)", context=1).splitlines()
    assert rows[:-1] == ["a.txt:1: a", "a.txt:2: a", "a.txt:3: a", f"a.txt-4- {'a' * 60}b"]
    assert "3 matching lines in 1 file. Not searched (to the end" in rows[-1]


def test_lines_around_a_match_are_shown_on_request(bench: Bench) -> None:
    bench.put("f", "".join(f"line {number}\n" for number in range(1, 21)))
    assert bench("search_files", pattern="line (3|5|12)$", context=1).splitlines() == [
        "f-2- line 2",
        "f:3: line 3",
        "f-4- line 4",
        "f:5: line 5",
        "f-6- line 6",
        "f-11- line 11",
        "f:12: line 12",
        "f-13- line 13",
        "3 matching lines in 1 file.",
    ]
    assert len(bench("search_files", pattern="line 10", context=99).splitlines()) == 21


def test_a_search_says_what_it_did_not_read(bench: Bench) -> None:
    bench.put("a.js", "x\n")
    for folder in ("node_modules", ".venv", "src/__pycache__", ".signoff"):
        bench.put(f"{folder}/x.js", "the word\n")
    bench.put("u16.txt", "the word\n".encode("utf-16"))
    bench.put("latin.txt", "café: the word\n".encode("latin-1"))
    bench.put("big.log", b"x" * 2_000_001)
    bench.put("image.png", b"\x89P\0\0\0")
    (bench.root / "link").symlink_to("a.js")
    os.mkfifo(bench.root / "pipe")
    found = bench("search_files", pattern="the word")
    assert found.splitlines()[0] == "latin.txt:1: caf\ufffd: the word"
    for said in (
        "Not searched (not entered unless passed as path): .signoff, .venv, node_modules, src/__pycache__.",
        "Not searched (UTF-16): u16.txt.",
        "Not searched (binary): image.png.",
        "Not searched (larger than 2,000,000 bytes, unless passed as path): big.log.",
        "Not searched (but for ASCII characters, since not UTF-8): latin.txt.",
        "Not searched (link): link.",
        "Not searched (special file): pipe.",
    ):
        assert said in found
    assert "node_modules/x.js:1: the word" in bench("search_files", pattern="word", path="node_modules")
    assert "a UTF-16 file" in bench.refusal("read_file", path="u16.txt")


def test_a_filter_that_fits_no_file_is_explained(bench: Bench) -> None:
    bench.put("src/a.py", "x\n")
    said = bench.refusal("search_files", pattern="x", glob="src/*.rs")
    assert "names that match src/*.rs" in said
    assert "write *.py, src/**/*.ts" in said


def test_lines_have_the_same_numbers_as_in_a_reading(bench: Bench) -> None:
    bench.put("f", "a\x0cb\x0bc\u2028d\x85e\rf\r\nneedle\x1c\r\nlast")
    assert bench("search_files", pattern="needle").startswith("f:2: needle")
    assert "\n2|needle" in bench("read_file", path="f")
    assert "\n2|pin" in bench("edit_file", path="f", old="needle", new="pin")
    assert "lines 1 to 3 of 3" in bench("read_file", path="f")
