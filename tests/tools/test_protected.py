"""What is protected in a workspace: found by a walk through all of it, or asked of one path."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from signoff.graph.errors import SetupError
from signoff.tools.protected import GIT, PROTECTED, PYTHON, SIGNOFF, PathGuard, find_protected

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and modes are those of Unix")


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


def found(root: Path, *protect: str) -> dict[str, str]:
    """Path below the workspace: what it is, with an arrow for a link."""
    places = find_protected(str(root), protect or None)
    arrow = {True: "->", False: ""}
    return {os.path.relpath(one.path, root): arrow[one.link] + one.why.split("'s")[0] for one in places}


def _link_to_venv(root: Path) -> None:
    venv(root, "envs/main")
    (root / ".venv").symlink_to("envs/main")


def _link_outside(root: Path) -> None:
    venv(root.parent, "far")
    (root / ".venv").symlink_to(root.parent / "far")


def _chain(root: Path) -> None:
    venv(root, "envs/main")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("envs/main")


def _separate(root: Path) -> None:
    repository(root, "kept/git")
    put(root, "src/")
    (root / "src/.git").write_text("gitdir: ../kept/git\n")


def _includes(root: Path) -> None:
    repository(root, ".git")
    put(root, "build/gitconfig", "build/more", "build/last", "build/odd", "build/other")
    (root / ".git/config").write_text("[include]\n\tpath = ../build/gitconfig ; ours\n")
    (root / "build/gitconfig").write_text('[includeIf "onbranch:x"]\nPATH="more"\n')
    (root / "build/more").write_text('[include] path = last\n[includeIf "gitdir:~/a]b/"]path=odd\n')


def _twin(root: Path) -> None:
    venv(root, ".venv")
    put(root, "a/plain", "a/other")
    os.link(root / ".venv/bin/python", root / "a/twin")
    os.link(root / "a/plain", root / "a/pair")


def _home_of_a_venv(root: Path) -> None:
    venv(root, ".venv")
    put(root, "pythons/3/bin/python")
    (root / ".venv/pyvenv.cfg").write_text(f"home = {root}/pythons/3/bin\n")


def _home_of_an_inner_venv(root: Path) -> None:
    venv(root, "back/.venv")
    put(root, "pythons/3/lib/python3.11/os.py", "rootfs/usr/lib/python3.11/os.py")
    (root / "back/.venv/pyvenv.cfg").write_text(f"home = {root}/pythons/3/bin\n")


def _two_environments(root: Path) -> None:
    venv(root, ".venv")
    venv(root, "a/b")


def _closed(root: Path) -> None:
    venv(root, "closed/.venv")
    (root / "closed").chmod(0)


ENV, REPO, OWN = "a virtual environment", "a git repository", "git"
TABLE: list[tuple[str, Callable[[Path], object], dict[str, str]]] = [
    ("nothing", lambda root: put(root, "a.py", "bin/tool", "lib/x", "HEAD", "refs/x"), {}),
    ("git", lambda root: put(root, ".git/config", "a/.git/config"), {".git": OWN, "a/.git": OWN}),
    ("a .git that is a file", lambda root: put(root, "a/.git"), {"a/.git": OWN}),
    ("a .git elsewhere", _separate, {"src/.git": OWN, "kept/git": REPO}),
    ("other letters", lambda root: put(root, ".GIT/config"), {".GIT": OWN}),
    (
        "what its configuration includes",
        _includes,
        {".git": OWN, **{f"build/{name}": OWN for name in ("gitconfig", "more", "last", "odd")}},
    ),
    ("a bare repository", lambda root: repository(root, "a/b"), {"a/b": REPO}),
    ("a second work tree's", lambda root: put(root, "w/HEAD", "w/commondir"), {"w": REPO}),
    ("the workspace is one", lambda root: repository(root, ""), dict.fromkeys(("HEAD", "config"), REPO)),
    ("environments", _two_environments, {".venv": ENV, "a/b": ENV}),
    ("conda", lambda root: put(root, "c/conda-meta/history", "c/x"), {"c": "a conda environment"}),
    ("the workspace is an environment", lambda root: venv(root, ""), dict.fromkeys(("bin", "lib"), ENV)),
    ("a venv's own Python", _home_of_a_venv, {".venv": ENV, "pythons/3": ENV}),
    ("an inner venv's own Python", _home_of_an_inner_venv, {"back/.venv": ENV, "pythons/3": ENV}),
    ("own state", lambda root: put(root, ".signoff/x", "a/.signoff/x"), {".signoff": "Signoff"}),
    ("a link", _link_to_venv, {".venv": "->" + ENV, "envs/main": ENV}),
    ("a link that leads out", _link_outside, {".venv": "->" + ENV}),
    ("a chain", _chain, {"one": "->" + ENV, "two": "->" + ENV, "envs/main": ENV}),
    ("a second name", _twin, {".venv": ENV, "a/twin": "a second name of a protected file"}),
    pytest.param(
        "closed", _closed, {"closed": "a folder that cannot be looked into"},
        marks=pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root sees all"),
    ),  # type: ignore[list-item]  # a row with a mark
]  # fmt: skip


@posix
@pytest.mark.parametrize(("name", "make", "expected"), TABLE)
def test_what_is_protected(
    name: str, make: Callable[[Path], object], expected: dict[str, str], tmp_path: Path
) -> None:
    root = tmp_path.resolve() / "work"
    root.mkdir()
    make(root)
    seen = found(root)
    assert expected.items() <= seen.items()
    if "workspace is" not in name:
        assert seen == expected
    # One path at a time says the same of all that is no second name, which a write leaves alone.
    guard = PathGuard(str(root))
    for path, why in expected.items():
        if not why.startswith(("->", "a second", "a folder")):
            assert guard.why(path), path
            assert path.startswith("build/") or guard.why(f"{path}/below/it"), path


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
    ],
)
def test_of_one_path(path: str, protected: bool, tmp_path: Path) -> None:
    venv(tmp_path, ".venv")
    assert bool(PathGuard(str(tmp_path)).why(path)) is protected


@posix
def test_it_can_be_widened_and_lifted(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    venv(root, ".venv")
    venv(root, "other")
    put(root, ".git/config", "deploy/key", ".signoff/x")
    usual = {".venv", "other", ".git", ".signoff"}
    for protect, expected in [
        (PROTECTED, usual),
        (PROTECTED | {"deploy"}, {*usual, "deploy"}),
        (PROTECTED - {GIT}, usual - {".git"}),
        ({GIT}, {".git"}),
        ({PYTHON}, {".venv", "other"}),
        ({SIGNOFF}, {".signoff"}),
        (PROTECTED | {"!other"}, usual - {"other"}),
        (PROTECTED | {"!.git", "deploy/key"}, {*usual - {".git"}, "deploy/key"}),
        ({"!."}, set()),
        ((), set()),
    ]:
        assert {os.path.relpath(one.path, root) for one in find_protected(str(root), protect)} == expected
        guard = PathGuard(str(root), protect)
        assert {path for path in (*usual, "deploy", "deploy/key") if guard.why(path)} >= expected
        assert not any(guard.why(path) for path in usual - expected)


@pytest.mark.parametrize("protect", [["gti"], ["!none"], ["../x"], ["/"], ["!"], "git"])
def test_a_slip_is_an_error(protect: list[str], tmp_path: Path) -> None:
    (tmp_path.parent / "x").mkdir(exist_ok=True)
    for ask in (find_protected, PathGuard):
        with pytest.raises(SetupError, match="protect"):
            ask(str(tmp_path.resolve()), protect)


def test_the_running_python_and_signoff_are_protected(tmp_path: Path) -> None:
    """Wherever they lie: here they are asked of a workspace around them."""
    top = Path(sys.modules["signoff"].__path__[0]).resolve().parent
    assert PathGuard(str(top)).why("signoff/__init__.py")
    prefix = Path(sys.prefix).resolve()
    guard = PathGuard(str(prefix.parent))
    assert guard.why(f"{prefix.name}/lib/x")
    base = Path(sys.base_prefix).resolve()
    assert PathGuard(str(base.parent)).why(f"{base.name}/lib/x")
    # A workspace in a folder of Python's is nothing else.
    inside = Path(os.__file__).resolve().parent / "json"
    assert [place.path for place in find_protected(str(inside))] == [str(inside)]
    assert PathGuard(str(inside)).why("tool.py")


@posix
def test_a_path_too_long_is_no_obstacle(tmp_path: Path) -> None:
    """Whoever makes one could otherwise keep every later start from happening."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("x" * 200, dir_fd=at)
        at, before = os.open("x" * 200, os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    put(tmp_path, ".git/config")
    assert found(tmp_path.resolve()) == {".git": OWN}


@posix
def test_the_folders_of_threads_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    monkeypatch.setenv("SIGNOFF_CACHE", str(root / "models"))
    monkeypatch.setattr("signoff.tools.protected.user_data_path", lambda name: root / "share" / name)
    put(root, "models/x.gguf", "share/signoff/threads.sqlite", "share/other/x")
    assert found(root) == {"models": "Signoff", "share/signoff": "Signoff"}
    # A workspace below one of them is nothing of Signoff's.
    put(root, "models/mine/x")
    assert not PathGuard(str(root / "models/mine")).why("x")


@pytest.mark.slow
def test_a_real_environment_and_a_real_repository(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "env"], check=True)
    subprocess.run(["git", "init", "--quiet", root / "work"], check=True)
    subprocess.run(["git", "init", "--quiet", "--bare", root / "bare"], check=True)
    assert set(found(root)) == {"env", "work/.git", "bare"}
