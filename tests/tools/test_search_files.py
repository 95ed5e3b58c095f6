"""search_files finds lines by a regular expression, in bounded time, whatever the expression."""

import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException

from tests.support.benches.workspace import Bench, Call, Files, Link, calls, check, refuses, shows

BUSY = "a" * 60 + "b"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def search(pattern: str, **args: Any) -> Call:
    return calls("search_files", pattern=pattern, **args)


SOURCES: Files = {
    "a.py": "import os\r\nPORT = 1\r\n",
    "src/b.py": "\ufeffPORT = 2\n\n# PORT",
    "src/c.md": "PORT",
    "image.bin": b"PORT\0",
    ".git/config": "PORT",
}
TWENTY: Files = {"f": "".join(f"line {number}\n" for number in range(1, 21))}
SHOP: Files = {"c.py": "total = price(order)[0]\ncost = '$5.00'\nmain(f'{e}')\n"}
ORDER, COST, MAIN = "c.py:1: total = price(order)[0]", "c.py:2: cost = '$5.00'", "c.py:3: main(f'{e}')"
ODD: Files = {
    "a.js": "x\n",
    **dict.fromkeys(["node_modules/x.js", ".venv/x.js", "src/__pycache__/x.js", ".signoff/x.js"], "needle"),
    "u16.txt": "needle\n".encode("utf-16"),
    "latin.txt": "café: needle\n".encode("latin-1"),
    "big.log": b"x" * 2_000_001,
    "image.png": b"\x89P\0\0\0",
    "link": Link("a.js"),
    "pipe": None,
}
SEARCHES = {
    "file, line and text": shows(
        search("^PORT = \\d$"), SOURCES, ["a.py:2: PORT = 1", "src/b.py:1: PORT = 2"], ".git", "image.bin"
    ),
    "in a folder, of some names": shows(
        search("PORT", path="src", glob="*.py"),
        SOURCES,
        ["src/b.py:1: PORT = 2", "src/b.py:3: # PORT"],
        "*.py",
    ),
    "what is not read is named": shows(
        search("needle"),
        ODD,
        ["latin.txt:1: caf\ufffd: needle"],
        ".signoff, .venv, node_modules, src/__pycache__.",
        *("UTF-16): u16.txt", "binary): image.png", "): big.log", "): latin.txt", "): link", "): pipe"),
        *("2,000,000", "UTF-8"),
    ),
    "a large file that is named": shows(
        search("needle", path="f"), {"f": (b"x" * 99 + b"\n") * 120_000 + b"needle\n"}, ["f:120001: needle"]
    ),
    "lines around": shows(
        search("line (3|5|12)$", context=1),
        TWENTY,
        [
            *("f-2- line 2", "f:3: line 3", "f-4- line 4", "f:5: line 5", "f-6- line 6"),
            *("f-11- line 11", "f:12: line 12", "f-13- line 13"),
        ],
    ),
    "plain text that is no such pattern": shows(search("price(order)[0]"), SHOP, [ORDER]),
    "plain text that is no pattern": shows(search("main("), SHOP, [MAIN]),
    "no pattern, and nowhere": refuses(search("other("), SHOP, "\\("),
    "an empty pattern": refuses(search(""), SHOP, "pattern"),
    "repeats that no memory takes": refuses(search("((((a{99}){99}){99}){99}){99}"), SHOP, "100,000"),
    "a missing file": refuses(search("x", path="missing"), SHOP, "missing", "list_files"),
    "no name that fits": refuses(search("x", glob="src/*.rs"), SHOP, "src/*.rs", "*.py"),
    "nothing to read": refuses(search("x", glob="*.log"), ODD, "*.log", "big.log"),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search(name: str, tmp_path: Path) -> None:
    check(SEARCHES[name], tmp_path)


def test_hits_are_bounded_and_kept_whole_for_reading(bench: Bench) -> None:
    bench.put("many.txt", "".join(f"hit {number} {'x' * 1_000}\n" for number in range(1_500)))
    found = bench("search_files", pattern="hit")
    assert (len(found) <= 20_000, "500" in found.splitlines()[-1]) == (True, True)
    kept = re.findall(r"\.signoff/outputs/\S+", found)[0]
    assert bench.rows("read_file", path=kept, start_line=500)[0].startswith("500|many.txt:500: hit 499 ")
    # What is kept is not found itself, nor seen by git.
    assert bench.rows("search_files", pattern="hit 299 ")[0].startswith("many.txt:300: ")
    assert (bench.root / ".signoff/.gitignore").read_text() == "*\n"


def test_a_hit_in_a_huge_line_shows_what_is_around_it(bench: Bench) -> None:
    bench.put("min.js", "a" * 50_000 + "needle" + "b" * 50_000)
    (row,) = bench.rows("search_files", pattern="needle")
    assert "aaaneedlebbb" in row
    assert len(row) < 420


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_what_was_found_before_the_time_of_all_files_was_up_is_shown(bench: Bench) -> None:
    bench.put("a.txt", f"a\na\n{BUSY}\na\n")
    bench.put("b.txt", "a\n")
    for number in range(200):
        bench.put(f"z{number}.txt", BUSY)
    *rows, rest = bench("search_files", pattern="(?:a|aa)+$(?<!c)", context=1).splitlines()
    assert rows == ["a.txt:1: a", "a.txt:2: a", f"a.txt-3- {BUSY}", "b.txt:1: a"]
    assert "): a.txt, z0.txt" in rest


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern",
    ["(a{1,100}){1,100}b", "(?:a?){19999}b", "(?R)", "(" * 500 + ")" * 500],
)
def test_no_pattern_takes_the_time_or_the_memory_of_others(pattern: str, bench: Bench) -> None:
    """Refused or not, a sentence comes back."""
    bench.put("a.txt", f"{BUSY}\n" + "ab" * 100_000 + "\n")
    with suppress(ToolException):
        assert bench("search_files", pattern=pattern)


# Parts of patterns: what matches a line end, looks around it, keeps what it has, or changes the flags.
PARTS = [
    *("a", "b", "^", "$", ".", "a?", "b*", "a++", ".*+", "(?:a|b)", "(a)", "|", " ", ",", "[ab]", "[^a]"),
    *("\\w", "\\W", "\\s", "\\S", "\\d", "\\D", "\\b", "\\B", "\\n", "\n", "\\x0a", "\\A", "\\Z", "[\\s]"),
    *("[\t-z]", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?<!\\s)", "(?=$)", "(?<!^)", "(?<=\\n)", "(?>a*)"),
    *("(?>\\s*)", "(?-m:^)", "(?m:^)", "(?s:.)", "(?i:A)", "(?i)"),
]  # fmt: skip


def test_no_line_that_matches_is_missed(bench: Bench) -> None:
    """Whatever the way in which a pattern is looked for: as if each line were searched alone."""
    chosen = random.Random(0)
    for _ in range(100):
        pattern = "".join(chosen.choices(PARTS, k=chosen.randint(1, 4)))
        lines = ["".join(chosen.choices(["a", "b", " ", ",", ""], k=chosen.randint(0, 4))) for _ in range(4)]
        try:
            re.compile(pattern)
            matching = [number for number, line in enumerate(lines, 1) if regex.search(pattern, line)]
        except (re.error, regex.error):
            continue
        bench.put("f", "\n".join(lines) + "\n")
        shown = [int(row.split(":")[1]) for row in bench.rows("search_files", pattern=pattern)]
        # Where nothing matches, it is looked for as plain text.
        assert shown == matching or not matching, (pattern, lines)


def test_lines_have_the_same_numbers_for_every_tool(bench: Bench) -> None:
    bench.put("f", "a\x0cb\x0bc\u2028d\x85e\rf\r\nneedle\x1c\r\nlast")
    assert bench.rows("search_files", pattern="needle") == ["f:2: needle\x1c"]
    assert bench.rows("edit_file", path="f", old="needle", new="pin")[1] == "2|pin\x1c"
    assert len(bench.rows("read_file", path="f")) == 3
