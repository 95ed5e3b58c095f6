"""What is protected in a workspace: by name and by place, asked of one path or of the top."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools import Workspace
from signoff.tools.files import workspace_tools
from signoff.tools.protected import Protected
from signoff.tools.sandbox import choose_sandbox, python_tool

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are those of Unix")


def put(root: Path, *names: str) -> None:
    """Files, and folders where a name ends with a slash."""
    assert not any(name.startswith("/") for name in names), "only below the root"
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("")


def venv(root: Path, name: str) -> None:
    put(root / name, "pyvenv.cfg", "bin/python", "lib/python3/site-packages/one.py")


def repository(root: Path, name: str) -> None:
    put(root / name, "HEAD", "config", "objects/", "refs/heads/")


def _link_to_venv(root: Path) -> None:
    venv(root, "envs/main")
    (root / ".venv").symlink_to("envs/main")


def _link_outside(root: Path) -> None:
    venv(root.parent, "far")
    (root / "env").symlink_to(root.parent / "far")


def _pipes(root: Path) -> None:
    put(root, "sub/.git/", "env/")
    os.mkfifo(root / "sub/.git/config")
    os.mkfifo(root / "env/pyvenv.cfg")


def _two_environments(root: Path) -> None:
    venv(root, "e")
    venv(root, "a/b")


def _signoffs(root: Path) -> None:
    put(root, ".signoff/x", "a/.signoff/x")


ENV, GIT, OWN = "a Python environment", "git's own files", "Signoff's own files"
TABLE: list[tuple[str, Callable[[Path], object], dict[str, str], dict[str, str]]] = [
    # What, how it is made, what is protected at the top, and where else.
    ("nothing", lambda root: put(root, "a.py", "bin/tool", "lib/x", "HEAD", "refs/x"), {}, {}),
    ("git", lambda root: put(root, ".git/config", "a/.git/config"), {".git": GIT}, {"a/.git": GIT}),
    ("a .git that is a file", lambda root: put(root, ".git", "a/.git"), {".git": GIT}, {"a/.git": GIT}),
    ("other letters", lambda root: put(root, ".GIT/config"), {".GIT": GIT}, {}),
    ("a bare repository", lambda root: repository(root, "b"), {"b": GIT}, {}),
    ("a bare repository below", lambda root: repository(root, "a/b"), {}, {"a/b": GIT}),
    ("the root is one", lambda root: repository(root, ""), dict.fromkeys(("HEAD", "config"), GIT), {}),
    ("environments", _two_environments, {"e": ENV}, {"a/b": ENV}),
    ("by name alone", lambda root: put(root, ".venv/x"), {".venv": ENV}, {}),
    ("conda", lambda root: put(root, "c/conda-meta/history", "c/x"), {"c": ENV}, {}),
    ("the root is an environment", lambda root: venv(root, ""), dict.fromkeys(("bin", "lib"), ENV), {}),
    ("Signoff's", _signoffs, {".signoff": OWN}, {"a/.signoff": OWN}),
    ("a link", _link_to_venv, {".venv": ENV}, {"envs/main": ENV}),
    ("a link that leads out", _link_outside, {"env": ENV}, {}),
    ("pipes instead of configurations", _pipes, {"env": ENV}, {"sub/.git": GIT}),
]  # fmt: skip


@posix
@pytest.mark.parametrize(("name", "make", "top", "below"), TABLE)
def test_what_is_protected(
    name: str, make: Callable[[Path], object], top: dict[str, str], below: dict[str, str], tmp_path: Path
) -> None:
    root = tmp_path.resolve() / "work"
    root.mkdir()
    make(root)
    entries = Protected(str(root)).top()
    assert top.items() <= entries.items()
    if "root is" not in name:
        assert entries == top
    for path, what in (top | below).items():
        for each in (path, f"{path}/below/it", str(root / path)):
            why = Protected(str(root)).why(each)
            assert why, each
            assert what in why, each


@posix
@pytest.mark.parametrize(
    ("path", "protected"),
    [
        ("a.py", False),
        (".git", True),
        (".git/hooks/pre-commit", True),
        # Nothing needs to be there yet.
        ("new/.git/config", True),
        (".gitignore", False),
        ("x.git/a", False),
        (".venv/bin/signoff", True),
        ("venv.py", False),
        (".signoff/threads.sqlite", True),
        ("Makefile", False),
        (".", False),
        ("way/config", True),
        ("../elsewhere", False),
        ("a\udcff/.git/x", True),
    ],
)
def test_of_one_path(path: str, protected: bool, tmp_path: Path) -> None:
    venv(tmp_path, ".venv")
    (tmp_path / "way").symlink_to(".git")
    assert bool(Protected(str(tmp_path.resolve())).why(path)) is protected


USUAL = {".venv", "other", ".git", ".signoff"}


@posix
@pytest.mark.parametrize(
    ("protect", "protected", "ordinary", "top"),
    [
        ([], [".git/config", "other/bin/x"], ["deploy/key"], USUAL),
        (["deploy"], ["deploy", "deploy/key", ".git"], [], USUAL | {"deploy"}),
        # An entry that holds something protected cannot be opened as a whole.
        (["deploy/key"], ["deploy/key"], ["deploy", "deploy/x"], USUAL | {"deploy"}),
        (["!.git"], ["other"], [".git", ".git/config"], USUAL - {".git"}),
        (["!.git/hooks"], [".git", ".git/config"], [".git/hooks", ".git/hooks/x"], USUAL),
        (["!other", "deploy"], ["deploy", ".git"], ["other/bin/x"], (USUAL | {"deploy"}) - {"other"}),
        (["deploy", "!deploy/key"], ["deploy", "deploy/x"], ["deploy/key"], USUAL | {"deploy"}),
        (["!.", "deploy/key"], ["deploy/key"], [*USUAL, ".git/config", "deploy"], {"deploy"}),
    ],
)
def test_paths_are_added_and_lifted(
    protect: list[str], protected: list[str], ordinary: list[str], top: set[str], tmp_path: Path
) -> None:
    root = tmp_path.resolve()
    venv(root, ".venv")
    venv(root, "other")
    put(root, ".git/config", ".git/hooks/x", "deploy/key", ".signoff/x")
    guard = Protected(str(root), protect)
    assert [path for path in [*protected, *ordinary] if guard.why(path)] == protected
    assert set(guard.top()) == top


@pytest.mark.parametrize("protect", [["git"], ["!none"], ["../x"], ["/"], ["!"], ".git"])
def test_a_slip_is_an_error(protect: list[str], tmp_path: Path) -> None:
    (tmp_path.parent / "x").mkdir(exist_ok=True)
    (tmp_path / ".git").mkdir()
    with pytest.raises(SetupError, match="protect"):
        Protected(str(tmp_path.resolve()), protect)


def test_the_running_python_and_signoff_are_protected(tmp_path: Path) -> None:
    """Wherever they lie: here they are asked of a workspace around them."""
    top = Path(sys.modules["signoff"].__path__[0]).resolve().parent
    assert Protected(str(top)).why("signoff/__init__.py")
    assert "signoff" in Protected(str(top)).top()
    assert Path(sys.prefix).resolve().name in Protected(str(Path(sys.prefix).resolve().parent)).top()
    base = Path(sys.base_prefix).resolve()
    assert Protected(str(base.parent)).why(f"{base.name}/lib/x")
    # A workspace in a folder of Python's is nothing else.
    inside = Path(os.__file__).resolve().parent / "json"
    assert {*Protected(str(inside)).top()} == {*os.listdir(inside)}
    assert Protected(str(inside)).why("tool.py")


@posix
def test_the_folders_of_threads_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    monkeypatch.setenv("SIGNOFF_CACHE", str(root / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(root / "share"))
    put(root, "models/x.gguf", "share/signoff/threads.sqlite", "share/other/x")
    guard = Protected(str(root))
    assert guard.why("models/x.gguf")
    if sys.platform == "linux":
        assert guard.top() == {"models": OWN, "share": OWN}
        assert not guard.why("share/other/x")
    # A workspace below one of them is nothing of Signoff's.
    put(root, "models/mine/x")
    assert not Protected(str(root / "models/mine")).why("x")


@pytest.mark.slow
def test_a_real_environment_and_a_real_repository(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "env"], check=True)
    subprocess.run(["git", "init", "--quiet", root / "work"], check=True)
    subprocess.run(["git", "init", "--quiet", "--bare", root / "bare"], check=True)
    guard = Protected(str(root))
    assert guard.top() == {"env": ENV, "bare": GIT}
    assert guard.why("work/.git/config")
    assert not guard.why("work/new.py")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project with a repository, an environment, files and folders."""
    work = tmp_path.resolve() / "work"
    put(work, "docs/")
    for file in (".git/HEAD", ".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "src/app.py", "top.py"):
        put(work, file)
        (work / file).write_text("as it was")
    return work


REFUSED = [
    (".git/config", "git's own files"),
    (".git/hooks/pre-commit", "git's own files"),
    ("src/.git/config", "git's own files"),
    (".venv/bin/python", "a Python environment"),
    (".venv/lib/python3/site-packages/evil.pth", "a Python environment"),
    ("src/../.venv/bin/signoff", "a Python environment"),
    ("way/config", "git's own files"),
    ("far/bin/new", "a Python environment"),
    (".signoff/threads.sqlite", "Signoff's own files"),
]


@pytest.mark.parametrize(("path", "why"), REFUSED)
def test_the_file_tools_do_not_write_there(path: str, why: str, work: Path) -> None:
    (work / "way").symlink_to(".git")
    (work / "far").symlink_to(work / ".venv")
    before = {each: each.is_file() and each.read_text() for each in work.rglob("*")}
    tools = {tool.name: tool for tool in workspace_tools(work)}
    for name, arguments in [
        ("write_file", {"content": "changed"}),
        ("edit_file", {"old": "as it was", "new": "changed"}),
    ]:
        if name == "edit_file" and not (work / path).is_file():
            continue
        with pytest.raises(ToolException, match=f"is protected: it belongs to {why}, .*ask the user"):
            tools[name].invoke({"path": path, **arguments})
    # Not even a folder was made on the way.
    assert {each: each.is_file() and each.read_text() for each in work.rglob("*")} == before


def test_the_file_tools_read_everything_and_write_the_rest(work: Path) -> None:
    tools = {tool.name: tool for tool in workspace_tools(work)}
    assert "as it was" in tools["read_file"].invoke({"path": ".git/config"})
    for path in ("Makefile", ".envrc", "src/app.py", ".github/ci.yml", ".gitignore", "venv/readme"):
        assert tools["write_file"].invoke({"path": path, "content": "x"}).split()[0] in (
            "Created",
            "Replaced",
        )


def test_what_the_file_tools_protect_can_be_said(work: Path) -> None:
    def write(path: str, protect: list[str]) -> str:
        tools = {tool.name: tool for tool in workspace_tools(work, protect=protect)}
        return str(tools["write_file"].invoke({"path": path, "content": "x"}))

    assert write(".git/config", ["!.git"]).startswith("Replaced")
    assert write(".venv/bin/python", ["!.venv"]).startswith("Replaced")
    with pytest.raises(ToolException, match="what your program protects"):
        write("src/app.py", ["src"])
    with pytest.raises(SetupError, match="protect names 'scr'"):
        write("a", ["scr"])
    with pytest.raises(SetupError, match="already defines what is protected"):
        workspace_tools(Workspace(work), protect=[])
    assert workspace_tools(Workspace(work, protect=[]))


def test_full_texts_are_still_kept(work: Path) -> None:
    """The folder of Signoff is its own: it writes there, and through no link."""
    kept = Workspace(work).keep("tool")("long text")
    assert (work / kept).read_text() == "long text"
    (work / ".signoff").rename(work / "old")
    (work / ".signoff").symlink_to(".git")
    with pytest.raises(ToolException, match="is a link"):
        Workspace(work).keep("tool")("long text")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
@pytest.mark.slow
def test_python_code_still_writes_to_a_file_that_was_edited(work: Path) -> None:
    """Beside something protected it has rights on the entries that were there when it began."""
    tools = {tool.name: tool for tool in workspace_tools(work)}
    sandbox = choose_sandbox(workspace=work, writable=True)
    python = python_tool(sandbox, workspace=work)
    config: Any = {"configurable": {"thread_id": "t"}}
    try:
        python.invoke({"code": "kept = 1; open('top.py', 'a').write(', python')"}, config)
        tools["edit_file"].invoke({"path": "top.py", "old": "as it was", "new": "edited"}, config)
        tools["write_file"].invoke({"path": "src/app.py", "content": "written\n"}, config)
        code = "for name in ('top.py', 'src/app.py'): open(name, 'a').write(', again')\nkept"
        assert python.invoke({"code": code}, config).endswith("1")
    finally:
        sandbox.close()
    assert (work / "top.py").read_text() == "edited, python, again"
    assert (work / "src/app.py").read_text() == "written\n, again"
