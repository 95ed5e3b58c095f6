"""Runs an adapter in its framework's environment: `VENV/bin/python adapters/shared/serve.py ADAPTER.py`.

One line of JSON in, one line of JSON out. The bench sends `setup`, then steps; the process may be killed at
any moment and started again with the same setup and folder. Standard library only.
"""

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kit import Kit, Plan
from wire import Adapter, Refused, Report, Setup


def _hello(kind: type[Adapter]) -> dict[str, Any]:
    versions = {}
    for package in kind.packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "?"
    said = {"framework": kind.framework, "versions": versions, "finish": kind.finish, "ask": kind.ask}
    return {**said, "delegation": kind.delegation, "lacks": kind.lacks}


def _step(adapter: Adapter, order: Mapping[str, Any]) -> Report:
    adapter.kit.new_step(Plan(**order.get("plan", {})), adapter.stop)
    match order["do"]:
        case "say":
            return adapter.say(order["text"])
        case "decide":
            return adapter.decide(order["decisions"])
        case "answer":
            return adapter.answer(order["text"])
        case "resume":
            return adapter.resume()
        case "expire":
            return adapter.expire()
    raise ValueError(f"unknown step {order['do']!r}")


def _report(adapter: Adapter, order: Mapping[str, Any]) -> Report:
    try:
        return _step(adapter, order)
    except Refused as refused:
        return Report("refused", str(refused))
    except Exception as error:  # noqa: BLE001  whatever a framework raises is how it ended
        traceback.print_exc()
        return Report("error", f"{type(error).__name__}: {error}"[:300])


def _serve(file: Path) -> None:
    """Answers the bench's lines until it closes the pipe. What frameworks print goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    kind = _load(file)

    def tell(value: Mapping[str, Any]) -> None:
        out.write(json.dumps(value, default=str) + "\n")
        out.flush()

    adapter: Adapter | None = None
    tell(_hello(kind))
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "setup":
            if adapter is not None:
                adapter.close()
            setup = Setup(**{**order["setup"], "folder": Path(order["setup"]["folder"])})
            adapter = kind(setup, Kit(setup))
            tell({"status": "ready"})
        else:
            assert adapter is not None, "the bench sends a setup first"
            tell(_report(adapter, order).__dict__)
    if adapter is not None:
        adapter.close()


def _load(file: Path) -> type[Adapter]:
    """The one adapter in `file`, whose name must not hide the framework's own package."""
    spec = importlib.util.spec_from_file_location("loopbench_adapter", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loopbench_adapter"] = module
    spec.loader.exec_module(module)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Adapter)]
    return next(kind for kind in kinds if kind.__module__ == "loopbench_adapter")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
