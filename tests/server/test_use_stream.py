"""docs/how-to/front-ends.md: LangGraph's hooks for React, from npm, against a real `langgraph dev`."""

import json
import shutil
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.npm import CLIENTS, node_in
from tests.support.pages import blocks
from tests.support.servers.dev_server import Server

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]

(AGENT,) = [one.text for one in blocks("docs/how-to/front-ends.md") if one.language == "jsx"]


class Page:
    """The component of the page, mounted in a process of Node."""

    def __init__(self, folder: Path, server: Server, thread: str) -> None:
        node = node_in(folder)
        (folder / "Agent.jsx").write_text(AGENT)
        build = ["node_modules/.bin/esbuild", "Agent.jsx", "--jsx=automatic", "--outfile=Agent.mjs"]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
        client = shutil.copy(CLIENTS / "use_stream.mjs", folder)
        command = [node, str(client), str(folder / "Agent.mjs"), server.url, thread]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sees(self, words: str, **done: str) -> dict[str, Any]:
        """What is shown as soon as these words are. done: what is typed and pressed before."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"sees": words, **done}), file=self.process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert "missing" not in found, found
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_question_an_edited_approval_and_another_process(graphs: Server, tmp_path: Path) -> None:
    thread = str(uuid.uuid4())
    httpx.post(f"{graphs.url}/threads", json={"thread_id": thread}, trust_env=False).raise_for_status()
    written = graphs.folder / "a.txt"
    written.unlink(missing_ok=True)
    with ExitStack() as stack:
        first = Page(tmp_path, graphs, thread)
        stack.callback(first.end)
        first.sees("Task")
        seen = first.sees("Which port?", type="Write it", press="Send")
        assert seen["lines"][0] == "human: Write it"
        first.sees("write_file", type="8080", press="Send")
        first.end()

        second = Page(tmp_path, graphs, thread)
        stack.callback(second.end)
        second.sees("tool: 8080")
        second.sees("write_file")
        assert not written.exists()
        args = json.dumps({"path": "a.txt", "content": "as a person wants"})
        second.sees("success: It is written.", type=args, press="Run as edited")
        assert written.read_text() == "as a person wants"
