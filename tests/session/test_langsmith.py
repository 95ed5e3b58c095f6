"""What LangSmith is told of a run: its name, tags, metadata, and how its task ended."""

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

ROOT = Path(__file__).parents[2]


class LangSmith(BaseHTTPRequestHandler):
    """Takes what LangSmith's client sends."""

    sent: ClassVar[list[tuple[str, bytes]]] = []

    def do_GET(self) -> None:
        config = {
            "use_multipart_endpoint": False,
            "size_limit": 100,
            "size_limit_bytes": 20_000_000,
            "scale_up_nthreads_limit": 1,
            "scale_up_qsize_trigger": 1000,
            "scale_down_nempty_trigger": 4,
        }
        self.reply(json.dumps({"batch_ingest_config": config}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.sent.append((self.command, body))
        self.reply(b"{}")

    do_PATCH = do_POST

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    LangSmith.sent.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), LangSmith) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.thorough
def test_the_program_of_the_page_tells_langsmith_how_the_task_ended(server: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "tracing.md").read_text("utf-8")
    program = re.findall(r"```python title=\"report.py\"\n(.*?)```", page, re.S)[0]
    (tmp_path / "report.py").write_text(program)
    langsmith = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": server, "LANGSMITH_API_KEY": "none"}
    env = {**os.environ, **langsmith, "LANGCHAIN_ENDPOINT": server, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "report.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert (ran.returncode, ran.stdout) == (0, "success finish_task\n"), ran.stderr
    everything = b"\n".join(body for _, body in LangSmith.sent)
    expected = [b"weekly report", b"nightly", b"report-7", b'"customer"', b"decide", b'"outcome"']
    assert [text for text in expected if text not in everything] == []
    (patched,) = [json.loads(body) for way, body in LangSmith.sent if way == "PATCH"]
    assert patched["extra"]["metadata"]["outcome"] == "success"
    assert patched["tags"] == ["nightly", "success", "finish_task"]
