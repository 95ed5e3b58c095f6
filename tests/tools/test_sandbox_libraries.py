"""Ordinary code in the Linux sandbox: what Python and its libraries offer works, or a sentence says why."""

import sys
from collections.abc import Iterator

import pytest

from signoff.tools.sandbox import LinuxSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")


@pytest.fixture
def sandbox() -> Iterator[LinuxSandbox]:
    sandbox = LinuxSandbox()
    yield sandbox
    sandbox.close()


HOME = "import os; os.chdir(os.path.expanduser('~'))\n"
COPIES = """
open('a', 'w').write('1')
import shutil; shutil.copy('a', 'b'); shutil.copy2('a', 'c')
os.mkdir('d'); shutil.copytree('d', 'e'); shutil.move('c', 'd'); print(open('b').read())
"""
TEMPORARY = """
import os, tempfile
with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile():
    print(os.path.dirname(folder) == os.path.expanduser('~'))
"""
PICKLES = """
import dataclasses, pickle
@dataclasses.dataclass
class Point:
    x: int
print(pickle.loads(pickle.dumps(Point(3))))
"""
ZIPPED = """
import zipfile
with zipfile.ZipFile('a.zip', 'w') as file: file.writestr('b', 'c')
zipfile.ZipFile('a.zip').extractall('.'); print(open('b').read())
"""
WORKS = {
    "help": ("help(str.split)", "split(self"),
    "a file name": ("import os; print(os.path.dirname(__file__) == os.getcwd())", "True"),
    "a user name": ("import getpass; print(getpass.getuser())", "user"),
    "copies": (HOME + COPIES, "1"),
    "temporary files": (TEMPORARY, "True"),
    "pickles": (PICKLES, "Point(x=3)"),
    "threads": (
        "from multiprocessing.pool import ThreadPool\nprint(ThreadPool(4).map(abs, [-1, -2]))",
        "[1, 2]",
    ),
    "access": (HOME + "print(os.access('.', os.W_OK))", "True"),
    "its own figures": ("print(open('/proc/self/status').read().count('VmRSS'))", "1"),
    "warnings": ("import warnings; warnings.warn('look')\nprint('on')", "on"),
    "a map without a file": (
        "import mmap\nheld = mmap.mmap(-1, 10, access=mmap.ACCESS_COPY); held.write(b'abc')\n"
        "print(held[:3].decode())",
        "abc",
    ),
    "a map of a file": (
        HOME + "import mmap\nwith open('m', 'w+b') as file:\n    file.truncate(10)\n"
        "    mmap.mmap(file.fileno(), 0)[:3] = b'abc'\nprint(open('m').read()[:3])",
        "abc",
    ),
    "a zip file": (HOME + ZIPPED, "c"),
}


@pytest.mark.parametrize("case", WORKS)
def test_what_works(sandbox: LinuxSandbox, case: str) -> None:
    code, expected = WORKS[case]
    result = sandbox.run(code, thread="a")
    assert result.exit == "ok", result.stderr
    assert expected in result.stdout


def test_the_source_of_what_the_code_defines(sandbox: LinuxSandbox) -> None:
    sandbox.run("class First:\n    old = 1\nclass Plain: pass", thread="a")
    sandbox.run("class First:\n    new = 2\n\ndef work():\n    return 3", thread="a")
    code = (
        "import inspect\nprint(inspect.getsource(First), inspect.getsource(Plain), inspect.getsource(work))"
    )
    shown = sandbox.run(code, thread="a").stdout
    assert all(part in shown for part in ("new = 2", "class Plain: pass", "return 3"))
    assert "old" not in shown


SHARED = {
    name: f"import multiprocessing; multiprocessing.{name}"
    for name in ("Lock()", "RLock()", "Semaphore()", "Event()", "Queue()", "JoinableQueue()", "Barrier(1)")
} | {
    "a value": "import multiprocessing; multiprocessing.Value('i', 3)",
    "an array": "from multiprocessing import Array; Array('i', [1])",
    "of a context": "import multiprocessing; multiprocessing.get_context('spawn').Condition()",
    "shared memory": "from multiprocessing import shared_memory; shared_memory.SharedMemory(None, True, 9)",
    "a shared list": "from multiprocessing.shared_memory import ShareableList; ShareableList([1])",
}


@pytest.mark.parametrize("case", SHARED)
def test_what_processes_would_share_is_refused_with_a_sentence(sandbox: LinuxSandbox, case: str) -> None:
    result = sandbox.run(SHARED[case], thread="a")
    assert (result.exit, result.note, result.files) == ("error", "", {})
    assert "threading and queue work" in result.stderr


def test_a_figure_is_saved_and_not_shown(sandbox: LinuxSandbox) -> None:
    pytest.importorskip("matplotlib")
    code = HOME + "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.savefig('figure.png')"
    result = sandbox.run(code, thread="a")
    assert (result.exit, "savefig" in result.stdout, "writable" in result.stderr) == ("ok", True, False)
    assert [name.rpartition("/")[2] for name in result.files] == ["figure.png"]


DATA = """
import numpy as np, pandas as pd, pyarrow.parquet, scipy.stats, scipy.optimize
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
from concurrent.futures import ThreadPoolExecutor
from sklearn.ensemble import RandomForestClassifier
table = pd.DataFrame(np.random.rand(2_500_000, 10), columns=list("abcdefghij"))
table["group"] = np.arange(len(table)) % 7
means = table.groupby("group").mean()
os.chdir(os.path.expanduser("~"))
means.to_parquet("means.parquet"); pd.read_parquet("means.parquet")
means.plot(); plt.savefig("figure.png")
RandomForestClassifier(n_estimators=5, n_jobs=2).fit(np.random.rand(200, 4), np.arange(200) % 2)
with ThreadPoolExecutor(32) as pool:
    print(sum(pool.map(lambda n: float(np.linalg.norm(table["a"][:1000] * n)), range(64))) > 0)
bool(table.memory_usage().sum() > 200_000_000)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_an_ordinary_data_environment(sandbox: LinuxSandbox) -> None:
    for name in ("pandas", "pyarrow", "matplotlib", "scipy", "sklearn"):
        pytest.importorskip(name)
    result = sandbox.run("import os" + DATA, thread="a", timeout=120)
    assert (result.exit, result.value) == ("ok", "True"), result.stderr + result.note
    assert {name.rpartition("/")[2] for name in result.files} == {"means.parquet", "figure.png"}
