"""The command line with a model behind an OpenAI-compatible address: a small server on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.benches.cli import Bench

FINISH = {"summary": "The server's model has finished."}


class Server(ThreadingHTTPServer):
    """Answers every request with one streamed `finish_task`, or with `error` as (status, message)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.error: tuple[int, str] | None = None
        self.seen: list[tuple[str | None, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.headers["Authorization"], body))
        if self.server.error:
            status, message = self.server.error
            self._answer(status, "application/json", json.dumps({"error": {"message": message}}))
            return
        call = {"index": 0, "id": "c1", "type": "function"}
        call["function"] = {"name": "finish_task", "arguments": json.dumps(FINISH)}
        deltas = [({"role": "assistant", "tool_calls": [call]}, None), ({}, "tool_calls")]
        events = [
            {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [
                {"index": 0, "delta": delta, "finish_reason": reason}]}
            for delta, reason in deltas
        ]  # fmt: skip
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._answer(200, "text/event-stream", text)

    def _answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: stderr is checked."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.env["SIGNOFF_MODEL"] = None
    return bench


@pytest.mark.parametrize("key", [None, "sk-secret"])
def test_a_run_on_a_server(bench: Bench, server: Server, key: str | None) -> None:
    result = bench.run("Do it", "--model", "m", "--base-url", server.url, OPENAI_API_KEY=key)
    assert result.exit_code == 0, result.output
    assert FINISH["summary"] in result.stdout
    ((authorization, body),) = server.seen
    assert authorization == f"Bearer {key or 'not-needed'}"
    assert (body["model"], body["stream"]) == ("m", True)
    assert {"finish_task", "ask_user", "edit_file"} <= {tool["function"]["name"] for tool in body["tools"]}


def test_the_environment_names_model_and_server_and_the_thread_remembers_both_but_no_key(
    bench: Bench, server: Server, tmp_path: Path
) -> None:
    env = {"SIGNOFF_MODEL": "m", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-secret"}
    assert bench.run("Do it", **env).exit_code == 0
    assert bench("run", "And this", "--thread", "t1").exit_code == 0
    assert [authorization for authorization, _ in server.seen] == ["Bearer sk-secret", "Bearer not-needed"]
    assert not [
        file
        for file in tmp_path.glob("threads.sqlite*")
        if file.is_file() and b"sk-secret" in file.read_bytes()
    ]


ERRORS = {
    "no tool calling": (400, "m does not support tools", "use one that does"),
    "prompt too large": (
        400,
        "This model's maximum context length is 10 tokens",
        "larger than the model's context",
    ),
    "wrong key": (401, "Incorrect API key provided", "OPENAI_API_KEY"),
    "no such model": (404, "The model m does not exist", "check --model"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_a_server_refuses_is_an_error_that_says_what_to_do(
    bench: Bench, server: Server, case: str
) -> None:
    status, message, advice = ERRORS[case]
    server.error = (status, message)
    result = bench.run("Do it", "--model", "m", "--base-url", server.url)
    assert (result.exit_code, result.stderr) == (1, "")
    shown = " ".join(result.stdout.split())
    assert message in shown
    assert advice in shown
    server.error = None
    assert bench("retry", "t1").exit_code == 0
