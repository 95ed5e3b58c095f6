"""A workspace gives access to its own folder and to nothing else, whatever the path."""

import os
import stat
import threading
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools import Workspace
from signoff.tools.workspace import walk

SECRET = "the secret outside"
MOST = 1_000_000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("print(1)\n")
    (root / "notes.txt").write_text("notes\n")
    links = {
        "to_file": "../outside/secret.txt",
        "to_absolute_file": str(outside / "secret.txt"),
        "to_folder": str(outside),
        "to_link": "to_file",
        "to_proc": "/proc",
        "to_null": "/dev/null",
        "to_new": "../outside/new.txt",
        "loop": "loop",
        "inner": "src/app.py",
        "inner_absolute": str(root / "src" / "app.py"),
        "inner_folder": "src",
        "up_and_back": "src/../notes.txt",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


OUT = "outside the workspace"
REFUSED = [
    ("..", OUT),
    ("../outside/secret.txt", OUT),
    ("src/../../outside/secret.txt", OUT),
    ("{outside}/secret.txt", OUT),
    ("{root}/../outside/secret.txt", OUT),
    ("{root}-2/secret.txt", OUT),
    ("/etc/passwd", OUT),
    ("/proc/self/environ", OUT),
    ("/dev/null", OUT),
    ("~/.bashrc", OUT),
    ("to_file", OUT),
    ("to_absolute_file", OUT),
    ("to_link", OUT),
    ("to_folder/secret.txt", OUT),
    ("to_folder/../outside/secret.txt", OUT),
    ("to_proc/self/environ", OUT),
    ("to_null", OUT),
    ("to_new", OUT),
    ("loop", "link|not a regular file"),
    ("pipe", "not a regular file"),
    ("src", "is a folder"),
    (".", "is a folder"),
    ("notes.txt/x", "not a folder"),
    ("", "empty"),
    ("  ", "empty"),
    ("notes.txt\0.png", "a path cannot contain"),
    ("/proc/self/environ\0", "a path cannot contain"),
    ("caf\ud800", "a path cannot contain"),
    ("x" * 5_000, "too long"),
    ("x" * 300, "too long"),
]


@pytest.mark.parametrize(("path", "reason"), REFUSED)
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_path_that_is_no_file_inside_is_refused(
    workspace: Workspace, outside: Path, path: str, reason: str, access: str
) -> None:
    path = path.format(outside=outside, root=workspace.root)
    with pytest.raises(ToolException, match=reason) as refusal:
        workspace.head(path, MOST) if access == "read" else workspace.write(path, b"overwritten")
    assert SECRET not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    str(refusal.value).encode()
    assert {file.name: file.read_text() for file in outside.iterdir()} == {"secret.txt": SECRET}


ACCEPTED = [
    ("src/app.py", "src/app.py"),
    ("./src/app.py", "src/app.py"),
    ("src//app.py", "src/app.py"),
    ("src/./app.py", "src/app.py"),
    ("src/../src/app.py", "src/app.py"),
    ("inner", "src/app.py"),
    ("inner_absolute", "src/app.py"),
    ("inner_folder/app.py", "src/app.py"),
    ("{root}/src/app.py", "src/app.py"),
    ("up_and_back", "notes.txt"),
]


@pytest.mark.parametrize(("path", "meant"), ACCEPTED)
def test_ways_to_name_a_file_inside(workspace: Workspace, path: str, meant: str) -> None:
    path = path.format(root=workspace.root)
    real = Path(workspace.root) / meant
    assert workspace.head(path, MOST) == real.read_bytes()
    assert workspace.write(path, b"changed\n") is False
    assert real.read_bytes() == b"changed\n"
    assert not real.is_symlink()
    assert (Path(workspace.root) / "inner").is_symlink()


def test_a_missing_file_is_named(workspace: Workspace) -> None:
    with pytest.raises(ToolException, match=r"There is no src/nothing\.py; call list_files"):
        workspace.head("src/nothing.py", MOST)


def test_a_write_creates_folders_and_keeps_the_mode_of_what_it_replaces(workspace: Workspace) -> None:
    root = Path(workspace.root)
    assert workspace.write("a/b/run.sh", b"one") is True
    (root / "a/b/run.sh").chmod(0o750)
    assert workspace.write("a/b/run.sh", b"two") is False
    assert (root / "a/b/run.sh").read_bytes() == b"two"
    assert stat.S_IMODE((root / "a/b/run.sh").stat().st_mode) == 0o750
    assert os.listdir(root / "a/b") == ["run.sh"]


def test_a_reader_never_sees_half_a_write(workspace: Workspace) -> None:
    texts = [b"a" * 300_000, b"b" * 300_000]
    workspace.write("big.txt", texts[0])
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for text in texts:
                workspace.write("big.txt", text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {workspace.head("big.txt", MOST) for _ in range(300)}
    finally:
        ended.set()
        writer.join()
    assert seen <= set(texts)


@pytest.mark.parametrize(
    ("path", "beside", "stays"),
    [
        ("notes.txt", ".git/config", True),
        ("notes.txt", "docs/x", False),
        ("src/app.py", ".git/config", False),
        ("hard", ".git/config", False),
    ],
)
def test_beside_something_protected_an_entry_at_the_top_stays_the_same_file(
    workspace: Workspace, outside: Path, path: str, beside: str, stays: bool
) -> None:
    """There the sandbox of Python code is given rights on single entries, which another file would lose."""
    root = Path(workspace.root)
    (root / beside).parent.mkdir()
    (root / beside).touch()
    os.link(outside / "secret.txt", root / "hard")
    # Held open, so that no new file gets its number.
    held = os.open(root / path, os.O_RDONLY)
    before = os.fstat(held)
    for text in (b"longer than it was before\n", b"x"):
        assert workspace.write(path, text) is False
        assert (root / path).read_bytes() == text
    assert ((root / path).stat().st_ino == before.st_ino) is stays
    assert (root / path).stat().st_mode == before.st_mode
    os.close(held)
    assert (outside / "secret.txt").read_text() == SECRET


def test_a_new_file_has_the_mode_that_the_user_s_mask_gives(workspace: Workspace) -> None:
    before = os.umask(0o027)
    try:
        workspace.write("new.txt", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((Path(workspace.root) / "new.txt").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(workspace: Workspace) -> None:
    (Path(workspace.root) / "notes.txt").chmod(0o444)
    with pytest.raises(ToolException, match="permission denied"):
        workspace.write("notes.txt", b"x")


def test_a_hard_link_to_an_outside_file_is_not_written_through(workspace: Workspace, outside: Path) -> None:
    os.link(outside / "secret.txt", Path(workspace.root) / "hard")
    workspace.write("hard", b"changed")
    assert (outside / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("name", ["missing", "project/notes.txt", "/", "/proc", "/proc/self/fd", "/dev"])
def test_what_cannot_be_a_workspace(tmp_path: Path, root: Path, name: str) -> None:
    with pytest.raises(SetupError, match=r"; (create it or )?name "):
        Workspace(tmp_path / name)


def test_a_workspace_reached_through_a_link_accepts_both_its_names(tmp_path: Path, root: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace(tmp_path / "alias")
    assert (
        workspace.head(f"{tmp_path}/alias/notes.txt", MOST)
        == workspace.head(f"{root}/notes.txt", MOST)
        == b"notes\n"
    )


def test_a_workspace_that_was_deleted_says_so_and_works_again_when_it_is_back(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    workspace = Workspace(tmp_path / "w")
    (tmp_path / "w").rmdir()
    with pytest.raises(ToolException, match="workspace folder no longer exists"):
        workspace.write("a", b"")
    (tmp_path / "w").mkdir()
    assert workspace.write("a", b"") is True


def test_a_walk_names_everything_and_enters_neither_links_nor_skipped_folders(workspace: Workspace) -> None:
    root = Path(workspace.root)
    for name in [".git", "src/__pycache__", "empty", "z"]:
        (root / name).mkdir()
    (root / ".git" / "config").write_text("x")
    (root / "z" / "last.txt").write_text("12345")
    entries = [(entry.path, entry.kind, entry.note) for entry in walk(workspace) if entry.kind != "link"]
    assert entries == [
        (".git", "folder", "not entered unless passed as path"),
        ("notes.txt", "file", ""),
        ("pipe", "special file", ""),
        ("empty", "folder", "empty"),
        ("src/__pycache__", "folder", "not entered unless passed as path"),
        ("src/app.py", "file", ""),
        ("z/last.txt", "file", ""),
    ]
    assert [entry.size for entry in walk(workspace, "z")] == [5]
    assert [entry.path for entry in walk(workspace, ".git")] == [".git/config"]
    assert [entry.path for entry in walk(workspace, "inner_folder") if entry.kind == "file"] == [
        "inner_folder/app.py"
    ]


def test_a_full_text_is_kept_in_the_workspace_where_git_ignores_it(workspace: Workspace) -> None:
    keep = workspace.keep("search_files")
    path = keep("whole \ud800 text")
    assert path.startswith(".signoff/outputs/search_files-")
    assert workspace.head(path, MOST).decode() == "whole \ufffd text"
    assert workspace.head(".signoff/.gitignore", MOST) == b"*\n"
    assert keep("whole \ud800 text") == path
    assert keep("another") != path


def test_a_full_text_is_not_kept_through_a_link_that_leads_out(workspace: Workspace, outside: Path) -> None:
    (Path(workspace.root) / ".signoff").symlink_to(outside)
    with pytest.raises(ToolException, match=OUT):
        workspace.keep("x")("text")
    assert os.listdir(outside) == ["secret.txt"]
