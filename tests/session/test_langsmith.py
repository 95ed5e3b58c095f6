"""What LangSmith, and other tracers, are told of a run: its name, tags, metadata, and how its task ended."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

ROOT = Path(__file__).parents[2]
CONFIG: Any = {"run_name": "weekly report", "tags": ["nightly"], "metadata": {"langfuse_session_id": "t"}}


class Told(BaseCallbackHandler):
    """What a tracer gets of the outermost run, and the metadata of all."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.ended: list[Any] = []
        self.root: Any = None
        self.metadata: list[Any] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, **kwargs: Any) -> None:
        self.metadata.append(kwargs.get("metadata") or {})
        if kwargs.get("parent_run_id") is None:
            self.root = run_id
            self.begun.append(kwargs)

    def on_chain_end(self, outputs: Any, *, run_id: Any, **kwargs: Any) -> None:
        if run_id == self.root:
            self.ended.append(outputs)


def test_tracers_are_told_the_name_the_tags_the_thread_and_the_outcome(tmp_path: Path) -> None:
    told = Told()
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([call("finish_task", summary="x")]), storage=storage, name="agent")
        config: Any = {**CONFIG, "callbacks": [told]}
        Session(graph, "t", config=config).run("go")
        outcome = graph.get_state({"configurable": {"thread_id": "t"}}).values["outcome"]
    (begun,) = told.begun
    assert (begun["name"], begun["tags"]) == ("weekly report", ["nightly"])
    assert (begun["metadata"]["thread_id"], begun["metadata"]["langfuse_session_id"]) == ("t", "t")
    assert all(one.get("thread_id") == "t" for one in told.metadata)
    (ended,) = told.ended
    assert json.dumps(outcome["task"]) in json.dumps(ended, default=str)
    assert '"status": "success"' in json.dumps(ended, default=str)


def test_without_a_name_of_the_run_it_is_the_graphs() -> None:
    told = Told()
    graph = build_graph(ScriptedModel([call("finish_task", summary="x")]), name="agent")
    graph.invoke({"messages": ["go"]}, {"callbacks": [told]})
    assert told.begun[0]["name"] == "agent"


class Stub(BaseHTTPRequestHandler):
    """Takes what LangSmith's client sends."""

    sent: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_GET(self) -> None:
        config = {
            "use_multipart_endpoint": False,
            "size_limit": 100,
            "size_limit_bytes": 20_000_000,
            "scale_up_nthreads_limit": 1,
            "scale_up_qsize_trigger": 1000,
            "scale_down_nempty_trigger": 4,
        }
        self._answer(json.dumps({"batch_ingest_config": config}).encode())

    def do_POST(self) -> None:
        self._keep()

    def do_PATCH(self) -> None:
        self._keep()

    def _keep(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Stub.sent.append((self.command, self.path, body))
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(202 if self.command != "GET" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Stub.sent = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.mark.slow
def test_the_program_of_the_page_tells_langsmith_how_the_task_ended(server: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "tracing.md").read_text("utf-8")
    program = re.findall(r"```python title=\"report.py\"\n(.*?)```", page, re.S)[0]
    (tmp_path / "report.py").write_text(program)
    env = {
        **os.environ,
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_ENDPOINT": server,
        "LANGSMITH_API_KEY": "none",
        "LANGCHAIN_ENDPOINT": server,
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "report.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "success finish_task\n"), done.stderr
    everything = b"\n".join(body for _, _, body in Stub.sent)
    told = [b"weekly report", b"nightly", b"report-7", b'"customer"', b"decide", b'"outcome"', b"finish_task"]
    assert [one for one in told if one not in everything] == []
    (patched,) = [body for way, path, body in Stub.sent if way == "PATCH"]
    found = json.loads(patched)
    assert found["extra"]["metadata"]["outcome"] == "success"
    assert found["extra"]["metadata"]["thread_id"] == "report-7"
    assert found["tags"] == ["nightly", "success", "finish_task"]
