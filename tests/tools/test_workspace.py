"""A workspace gives access to its own folder and to nothing else, and keeps what is protected unchanged."""

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from signoff import SetupError
from signoff.tools import Workspace, workspace_tools
from tests.support.benches.workspace import Bench, Files, Link

SECRET = "the secret outside"
EVERY_TOOL: dict[str, dict[str, Any]] = {
    "read_file": {},
    "write_file": {"content": "changed"},
    "edit_file": {"old": "e", "new": "changed"},
    "list_files": {},
    "search_files": {"pattern": "e"},
}


@pytest.fixture
def around(tmp_path: Path) -> Bench:
    """What is around the workspace, and in it."""
    return Bench(
        tmp_path,
        {
            "outside/secret.txt": SECRET,
            "project-2/secret.txt": SECRET,
            "project/src/app.py": "code\n",
            "project/notes.txt": "notes\n",
            "project/to_file": Link("../outside/secret.txt"),
            "project/to_folder": Link(str(tmp_path / "outside")),
            "project/to_link": Link("to_file"),
            "project/to_proc": Link("/proc"),
            "project/to_null": Link("/dev/null"),
            "project/to_new": Link("../outside/new.txt"),
            "project/inner": Link("src/app.py"),
            "project/inner_folder": Link("src"),
            "project/up_and_back": Link("src/../notes.txt"),
        },
    )


@pytest.fixture
def bench(around: Bench) -> Bench:
    return Bench(around.root / "project")


NOWHERE = [
    *("..", "../outside/secret.txt", "src/../../outside/secret.txt", "{around}/outside/secret.txt"),
    *("{around}/project/../outside/secret.txt", "{around}/project-2/secret.txt", "/etc/passwd", "~/.bashrc"),
    *("/proc/self/environ", "/dev/null", "to_file", "to_link", "to_folder/secret.txt", "src/app.py/x"),
    *("to_folder/../outside/secret.txt", "to_proc/self/environ", "to_null", "to_new"),
    *("", "  ", "notes.txt\0.png", "/proc/self/environ\0", "caf\ud800", "x" * 5_000, "x" * 300),
    "../" * 1_300 + "x",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", NOWHERE, ids=lambda path: path[:40])
def test_a_path_that_is_no_file_inside_is_refused(path: str, around: Bench, bench: Bench) -> None:
    before = around.disk()
    for tool in EVERY_TOOL:
        told = bench.refusal(tool, path=path.format(around=around.root), **EVERY_TOOL[tool])
        assert SECRET not in told
        assert len(told) < 400
    assert around.disk() == before


INSIDE = {
    "src/app.py": "src/app.py",
    "./src//./app.py": "src/app.py",
    "inner": "src/app.py",
    "inner_folder/app.py": "src/app.py",
    "{around}/project/src/app.py": "src/app.py",
    "up_and_back": "notes.txt",
}


@pytest.mark.parametrize("path", INSIDE)
def test_ways_to_name_a_file_inside(path: str, around: Bench, bench: Bench) -> None:
    before, written = bench.disk(), path.format(around=around.root)
    content = before[INSIDE[path]].decode()
    assert bench.rows("read_file", path=written) == [f"1|{content.strip()}"]
    bench("write_file", path=written, content="changed\n")
    assert bench.disk() == before | {INSIDE[path]: b"changed\n"}


@pytest.mark.parametrize("name", ["missing", "project/notes.txt", "/", "/proc", "/dev/pts"])
def test_what_cannot_be_a_workspace(name: str, around: Bench) -> None:
    with pytest.raises(SetupError, match=name):
        Workspace(around.root / name)


def test_a_workspace_reached_through_a_link_has_both_its_names(around: Bench) -> None:
    around.put("alias", Link("project"))
    bench = Bench(around.root / "alias")
    for name in ("alias", "project"):
        assert bench.rows("read_file", path=f"{around.root}/{name}/notes.txt") == ["1|notes"]


# How a file is written.


def test_the_mode_of_a_file_is_its_own_or_what_the_mask_gives(bench: Bench) -> None:
    before = os.umask(0o027)
    bench("write_file", path="a/new.sh", content="one")
    os.umask(before)
    file = bench.root / "a/new.sh"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.chmod(0o751)
    bench("write_file", path="a/new.sh", content="two")
    assert (stat.S_IMODE(file.stat().st_mode), os.listdir(bench.root / "a")) == (0o751, ["new.sh"])


def test_a_reader_never_sees_half_a_write(bench: Bench) -> None:
    with (bench.root / "notes.txt").open() as file:
        bench("write_file", path="notes.txt", content="b" * 300_000)
        assert file.read() == "notes\n"


def test_a_file_with_another_name_outside_is_replaced(around: Bench, bench: Bench) -> None:
    os.link(around.root / "outside/secret.txt", bench.root / "hard")
    bench.put(".git/config", "")
    bench("write_file", path="hard", content="x")
    assert (around.root / "outside/secret.txt").read_text() == SECRET


# What is protected: read as everything else, and changed by nobody.


def files(names: str, **special: Any) -> Files:
    """Files, or folders, of these names, and what is not one."""
    return {name: "" if name.endswith("/") else "e" for name in names.split()} | special


VENV = "{0}pyvenv.cfg {0}bin/python {0}lib/python3/one.py"
BARE = "{0}HEAD {0}config {0}objects/ {0}refs/heads/"
PIPES = {"sub/.git/config": None, "env/pyvenv.cfg": None}
# Files, whose they are, the paths that are protected, and some that are not.
PROTECTED: dict[str, tuple[Files, str, str, str]] = {
    "nothing": (files("bin/tool HEAD refs/x"), "", "", "bin/tool HEAD .gitignore x.git/a venv/a Makefile"),
    "git": (files(".git/x a/.git/x"), "git", ".git/x .git/hooks/new a/.git/x new/.git/x a/../.git/y", "a/b"),
    "a link to git": (files(".git/x", way=Link(".git")), "git", "way/x way/new", "b"),
    "other letters": (files(".GIT/x"), "git", ".GIT/x", "a"),
    "a name that is no text": (files("a"), "git", "b\udcff/.git/x", "b"),
    "a bare repository": (files(BARE.format("b/")), "git", "b/config b/hooks/new", "c"),
    "an environment": (files(VENV.format("e/")), "Python", "e/bin/python e/lib/python3/new.pth", "f"),
    "Signoff's": (files(".signoff/x a/.signoff/x"), "Signoff", ".signoff/x .signoff/new a/.signoff/x", "a/x"),
    "pipes for configurations": (PIPES, "", "sub/.git/config sub/.git/x env/bin/x env/pyvenv.cfg", "sub/x"),
}


def check_protected(bench: Bench, protected: str, free: str, whose: str = "") -> None:
    before = bench.disk()
    for path in protected.split():
        assert whose in bench.refusal("write_file", path=path, content="changed")
        if before.get(path):
            assert whose in bench.refusal("edit_file", path=path, old="e", new="changed")
            assert bench.rows("read_file", path=path) == ["1|e"]
    assert bench.disk() == before
    # Not even a folder was made on the way.
    assert not [path for path in bench.root.rglob("new") if path.is_dir()]
    for path in free.split():
        bench("write_file", path=path, content="changed")
    assert bench.disk() == before | dict.fromkeys(free.split(), b"changed")


# What is added and lifted beside that.
SAID: dict[str, tuple[str, str]] = {
    "deploy": ("deploy/key deploy/new .git/x", "a"),
    "alias": ("alias/key deploy/key deploy/new", "a"),
    "!.git/hooks": (".git/x", ".git/hooks/x"),
    "deploy !deploy/key": ("deploy/x", "deploy/key"),
    "!. deploy/key": ("deploy/key", ".git/x other/bin/python .signoff/x deploy/x"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*PROTECTED, *SAID])
def test_what_is_protected(name: str, tmp_path: Path) -> None:
    if name in PROTECTED:
        made, whose, protected, free = PROTECTED[name]
        check_protected(Bench(tmp_path, made), protected, free, whose)
    else:
        names = f"{VENV.format('.venv/')} {VENV.format('other/')} .git/x .git/hooks/x deploy/key"
        bench = Bench(tmp_path, files(names, alias=Link("deploy")), name.split())
        check_protected(bench, *SAID[name])


@pytest.mark.parametrize("protect", [["git"], ["!none"], ["../x"], ["/"], ["!"], ".git"])
def test_a_slip_in_what_is_protected_is_an_error(protect: Any, tmp_path: Path) -> None:
    Bench(tmp_path, {"x": "", "w/.git/config": ""})
    with pytest.raises(SetupError, match="protect"):
        workspace_tools(tmp_path / "w", protect=protect)


def test_the_running_python_signoff_and_its_folders_are_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever they lie: here, in a workspace around them."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    monkeypatch.setenv("SIGNOFF_CACHE", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    protected = "python/lib/x models/x.gguf share/signoff/threads.sqlite"
    check_protected(Bench(tmp_path, files("models/mine/")), protected, "share/other/x a.py")
    # A workspace below the folder of models is nothing of Signoff's.
    check_protected(Bench(tmp_path / "models/mine"), "", "x")
    code = Path(sys.modules["signoff"].__path__[0]).resolve()
    new = code / "new_by_a_test.py"
    try:
        assert "Signoff" in Bench(code.parent).refusal("write_file", path=str(new), content="")
        assert not new.exists()
    finally:
        new.unlink(missing_ok=True)


def test_a_long_result_is_not_kept_through_a_link(around: Bench) -> None:
    bench = Bench(
        around.root / "project", {"many.txt": ("needle" * 50 + "\n") * 100, ".signoff": Link("../outside")}
    )
    before = around.disk()
    found = bench("search_files", pattern="needle")
    assert found.startswith("many.txt:1: ")
    assert len(found) <= 20_000
    assert around.disk() == before
