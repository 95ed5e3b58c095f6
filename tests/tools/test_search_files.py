"""search_files finds lines by a regular expression, in bounded time, whatever the expression."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.tools.filesystem import search, search_worker
from signoff.tools.filesystem.search import search_files
from signoff.tools.workspace import Workspace
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
        "2 matching lines in 3 files.",
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
        ({"pattern": "main("}, "not a valid regular expression: missing ), unterminated"),
        ({"pattern": "*"}, "nothing to repeat"),
        ({"pattern": "a{99999999999999999999}"}, "too large"),
        ({"pattern": "x" * 1_001}, "longer than 1000 characters"),
        ({"pattern": "x", "path": "missing"}, "There is no missing"),
        ({"pattern": "x", "path": "image.bin"}, "no text file to search in image.bin"),
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
        "500 matching lines in 1 file. Stopped at 500: make the pattern narrower to see others."
    )
    kept = found.split("the full text is in ")[1].split(" ...]")[0]
    assert "300|many.txt:300: hit 299 xxx" in bench("read_file", path=kept, start_line=300, end_line=300)
    assert (bench.root / ".signoff/.gitignore").read_text() == "*\n"
    assert ".signoff" not in bench("search_files", pattern="hit 299 ")


def test_a_hit_in_a_huge_line_shows_what_is_around_it(bench: Bench) -> None:
    bench.put("min.js", "a" * 50_000 + "needle" + "b" * 50_000)
    line = bench("search_files", pattern="needle").splitlines()[0]
    assert "aaaneedlebbb" in line
    assert len(line) < 400


def test_a_file_too_large_to_search_is_named(bench: Bench) -> None:
    bench.put("big.log", b"x" * 2_000_001)
    bench.put("a.txt", "x")
    assert bench("search_files", pattern="x").endswith(
        "Not searched, larger than 2,000,000 bytes: big.log. Pass one of them as path to search it."
    )


def test_a_large_file_that_is_named_is_searched_or_refused_by_its_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put("big.log", (b"x" * 99 + b"\n") * 120_000 + b"needle\n")
    assert bench("search_files", pattern="needle", path="big.log").startswith("big.log:120001: needle\n")
    assert "Nothing was searched in the workspace. Not searched, larger than 2,000,000 bytes: big.log." in (
        bench.refusal("search_files", pattern="needle")
    )
    monkeypatch.setattr(search, "MOST_SEARCHED_BYTES", 12_000_006)
    assert "big.log has 12,000,007 bytes, more than" in bench.refusal(
        "search_files", pattern="needle", path="big.log"
    )


EXPONENTIAL = "(a|a)*b"


@pytest.mark.timed
def test_a_pattern_that_takes_for_ever_is_stopped(bench: Bench) -> None:
    bench.put("z.txt", "a" * 60)
    started = time.monotonic()
    with pytest.raises(ToolException, match="longer than 1 second; use a simpler pattern"):
        search_files(Workspace(bench.root), EXPONENTIAL, seconds=1)
    assert time.monotonic() - started < 5


def test_what_was_found_before_the_time_was_up_is_shown(bench: Bench) -> None:
    bench.put("a.txt", "ab\n" * 3)
    bench.put("z.txt", "a" * 60)
    found = search_files(Workspace(bench.root), EXPONENTIAL, seconds=1).splitlines()
    assert found[:3] == ["a.txt:1: ab", "a.txt:2: ab", "a.txt:3: ab"]
    assert "Stopped after 1 second: the rest was not searched" in found[-1]


def test_the_searching_process_ends_by_itself_when_nobody_ends_it() -> None:
    text = b"a" * 60
    request = {"pattern": EXPONENTIAL, "hits": 5, "characters": 80, "seconds": 1}
    source = (
        json.dumps(request).encode()
        + b"\n"
        + json.dumps({"file": "z", "bytes": len(text)}).encode()
        + b"\n"
        + text
    )
    command = [sys.executable, "-I", "-S", search_worker.__file__]
    ended = subprocess.run(command, input=source, capture_output=True, timeout=30, check=False)
    assert ended.returncode != 0
    assert ended.stdout == b""
