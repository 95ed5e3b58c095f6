"""A server that is killed, and runs that are cut short: the thread goes on, and no effect runs twice."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Session, ThreadBusy
from signoff.nodes.journal import recorded
from tests.support.benches.studio import ALL_LINES, TURNS, Shared, begun, client_of, message, until, wait
from tests.support.ends import is_finished
from tests.support.servers.dev_server import langgraph_dev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("at", range(3))
@pytest.mark.sample(1)
def test_a_thread_of_a_killed_server_goes_on_elsewhere_and_no_effect_runs_twice(
    tmp_path: Path, at: int
) -> None:
    shared = Shared(tmp_path)
    with langgraph_dev(tmp_path, shared.env(delay=0.03)) as server, client_of(server) as client:
        thread = begun(client, shared)
        with shared.storage() as storage, pytest.raises(ThreadBusy):
            Session(shared.graph(storage), thread).run()
        time.sleep(0.04 * at)
        server.kill()
    assert len(shared.lines) < len(ALL_LINES)
    with shared.storage() as storage:
        ended = Session(shared.graph(storage), thread).run()
    assert is_finished(ended)
    assert (ended.outcome.status, ended.outcome.turns) == ("success", TURNS)
    # A call that was cut off is not run again: its line may be missing, and no line is there twice.
    assert len(shared.lines) >= len(ALL_LINES) - 1
    assert shared.lines == [line for line in ALL_LINES if line in shared.lines]


def cancel(client: SyncLangGraphClient, thread: str) -> None:
    client.runs.cancel(thread, client.runs.list(thread)[0]["run_id"], wait=True)


def interrupt(client: SyncLangGraphClient, thread: str) -> None:
    again = wait(client, thread, input=message("again"), multitask_strategy="interrupt")
    assert again["outcome"]["status"] == "success"


def roll_back(client: SyncLangGraphClient, thread: str) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="A run is not rolled back"):
        wait(client, thread, input=message("again"), multitask_strategy="rollback")
    until(lambda: client.runs.list(thread)[0]["status"] != "running", "the run does not end")


@pytest.mark.parametrize("stop", [cancel, interrupt, roll_back])
@pytest.mark.sample(1)
@pytest.mark.thorough
def test_a_run_that_is_cut_short_keeps_what_it_has_done(
    tmp_path: Path, stop: Callable[[SyncLangGraphClient, str], None]
) -> None:
    shared = Shared(tmp_path)
    with langgraph_dev(tmp_path, shared.env(delay=0.03)) as server, client_of(server) as client:
        thread = begun(client, shared)
        stop(client, thread)
        with shared.storage() as storage:
            ended = Session(shared.graph(storage), thread).run()
    assert is_finished(ended)
    assert ended.outcome.status == "success"
    assert len(shared.lines) >= len(ALL_LINES) - 1
    assert shared.lines == [line for line in ALL_LINES if line in shared.lines]


@pytest.mark.thorough
def test_a_thread_that_a_killed_server_had_no_time_to_list_is_there_again(tmp_path: Path) -> None:
    """It writes its list every ten seconds only; the thread is in the database at once."""
    shared = Shared(tmp_path)
    with langgraph_dev(tmp_path, shared.env(delay=0.03)) as server, client_of(server) as client:
        thread = begun(client, shared)
        server.kill()
    with langgraph_dev(tmp_path, shared.env()) as server, client_of(server) as client:
        assert [found["thread_id"] for found in client.threads.search()] == [thread]
        assert wait(client, thread, input=None)["outcome"]["status"] == "success"
    assert shared.lines == [line for line in ALL_LINES if line in shared.lines]


@pytest.mark.parametrize("elsewhere_first", [False, True])
@pytest.mark.thorough
def test_a_server_that_starts_again_takes_no_message_twice(tmp_path: Path, elsewhere_first: bool) -> None:
    """It repeats the runs that a kill cut off, each with its first input."""
    shared = Shared(tmp_path)
    saved = tmp_path / ".langgraph_api" / ".langgraph_ops.pckl"
    with langgraph_dev(tmp_path, shared.env(delay=0.25)) as server, client_of(server) as client:
        thread = begun(client, shared)
        run = client.runs.list(thread)[0]["run_id"]
        saved_run = uuid.UUID(run).bytes[::-1]
        until(lambda: saved.exists() and saved_run in saved.read_bytes(), "the run is not saved")
        server.kill()
    assert len(shared.lines) < len(ALL_LINES), "the kill came too late to mean anything"
    if elsewhere_first:
        with shared.storage() as storage:
            assert is_finished(Session(shared.graph(storage), thread).run())
    with langgraph_dev(tmp_path, shared.env()) as server, client_of(server) as client:
        until(lambda: client.runs.get(thread, run)["status"] == "success", "the run does not end")
        values = client.threads.get_state(thread)["values"]
    assert isinstance(values, dict)
    assert [found["content"] for found in values["messages"] if found["type"] == "human"] == ["work"]
    assert (values["outcome"]["status"], values["outcome"]["turns"]) == ("success", TURNS)
    assert shared.lines == [line for line in ALL_LINES if line in shared.lines]
    with shared.storage() as storage:
        assert [outcome.status for outcome in recorded(storage.store, thread)] == ["success"]
