"""What LangSmith is told of a run: its name, tags, metadata, and how its task ended."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.loopback import Handler, Loopback

ROOT = Path(__file__).parents[2]


class LangSmith(Loopback):
    """sent: what LangSmith's client has sent, each with its method."""

    def __init__(self) -> None:
        super().__init__(_Taking)
        self.sent: list[tuple[str, bytes]] = []


class _Taking(Handler):
    server: LangSmith

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
        self.server.sent.append((self.command, self.body()))
        self.reply(b"{}")

    do_PATCH = do_POST

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_program_of_the_page_tells_langsmith_how_the_task_ended(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "tracing.md").read_text("utf-8")
    program = re.findall(r"```python title=\"report.py\"\n(.*?)```", page, re.S)[0]
    (tmp_path / "report.py").write_text(program)
    with LangSmith() as server:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_API_KEY": "none",
        }
        env |= {"LANGSMITH_ENDPOINT": server.root, "LANGCHAIN_ENDPOINT": server.root}
        command = [sys.executable, "report.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert (ran.returncode, ran.stdout) == (0, "success finish_task\n"), ran.stderr
    everything = b"\n".join(body for _, body in server.sent)
    expected = [b"weekly report", b"nightly", b"report-7", b'"customer"', b"decide", b'"outcome"']
    assert [text for text in expected if text not in everything] == []
    (patched,) = [json.loads(body) for way, body in server.sent if way == "PATCH"]
    assert patched["extra"]["metadata"]["outcome"] == "success"
    assert patched["tags"] == ["nightly", "success", "finish_task"]
