"""Figures for Signoff alone: the time to import it, to open a long thread again, and the memory of a run."""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.overhead.measure import SUBJECTS, workers
from benchmarks.overhead.subjects.own import signoff
from benchmarks.overhead.targets import HEAVY, IMPORTING, MEMORY, OPENING

_IMPORT = """
import time, langgraph.graph
t = time.process_time()
import signoff
signoff.build_graph
print(time.process_time() - t)
"""
_RESUME = """
import time
from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel
with sqlite_storage({database!r}) as storage:
    graph = build_graph(ScriptedModel([]), storage=storage)
    t = time.perf_counter()
    status = Session(graph, "t").status()
    print(time.perf_counter() - t)
    assert status.task.turns == {turns}
"""
_HEAVY = ("langchain", "rich")


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def import_seconds(runs: int = 5) -> float:
    """Returns the median CPU seconds of `import signoff; signoff.build_graph` in a process that has already
    imported LangGraph. The package imports its names lazily, so one is used here."""
    return median(float(_python(_IMPORT)) for _ in range(runs))


def heavy_imports() -> list[str]:
    """Returns which packages `import signoff` imports although it should not need them."""
    told = _python(
        "import sys, langgraph.graph; before = set(sys.modules); import signoff; "
        f"print([n for n in {_HEAVY!r} if n in sys.modules.keys() - before])"
    )
    return [name for name in _HEAVY if repr(name) in told]


def resume_milliseconds(turns: int = 1_000, runs: int = 5) -> float:
    """Returns the median time until a new process knows the status of a thread with this many turns."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "threads.sqlite")
        signoff(turns, database)()
        code = _RESUME.format(database=database, turns=turns)
        return median(float(_python(code)) for _ in range(runs)) * 1e3


def memory_megabytes(turns: int = 1_000) -> float:
    """Returns the peak size of Python's objects in a run of this many turns, minus the size before."""
    own = [one for one in SUBJECTS if one.name == "signoff"]
    with workers(own) as by_name:
        by_name["signoff"].run("signoff", 10, stored=False)
        peak: int = by_name["signoff"].run("signoff", turns, stored=False, memory=True)["peak"]
    return peak / 1e6


def measured() -> dict[str, float]:
    """Returns all figures, by the name of the target."""
    return {
        OPENING: resume_milliseconds(),
        MEMORY: memory_megabytes(),
        IMPORTING: import_seconds(),
        HEAVY: len(heavy_imports()),
    }
