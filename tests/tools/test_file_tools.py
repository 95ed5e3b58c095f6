"""The file tools as a model meets them: what a listing, a reading and a writing show, refuse and leave."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.benches.workspace import Bench, Case, Files, Link, calls, changes, check, refuses, shows

SPARSE = 300 * 10**9
NFD, NFC = "re\u0301sume\u0301.txt", "r\u00e9sum\u00e9.txt"
LINES = [f"line {number} " + "x" * 50 for number in range(1, 1_001)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_tools_tell_their_kind_and_describe_every_argument(bench: Bench) -> None:
    kinds = {name: (tool.metadata or {})["kind"] for name, tool in bench.tools.items()}
    reads, writes = ("list_files", "read_file", "search_files"), ("write_file", "edit_file")
    assert kinds == dict.fromkeys(reads, "read") | dict.fromkeys(writes, "write")
    for tool in bench.tools.values():
        assert tool.description
        assert all(argument["description"] for argument in tool.args.values())


# Listing.

TREE: Files = {
    **dict.fromkeys(["b.py", "src/a.py", "src/deep/c.md", ".git/config", "node_modules/x.js"], "12345"),
    "src/__pycache__/a.pyc": "",
    ".signoff/y": "12345",
    "empty/": "",
    "link": Link("/etc"),
    "pipe": None,
}
ALL = [
    *(".git/ folder", ".signoff/ folder", "b.py 5", "link link", "node_modules/ folder", "pipe special"),
    *("empty/ folder", "src/__pycache__/ folder", "src/a.py 5", "src/deep/c.md 5"),
]


ls = partial(calls, "list_files")
LISTINGS = {
    "everything, and what is not entered": shows(ls(), TREE, ALL),
    "nothing": shows(ls(), {}, []),
    "a folder": shows(ls(path="src/deep"), TREE, ["src/deep/c.md 5"]),
    "a link to a folder": shows(ls(path="in"), {"src/a": "1", "in": Link("src")}, ["in/a 1"]),
    "no file fits": shows(ls(glob="*.rs"), TREE, [], "*.rs"),
    "a folder that is not there": refuses(ls(path="b"), TREE, "b", "list_files"),
    "a glob that is too long": refuses(ls(glob="[" * 100_000), TREE, "1,000"),
    "one that takes too long": refuses(ls(glob="{a,aa,aaa}" * 20 + "b"), {"a" * 60: ""}, "{a,aa,aaa}"),
}


GLOBS = {
    "*.py": ["a.py", "src/c.py", "src/deep/d.py", "{a.py"],
    "src/**/*.py": ["src/c.py", "src/deep/d.py"],
    "{src,app}/**/*.{py,ts{,x}}": ["app/[id]/page.tsx", "app/i/page.tsx", "src/c.py", "src/deep/d.py"],
    "app/[id]/*.tsx": ["app/[id]/page.tsx", "app/i/page.tsx"],
    "[!a].??": ["b.sh", "src/c.py", "src/deep/d.py"],
    "**/app/**/i/**/*.tsx": ["app/i/page.tsx"],
    "{a.py": ["{a.py"],
    "*a" * 60 + "b": [],
    "**/" * 300 + "x": [],
}


@pytest.mark.timeout(60)
def test_globs_as_models_write_them(bench: Bench) -> None:
    for name in {name for listed in GLOBS.values() for name in listed}:
        bench.put(name, "x")
    for glob, names in GLOBS.items():
        assert sorted(bench.rows("list_files", glob=glob)) == [f"{name} 1" for name in names], glob


def test_a_long_listing_is_bounded_and_kept_whole_for_reading(bench: Bench) -> None:
    for number in range(600):
        (bench.root / f"a_rather_long_file_name_{number:05}.txt").touch()
    listing = bench("list_files")
    assert len(listing) <= 20_000
    kept = re.findall(r"\.signoff/outputs/\S+", listing)[0]
    rows = bench.rows("read_file", path=kept, start_line=600, end_line=600)
    assert rows == ["600|a_rather_long_file_name_00599.txt (0 bytes)"]


def test_a_tree_too_deep_is_listed_to_the_bound(bench: Bench) -> None:
    at = os.open(bench.root, os.O_RDONLY)
    for _ in range(120):
        os.mkdir("d", dir_fd=at)
        at, before = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    bench.put("a.txt", "needle\n")
    assert bench.rows("list_files") == ["a.txt 7", "d/" * 100 + " folder"]
    assert "d/d/d" in bench("search_files", pattern="needle")
    # What is listed can be read: as deep as a path may be, and no further.
    assert bench.rows("list_files", path="d/" * 100) == ["d/" * 100 + " folder"]
    assert "100" in bench.refusal("list_files", path="d/" * 101)


# What `.gitignore` leaves out.


def test_what_gitignore_leaves_out_is_said_and_not_entered(bench: Bench) -> None:
    bench.put(".gitignore", "*.log\n/dist/\n!keep.log\n")
    bench.put("web/.gitignore", "/out\n")
    for path in ("keep.log", "a.log", "dist/deep/x.log", "web/out/z.js", ".signoff/outputs/y"):
        bench.put(path, "needle")
    assert [row for row in bench.rows("list_files") if row.endswith(" 6")] == ["keep.log 6"]
    assert bench.rows("search_files", pattern="needle") == ["keep.log:1: needle"]
    for text in (bench("list_files"), bench("search_files", pattern="needle")):
        assert "a.log, dist/, web/out/." in text.splitlines()[-1]
    # What is named itself is shown all the same.
    assert bench.rows("list_files", path="dist") == ["dist/deep/x.log 6"]
    assert bench.rows("list_files", path=".signoff") == [".signoff/outputs/y 6"]
    assert bench.rows("search_files", pattern="needle", path="dist") == ["dist/deep/x.log:1: needle"]


# Each is the whole of a `.gitignore`.
RULES = [
    *("foo", "/foo", "foo/", "a/foo", "*.o", "**/foo", "a/**/foo", "a/**", "**", "*", "/*", "foo*", "*oo"),
    *("f?o", "[fg]oo", "[!f]oo", "[^f]oo", "\\#x", "#x", "\\!x", "\\*", "foo ", "foo\\ ", "a/*", "**/a/foo"),
    *("a**o", "x/y", "/a/", "**/", "*\n!foo", "a/\n!a/foo", "*.o\n!b.o\n/b.o", "foo.\\o", "{a,b}"),
    *("a/**/**/foo", "a/*/foo", "\ufefffoo", "foo\r", "*/foo", "!*.o", "*.o\n!a/", "a/b/**/foo/**", "/**/c"),
    *("**/b/**", "[\n\\\n!\n//\nfoo"),
]
IGNORED_OR_NOT = [
    *("foo", "goo", "a/foo", "a/b/foo/in", "a/b/c/foo", "b.o", "a/b.o", "foo.o", "fooo/x", "#x", "!x", "*"),
    *("foo ", "x/y", "a/x/y", "b/a/foo", "ao", "{a,b}"),
]


def test_gitignore_is_read_as_git_reads_it(tmp_path: Path) -> None:
    files = {f"{number}/.gitignore": f"{rules}\n" for number, rules in enumerate(RULES)}
    files |= {f"{number}/{name}": "" for number in range(len(RULES)) for name in IGNORED_OR_NOT}
    bench = Bench(tmp_path, files)
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    command = [*git, "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    for number, rules in enumerate(RULES):
        rows = bench.rows("list_files", path=str(number))
        expected = [name for name in listed if name.startswith(f"{number}/")]
        assert sorted(row.rpartition(" ")[0] for row in rows) == sorted(expected), rules


HOSTILE_RULES = {
    "one that goes back": ["*a" * 100 + "b", "**/" * 40 + "x", "[" * 200, "/" * 300],
    "many parts": [f"**/q{n}_" + "ab?c*" * 45 for n in range(2_000)],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE_RULES)
def test_a_hostile_gitignore_takes_no_time(name: str, bench: Bench) -> None:
    """Where not all of it is applied, a sentence names it."""
    bench.put("k/.gitignore", "\n".join([*HOSTILE_RULES[name], "*.txt"]))
    for path in ("k/" + "a" * 250, "k/a.txt", "k/" + "in/" * 20 + "b.txt"):
        bench.put(path, "needle\n")
    for text in (bench("list_files"), bench("list_files", path="k/in"), bench("search_files", pattern="n")):
        assert "k/.gitignore." in text
    assert f"k/{'a' * 250} 7" in bench.rows("list_files")


# Reading.


read = partial(calls, "read_file", path="f")
FOUR = {"f": "one\n\n  three\nfour\n"}
READINGS: dict[str, Case] = {
    "all of it": shows(read(), FOUR, ["1|one", "2|", "3|  three", "4|four"], "f", "1", "4"),
    "line ends of Windows": shows(read(start_line=3), {"f": "1\r\n2\r\n  3\r\n"}, ["3|  3"]),
    "nothing in it": shows(read(), {"f": ""}, [], "f", "0"),
    "bytes that are no UTF-8": shows(read(), {"f": b"caf\xe9"}, ["1|caf\ufffd"], "UTF-8", "\ufffd"),
    "a line that is not there": refuses(read(start_line=5), FOUR, "f", "4", "5"),
    "an end before the start": refuses(read(start_line=3, end_line=2), FOUR, "end_line"),
    "a picture": refuses(read(), {"f": b"\x89P\0\0\0"}, "f", "binary"),
    "UTF-16": refuses(read(), {"f": "words".encode("utf-16")}, "f", "UTF-16"),
    "a name that looks like two": refuses(read(path="a b"), {"a\u00a0b": "", "a\u3000b": ""}, "a b"),
    "a missing file": refuses(read(path="src/b.txt"), FOUR, "src/b.txt", "list_files"),
}


def test_a_long_file_is_read_in_parts_that_say_how_to_go_on(bench: Bench) -> None:
    bench.put("f", "\n".join(LINES))
    shown: list[str] = []
    while len(shown) < len(LINES):
        text = bench("read_file", path="f", start_line=len(shown) + 1)
        assert len(text) <= 20_200
        shown += bench.rows("read_file", path="f", start_line=len(shown) + 1)
        assert (f"start_line={len(shown) + 1}" in text) is (len(shown) < len(LINES))
    assert shown == [f"{number}|{line}" for number, line in enumerate(LINES, 1)]


@pytest.mark.timeout(60)
def test_of_a_file_without_an_end_the_first_part_is_read(bench: Bench) -> None:
    bench.put("f", b"a line\n" * 20_000)
    os.truncate(bench.root / "f", SPARSE)
    text = bench("read_file", path="f", end_line=1)
    assert ("\n1|a line" in text, "20000" in text, "50,000,000" in text) == (True, True, True)
    assert "50,000,000" in bench.refusal("read_file", path="f", start_line=30_000_000)
    assert "50,000,000" in bench.refusal("search_files", path="f", pattern="x")
    assert "10,000,000" in bench.refusal("write_file", path="f", content="x")
    assert (bench.root / "f").stat().st_size == SPARSE


# Writing.


write = partial(calls, "write_file", path="f", content="x")


def rewrites(before: str | None, content: str, after: str, *says: str, **args: str) -> Case:
    call = write(content=content, **args)
    return changes(call, {} if before is None else {"f": before}, {"f": after}, *says)


WRITINGS = {
    "a new file and its folders": changes(
        write(content="ü\n2", path="./a//b"), {}, {"a/b": "ü\n2"}, "a/b", "2", "4"
    ),
    "CRLF stays": rewrites("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n", "CRLF"),
    "LF stays": rewrites("a\nb\n", "x\r\ny\r\n", "x\ny\n", "LF"),
    "a mark stays": rewrites("\ufeffa\r\n", "x\n", "\ufeffx\r\n", "mark"),
    "to CRLF": rewrites("a\nb\n", "x\r\ny\n", "x\r\ny\r\n", line_ends="crlf"),
    "over a file in Latin-1": refuses(write(), {"f": b"caf\xe9\n"}, "f", "UTF-8"),
    "half a character": refuses(write(content="half \ud83d"), FOUR, "content"),
    "a folder": refuses(write(path="src"), {"src/a": ""}, "src", "folder"),
    "below a file": refuses(write(path="f/new"), FOUR, "f/new"),
    "too deep": refuses(write(path="d/" * 101 + "x"), FOUR, "100"),
}


TABLES = {"list": LISTINGS, "read": READINGS, "write": WRITINGS}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool in TABLES for name in TABLES[tool]])
def test_a_call(tool: str, name: str, tmp_path: Path) -> None:
    check(TABLES[tool][name], tmp_path)


# Names that only look like an entry's: opened for reading, and spelled out where something would be written.

ALIKE = [
    (NFD, NFC, '"re\\u0301sume\\u0301.txt"'),
    ("at 1.01\u202fPM.txt", "at 1.01 PM.txt", '"at 1.01\\u202fPM.txt"'),
    ("zero\u200bwidth.txt", "zerowidth.txt", '"zero\\u200bwidth.txt"'),
]


@pytest.mark.parametrize(("name", "path", "spelled"), ALIKE)
def test_a_name_that_only_looks_like_an_entry_s(name: str, path: str, spelled: str, bench: Bench) -> None:
    bench.put(name, "hi\n")
    assert bench("read_file", path=path).endswith(f"{spelled}):\n1|hi")
    assert bench.rows("search_files", pattern="hi", path=path)[0].endswith(":1: hi")
    assert spelled in bench.refusal("write_file", path=path, content="x")
    assert spelled in bench.refusal("edit_file", path=path, old="hi", new="x")
    assert bench.disk() == {name: b"hi\n"}
    bench("edit_file", path=name, old="hi", new="ho")
    # A file of this very name is meant, where there is one.
    bench.put(path, "other\n")
    assert bench.rows("read_file", path=path) == ["1|other"]
    assert bench.disk() == {name: b"ho\n", path: b"other\n"}


ON_FILES = {"read_file": {}, "write_file": {"content": "x"}, "edit_file": {"old": "root", "new": "x"}}


@pytest.mark.parametrize("tool", ON_FILES)
def test_a_path_that_ends_as_a_folder_s_is_no_file(tool: str, bench: Bench) -> None:
    bench.put("a.txt", "root\n")
    bench.put("src/b.txt", "root\n")
    before = bench.disk()
    for path in ("a.txt/", "new/", "src/", "a.txt//", "a.txt/.", "a.txt/./", "src/..", "a.txt/x/.."):
        assert path in bench.refusal(tool, path=path, **ON_FILES[tool])
    assert bench.disk() == before
    assert not (bench.root / "new").exists()
