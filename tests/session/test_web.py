"""examples/web.py: the events of a thread over HTTP, while a person decides by another request."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from signoff.events import from_dict
from tests.support.servers.loopback import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
EXAMPLE = Path(__file__).parents[2] / "examples" / "web.py"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    port = free_port()
    server = subprocess.Popen([sys.executable, str(EXAMPLE), str(port)], cwd=tmp_path)
    transport = httpx.HTTPTransport(retries=10)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, transport=transport) as client:
            client.get("/")
            yield client
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


Event = tuple[int, str, dict[str, Any]]


def read(client: httpx.Client, after: int = 0) -> Generator[Event, None, None]:
    """What the server sends, event by event: its number, its name, its data."""
    headers = {"Last-Event-ID": str(after)} if after else {}
    with client.stream("GET", "/threads/payday/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])


def post(client: httpx.Client, answer: Any, waiting: dict[str, Any]) -> None:
    """Posts an answer. The run that asked may need a moment to come to its end."""
    document = {"answer": answer, "interrupt_id": waiting["interrupt_id"], "by": "grace"}
    wait_until(lambda: client.post("/threads/payday", json=document).status_code == 202)


def until_decided(stream: Iterator[Event]) -> list[Event]:
    events = [next(stream)]
    while events[-1][1] != "decided":
        events.append(next(stream))
    return events


def test_a_decision_is_posted_while_the_events_stream(client: httpx.Client) -> None:
    stream = read(client)
    assert client.post("/threads/payday", json={"task": "Pay Ada 500."}).status_code == 202
    events = until_decided(stream)
    waiting = events[-1][2]["decision"]
    assert waiting["calls"][0]["args"] == {"to": "ada", "amount": 500}
    edit = {"name": "pay", "args": {"to": "ada", "amount": 50}}
    post(client, [{"type": "edit", "edited_action": edit}], waiting)
    events += until_decided(stream)
    stream.close()
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    assert [from_dict(document).type for _, _, document in events] == [name for _, name, _ in events]
    told = {name: document for _, name, document in events}
    assert {told[name]["by"] for name in ("resumed", "call_decided", "call_finished")} == {"grace"}
    assert told["call_progress"]["data"] == {"step": "asking the bank"}
    assert told["call_started"]["args"] == told["call_finished"]["args"] == {"to": "ada", "amount": 50}
    assert told["task_ended"]["outcome"]["status"] == "success"
    # A reader that comes back goes on where it was.
    late = read(client, after=len(events) - 2)
    assert [next(late), next(late)] == events[-2:]
    late.close()
