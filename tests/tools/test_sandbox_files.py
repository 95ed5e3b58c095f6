"""Code in the Linux sandbox and files: what it reads, where it writes, what it can change, and what goes."""

import fcntl
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, ToolException

from signoff import SetupError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.tools import LinuxSandbox, Workspace, python_tool, workspace_tools
from tests.support.plays import FINISH, GO, THREAD, results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
AS_IT_WAS = "as it was"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The own folders lie where no other program cleans up."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project with a repository, an environment, files and folders."""
    work = tmp_path.resolve() / "work"
    for folder in (".git/objects", ".venv/bin", "src", "docs"):
        (work / folder).mkdir(parents=True)
    for file in (".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "src/app.py", "top.py"):
        (work / file).write_text(AS_IT_WAS)
    return work


def files_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def file_tools(work: Path) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in workspace_tools(work)}


def own_of(sandbox: LinuxSandbox) -> str:
    """The own folder of the thread `a`."""
    return str(sandbox.run("__import__('tempfile').gettempdir()", thread="a").value).strip("'")


# What it reads.


def test_what_is_made_or_replaced_outside_is_seen_at_once(work: Path) -> None:
    (work / "link").symlink_to("/etc/passwd")
    sandbox = LinuxSandbox(work)
    assert sandbox.enforced()["workspace"] == "read-only"
    code = "import os\nx = 1\nos.getcwd(), sorted(os.listdir('.'))"
    names = [".git", ".venv", "docs", "link", "src", "top.py"]
    assert sandbox.run(code, thread="a").value == str((str(work), names))
    (work / "new.txt").write_text("new")
    (work / "other").write_text("replaced")
    os.replace(work / "other", work / "top.py")
    result = sandbox.run("x, open('new.txt').read(), open('top.py').read()", thread="a")
    assert result.value == "(1, 'new', 'replaced')"
    assert "PermissionError" in sandbox.run("open('link').read()").stderr


def test_no_name_keeps_it_from_working(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\n'\\\xe2\x80\xa8\xff")
    for folder in (name, *(f"repository {number}" for number in range(300))):
        os.makedirs(tmp_path / folder / ".git")
    for writable in (False, True):
        assert LinuxSandbox(tmp_path, writable=writable).run("20 + 3", thread="a").value == "23"
    sandbox = LinuxSandbox(tmp_path / name)
    assert sandbox.run("__import__('os').listdir('.')", thread="a").value == "['.git']"


def test_a_workspace_that_is_gone_is_told_and_one_made_anew_is_read(work: Path, tmp_path: Path) -> None:
    tool = python_tool(workspace=work, writable=True)
    assert tool.invoke({"code": "print(1)"}) == "1"
    work.rename(tmp_path / "moved")
    with pytest.raises(ToolException, match="workspace"):
        tool.invoke({"code": "print(1)"})
    work.mkdir()
    (work / "file").write_text("new")
    assert tool.invoke({"code": "print(open('file').read())"}).startswith("new")


# Its own folder.


def test_it_writes_to_a_folder_of_its_own(work: Path) -> None:
    sandbox, name = LinuxSandbox(work), "/".join(("x" * 120, "y" * 120, "out.txt"))
    own = own_of(sandbox)
    code = (
        f"import os\nos.chdir(os.path.expanduser('~')); os.makedirs(os.path.dirname({name!r}))\n"
        f"open({name!r}, 'w').write('12345'); open('.hidden', 'w').write('123')\n"
        # Nobody asked for this one.
        "os.makedirs('.cache/fonts'); open('.cache/fonts/list', 'w'); None"
    )
    assert sandbox.run(code, thread="a").files == {f"{own}/.hidden": 3, f"{own}/{name}": 5}
    assert "12345" in file_tools(work)["read_file"].invoke({"path": f"{own}/{name}"})
    # Nothing is new in the next call; changed is new.
    assert sandbox.run("1", thread="a").files == {}
    assert [*sandbox.run(f"open({name!r}, 'a').write('6')", thread="a").files.values()] == [6]
    # It outlives the interpreter, and other threads have others.
    sandbox.run("os._exit(0)", thread="a")
    assert sandbox.run(f"open('{own}/{name}').read()", thread="a").value == "'123456'"
    assert sandbox.run("import os; os.listdir(os.path.expanduser('~'))", thread="b").value == "[]"
    assert sorted(path.name for path in work.iterdir()) == [".git", ".venv", "docs", "src", "top.py"]
    sandbox.close()
    assert not os.path.exists(own)


WRITE = "import os; own = os.path.expanduser('~')\nopen(own + '/x.txt', 'a').write('some text')\nprint(own)\n"
DEEP = "os.chdir(own); os.mkdir('closed', 0)\nfor n in range(1100): os.mkdir('d'); os.chdir('d')\n"


def read(messages: list[BaseMessage]) -> Any:
    """The model reads the file that the last result names."""
    return call("read_file", path=f"{messages[-1].text.splitlines()[0]}/x.txt")


def test_it_is_read_by_the_file_tools_and_goes_with_its_thread(work: Path, tmp_path: Path) -> None:
    """The thread that is begun anew has another one; nothing that the code leaves keeps it."""
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        first, second = call("run_python", code=WRITE + DEEP), call("run_python", code=WRITE)
        tools = [python_tool(workspace=work), *workspace_tools(work)]
        model = ScriptedModel([first, read, FINISH, second, read, FINISH])
        graph = build_graph(model, tools, storage=storage)
        for _ in range(2):
            state = graph.invoke(GO, THREAD)
            [ran], [shown] = results(state, "run_python"), results(state, "read_file")
            own = Path(ran.splitlines()[0])
            assert (f"{own}/x.txt (9 bytes)" in ran, "some text" in shown) == (True, True)
            assert own.exists()
            storage.delete("t")
            assert not own.exists()
    assert (work / "top.py").exists()


# What is refused, and what the model is told of it.

REFUSED_WRITES = {
    "a new file": "open('new.csv', 'w')",
    "an old database": "import sqlite3; sqlite3.connect('old.db').execute('create table a(x)')",
    "replaced, caught": "import os, tempfile\nhandle, name = tempfile.mkstemp()\n"
    "try: os.replace(name, 'top.py')\nexcept OSError: print('not saved')",
    "deleted": "import os; os.remove('top.py')",
}
OTHER_REFUSALS = {
    "read": "open('/etc/shadow')",
    "one's own": "open(__import__('tempfile').gettempdir() + '/x', 'w'); 1 / 0",
    "a log": "print(\"PermissionError: [Errno 13] Permission denied: 'config.yaml'\")",
}


def test_a_refused_write_names_the_own_folder_and_nothing_else_does(work: Path) -> None:
    (work / "old.db").write_text("")
    sandbox, before = LinuxSandbox(work), files_of(work)
    codes, own = REFUSED_WRITES | OTHER_REFUSALS, own_of(sandbox)
    told = {name: own in sandbox.run(code, thread="a").note for name, code in codes.items()}
    assert told == dict.fromkeys(REFUSED_WRITES, True) | dict.fromkeys(OTHER_REFUSALS, False)
    assert files_of(work) == before


def test_a_database_in_wal_mode_is_read_as_a_copy_and_the_note_says_so(work: Path) -> None:
    database = sqlite3.connect(work / "wal.db")
    database.executescript("pragma journal_mode=wal; create table a(x); insert into a values (7)")
    database.close()
    sandbox, read = LinuxSandbox(work), ".execute('select x from a').fetchone()"
    result = sandbox.run(f"import sqlite3\nsqlite3.connect('wal.db'){read}", thread="a")
    assert (result.exit, own_of(sandbox) in result.note, "-wal" in result.note) == ("error", True, True)
    code = "import os, shutil; own = shutil.copy('wal.db', os.path.expanduser('~'))"
    result = sandbox.run(f"{code}\nsqlite3.connect(own){read}", thread="a")
    assert (result.value, result.note) == ("(7,)", ""), result.stderr


def test_what_it_locks_holds_nobody_up(work: Path) -> None:
    code = """
import fcntl, struct
files = [open('top.py', 'rb') for _ in range(5)]
fcntl.flock(files[0], fcntl.LOCK_EX)
lock = struct.pack('hhqqi', fcntl.F_RDLCK, 0, 0, 0, 0)
for file, command in zip(files[1:], (fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38)): fcntl.fcntl(file, command, lock)
fcntl.fcntl(files[0], fcntl.F_SETLEASE, fcntl.F_RDLCK)
"""
    # While it is referred to, its interpreter and the files stay open.
    sandbox = LinuxSandbox(work)
    result = sandbox.run(code, thread="a")
    assert (result.exit, result.stderr, result.note) == ("ok", "", "")
    with (work / "top.py").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# With `writable=True`.


def test_existing_entries_can_be_changed_but_protected_ones(work: Path, tmp_path: Path) -> None:
    for name, target in (("way", ".git"), ("far", tmp_path / "outside")):
        (work / name).symlink_to(target)
    (tmp_path / "outside").write_text(AS_IT_WAS)
    sandbox = LinuxSandbox(work, writable=True)
    done = sandbox.run(
        "import os; open('top.py', 'w').write('new'); os.rename('src/app.py', 'docs/app.py')\n"
        "open('.git/config').read()",
        thread="a",
    )
    assert (done.exit, done.value) == ("ok", f"'{AS_IT_WAS}'"), done.stderr
    assert [(work / name).read_text() for name in ("top.py", "docs/app.py")] == ["new", AS_IT_WAS]
    before = files_of(tmp_path)
    writes = [f"open({name!r}, 'a')" for name in (".git/config", "way/config", "new.py", "far")]
    for code in (*writes, "os.unlink('top.py')"):
        result = sandbox.run(code, thread="a")
        is_told = own_of(sandbox) in result.note and ".git" in result.note
        assert (result.exit, is_told) == ("error", True), code
    assert files_of(tmp_path) == before


def test_where_nothing_is_protected_all_of_it_is_open(tmp_path: Path) -> None:
    sandbox = LinuxSandbox(tmp_path, writable=True)
    assert sandbox.run("open('new.txt', 'w').write('new')", thread="a").exit == "ok"
    assert (sandbox.enforced()["workspace"], files_of(tmp_path)) == ("writable", {"new.txt": "new"})


def test_what_is_protected_can_be_said_and_is_taken_from_a_workspace(work: Path) -> None:
    tool = python_tool(workspace=Workspace(work, protect=["!.git", "src"]), writable=True)
    for name in ("src/app.py", ".venv/bin/python"):
        with pytest.raises(ToolException, match=name.partition("/")[0]):
            tool.invoke({"code": f"open({name!r}, 'w')"})
    tool.invoke({"code": "open('.git/config', 'w').write('changed')"})
    assert {name for name, text in files_of(work).items() if text != AS_IT_WAS} == {".git/config"}


def test_a_workspace_that_is_protected_as_a_whole() -> None:
    library = Path(os.__file__).resolve().parent / "json"
    assert LinuxSandbox(library).run("6 * 7", thread="a").value == "42"
    with pytest.raises(SetupError, match="protect="):
        LinuxSandbox(library, writable=True)


def test_a_file_that_was_replaced_or_is_newer_can_be_written_by_a_python_started_anew(work: Path) -> None:
    sandbox, tools = LinuxSandbox(work, writable=True), file_tools(work)
    assert sandbox.run("x = open('top.py', 'a').write('1')", thread="a").exit == "ok"
    tools["read_file"].invoke({"path": "top.py"})
    tools["edit_file"].invoke({"path": "top.py", "old": AS_IT_WAS, "new": "edited"})
    tools["write_file"].invoke({"path": "new.py", "content": "made"})
    # Nothing is lost by an edit, nor as long as the newer file is only read.
    result = sandbox.run("open('top.py', 'a').write('2'); x, open('new.py').read()", thread="a")
    assert (result.note, result.value) == ("", "(1, 'made')")
    refused = sandbox.run("open('new.py', 'w')", thread="a")
    assert (refused.exit, bool(refused.note)) == ("error", True)
    result = sandbox.run("open('new.py', 'a').write('+')", thread="a")
    assert (result.exit, "new.py" in result.note, (work / "new.py").read_text()) == ("ok", True, "made+")
    (work / "other").write_text("other")
    os.replace(work / "other", work / "top.py")
    result = sandbox.run("open('top.py', 'a').write('3')", thread="a")
    assert (result.exit, "top.py" in result.note, (work / "top.py").read_text()) == ("ok", True, "other3")
