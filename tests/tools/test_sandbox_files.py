"""Code in the Linux sandbox and files: what it reads, where it writes, what it can change, and what goes."""

import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Storage, build_graph, sqlite_storage
from signoff.graph.errors import SetupError
from signoff.models import ScriptedCall, ScriptedModel, call
from signoff.tools import Workspace
from signoff.tools.files import workspace_tools
from signoff.tools.sandbox import Bounds, LinuxSandbox, PythonResult, python_tool
from signoff.tools.sandbox.tool import result_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
Make = Callable[..., LinuxSandbox]
OWN = "its own folder"


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[LinuxSandbox] = []

    def build(*places: Path, **options: object) -> LinuxSandbox:
        made.append(LinuxSandbox(*places, **options))  # type: ignore[arg-type]  # as each test has them
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


def files_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and ".signoff" not in path.parts
    }


def test_the_workspace_is_read_and_not_changed(make: Make, work: Path) -> None:
    (work / "link").symlink_to("/etc/passwd")
    before, sandbox = files_of(work), make(work)
    assert sandbox.run("import os\nos.getcwd(), open('top.py').read()").value == f"('{work}', 'as it was')"
    assert ".git" in str(sandbox.run("sorted(__import__('os').listdir('.'))").value)
    for code in ("open('new', 'w')", "open('top.py', 'w')", "os.unlink('top.py')", "os.mkdir('src/new')"):
        result = sandbox.run(f"import os\n{code}", thread="a")
        assert (result.exit, OWN in result.note) == ("error", True), code
    assert sandbox.run("open('link').read()").exit == "error"
    assert files_of(work) == before
    assert sandbox.enforced()["workspace"] == "read-only"


def test_what_is_made_or_replaced_outside_is_seen_at_once(make: Make, work: Path) -> None:
    sandbox = make(work)
    sandbox.run("x = 1", thread="a")
    (work / "new.txt").write_text("new")
    (work / "other").write_text("replaced")
    os.replace(work / "other", work / "top.py")
    result = sandbox.run("x, open('new.txt').read(), open('top.py').read()", thread="a")
    assert result.value == "(1, 'new', 'replaced')"


NAMES = (
    "a\u00a0b",
    "a\u3000b",
    "a\u2028b",
    "a\u0085b",
    "a\rb",
    "a\nb",
    b"a\xffb",
    "a'b",
    "-a",
    "a\\b",
    "x" * 255,
)


def test_no_name_keeps_it_from_working(make: Make, tmp_path: Path) -> None:
    for name in NAMES:
        os.makedirs(os.path.join(os.fsencode(tmp_path), os.fsencode(name), b".git"))
    for number in range(2_000):
        (tmp_path / f"repository {number}" / ".git").mkdir(parents=True)
    for writable in (False, True):
        assert make(tmp_path, writable=writable).run("20 + 3", thread="a").value == "23"
    odd = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"a\xffb")))
    assert make(odd).run("len(__import__('os').listdir('.'))", thread="a").value == "1"


def test_it_writes_to_a_folder_of_its_own(make: Make, work: Path) -> None:
    sandbox = make(work)
    code = "import os, tempfile\nown = tempfile.gettempdir()\nown == os.path.expanduser('~')"
    assert sandbox.run(code, thread="a").value == "True"
    code = (
        "open(own + '/out.txt', 'w').write('12345'); os.makedirs(own + '/a/b'); open(own + '/a/b/c', 'w')\n"
        "os.mkdir(own + '/.out'); open(own + '/.out/.hidden', 'w').write('123')\n"
    )
    # Nobody asked for the last one.
    cache = "os.makedirs(own + '/.cache/fonts'); open(own + '/.cache/fonts/list', 'w'); None"
    result = sandbox.run(f"{code}{cache}", thread="a")
    assert sorted(size for size in result.files.values()) == [0, 3, 5]
    name = next(name for name, size in result.files.items() if size == 5)
    reads = {tool.name: tool for tool in workspace_tools(work)}["read_file"]
    assert "12345" in reads.invoke({"path": name})
    # Nothing is new in the next call; changed is new.
    assert sandbox.run("1", thread="a").files == {}
    assert list(sandbox.run("open(own + '/out.txt', 'a').write('6')", thread="a").files.values()) == [6]
    # It outlives the interpreter, and other threads have others.
    sandbox.run("os._exit(0)", thread="a")
    assert sandbox.run(f"open({name!r}).read()", thread="a").value == "'123456'"
    assert (
        sandbox.run("__import__('os').listdir(__import__('tempfile').gettempdir())", thread="b").value == "[]"
    )
    assert not (work / ".signoff").exists()


def test_without_a_thread_nothing_is_kept(make: Make) -> None:
    sandbox = make()
    result = sandbox.run(
        "import tempfile\nopen(tempfile.gettempdir() + '/x', 'w').write('1')\ntempfile.gettempdir()"
    )
    assert (result.exit, result.files) == ("ok", {})
    assert not os.path.exists(str(result.value).strip("'"))


def run_in_thread(work: Path, storage: Storage, name: str, **arguments: Any) -> str:
    """The text of one call in the thread `t`."""
    script = [call(name, **arguments), call("finish_task", summary="Done.")]
    tools = [python_tool(workspace=work), *workspace_tools(work)]
    graph = build_graph(ScriptedModel(script), tools, storage=storage)
    result = graph.invoke({"messages": [("user", "Go.")]}, {"configurable": {"thread_id": "t"}})
    return str([message.text for message in result["messages"] if message.type == "tool"][-2])


def test_it_is_read_by_the_file_tools_and_goes_with_its_thread(work: Path, tmp_path: Path) -> None:
    code = """
import os
os.chdir(os.path.expanduser('~'))
open('x.txt', 'w').write('some text')
print(os.getcwd())
for n in range(1500): os.mkdir('d'); os.chdir('d')
"""
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        text = run_in_thread(work, storage, "run_python", code=code)
        own = Path(text.splitlines()[0])
        assert f"{own}/x.txt (9 bytes)" in text
        assert "some text" in run_in_thread(work, storage, "read_file", path=f"{own}/x.txt")
        storage.checkpointer.delete_thread("t")
        assert not own.exists()
        assert (work / "top.py").exists()


def test_a_thread_begun_anew_has_another_folder(work: Path, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        script = [call("run_python", code="open(__import__('tempfile').gettempdir() + '/x', 'a').write('1')")]
        script = [*script, call("finish_task", summary="Done.")] * 2
        graph = build_graph(ScriptedModel(script), [python_tool(workspace=work)], storage=storage)
        for _ in range(2):
            state = graph.invoke({"messages": [("user", "Go.")]}, {"configurable": {"thread_id": "t"}})
            [text] = [message.text for message in state["messages"] if message.name == "run_python"]
            assert "x (1 bytes)" in text
            storage.checkpointer.delete_thread("t")


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_without_a_database_it_is_read_and_goes_with_the_program(
    work: Path, saver: InMemorySaver | None
) -> None:
    code = "open(__import__('tempfile').gettempdir() + '/x', 'w').write('some text')"
    sandbox = LinuxSandbox(work)
    tools = [python_tool(sandbox), *workspace_tools(work)]
    path = ""

    def read(messages: list[BaseMessage]) -> ScriptedCall:
        nonlocal path
        path = messages[-1].text.partition("New files: ")[2].partition(" ")[0]
        return call("read_file", path=path)

    model = ScriptedModel([call("run_python", code=code), read, call("finish_task", summary="Done.")])
    graph = build_graph(model, tools, checkpointer=saver, store=InMemoryStore())
    state = graph.invoke({"messages": [("user", "Go.")]}, {"configurable": {"thread_id": "t"}})
    [text] = [message.text for message in state["messages"] if message.name == "read_file"]
    assert "some text" in text
    sandbox.close()
    assert not os.path.exists(path)


def refused(result: PythonResult) -> bool:
    return OWN in result.note


REFUSED_WRITES = {
    "in Python": "open('new.csv', 'w')",
    "caught": "try: open('new.csv', 'w')\nexcept OSError as error: print('not saved:', error)",
    "caught and not printed": "try: open('new.csv', 'w')\nexcept OSError: print('not saved')",
    "a new database": "import sqlite3; sqlite3.connect('new.db').execute('create table a(x)')",
    "an old database": "import sqlite3; sqlite3.connect('old.db').execute('create table a(x)')",
    "a database, caught": "import sqlite3\ntry: sqlite3.connect('old.db').execute('create table a(x)')\n"
    "except sqlite3.Error as error: print(error)",
    "in C": "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); libc.open(b'new', 65, 438)\n"
    "raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), 'new')",
    "elsewhere": "open('/tmp/new.csv', 'w')",
    "renamed": "import os; os.rename('top.py', 'other.py')",
    "replaced, caught": "import os, tempfile\nhandle, name = tempfile.mkstemp()\n"
    "try: os.replace(name, 'top.py')\nexcept OSError: print('not saved')",
    "deleted": "import os; os.remove('top.py')",
    "wrapped": "try: open('new.csv', 'w')\nexcept OSError as error: raise ValueError from error",
    "deleted in C": "raise OSError(13, 'cannot delete', 'top.py')",
    "another error": "raise RuntimeError('IO Error: Cannot open \"new.db\": Permission denied')",
}
OTHER_REFUSALS = {
    "read": "open('/etc/shadow')",
    "a database to read": "import sqlite3\n"
    "sqlite3.connect('file:/etc/shadow?mode=ro', uri=True).execute('select 1 from a')",
    "a program": "import subprocess; subprocess.run(['ls'])",
    "a lock": "import fcntl; fcntl.flock(open('top.py'), fcntl.LOCK_EX)",
    "missing": "open('nothing.csv')",
    "a mode": "import os; os.chmod('top.py', 0o600)",
    "a folder that exists": "import os; os.makedirs('src', exist_ok=True)",
    "nothing to delete": "import os\ntry: os.remove('nothing')\nexcept OSError as error: print(error)",
    "one's own": "open(__import__('tempfile').gettempdir() + '/x', 'w'); 1 / 0",
    "a device": "open('/dev/null', 'w')",
    "a log": "print(\"PermissionError: [Errno 13] Permission denied: 'config.yaml'\")",
    "a logged error": "import sys; print(\"Permission denied: 'config.yaml'\", file=sys.stderr)",
    "a log of a database": "import sqlite3; sqlite3.connect('old.db'); print('no error: readonly mode')",
}


def test_a_refused_write_names_the_own_folder(make: Make, work: Path) -> None:
    (work / "old.db").write_text("")
    sandbox = make(work)
    notes = {name: refused(sandbox.run(code, thread="a")) for name, code in REFUSED_WRITES.items()}
    assert notes == dict.fromkeys(REFUSED_WRITES, True)
    notes = {name: refused(sandbox.run(code, thread="a")) for name, code in OTHER_REFUSALS.items()}
    assert notes == dict.fromkeys(OTHER_REFUSALS, False)


def test_a_database_in_wal_mode_is_read_as_a_copy_and_the_note_says_so(make: Make, work: Path) -> None:
    database = sqlite3.connect(work / "wal.db")
    database.executescript("pragma journal_mode=wal; create table a(x); insert into a values (7)")
    database.close()
    sandbox, read = make(work), ".execute('select x from a').fetchone()"
    result = sandbox.run(f"import sqlite3\nsqlite3.connect('wal.db'){read}", thread="a")
    assert (result.exit, "copy" in result.note, refused(result)) == ("error", True, True)
    code = "import os, shutil; own = shutil.copy('wal.db', os.path.expanduser('~'))"
    result = sandbox.run(f"{code}\nsqlite3.connect(own){read}", thread="a")
    assert (result.value, result.note) == ("(7,)", ""), result.stderr


def test_a_long_path_of_a_new_file_is_whole(make: Make, work: Path) -> None:
    name = "/".join(("x" * 120, "y" * 120, "z.txt"))
    code = f"import os; os.chdir(os.path.expanduser('~')); os.makedirs(os.path.dirname({name!r}))\n"
    text = result_text(make(work).run(f"{code}open({name!r}, 'w').write('1')", thread="a"))
    assert f"{name} (1 bytes)" in text


@pytest.mark.parametrize("writable", [False, True])
def test_a_workspace_that_is_gone_is_told_in_a_sentence(work: Path, tmp_path: Path, writable: bool) -> None:
    sandbox = LinuxSandbox(work, writable=writable)
    tool = python_tool(sandbox)
    config: RunnableConfig = {"configurable": {"thread_id": "a"}}
    with pytest.raises(ToolException, match="Permission"):
        tool.invoke({"code": "x = 1\nopen('new', 'w')"}, config)
    work.rename(tmp_path / "moved")
    for thread in ("a", "b"):
        with pytest.raises(ToolException, match=r"^The workspace folder is gone; .*restore it\.$"):
            tool.invoke({"code": "print(1)"}, {"configurable": {"thread_id": thread}})
    (tmp_path / "moved").rename(work)
    assert "1" in tool.invoke({"code": "print(1)"}, config)
    sandbox.close()


def test_what_is_written_too_large_names_the_bound(make: Make) -> None:
    code = "import os\nos.chdir(os.path.expanduser('~'))\nopen('a', 'wb').write(b'x' * 3_000_000)"
    result = make(bounds=Bounds(file=2_000_000)).run(code, thread="a")
    assert (result.exit, "at most 2 MB" in result.note) == ("error", True)
    assert make().run(f"{code.replace('3_000_000', '300_000_000')}; None", thread="a").exit == "ok"


def test_what_it_locks_holds_nobody_up(make: Make, work: Path) -> None:
    code = """
import fcntl, struct
files = [open('top.py', 'rb') for _ in range(6)]
fcntl.flock(files[0], fcntl.LOCK_EX)
fcntl.lockf(files[1], fcntl.LOCK_SH)
lock = struct.pack('hhqqi', fcntl.F_RDLCK, 0, 0, 0, 0)
for file, command in zip(files[2:], (fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38)): fcntl.fcntl(file, command, lock)
fcntl.fcntl(files[0], fcntl.F_SETLEASE, fcntl.F_RDLCK)
"""
    sandbox = make(work)
    result = sandbox.run(code, thread="a")
    assert (result.exit, result.stderr) == ("ok", "")
    with (work / "top.py").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("journal", ["delete", "wal", "memory"])
def test_a_database_of_its_own_works(make: Make, journal: str) -> None:
    code = f"""
import os, sqlite3
os.chdir(os.path.expanduser('~'))
database = sqlite3.connect('own.sqlite')
database.execute('pragma journal_mode={journal}')
database.execute('create table numbers (number)')
database.executemany('insert into numbers values (?)', [(n,) for n in range(1000)])
database.commit()
other = sqlite3.connect('own.sqlite')
other.execute('select sum(number) from numbers order by 1').fetchone()
"""
    assert make().run(code, thread="a").value == "(499500,)"


@pytest.mark.parametrize(
    "make_special",
    ["os.mkfifo('x')", "os.mknod('x', 0o010600)", "os.mknod('x', 0o140600)", "os.mkdir('closed', 0)"],
)
def test_what_it_leaves_is_no_trap(make: Make, work: Path, make_special: str) -> None:
    sandbox = make(work)
    sandbox.run(f"import os\nos.chdir(os.path.expanduser('~'))\n{make_special}", thread="a")
    assert sandbox.run("6 * 7", thread="a").value == "42"
    assert not any(path.is_fifo() or path.is_socket() for path in work.rglob("*"))


# With `writable=True`.


def test_existing_entries_can_be_changed_but_protected_ones(make: Make, work: Path) -> None:
    sandbox = make(work, writable=True)
    done = sandbox.run(
        "import os\n"
        "open('top.py', 'w').write('new')\n"
        "open('src/app.py', 'a').write('new')\n"
        "open('src/new.py', 'w').write('new')\n"
        "os.mkdir('docs/a'); os.rename('docs/a', 'docs/b'); os.rename('src/new.py', 'docs/new.py')\n"
        "open('.git/config').read()",
        thread="a",
    )
    assert (done.exit, done.value) == ("ok", "'as it was'"), done.stderr
    assert [(work / name).read_text() for name in ("top.py", "docs/new.py")] == ["new", "new"]
    before = files_of(work)
    for code in (
        "open('.git/config', 'a')",
        "os.mkdir('.git/hooks')",
        "open('.venv/bin/python', 'w')",
        "os.rename('.git', 'src/moved')",
        "open('new.py', 'w')",
        "os.unlink('top.py')",
        "os.symlink('../.git', 'src/git'); open('src/git/config', 'w')",
        "os.link('.git/config', 'src/twin')",
    ):
        result = sandbox.run(code, thread="a")
        assert result.exit == "error", code
    replaced = sandbox.run("import os; open('src/new', 'w'); os.replace('src/new', 'top.py')", thread="a")
    assert (replaced.exit, "renamed or replaced" in replaced.note) == ("error", True)
    (work / "src/new").unlink()
    assert ".git" in result.note or ".git" in sandbox.run("open('new.py', 'w')", thread="a").note
    (work / "src/git").unlink()
    assert files_of(work) == before
    assert ".git" in str(sandbox.enforced()["protected"])


def test_links_at_the_top_are_not_opened(make: Make, work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("as it was")
    for name, target in (("way", ".git"), ("far", tmp_path / "outside"), ("env", ".venv/bin")):
        (work / name).symlink_to(target)
    sandbox = make(work, writable=True)
    for name in ("way/config", "far", "env/python"):
        assert sandbox.run(f"open({name!r}, 'w')", thread="a").exit == "error"


def test_where_nothing_is_protected_all_of_it_is_open(make: Make, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sandbox = make(work, writable=True)
    assert sandbox.enforced()["workspace"] == "writable"
    assert (
        sandbox.run("open('new.txt', 'w').write('new'); open('new.txt', 'a').write('er')", thread="a").exit
        == "ok"
    )
    assert [(path.name, path.read_text()) for path in work.iterdir()] == [("new.txt", "newer")]


@pytest.mark.parametrize(
    ("protect", "writes"),
    [
        (None, ["src/app.py"]),
        (["!.git"], [".git/config", "src/app.py"]),
        (["!.git", "src"], [".git/config"]),
        (["!."], [".git/config", ".venv/bin/python", "src/app.py"]),
    ],
)
def test_what_is_protected_can_be_said(
    make: Make, work: Path, protect: list[str] | None, writes: list[str]
) -> None:
    sandbox = make(work, writable=True, protect=protect)
    code = "\n".join(
        f"try: open({name!r}, 'w').write('changed')\nexcept OSError: pass"
        for name in (".git/config", ".venv/bin/python", "src/app.py")
    )
    sandbox.run(code, thread="a")
    assert sorted(name for name, text in files_of(work).items() if text == "changed") == sorted(writes)


def test_a_workspace_that_is_protected_as_a_whole(make: Make, tmp_path: Path) -> None:
    library = Path(os.__file__).resolve().parent / "json"
    assert make(library).run("6 * 7").value == "42"
    with pytest.raises(SetupError, match=r"accept it by name"):
        make(library, writable=True)


def test_a_file_that_was_edited_can_be_written(make: Make, work: Path) -> None:
    sandbox = make(work, writable=True)
    tools = {tool.name: tool for tool in workspace_tools(work)}
    assert sandbox.run("x = open('top.py', 'a').write('1'); x", thread="a").exit == "ok"
    tools["read_file"].invoke({"path": "top.py"})
    tools["edit_file"].invoke({"path": "top.py", "old": "as it was", "new": "edited"})
    assert sandbox.run("open('top.py', 'a').write('2')", thread="a").exit == "ok"
    (work / "other").write_text("other")
    os.replace(work / "other", work / "top.py")
    result = sandbox.run("open('top.py', 'a').write('3')", thread="a")
    assert (result.exit, "top.py was replaced" in result.note) == ("ok", True)
    assert (work / "top.py").read_text() == "other3"


def test_a_file_that_is_newer_can_be_written_from_the_next_call_on(make: Make, work: Path) -> None:
    sandbox = make(work, writable=True)
    tools = {tool.name: tool for tool in workspace_tools(work)}
    sandbox.run("x = 1", thread="a")
    tools["write_file"].invoke({"path": "new.py", "content": "made"})
    # Nothing is lost as long as it is only read.
    assert sandbox.run("open('new.py').read()", thread="a").value == "'made'"
    assert sandbox.run("x", thread="a").value == "1"
    refused = sandbox.run("open('new.py', 'w')", thread="a")
    assert (refused.exit, "newer than this Python" in refused.note) == ("error", True)
    result = sandbox.run("open('new.py', 'a').write('+')", thread="a")
    assert (result.exit, "new.py" in result.note, "variables" in result.note) == ("ok", True, True)
    assert (work / "new.py").read_text() == "made+"


@pytest.mark.parametrize("writable", [False, True])
def test_a_workspace_that_was_made_anew_is_read(make: Make, tmp_path: Path, writable: bool) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sandbox = make(work, writable=writable)
    sandbox.run("x = 1", thread="a")
    work.rename(tmp_path / "old")
    work.mkdir()
    (work / "file").write_text("new")
    result = sandbox.run("open('file').read()", thread="a")
    assert (result.value, "work was replaced" in result.note) == ("'new'", True)


def test_the_tool_takes_what_its_workspace_says(work: Path) -> None:
    tool = python_tool(workspace=Workspace(work, protect=["src"]), writable=True)
    with pytest.raises(ToolException, match=r"Protected from this code: .*src"):
        tool.invoke({"code": "open('src/app.py', 'w')"})
    tool.invoke({"code": "open('top.py', 'w').write('changed')"})
    assert (work / "top.py").read_text() == "changed"


# Bounds on files and the disk.

# The whole file system counts, and others write to it, too.
FEW, LITTLE = Bounds(files=3_000), Bounds(disk=80_000_000)
FILL = """
import os
os.chdir(os.path.expanduser('~') if own else 'src')
number = 0
while True:
    os.close(os.open(f"{number}", os.O_CREAT | os.O_WRONLY))
    number += 1
"""
GROW = """
import os
os.chdir(os.path.expanduser('~') if own else 'src')
number = 0
while True:
    open(str(number), 'wb').write(b'x' * 1_000_000)
    number += 1
"""


@pytest.mark.parametrize("own", [True, False])
def test_a_program_that_fills_the_disk_is_ended(make: Make, work: Path, own: bool) -> None:
    sandbox = make(work, writable=not own, bounds=FEW)
    many = sandbox.run(f"own = {own}\n{FILL}", thread="a", timeout=30)
    assert (many.exit, many.note.split(" were ")[0]) == ("killed", "Far too many files")
    sandbox = make(work, writable=not own, bounds=LITTLE)
    large = sandbox.run(f"own = {own}\n{GROW}", thread="a", timeout=30)
    assert (large.exit, large.note.split(" while ")[0]) == ("killed", "The disk was filling up")
    assert sandbox.run("6 * 7", thread="a").value == "42"


def test_usual_modes_and_sizes_can_be_given(make: Make) -> None:
    done = make().run(
        "import os\nos.chdir(os.path.expanduser('~'))\n"
        "handle = os.open('new', os.O_CREAT | os.O_WRONLY, 0o755)\n"
        "os.posix_fallocate(handle, 0, 10_000)\n"
        "os.truncate('new', 500)\n"
        "os.stat('new').st_size, oct(os.stat('new').st_mode)"
    )
    assert done.value == "(500, '0o100755')", done.stderr


@pytest.mark.parametrize("bits", [0o4755, 0o2755])
def test_no_file_runs_as_its_owner(make: Make, bits: int) -> None:
    sandbox = make()
    for code in (
        f"os.chmod('plain', {bits})",
        f"os.fchmod(os.open('plain', os.O_WRONLY), {bits})",
        f"os.chmod('plain', {bits}, dir_fd=os.open('.', os.O_RDONLY))",
        f"os.open('a', os.O_CREAT | os.O_WRONLY, {bits})",
        f"os.open('.', os.O_TMPFILE | os.O_WRONLY, {bits})",
        f"os.mknod('b', {0o100000 | bits})",
    ):
        done = sandbox.run(
            f"import os\nos.chdir(os.path.expanduser('~'))\nopen('plain', 'w').close()\n{code}"
        )
        assert "PermissionError" in done.stderr, code
