"""The boundary of a workspace: what code and the file tools cannot change in it, and what they still can."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools.files import workspace_tools
from signoff.tools.protected import PROTECTED
from signoff.tools.sandbox import Bounds, LinuxSandbox, MontySandbox, python_tool
from signoff.tools.sandbox import confine as landlock
from signoff.tools.sandbox.bubblewrap import mounted_as_wanted
from signoff.tools.sandbox.linux import wrapping
from signoff.tools.sandbox.watch import DiskGuard, files_since
from signoff.tools.workspace import Workspace

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
LAYERS = [
    pytest.param(
        True,
        id="bubblewrap",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(
                sys.platform != "linux" or wrapping() != "", reason="bubblewrap does not work on this host"
            ),
        ],
    ),
    pytest.param(
        False,
        id="inner-layer-alone",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(
                sys.platform != "linux" or not landlock.version(), reason="this kernel has no Landlock"
            ),
        ],
    ),
]
Make = Callable[..., LinuxSandbox]


@pytest.fixture(params=LAYERS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a sandbox with the layers of this test, closed after it."""
    made: list[LinuxSandbox] = []

    def build(
        workspace: Path, protect: list[str] | frozenset[str] | None = None, bounds: Bounds | None = None
    ) -> LinuxSandbox:
        made.append(LinuxSandbox(workspace, bubblewrap=request.param, protect=protect, bounds=bounds))
        return made[-1]

    yield build
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project with a repository, an environment, files and folders."""
    work = tmp_path.resolve() / "work"
    for folder in (".git/objects", ".git/refs", ".venv/bin", "src", "docs"):
        (work / folder).mkdir(parents=True)
    for file in (".git/HEAD", ".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "src/app.py", "top.py"):
        (work / file).write_text("as it was")
    return work


def test_git_does_not_run_what_code_wrote(make: Make, tmp_path: Path) -> None:
    """The whole way: code in the sandbox writes, afterwards somebody outside asks git for the status."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    done = make(tmp_path).run(
        f"import os\nopen('.git/config', 'a').write('[core]\\n\\tfsmonitor = touch {tmp_path}/ran\\n')"
    )
    assert (done.exit, done.note.split(":")[0]) == ("error", "Protected from this code")
    subprocess.run(["git", "-C", tmp_path, "status"], check=True, capture_output=True)
    assert not (tmp_path / "ran").exists()


def test_what_is_not_protected_can_be_changed(make: Make, work: Path) -> None:
    sandbox = make(work)
    done = sandbox.run(
        "import tempfile\n"
        "open('top.py', 'w').write('new')\n"
        "open('src/app.py', 'a').write('new')\n"
        "open('src/new.py', 'w').write('new')\n"
        "open(tempfile.gettempdir() + '/x', 'w').write('new')\n"
        "import os\nos.mkdir('docs/a'); os.rename('docs/a', 'docs/b')\n"
        "open('.git/config').read()"
    )
    assert (done.exit, done.value) == ("ok", "'as it was'"), done.stderr
    assert [(work / name).read_text() for name in ("top.py", "src/new.py")] == ["new", "new"]
    assert (work / "docs/b").is_dir()


def test_only_landlock_refuses_what_is_new_beside_something_protected(make: Make, work: Path) -> None:
    sandbox = make(work)
    done = sandbox.run("open('new.py', 'w')")
    if sandbox.enforced()["bubblewrap"] is True:
        assert (work / "new.py").exists()
        assert sandbox.enforced()["workspace"] == "writable"
        return
    assert done.exit == "error"
    assert "Create new files in an existing folder" in done.note
    assert "nothing new" in str(sandbox.enforced()["workspace"])
    assert sandbox.run("1 / 0").note == ""


@pytest.mark.parametrize(
    ("protect", "writes"),
    [
        (PROTECTED, []),
        (PROTECTED - {"git"}, [".git/config"]),
        ([*PROTECTED, "!.git"], [".git/config"]),
        ([*PROTECTED, "!.git", "src/app.py"], [".git/config"]),
        ([], [".git/config", ".venv/bin/python"]),
        (["!."], [".git/config", ".venv/bin/python"]),
    ],
)
def test_it_can_be_widened_and_lifted(
    make: Make, work: Path, protect: list[str] | frozenset[str], writes: list[str]
) -> None:
    sandbox = make(work, protect)
    code = "\n".join(
        f"try: open({name!r}, 'w').write('changed')\nexcept OSError: pass"
        for name in (".git/config", ".venv/bin/python", "src/app.py")
    )
    sandbox.run(code)
    expected = [*writes, *([] if "src/app.py" in protect else ["src/app.py"])]
    changed = [path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file()]
    assert sorted(name for name in changed if (work / name).read_text() == "changed") == sorted(expected)


@pytest.mark.parametrize("place", ["", "deep/below"])
def test_an_environment_that_is_a_link(make: Make, tmp_path: Path, place: str) -> None:
    """Neither the link nor what it leads to; also where the workspace lies in a folder that code may fill."""
    root = tmp_path.resolve()
    (root / "envs/main/bin").mkdir(parents=True)
    (root / "envs/main/pyvenv.cfg").touch()
    (root / place).mkdir(parents=True, exist_ok=True)
    link = root / place / ".venv"
    link.symlink_to(root / "envs/main")
    name = os.path.relpath(link, root)
    done = make(root).run(
        "import os\n"
        f"for work in (lambda: os.unlink({name!r}), lambda: os.rename({name!r}, 'away'),\n"
        f"             lambda: open({name!r} + '/bin/python', 'w'), lambda: os.rename('deep', 'moved'),\n"
        "             lambda: os.rename('envs', 'moved')):\n"
        "    try: work(); print('done')\n"
        "    except OSError: pass"
    )
    assert done.stdout == ""
    assert link.is_symlink()
    assert list((root / "envs/main/bin").iterdir()) == []


def test_a_protected_workspace_is_refused(make: Make, tmp_path: Path) -> None:
    library = Path(os.__file__).resolve().parent
    with pytest.raises(SetupError, match=r"belongs to the Python that runs Signoff.*accept it by name"):
        make(library / "json")
    with pytest.raises(SetupError, match="protect names 'gti'"):
        make(tmp_path, ["gti"])


@pytest.mark.parametrize("bits", [0o4755, 0o2755])
def test_no_file_runs_as_its_owner(make: Make, work: Path, bits: int) -> None:
    sandbox = make(work)
    for code in (
        f"os.chmod('src/plain', {bits})",
        f"os.fchmod(os.open('src/plain', os.O_WRONLY), {bits})",
        f"os.chmod('plain', {bits}, dir_fd=os.open('src', os.O_RDONLY))",
        f"os.open('src/a', os.O_CREAT | os.O_WRONLY, {bits})",
        f"os.open('src', os.O_TMPFILE | os.O_WRONLY, {bits})",
        f"os.mknod('src/b', {0o100000 | bits})",
    ):
        done = sandbox.run(f"import os\nopen('src/plain', 'w').close()\n{code}")
        assert "PermissionError" in done.stderr, code
    assert not any(path.lstat().st_mode & 0o6000 for path in work.rglob("*"))


def test_usual_modes_and_sizes_can_be_given(make: Make, work: Path) -> None:
    sandbox = make(work)
    done = sandbox.run(
        "import os\n"
        "handle = os.open('src/new', os.O_CREAT | os.O_WRONLY, 0o755)\n"
        "os.posix_fallocate(handle, 0, 10_000)\n"
        "os.stat('src/new').st_size, oct(os.stat('src/new').st_mode)",
        thread="one",
    )
    assert done.value == "(10000, '0o100755')", done.stderr
    if sandbox.enforced()["bubblewrap"] is True:
        assert sandbox.run("os.chmod('src/new', 0o700)", thread="one").exit == "ok"


FEW = Bounds(files=100, disk=80_000_000)
FILL = """
import os
number = 0
while True:
    os.close(os.open(f"src/{number}", os.O_CREAT | os.O_WRONLY))
    number += 1
"""


def test_a_program_that_fills_the_workspace_is_ended(make: Make, work: Path) -> None:
    sandbox = make(work, bounds=FEW)
    many = sandbox.run(FILL, timeout=30)
    assert (many.exit, many.note) == ("killed", "The code made far too many files and was ended.")
    assert len(list((work / "src").iterdir())) > FEW.files
    large = sandbox.run(
        "number = 0\nwhile True:\n    open(f'docs/{number}', 'wb').write(b'x' * 1_000_000)\n    number += 1"
    )
    assert (large.exit, large.note.split(" while ")[0]) == ("killed", "The disk was filling up")
    assert sandbox.run("6 * 7").value == "42"


@pytest.mark.parametrize(("known", "told"), [(True, False), (False, True)])
def test_files_of_the_call_before_do_not_count(tmp_path: Path, known: bool, told: bool) -> None:
    """Both calls together make more than one may, within the second by which file systems may lag."""
    own, others = tmp_path / "own", tmp_path / "others"
    for folder, count in ((own, 90), (others, 0)):
        folder.mkdir()
        for number in range(count):
            (folder / f"before{number}").touch()
    time.sleep(0.05)
    guard = DiskGuard([str(own)], 10**15, 100, lambda _: None, time.time() if known else 0.0)
    time.sleep(0.05)
    for folder, count in ((own, 20), (others, 500)):
        for number in range(count):
            (folder / str(number)).touch()
    assert bool(guard.over()) is told


def test_files_of_others_do_not_count(make: Make, work: Path, tmp_path: Path) -> None:
    """Many files are made on the same disk meanwhile, elsewhere.

    Bytes are measured by the free space, in which other tests share: that bound stays as wide as it is.
    """
    sandbox, stop = make(work, bounds=Bounds(files=FEW.files)), threading.Event()
    (tmp_path / "busy").mkdir()

    def others() -> None:
        for number in range(10 * FEW.files):
            (tmp_path / f"busy/{number}").touch()
        stop.set()

    thread = threading.Thread(target=others)
    thread.start()
    while not stop.is_set():
        ran = sandbox.run("import time; time.sleep(0.3)")
        assert (ran.exit, ran.note) == ("ok", "")
    thread.join()


@linux
def test_what_is_hidden_counts(tmp_path: Path) -> None:
    """In a path that is too long to be opened, files are as good as too many."""
    assert files_since(str(tmp_path), 0, 50) <= 1
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert files_since(str(tmp_path), 0, 50) == 10
    assert files_since(str(tmp_path), 2**40, 50) == 0
    assert files_since(str(tmp_path), 0, 5) == 6
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("x" * 200, dir_fd=at)
        at, before = os.open("x" * 200, os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    assert files_since(str(tmp_path), 0, 50) == 51


def test_monty_changes_nothing_where_something_is_protected(work: Path) -> None:
    pytest.importorskip("pydantic_monty")
    sandbox = MontySandbox(work)
    assert sandbox.run("open('src/app.py', 'w').write('new')").exit == "error"
    assert sandbox.enforced()["workspace"] == "read-only, since .git is protected"
    sandbox.close()
    lifted = MontySandbox(work, protect=[])
    assert lifted.run("open('src/app.py', 'w').write('new')").exit == "ok"
    lifted.close()


@linux
@pytest.mark.slow
def test_the_tool_takes_what_its_workspace_says(work: Path) -> None:
    tool = python_tool(workspace=Workspace(work, protect=["src"]))
    with pytest.raises(ToolException, match="Protected from this code: src"):
        tool.invoke({"code": "open('src/app.py', 'w')"})
    tool.invoke({"code": "open('.git/config', 'w').write('changed')"})
    assert (work / ".git/config").read_text() == "changed"


REFUSED = [
    (".git/config", "git's own files"),
    (".git/hooks/pre-commit", "git's own files"),
    ("src/.git/config", "git's own files"),
    (".venv/bin/python", "a virtual environment"),
    (".venv/lib/python3/site-packages/evil.pth", "a virtual environment"),
    ("src/../.venv/bin/signoff", "a virtual environment"),
    ("way/config", "git's own files"),
    ("far/bin/new", "a virtual environment"),
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
    def write(path: str, protect: list[str] | frozenset[str]) -> str:
        tools = {tool.name: tool for tool in workspace_tools(work, protect=protect)}
        return str(tools["write_file"].invoke({"path": path, "content": "x"}))

    assert write(".git/config", PROTECTED - {"git"}).startswith("Replaced")
    assert write(".venv/bin/python", [*PROTECTED, "!.venv"]).startswith("Replaced")
    with pytest.raises(ToolException, match="protected by your program"):
        write("src/app.py", [*PROTECTED, "src"])
    with pytest.raises(SetupError, match="protect names 'scr'"):
        write("a", [*PROTECTED, "scr"])
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


@linux
def test_no_link_leads_to_what_may_be_changed(tmp_path: Path) -> None:
    """Code of another thread may put one on the way, between the search and the start."""
    root = tmp_path.resolve()
    (root / "real/below").mkdir(parents=True)
    (root / "link").symlink_to("real")
    os.close(landlock._straight(str(root / "real/below")))
    for path in ("link", "link/below"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            landlock._straight(str(root / path))


@linux
@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or wrapping() != "", reason="bubblewrap does not work on this host"
)
def test_what_was_mounted_is_looked_at_from_outside(work: Path) -> None:
    sandbox = LinuxSandbox(work, bubblewrap=True)
    interpreter = sandbox._start()
    wanted = sandbox._mounts(sandbox._current_protection())
    assert sorted(wanted) == [str(work / name) for name in (".git", ".venv")]
    assert interpreter.sees(lambda process: mounted_as_wanted(process, wanted))
    # As if another folder had been mounted there, or nothing.
    swapped = dict(zip(wanted, reversed(wanted.values()), strict=True))
    assert not interpreter.sees(lambda process: mounted_as_wanted(process, swapped))
    missing = {**wanted, str(work / "src"): (os.stat(work / "src").st_dev, os.stat(work / "src").st_ino)}
    assert not interpreter.sees(lambda process: mounted_as_wanted(process, missing))
    interpreter.kill()
