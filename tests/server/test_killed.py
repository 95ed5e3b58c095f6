"""A server that is killed: its thread goes on here and in the next server, and no effect runs twice."""

import uuid
from pathlib import Path

import pytest

from signoff.records import read_ended
from tests.support.benches.studio import ALL_LINES, Shared, begun, client_of, values_of
from tests.support.servers.dev_server import langgraph_dev
from tests.support.servers.studio_model import TURNS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


def test_a_server_that_starts_again_takes_no_message_twice(tmp_path: Path) -> None:
    """It repeats the runs that a kill cut off, each with its first input."""
    shared = Shared(tmp_path)
    saved = tmp_path / ".langgraph_api" / ".langgraph_ops.pckl"
    with langgraph_dev(tmp_path, shared.env(delay=0.5)) as server, client_of(server) as client:
        thread = begun(client, shared)
        run = client.runs.list(thread)[0]["run_id"]
        saved_run = uuid.UUID(run).bytes[::-1]
        wait_until(lambda: saved.exists() and saved_run in saved.read_bytes())
        server.kill()
    assert len(shared.lines()) < len(ALL_LINES), "the kill came too late to mean anything"
    assert shared.go_on(thread).status == "success"
    with langgraph_dev(tmp_path, shared.env()) as server, client_of(server) as client:
        wait_until(lambda: client.runs.get(thread, run)["status"] == "success")
        values = values_of(client, thread)
    said = [found["content"] for found in values["messages"] if found["type"] == "human"]
    assert (said, values["outcome"]["turns"]) == (["work log.txt"], TURNS)
    assert shared.lines() == [line for line in ALL_LINES if line in shared.lines()]
    with shared.storage() as storage:
        assert [task.status for task in read_ended(storage.store)] == ["success"]
