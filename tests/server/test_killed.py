"""A server that is killed: its threads go on, here and in the next server, and no effect runs twice."""

import uuid
from pathlib import Path

import pytest

from signoff import Session, ThreadBusy
from signoff.records import read_ended
from tests.support.benches.studio import (
    ALL_LINES,
    Shared,
    begun,
    client_of,
    values_of,
    wait,
)
from tests.support.servers.dev_server import langgraph_dev
from tests.support.servers.studio_model import TURNS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


def test_a_thread_goes_on_here_and_another_in_the_next_server(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    with langgraph_dev(tmp_path, shared.env(delay=0.05)) as server, client_of(server) as client:
        here = begun(client, shared, "here.txt")
        there = begun(client, shared, "there.txt")
        with shared.storage() as storage, pytest.raises(ThreadBusy):
            Session(shared.graph(storage), there).run()
        server.kill()
    assert shared.lines("there.txt") != ALL_LINES
    outcome = shared.go_on(here)
    assert outcome.status == "success"
    with langgraph_dev(tmp_path, shared.env()) as server, client_of(server) as client:
        # The server writes its list of threads every ten seconds only.
        assert {found["thread_id"] for found in client.threads.search()} == {here, there}
        assert wait(client, there, command={"update": {"go_on": {}}})["outcome"]["status"] == "success"
    for file in ("here.txt", "there.txt"):
        # A call that was cut off is not run again: its line may be missing, and no line is there twice.
        assert len(shared.lines(file)) >= len(ALL_LINES) - 1
        assert shared.lines(file) == [line for line in ALL_LINES if line in shared.lines(file)]


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
