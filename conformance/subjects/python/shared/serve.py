"""Puts an adapter behind the protocol: `VENV/bin/python subjects/python/shared/serve.py ADAPTER.py`.

Listens on the port of LOOPCHECK_PORT. Steps run one after another in the main thread, where event loops and
connections live; only `stop` is called from beside. Standard library only.
"""

import importlib.util
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kit import Kit
from wire import Adapter, Refused, Report, Setup

PROTOCOL = 1


def _hello(kind: type[Adapter]) -> dict[str, Any]:
    versions = {}
    for package in kind.packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "?"
    said = {"protocol": PROTOCOL, "framework": kind.framework, "versions": versions, "finish": kind.finish}
    return {**said, "ask": kind.ask, "delegation": kind.delegation, "lacks": kind.lacks}


def _step(adapter: Adapter, order: Mapping[str, Any]) -> Report:
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


class Subject:
    """The adapter of the run that is set up."""

    def __init__(self, kind: type[Adapter]) -> None:
        self._kind = kind
        self._adapter: Adapter | None = None

    def set_up(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if self._adapter is not None:
            self._adapter.close()
        told = {("url" if name == "model" else name): value for name, value in given.items()}
        setup = Setup(**{**told, "folder": Path(told["folder"])})
        self._adapter = self._kind(setup, Kit(setup))
        return {"status": "ready"}

    def step(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._adapter is not None, "the suite sends a setup first"
        return asdict(_report(self._adapter, order))

    def stop(self) -> dict[str, Any]:
        if self._adapter is not None:
            threading.Thread(target=self._adapter.stop, daemon=True).start()
        return {}


Work = tuple[Callable[[], Any], "queue.Queue[Any]"]


def _serve(file: Path) -> None:
    kind = _load(file)
    subject, works = Subject(kind), queue.Queue[Work]()

    def in_turn(work: Callable[[], Any]) -> Any:
        done: queue.Queue[Any] = queue.Queue()
        works.put((work, done))
        return done.get()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing: what is printed is the framework's."""

        def do_GET(self) -> None:
            self._send(_hello(kind))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            match self.path:
                case "/setup":
                    self._send(in_turn(lambda: subject.set_up(body)))
                case "/step":
                    self._send(in_turn(lambda: subject.step(body)))
                case "/stop":
                    self._send(subject.stop())
                case _:
                    self.send_error(404)

        def _send(self, found: Any) -> None:
            status = 500 if isinstance(found, Exception) else 200
            said = {"error": repr(found)} if isinstance(found, Exception) else found
            data = json.dumps(said, default=str).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOOPCHECK_PORT"])), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        work, done = works.get()
        try:
            done.put(work())
        except Exception as error:  # noqa: BLE001  the suite is told, and this process serves on
            traceback.print_exc()
            done.put(error)


def _load(file: Path) -> type[Adapter]:
    """The one adapter in `file`, whose name must not hide the framework's own package."""
    spec = importlib.util.spec_from_file_location("loopcheck_adapter", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loopcheck_adapter"] = module
    spec.loader.exec_module(module)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Adapter)]
    return next(kind for kind in kinds if kind.__module__ == "loopcheck_adapter")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
