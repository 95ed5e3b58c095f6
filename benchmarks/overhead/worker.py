"""Runs subjects in their own environment: `VENV/bin/python worker.py SUBJECTS.py`.

One line of JSON in (`subject`, `turns`, `database`, `memory`, `crowd`), one line out (`cpu`, `wall`, `steps`,
`bytes`, `peak`, or `error`). A file of subjects has `SUBJECTS`: for each name a function of (turns, database)
that returns the run, which returns how often its tool has run. For many runs at once, the function also gets
`crowd`, and returns more (subjects/crowds.py). Standard library only.
"""

import gc
import importlib.util
import json
import os
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any


def _bytes(database: str | None) -> int:
    if database is None:
        return 0
    return sum(file.stat().st_size for file in Path(database).parent.iterdir() if file.is_file())


def _run(subjects: Any, order: dict[str, Any]) -> dict[str, Any]:
    go = subjects[order["subject"]](order["turns"], order["database"], **order["crowd"])
    gc.collect()
    if order["memory"]:
        tracemalloc.start()
    cpu, wall = time.process_time(), time.perf_counter()
    told = go()
    found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    found |= told if isinstance(told, dict) else {"steps": told}
    peak = 0
    if order["memory"]:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return {**found, "peak": peak, "bytes": _bytes(order["database"])}


def main() -> None:
    spec = importlib.util.spec_from_file_location("subjects", sys.argv[1])
    assert spec is not None, "a Python file"
    assert spec.loader is not None, "as above"
    module = importlib.util.module_from_spec(spec)
    # The output of frameworks goes to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec.loader.exec_module(module)
    for line in sys.stdin:
        try:
            answer = _run(module.SUBJECTS, json.loads(line))
        except Exception as error:  # noqa: BLE001  the bench prints what a framework raises
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
