"""The working tools as a model meets them: text back, or one sentence that says what to do."""

from pathlib import Path
from typing import Any

import pytest

from signoff.graph.errors import SetupError
from signoff.tools.files import workspace_tools
from tests.workbench import Bench


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
        ".git/ (folder, not listed)",
        ".signoff/ (folder, not listed)",
        "b.py (5 bytes)",
        "link (link)",
        "node_modules/ (folder, not listed)",
        "empty/ (empty folder)",
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
    assert listing.endswith("Stopped after 5000 entries; list one folder or give a glob.")
    kept = listing.split("the full text is in ")[1].split(" ...]")[0]
    assert "2500|a_rather_long_file_name_02499.txt" in bench(
        "read_file", path=kept, start_line=2_500, end_line=2_500
    )


def test_a_name_that_is_not_valid_text_does_not_break_a_listing(bench: Bench) -> None:
    (bench.root / "bad\udcff\nname").touch()
    assert bench("list_files") == "bad\ufffd\\nname (0 bytes)"
    assert "could not be read" in bench.refusal("search_files", pattern="x")


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
        ({"path": "a.txt", "start_line": 0}, "start_line counts from 1"),
        ({"path": "a.txt", "start_line": 3, "end_line": 2}, "end_line is before start_line"),
        ({"path": "image.png"}, "image.png is a binary file (5 bytes)"),
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


def test_a_huge_line_is_cut(bench: Bench) -> None:
    bench.put("min.js", "x" * 100_000 + "\nend")
    assert bench("read_file", path="min.js").splitlines()[1:] == [
        f"1|{'x' * 2_000}... [98000 more characters in this line]",
        "2|end",
    ]


# write_file


def test_writing_says_what_it_did(bench: Bench) -> None:
    assert bench("write_file", path="./a//b.txt", content="ü\n2") == "Created a/b.txt: 2 lines, 4 bytes."
    assert bench("write_file", path="a/b.txt", content="x\r\n") == "Replaced a/b.txt: 1 line, 3 bytes."
    assert (bench.root / "a/b.txt").read_bytes() == b"x\r\n"


@pytest.mark.parametrize("content", ["half \ud83d", "nul \0"])
def test_what_is_not_text_is_not_written(bench: Bench, content: str) -> None:
    assert "not valid text" in bench.refusal("write_file", path="a.txt", content=content)
    assert not (bench.root / "a.txt").exists()
