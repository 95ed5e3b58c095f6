"""examples/web.py: the events of a thread over HTTP, while a person decides by another request."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]  # the package has no stubs
import pytest

from signoff.events import events_schema, from_dict

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "web.py"
SCHEMA = jsonschema.Draft202012Validator(events_schema())


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(EXAMPLE), str(port)], cwd=tmp_path, env=dict(os.environ))
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as found:
            _wait_for(found, server)
            yield found
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


def _wait_for(client: httpx.Client, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        assert server.poll() is None, "the server has ended"
        try:
            client.get("/")
            return
        except httpx.ConnectError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def read(client: httpx.Client, after: int = 0) -> Generator[tuple[int, str, dict[str, Any]], None, None]:
    """What the server sends, event by event: its number, its name, its data."""
    headers = {"Last-Event-ID": str(after)} if after else {}
    with client.stream("GET", "/threads/payday/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
                continue
            yield int(found["id"]), found["event"], json.loads(found["data"])
            found = {}


def test_a_decision_is_posted_while_the_events_stream(client: httpx.Client) -> None:
    stream = read(client)
    assert client.post("/threads/payday", json={"task": "Pay Ada 500."}).status_code == 202
    told: list[tuple[int, str, dict[str, Any]]] = []
    for number, name, data in stream:
        told.append((number, name, data))
        SCHEMA.validate(data)
        assert (from_dict(data).type, data["type"]) == (name, name)
        if name == "decided" and data["decision"]["type"] == "approval":
            waiting = data["decision"]
            assert waiting["calls"][0]["args"] == {"to": "ada", "amount": 500}
            edit = {"name": "pay", "args": {"to": "ada", "amount": 50}}
            decision = {
                "answer": [{"type": "edit", "edited_action": edit, "id": waiting["calls"][0]["id"]}],
                "interrupt_id": waiting["interrupt_id"],
                "by": "grace",
            }
            assert _posted(client, decision) == 202
        elif name == "decided":
            break
    stream.close()
    assert [number for number, _, _ in told] == list(range(1, len(told) + 1))
    found = {name: data for _, name, data in told}
    assert found["resumed"]["by"] == found["call_decided"]["by"] == found["call_finished"]["by"] == "grace"
    assert found["call_progress"]["data"] == {"step": "asking the bank"}
    assert found["call_progress"]["call_id"] == found["call_started"]["call_id"]
    assert found["call_started"]["args"] == found["call_finished"]["args"] == {"to": "ada", "amount": 50}
    assert "paid 50 to ada" in found["call_finished"]["result"]
    assert found["task_ended"]["outcome"]["status"] == "success"
    # A reader that comes back goes on where it was.
    late = read(client, after=len(told) - 2)
    assert [next(late), next(late)] == told[-2:]
    late.close()


def _posted(client: httpx.Client, decision: dict[str, Any]) -> int:
    """Posts an answer. The run that asked may need a moment to come to its end."""
    for _ in range(100):
        found = client.post("/threads/payday", json=decision).status_code
        if found != 409:
            return found
        time.sleep(0.05)
    return found


def test_an_answer_that_fits_nothing_changes_nothing(client: httpx.Client) -> None:
    stream = read(client)
    given = {"answer": "approve", "interrupt_id": "x", "by": "grace"}
    assert client.post("/threads/payday", json=given).status_code == 202
    _, name, data = next(stream)
    stream.close()
    assert (name, "There is no thread 'payday'" in data["message"]) == ("error", True)
