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


MULTIPROCESSING = """
import multiprocessing as mp, threading, time
from multiprocessing.shared_memory import ShareableList, SharedMemory
lock, semaphore, recursive = mp.Lock(), mp.BoundedSemaphore(2), mp.RLock()
with lock: print(lock.acquire(timeout=0.05))
with recursive, recursive: print(recursive.acquire(block=False))
semaphore.acquire(); semaphore.release()
try: semaphore.release()
except ValueError: print("too many")
order = []
def work():
    with lock: order.append(2)
with lock:
    thread = threading.Thread(target=work); thread.start(); time.sleep(0.05); order.append(1)
thread.join(); print(order)
for queue in (mp.Queue(), mp.SimpleQueue(), mp.JoinableQueue()):
    queue.put("x"); print(queue.get())
print(mp.Value("i", 3).value, list(mp.Array("i", [1, 2])), mp.Event().is_set(), mp.Barrier(1).wait())
one = SharedMemory(create=True, size=10); one.buf[0] = 5
other = SharedMemory(one.name); print(other.buf[0]); other.close(); one.close(); one.unlink()
"""


def test_what_multiprocessing_offers_beside_processes(sandbox: LinuxSandbox) -> None:
    result = sandbox.run(MULTIPROCESSING, thread="a", timeout=20)
    shown = ["False", "True", "too-many", "[1,2]", "x", "x", "x", "3", "[1,2]", "False", "0", "5"]
    assert result.stdout.replace("too many", "too-many").replace(", ", ",").split() == shown, result.stderr
    assert result.files == {}


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
