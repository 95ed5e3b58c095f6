"""The working tools as a model meets them: text back, or one sentence that says what to do."""

import json
import os
import subprocess
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools import Workspace, files, workspace
from signoff.tools.files import workspace_tools
from signoff.tools.workspace import walk
from tests.support.benches.workspace import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# the tools


def test_the_tools_tell_their_kind_and_describe_every_argument(bench: Bench) -> None:
    kinds = {name: (tool.metadata or {})["kind"] for name, tool in bench.tools.items()}
    assert kinds == {
        "list_files": "read",
        "read_file": "read",
        "write_file": "write",
        "edit_file": "write",
        "search_files": "read",
    }
    for tool in bench.tools.values():
        assert tool.description
        assert all(argument["description"] for argument in tool.args.values())


def test_a_missing_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not an existing folder; create it"):
        workspace_tools(tmp_path / "missing")


async def test_the_tools_run_asynchronously_too(bench: Bench) -> None:
    bench.put("a.txt", "one\n")
    assert await bench.tools["read_file"].ainvoke({"path": "a.txt"}) == "a.txt, lines 1 to 1 of 1:\n1|one"


PATH_ARGUMENTS: dict[str, dict[str, str]] = {
    "list_files": {},
    "read_file": {},
    "write_file": {"content": "x"},
    "edit_file": {"old": "root", "new": "x"},
    "search_files": {"pattern": "root"},
}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "out/passwd", "/proc/self/environ"])
@pytest.mark.parametrize("name", PATH_ARGUMENTS)
def test_no_tool_leaves_the_workspace(bench: Bench, name: str, path: str) -> None:
    (bench.root / "out").symlink_to("/etc")
    assert "outside the workspace" in bench.refusal(name, path=path, **PATH_ARGUMENTS[name])


# list_files


def test_a_listing_has_every_file_with_its_size(bench: Bench) -> None:
    for path in [
        "b.py",
        "src/a.py",
        "src/deep/c.md",
        ".git/config",
        "node_modules/x.js",
        ".signoff/outputs/y",
    ]:
        bench.put(path, "12345")
    (bench.root / "empty").mkdir()
    (bench.root / "link").symlink_to("/etc")
    assert bench("list_files").splitlines() == [
        ".git/ (folder, not entered unless passed as path)",
        ".signoff/ (folder, not entered unless passed as path)",
        "b.py (5 bytes)",
        "link (link)",
        "node_modules/ (folder, not entered unless passed as path)",
        "empty/ (folder, empty)",
        "src/a.py (5 bytes)",
        "src/deep/c.md (5 bytes)",
    ]
    assert bench("list_files", path="src/deep") == "src/deep/c.md (5 bytes)"
    assert bench("list_files", path=".signoff") == ".signoff/outputs/y (5 bytes)"


@pytest.mark.parametrize(
    ("glob", "listed"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("c.*", ["src/deep/c.py"]),
        ("src/deep/*", ["src/deep/c.py"]),
    ],
)
def test_a_listing_narrowed_by_a_glob(bench: Bench, glob: str, listed: list[str]) -> None:
    for path in ["a.py", "src/b.py", "src/deep/c.py", "src/notes.md"]:
        bench.put(path, "")
    assert [line.split(" ")[0] for line in bench("list_files", glob=glob).splitlines()] == listed


@pytest.mark.parametrize(
    ("glob", "listed"),
    [
        ("*.{py,sh}", ["a.py", "b.sh", "src/c.py", "src/tabs.py", "{a.py"]),
        ("{a,b}.{py,sh}", ["a.py", "b.sh"]),
        ("{src,app}/**/*.{py,ts{,x}}", ["app/[id]/page.tsx", "app/i/page.tsx", "src/c.py", "src/tabs.py"]),
        ("./a.py", ["a.py"]),
        ("./src/./tabs.py", ["src/tabs.py"]),
        ("src//tabs.py", ["src/tabs.py"]),
        ("src/", ["src/c.py", "src/tabs.py"]),
        ("app/[id]/*.tsx", ["app/[id]/page.tsx", "app/i/page.tsx"]),
        ("app/[[]id]/*.tsx", ["app/[id]/page.tsx"]),
        ("[ab].*", ["a.py", "b.sh"]),
        ("[!a].??", ["b.sh", "src/c.py"]),
        ("**/app/**/i/**/*.tsx", ["app/i/page.tsx"]),
        ("{x,y}.txt", ["{x,y}.txt"]),
        ("{a.py", ["{a.py"]),
        ("{a.py}", []),
    ],
)
def test_globs_as_models_write_them(bench: Bench, glob: str, listed: list[str]) -> None:
    for path in ["a.py", "b.sh", "src/c.py", "src/tabs.py", "app/[id]/page.tsx", "app/i/page.tsx"]:
        bench.put(path, "x")
    bench.put("{x,y}.txt", "x")
    bench.put("{a.py", "x")
    found = bench("list_files", glob=glob)
    assert sorted(line.rpartition(" (")[0] for line in found.splitlines()) == listed or found.startswith(
        "No file"
    )
    assert bool(listed) == (not found.startswith("No file"))
    if listed:
        searched = bench("search_files", pattern="x", glob=glob)
        assert sorted(line.rpartition(":1: ")[0] for line in searched.splitlines()[:-1]) == listed


def test_a_glob_may_begin_in_the_folder_that_is_listed(bench: Bench) -> None:
    bench.put("src/deep/a.py", "")
    assert bench("list_files", path="src", glob="deep/*.py") == "src/deep/a.py (0 bytes)"


@pytest.mark.timed
@pytest.mark.parametrize(
    ("glob", "listed"),
    [
        ("{a,b}" * 20 + "*", True),
        ("{a,aa,aaa}" * 20 + "b", None),
        ("*a" * 60 + "b", None),
        ("{" * 200 + "}" * 200, None),
        ("[" * 100_000, None),
        ("**/" * 300 + "x", None),
        ("[z-a]*", None),
        ("\0(*", None),
    ],
)
def test_a_hostile_glob_takes_no_time(bench: Bench, glob: str, listed: bool | None) -> None:
    name = "a" * 60
    bench.put(name, "")
    started = time.monotonic()
    try:
        found = bench("list_files", glob=glob)
    except ToolException as refusal:
        found = str(refusal)
        assert "cut it" in found or "use a simpler one" in found or "is not valid" in found
    assert (name in found) is bool(listed)
    assert time.monotonic() - started < 5


# .gitignore


def test_what_gitignore_leaves_out_is_said_and_not_entered(bench: Bench) -> None:
    bench.put(".gitignore", "*.log\n/dist/\n!keep.log\n")
    bench.put("web/.gitignore", "/out\n!special.log\n")
    for path in [
        "a.log",
        "keep.log",
        "dist/x.js",
        "web/dist/y.js",
        "web/out/z.js",
        "web/special.log",
        "web/b.log",
    ]:
        bench.put(path, "needle")
    listing = bench("list_files").splitlines()
    assert [line.split(" ")[0] for line in listing[:-1]] == [
        ".gitignore",
        "keep.log",
        "web/.gitignore",
        "web/special.log",
        "web/dist/y.js",
    ]
    assert listing[-1] == "Not listed, as .gitignore says: a.log, dist/, web/b.log, web/out/."
    found = bench("search_files", pattern="needle")
    assert found.splitlines()[:-1] == [
        "keep.log:1: needle",
        "web/special.log:1: needle",
        "web/dist/y.js:1: needle",
    ]
    assert found.endswith("Not searched (as .gitignore says): a.log, dist/, web/b.log, web/out/.")
    assert bench("list_files", path="web", glob="*.js").splitlines() == [
        "web/dist/y.js (6 bytes)",
        "Not listed, as .gitignore says: web/b.log, web/out/.",
    ]


def test_what_is_named_itself_is_shown_all_the_same(bench: Bench) -> None:
    bench.put(".gitignore", "dist/\n*.log\n")
    bench.put("dist/deep/x.log", "needle")
    bench.put(".signoff/.gitignore", "*\n")
    bench.put(".signoff/outputs/y.txt", "needle")
    assert bench("list_files", path="dist") == "dist/deep/x.log (6 bytes)"
    assert bench("search_files", pattern="needle", path="dist/deep/x.log").startswith("dist/deep/x.log:1: ")
    assert ".signoff/outputs/y.txt (6 bytes)" in bench("list_files", path=".signoff")
    assert "needle" in bench("read_file", path="dist/deep/x.log")
    assert bench("list_files", glob="dist/**") == (
        "No file in . fits dist/**.\nNot listed, as .gitignore says: dist/."
    )


@pytest.mark.timed
def test_a_hostile_gitignore_takes_no_time(bench: Bench) -> None:
    bench.put(
        ".gitignore", "*a" * 100 + "b\n" + "**/" * 40 + "x\n" + "[" * 200 + "\n\\\n!\n" + "/" * 300 + "\n"
    )
    bench.put("/".join("a" * 100 for _ in range(20)) + "/" + "a" * 200, "")
    started = time.monotonic()
    assert bench("list_files").count("(0 bytes)") == 1
    assert time.monotonic() - started < 5


HARD_RULES = {
    "many parts": [f"**/q{n}_" + "ab?c*" * 45 for n in range(2_000)],
    "many sets": [f"{n}" + "[a-z]/**/" * 20 for n in range(2_000)],
    "short": [f"x{n}" for n in range(30_000)],
    "at the bounds": [f"**/q{n}_" + "ab?c*" * 36 for n in range(160)],
}


@pytest.mark.timed
@pytest.mark.parametrize("rules", HARD_RULES)
def test_of_too_many_rules_the_first_are_applied_and_a_sentence_says_so(bench: Bench, rules: str) -> None:
    bench.put("k/.gitignore", "\n".join(["*.log", *HARD_RULES[rules], "*.txt"]))
    for name in ("k/a.log", "k/a.txt", "k/in/b.txt"):
        bench.put(name, "needle\n")
    started = time.process_time()
    listings = [bench("list_files", path="k"), bench("list_files", path="k/in")]
    found = bench("search_files", pattern="needle")
    assert time.process_time() - started < 5
    assert all("as .gitignore says" in text and "k/a.log" in text for text in (listings[0], found))
    is_whole = rules == "at the bounds"
    for text in (*listings, found):
        assert ("Applied in part, or not, as too long or too slow: k/.gitignore." in text) is not is_whole
    assert ("k/in/b.txt:1: needle" in found) is not is_whole


def test_a_long_comment_is_no_rule_and_a_long_rule_is_not_applied(bench: Bench) -> None:
    bench.put(".gitignore", f"#{'x' * 500}\n*.log\n")
    bench.put("a.log", "")
    assert "Applied in part" not in bench("list_files")
    bench.put(".gitignore", f"{'x' * 201}\n*.log\n")
    listing = bench("list_files")
    assert (
        "Applied in part, or not, as too long or too slow: .gitignore.\nNot listed, as .gitignore" in listing
    )


def test_rules_that_take_too_long_are_said(bench: Bench) -> None:
    bench.put(".gitignore", "*a*" * 60 + "[xy]\n")
    bench.put("a" * 250, "")
    assert "as too long or too slow: .gitignore." in bench("list_files")


@pytest.mark.timed
@pytest.mark.parametrize("path", [".", "s/" * 40])
def test_rules_of_many_folders_share_the_time_of_the_walk(
    bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LIST_SECONDS", 1.0)
    for depth in range(41):
        rules = (f"{depth}_{n}" + "[!a]*?" * 30 for n in range(170))
        bench.put("s/" * depth + ".gitignore", "\n".join(rules))
    started = time.process_time()
    assert "Stopped after 1 seconds" in bench("list_files", path=path)
    assert time.process_time() - started < 5


PATTERNS = [
    *(
        "foo",
        "/foo",
        "foo/",
        "a/foo",
        "*.o",
        "**/foo",
        "a/**/foo",
        "a/**",
        "**",
        "*",
        "/*",
        "foo*",
        "*oo",
        "f?o",
    ),
    *("[fg]oo", "[!f]oo", "[^f]oo", "\\#x", "#x", "\\!x", "\\*", "foo ", "foo\\ ", "a/*", "**/a/foo", "a**o"),
    *("x/y", "/a/", "**/", "*\n!foo", "a/\n!a/foo", "*.o\n!b.o\n/b.o", "foo.\\o", "{a,b}", "a/**/**/foo"),
    *("a/*/foo", "\ufefffoo", "foo\r", "*/foo", "!*.o", "*.o\n!a/", "a/b/**/foo/**", "/**/c", "**/b/**"),
]
PATHS = [
    *("foo", "goo", "a/foo", "a/b/foo/in", "a/b/c/foo", "b.o", "a/b.o", "foo.o", "fooo/x", "#x", "!x", "*"),
    *("foo ", "x/y", "a/x/y", "b/a/foo", "ao", "{a,b}"),
]


@pytest.mark.slow
@pytest.mark.parametrize("patterns", PATTERNS)
def test_gitignore_is_read_as_git_reads_it(bench: Bench, patterns: str) -> None:
    for path in PATHS:
        bench.put(path, "")
    bench.put(".gitignore", patterns + "\n")
    git = ["git", "-C", str(bench.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    entries = [entry.path for entry in walk(Workspace(bench.root)) if entry.kind == "file"]
    assert sorted(entries) == sorted(listed.stdout.split("\0")[:-1])


def test_listings_with_nothing_in_them_say_so(bench: Bench) -> None:
    assert bench("list_files") == "The folder . is empty."
    bench.put("a.txt", "")
    assert bench("list_files", glob="*.py") == "No file in . fits *.py."
    assert "read_file" in bench("list_files", path="a.txt")
    assert "There is no b; call list_files" in bench.refusal("list_files", path="b")


def test_a_long_listing_is_bounded_and_kept_whole_for_reading(bench: Bench) -> None:
    for number in range(5_100):
        (bench.root / f"a_rather_long_file_name_{number:05}.txt").touch()
    listing = bench("list_files")
    assert len(listing) <= 20_000
    assert listing.endswith("Stopped after 5000 entries; list one folder or pass a glob.")
    kept = listing.split("the full text is in ")[1].split(" ...]")[0]
    assert "2500|a_rather_long_file_name_02499.txt" in bench(
        "read_file", path=kept, start_line=2_500, end_line=2_500
    )


def test_a_name_that_is_not_valid_text_does_not_break_a_listing(bench: Bench) -> None:
    (bench.root / "bad\udcff\nname").write_text("x\n")
    assert bench("list_files") == "bad\ufffd\\nname (2 bytes)"
    assert bench("search_files", pattern="x").startswith("bad\ufffd\\nname:1: x\n")
    assert bench("read_file", path="bad\ufffd\\nname").endswith("rename it with a command):\n1|x")


# read_file


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "a.txt, lines 1 to 4 of 4:\n1|one\n2|\n3|  three\n4|four"),
        ({"start_line": 3}, "a.txt, lines 3 to 4 of 4:\n3|  three\n4|four"),
        ({"start_line": 2, "end_line": 3}, "a.txt, lines 2 to 3 of 4:\n2|\n3|  three"),
        ({"start_line": 4, "end_line": 99}, "a.txt, lines 4 to 4 of 4:\n4|four"),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_reading_lines(bench: Bench, arguments: dict[str, int], expected: str, line_end: str) -> None:
    bench.put("a.txt", line_end.join(["one", "", "  three", "four", ""]))
    assert bench("read_file", path="a.txt", **arguments) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "f is empty (0 lines)."),
        (b"\n", "f, lines 1 to 1 of 1:\n1|"),
        (b"no end", "f, lines 1 to 1 of 1:\n1|no end"),
        (b"\xef\xbb\xbf", "f is empty (0 lines)."),
        (b"a\r\r\nb\r", "f, lines 1 to 2 of 2:\n1|a\r\n2|b"),
        (b"\xef\xbb\xbfmarked", "f, lines 1 to 1 of 1:\n1|marked"),
        (b"a\x0cb\xe2\x80\xa8c", "f, lines 1 to 1 of 1:\n1|a\x0cb\u2028c"),
        (b"caf\xe9", "f, lines 1 to 1 of 1 (some bytes are not UTF-8 and shown as \ufffd):\n1|caf\ufffd"),
    ],
)
def test_reading_unusual_content(bench: Bench, content: bytes, expected: str) -> None:
    bench.put("f", content)
    assert bench("read_file", path="f") == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "a.txt", "start_line": 4}, "a.txt has 3 lines, so line 4 does not exist"),
        ({"path": "a.txt", "start_line": 0}, "start_line and start_character count from 1"),
        ({"path": "a.txt", "start_line": 3, "end_line": 2}, "end_line is before start_line"),
        ({"path": "image.png"}, "image.png is a binary file, not UTF-8 text"),
        ({"path": "."}, ". is a folder"),
        ({"path": "b.txt"}, "There is no b.txt; call list_files"),
    ],
)
def test_what_cannot_be_read(bench: Bench, arguments: dict[str, Any], said: str) -> None:
    bench.put("a.txt", "1\n2\n3\n")
    bench.put("image.png", b"\x89P\0\0\0")
    assert said in bench.refusal("read_file", **arguments)


def test_a_long_file_is_read_in_parts_that_say_how_to_go_on(bench: Bench) -> None:
    lines = [f"line {number} " + "x" * 50 for number in range(1, 1_001)]
    bench.put("long.txt", "\n".join(lines))
    seen: list[str] = []
    start = 1
    while start <= 1_000:
        part = bench("read_file", path="long.txt", start_line=start)
        assert len(part) <= 20_200
        rows = [row for row in part.splitlines()[1:] if not row.startswith("[Cut here")]
        seen += [row.split("|", 1)[1] for row in rows]
        assert part.endswith(f"[Cut here: go on with start_line={len(seen) + 1}.]") or len(seen) == 1_000
        start = len(seen) + 1
    assert seen == lines


def test_a_file_over_ten_megabytes_is_read_by_range(bench: Bench) -> None:
    bench.put("big.log", b"".join(b"%d %s\r\n" % (number, b"x" * 990) for number in range(1, 12_001)))
    assert bench("read_file", path="big.log", start_line=11_999).replace("x" * 990, "x") == (
        "big.log, lines 11999 to 12000 of 12000:\n11999|11999 x\n12000|12000 x"
    )
    assert "of 12000:\n1|1 x" in bench("read_file", path="big.log")
    assert "big.log has 12,000 lines" in bench.refusal("read_file", path="big.log", start_line=12_001)
    assert "larger than 10,000,000 bytes" in bench.refusal("write_file", path="big.log", content="a\n")


@pytest.mark.parametrize("length", [999_999, 1_000_000, 1_000_001, 12_000_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_lines_at_the_edge_of_a_block(bench: Bench, length: int, end: str) -> None:
    bench.put("f", "é" + "x" * (length - 1) + (end or "\n") + "last" + end)
    begin = f"[characters 1 to 2,000 of {length:,}; read_file shows others by start_character]"
    assert bench("read_file", path="f", end_line=1).endswith(begin)
    shown = bench("read_file", path="f", start_line=1, end_line=1, start_character=length - 1)
    assert f"xx [characters {length - 19_399:,} to {length:,} of {length:,}; read_file" in shown
    assert bench("read_file", path="f", start_line=2) == "f, lines 2 to 2 of 2:\n2|last"


def test_a_huge_line_is_cut(bench: Bench) -> None:
    bench.put("min.js", "x" * 100_000 + "\nend")
    assert bench("read_file", path="min.js").splitlines()[1:] == [
        f"1|{'x' * 2_000}... [characters 1 to 2,000 of 100,000; read_file shows others by start_character]",
        "2|end",
    ]


# write_file


@pytest.mark.parametrize(
    ("before", "content", "after", "said"),
    [
        ("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n", "Unchanged: line endings CRLF."),
        ("a\r\nb\r\n", "x\r\ny\r\n", "x\r\ny\r\n", ""),
        ("a\nb\n", "x\r\ny\r\n", "x\ny\n", "Unchanged: line endings LF."),
        ("a\r\nb\r\nc\n", "x\n", "x\r\n", "line endings CRLF."),
        ("a\r\nb\nc\n", "x\n", "x\n", ""),
        ("a", "x\r\ny\n", "x\r\ny\n", ""),
        ("", "x\r\n", "x\r\n", ""),
        ("\ufeffa\n", "x\n", "\ufeffx\n", "Unchanged: line endings LF and the byte order mark."),
        ("\ufeffa\r\n", "x\n", "\ufeffx\r\n", "line endings CRLF and the byte order mark."),
        ("\ufeffa", "\ufeffx", "\ufeffx", ""),
    ],
)
def test_a_replaced_file_keeps_how_it_is_written(
    bench: Bench, before: str, content: str, after: str, said: str
) -> None:
    bench.put("f", before)
    told = bench("write_file", path="f", content=content)
    assert (bench.root / "f").read_bytes().decode() == after
    assert told.endswith(said or "bytes.")


@pytest.mark.parametrize("before", [b"caf\xe9\n", "é\n".encode("utf-16"), b"a" * 1_000_000 + b"\xc3"])
def test_a_file_that_is_not_utf_8_is_not_replaced(bench: Bench, before: bytes) -> None:
    bench.put("f", before)
    assert "f is not UTF-8 text" in bench.refusal("write_file", path="f", content="x")
    assert (bench.root / "f").read_bytes() == before


def test_writing_says_what_it_did(bench: Bench) -> None:
    assert bench("write_file", path="./a//b.txt", content="ü\n2") == "Created a/b.txt: 2 lines, 4 bytes."
    assert bench("write_file", path="a/b.txt", content="x\n") == "Replaced a/b.txt: 1 line, 2 bytes."
    assert (bench.root / "a/b.txt").read_bytes() == b"x\n"


@pytest.mark.parametrize("content", ["half \ud83d", "nul \0"])
def test_what_is_not_text_is_not_written(bench: Bench, content: str) -> None:
    assert "not valid text" in bench.refusal("write_file", path="a.txt", content=content)
    assert not (bench.root / "a.txt").exists()


@pytest.mark.parametrize(
    ("before", "content", "line_ends", "after"),
    [
        ("a\r\nb\r\n", "x\ny\n", "lf", "x\ny\n"),
        ("a\nb\n", "x\ny\n", "crlf", "x\r\ny\r\n"),
        ("a\nb\n", "x\r\ny\n", "crlf", "x\r\ny\r\n"),
        ("\ufeffa\r\n", "x\r\n", "lf", "\ufeffx\n"),
        (None, "x\ny\n", "crlf", "x\r\ny\r\n"),
        (None, "x\r\ny\n", "keep", "x\r\ny\n"),
    ],
)
def test_line_ends_can_be_changed(
    bench: Bench, before: str | None, content: str, line_ends: str, after: str
) -> None:
    if before is not None:
        bench.put("f", before)
    told = bench("write_file", path="f", content=content, line_ends=line_ends)
    assert (bench.root / "f").read_bytes().decode() == after
    assert "line endings" not in told


# names


NFD, NFC = "re\u0301sume\u0301.txt", "r\u00e9sum\u00e9.txt"
ALIKE = [
    (NFD, NFC),
    (NFC, NFD),
    ("Screenshot at 1.01\u202fPM.txt", "Screenshot at 1.01 PM.txt"),
    ("a b.txt", "a\u00a0b.txt"),
    ("it\u2019s.txt", "it's.txt"),
    ("2019\u20132020.txt", "2019-2020.txt"),
    ("zero\u200bwidth.txt", "zerowidth.txt"),
    (f"{NFD}/a\u3000b.txt", f"{NFC}/a b.txt"),
]


@pytest.mark.parametrize(("name", "path"), ALIKE)
def test_a_name_that_only_looks_like_an_entry_s(bench: Bench, name: str, path: str) -> None:
    """It is opened for reading, and spelled out where something would be written."""
    bench.put(name, "hi\n")
    spelled = json.dumps(name)
    assert bench("read_file", path=path).endswith(f"it is {spelled}):\n1|hi")
    assert ":1: hi" in bench("search_files", pattern="hi", path=path)
    for tool, arguments in (("write_file", {"content": "x"}), ("edit_file", {"old": "hi", "new": "x"})):
        assert f"Write its path as {spelled}" in bench.refusal(tool, path=path, **arguments)
    assert (bench.root / name).read_text() == "hi\n"
    # By its own name it is written.
    assert bench("edit_file", path=json.loads(spelled), old="hi", new="ho").startswith("Edited")
    # What looks the same twice is nobody's.
    bench.put(path, "other\n")
    assert bench("read_file", path=path).endswith("1|other")


def test_no_folder_is_made_that_only_looks_like_one(bench: Bench) -> None:
    bench.put(f"{NFD}/a", "")
    said = bench.refusal("write_file", path=f"{NFC}/new", content="x")
    assert f"Write its path as {json.dumps(f'{NFD}/new')}" in said
    assert os.listdir(bench.root) == [NFD]
    assert "There is no" in bench.refusal("read_file", path=f"{NFC}/new")


def test_a_name_that_looks_like_several_is_none_of_them(bench: Bench) -> None:
    bench.put("a\u00a0b", "1")
    bench.put("a\u3000b", "2")
    assert "There is no a b" in bench.refusal("read_file", path="a b")


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
@pytest.mark.parametrize(
    "path", ["a.txt/", "new/", "src/", "a.txt//", "a.txt/.", "a.txt/./", "src/..", "a.txt/x/.."]
)
def test_a_path_that_ends_as_a_folder_s_is_no_file(bench: Bench, name: str, path: str) -> None:
    bench.put("a.txt", "root\n")
    bench.put("src/b.txt", "")
    assert "ends as the path of a folder" in bench.refusal(name, path=path, **PATH_ARGUMENTS[name])
    assert sorted(os.listdir(bench.root)) == ["a.txt", "src"]


# bounds


@pytest.mark.timed
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("write_file", {"path": "d/" * 400 + "x", "content": "x"}, "100 folders"),
        ("write_file", {"path": "d/" * 101 + "x", "content": "x"}, "100 folders"),
        ("read_file", {"path": "../" * 1_300 + "x"}, "too long"),
        ("list_files", {"path": "x" * 100_000}, "too long"),
        ("list_files", {"path": ".", "glob": "[" * 100_000}, "over 1,000 characters"),
        ("list_files", {"path": ".", "glob": "{a," * 200 + "b" + "}" * 200}, "leave out its brackets"),
        ("write_file", {"path": "sparse", "content": "x"}, "larger than 10,000,000 bytes"),
        ("edit_file", {"path": "sparse", "old": "x", "new": "y"}, "larger than 10,000,000 bytes"),
        ("search_files", {"path": "sparse", "pattern": "x"}, "larger than 50,000,000 bytes"),
        ("read_file", {"path": "lines", "start_line": 30_000_000}, "50,000,000 bytes"),
    ],
)
def test_a_bound_says_how_to_ask_for_less(
    bench: Bench, name: str, arguments: dict[str, Any], said: str
) -> None:
    for sparse, begin in (("sparse", b""), ("lines", b"\n" * 20_000)):
        bench.put(sparse, begin)
        os.truncate(bench.root / sparse, 300 * 10**9)
    started = time.process_time()
    assert said in bench.refusal(name, **arguments)
    assert time.process_time() - started < 6


def test_a_tree_too_deep_is_listed_to_the_bound(bench: Bench) -> None:
    at = os.open(bench.root, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=at)
        at, before = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    bench.put("a.txt", "needle\n")
    listed = bench("list_files").splitlines()
    assert listed == ["a.txt (7 bytes)", "d/" * 100 + " (folder, too deep to be entered, use a command)"]
    assert "(too deep to be entered, use a command): d/d/d" in bench("search_files", pattern="needle")
    # What is listed can be read: as deep as a path may be, and no further.
    for depth in (98, 100):
        assert "(folder, too deep to be entered, use a command)" in bench("list_files", path="d/" * depth)
    assert "100 folders" in bench.refusal("list_files", path="d/" * 101)


def test_a_file_too_large_to_be_read_whole_is_read_from_its_start(bench: Bench) -> None:
    bench.put("big.log", b"a line\n" * 8_000_000)
    read = bench("read_file", path="big.log", end_line=1)
    assert read.startswith("big.log, lines 1 to 1 of 7142857 in the first 50,000,000 bytes; the rest")
    assert read.endswith("1|a line")


def test_a_large_file_of_short_lines_takes_no_memory_for_each(bench: Bench) -> None:
    bench.put("short.log", b"ab\n" * 3_000_000)
    tracemalloc.start()
    try:
        read = bench("read_file", path="short.log", start_line=2_999_999)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == "short.log, lines 2999999 to 3000000 of 3000000:\n2999999|ab\n3000000|ab"
    assert most < 80_000_000


@pytest.mark.slow
def test_nested_rules_are_read_as_git_reads_them(bench: Bench) -> None:
    bench.put(".gitignore", "*.log\nbuild/\n/dist\n!keep.log\n")
    bench.put("web/.gitignore", "!b.log\nout/*\n!out/keep\n")
    bench.put("web/deep/.gitignore", "*\n!.gitignore\n!keep.*\n")
    for folder in ("", "web/", "web/deep/", "web/out/", "build/", "dist/"):
        for name in ("a.log", "b.log", "keep.log", "keep", "x.py"):
            bench.put(folder + name, "")
    git = ["git", "-C", str(bench.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    entries = [entry.path for entry in walk(Workspace(bench.root)) if entry.kind == "file"]
    assert sorted(entries) == sorted(listed.stdout.split("\0")[:-1])
    assert "Not listed, as .gitignore says: a.log, b.log, build/, dist/, web/a.log" in bench("list_files")


def test_a_walk_that_is_too_long_says_where_it_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        bench.put(f"{number:02}.txt", "needle")
    monkeypatch.setattr(workspace, "MOST_VISITED", 10)
    assert "Stopped after a look at 10 entries; list one folder" in bench("list_files", glob="2*")
    assert "Stopped after a look at 10 entries: make the pattern narrower" in bench(
        "search_files", pattern="needle"
    )
    monkeypatch.setattr(files, "_LIST_SECONDS", 0.0)
    assert "Stopped after 0 seconds; list one folder" in bench("list_files")
