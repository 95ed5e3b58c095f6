"""Code in the Linux sandbox and files: what it reads, where it writes, what it can change, and what goes."""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Storage, build_graph, sqlite_storage
from signoff.graph.errors import SetupError
from signoff.models import ScriptedCall, ScriptedModel, call
from signoff.tools.files import workspace_tools
from signoff.tools.sandbox import Bounds, LinuxSandbox, PythonResult, python_tool
from signoff.tools.workspace import Workspace

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
    )
    result = sandbox.run(f"{code}open(own + '/.hidden', 'w'); None", thread="a")
    assert sorted(size for size in result.files.values()) == [0, 5]
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
    "deleted": "import os; os.remove('top.py')",
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
}


def test_a_refused_write_names_the_own_folder(make: Make, work: Path) -> None:
    (work / "old.db").write_text("")
    sandbox = make(work)
    notes = {name: refused(sandbox.run(code, thread="a")) for name, code in REFUSED_WRITES.items()}
    assert notes == dict.fromkeys(REFUSED_WRITES, True)
    notes = {name: refused(sandbox.run(code, thread="a")) for name, code in OTHER_REFUSALS.items()}
    assert notes == dict.fromkeys(OTHER_REFUSALS, False)


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


def test_the_tool_takes_what_its_workspace_says(work: Path) -> None:
    tool = python_tool(workspace=Workspace(work, protect=["src"]), writable=True)
    with pytest.raises(ToolException, match=r"Protected from this code: .*src"):
        tool.invoke({"code": "open('src/app.py', 'w')"})
    tool.invoke({"code": "open('top.py', 'w').write('changed')"})
    assert (work / "top.py").read_text() == "changed"


# Bounds on files and the disk.

FEW = Bounds(files=100, disk=80_000_000)
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
    assert (many.exit, many.note.split(" and ")[0]) == ("killed", "The code made far too many files")
    large = sandbox.run(f"own = {own}\n{GROW}", thread="a", timeout=30)
    assert (large.exit, large.note.split(" while ")[0]) == ("killed", "The disk was filling up")
    assert sandbox.run("6 * 7", thread="a").value == "42"


def test_files_of_others_do_not_count(make: Make, work: Path, tmp_path: Path) -> None:
    """Many files are made on the same disk meanwhile, elsewhere, and were made in the call before."""
    sandbox, stop = make(work, writable=True, bounds=Bounds(files=FEW.files)), threading.Event()
    (tmp_path / "busy").mkdir()

    def others() -> None:
        for number in range(10 * FEW.files):
            (tmp_path / f"busy/{number}").touch()
        stop.set()

    thread = threading.Thread(target=others)
    thread.start()
    while not stop.is_set():
        ran = sandbox.run("import time; time.sleep(0.3)", thread="a")
        assert (ran.exit, ran.note) == ("ok", "")
    thread.join()
    for _ in range(3):
        code = "import time\nfor n in range(60): open(f'src/{time.time()}', 'w').close()\ntime.sleep(1.2)"
        assert sandbox.run(code, thread="a").exit == "ok"


def test_files_that_are_hidden_count(make: Make) -> None:
    """In a path that is too long to be opened, files are as good as too many."""
    code = """
import os, time
os.chdir(os.path.expanduser('~'))
for _ in range(25):
    os.mkdir('x' * 200)
    os.chdir('x' * 200)
for n in range(1000): open(str(n), 'w').close()
time.sleep(5)
"""
    assert make(bounds=FEW).run(code, thread="a").exit == "killed"


def test_usual_modes_and_sizes_can_be_given(make: Make) -> None:
    done = make().run(
        "import os\nos.chdir(os.path.expanduser('~'))\n"
        "handle = os.open('new', os.O_CREAT | os.O_WRONLY, 0o755)\n"
        "os.posix_fallocate(handle, 0, 10_000)\n"
        "os.stat('new').st_size, oct(os.stat('new').st_mode)"
    )
    assert done.value == "(10000, '0o100755')", done.stderr


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
