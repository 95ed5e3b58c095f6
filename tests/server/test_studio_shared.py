"""One database for `langgraph dev` and everything else: a thread goes on wherever somebody takes it up."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.types import Command
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Session, postgres_storage
from signoff.nodes.journal import recorded
from signoff.session.decisions import Question
from tests.support.benches.studio import ASKS, Shared, client_of, message, wait
from tests.support.ends import is_finished
from tests.support.rows import ids
from tests.support.servers.dev_server import Server, langgraph_dev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return Shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def server(shared: Shared) -> Iterator[Server]:
    with langgraph_dev(shared.folder, shared.env()) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with client_of(server) as client:
        yield client


def resume_by_session(shared: Shared, thread: str) -> str:
    with shared.storage() as storage:
        session = Session(shared.graph(storage), thread)
        assert isinstance(session.run(), Question)
        ended = session.resume("8080")
        assert is_finished(ended)
        return ended.outcome.summary


def resume_by_graph(shared: Shared, thread: str) -> str:
    config: Any = {"configurable": {"thread_id": thread}}
    with shared.storage() as storage:
        graph = shared.graph(storage)
        (waiting,) = graph.get_state(config).interrupts
        values = graph.invoke(Command(resume={waiting.id: "8080"}), config)
        return str((values["outcome"] or {})["summary"])


def refused_by_command(shared: Shared, thread: str) -> str:
    # The server's graph has tools and approvals of its own, which the command line has not.
    assert shared.signoff("resume", thread, "8080")["status"] == "error"
    return resume_by_session(shared, thread)


WAYS = [resume_by_session, resume_by_graph, refused_by_command]


@pytest.mark.parametrize("resume", WAYS)
@pytest.mark.sample(1)
def test_a_thread_begun_in_the_server_is_answered_elsewhere(
    client: SyncLangGraphClient, shared: Shared, resume: Callable[[Shared, str], str]
) -> None:
    thread = client.threads.create()["thread_id"]
    (waiting,) = wait(client, thread, input=message("ask"))["__interrupt__"]
    assert waiting["value"]["question"] == ASKS
    assert resume(shared, thread) == "The port is 8080."
    state = client.threads.get_state(thread)
    assert isinstance(state["values"], dict)
    assert state["values"]["outcome"]["summary"] == "The port is 8080."
    assert state["next"] == []
    with shared.storage() as storage:
        (outcome,) = recorded(storage.store, thread)
        assert outcome.status == "success"


def begin_by_session(shared: Shared, thread: str) -> None:
    with shared.storage() as storage:
        assert isinstance(Session(shared.graph(storage), thread).run("ask"), Question)


def begin_by_graph(shared: Shared, thread: str) -> None:
    with shared.storage() as storage:
        config: Any = {"configurable": {"thread_id": thread}}
        assert "__interrupt__" in shared.graph(storage).invoke({"messages": [("user", "ask")]}, config)


def begin_by_command(shared: Shared, thread: str) -> None:
    assert shared.signoff("run", "ask", "--thread", thread)["status"] == "waiting"


@pytest.mark.parametrize("begin", [begin_by_session, begin_by_graph, begin_by_command])
@pytest.mark.parametrize("asks_for", ["the list", "the thread"])
@pytest.mark.sample(2)
def test_a_thread_begun_elsewhere_appears_in_the_server_and_goes_on_there(
    client: SyncLangGraphClient, shared: Shared, begin: Callable[[Shared, str], None], asks_for: str
) -> None:
    thread = str(uuid.uuid4())
    begin(shared, thread)
    if asks_for == "the list":
        assert thread in {found["thread_id"] for found in client.threads.search(limit=100)}
    state = client.threads.get_state(thread)
    assert state["next"] == ["ask_user"]
    ((waiting,),) = [task["interrupts"] for task in state["tasks"]]
    outcome = wait(client, thread, command={"resume": {waiting["id"]: "80"}})["outcome"]
    assert (outcome["status"], outcome["summary"]) == ("success", "The port is 80.")
    with shared.storage() as storage:
        ended = Session(shared.graph(storage), thread).run()
    assert is_finished(ended)
    assert ended.outcome.summary == "The port is 80."


def test_a_thread_goes_to_and_fro(client: SyncLangGraphClient, shared: Shared) -> None:
    """Each runner makes channel versions of its own kind; the thread must not notice."""
    thread = client.threads.create()["thread_id"]
    with shared.storage() as storage:
        session = Session(shared.graph(storage), thread)
        wait(client, thread, input=message("ask"))
        assert is_finished(session.run("8080"))
        for at in range(3):
            assert wait(client, thread, input=message(f"there {at}"))["outcome"]["status"] == "success"
            assert is_finished(session.run(f"here {at}"))
        assert len(recorded(storage.store, thread)) == 7
    values = client.threads.get_state(thread)["values"]
    assert isinstance(values, dict)
    written = [found["content"] for found in values["messages"] if found["type"] == "human"]
    assert written == ["ask", "8080", *(f"{where} {at}" for at in range(3) for where in ("there", "here"))]


def test_a_thread_whose_id_is_no_uuid_stays_away_and_a_fork_of_it_does_not(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    begin_by_session(shared, "calm-otter-47")
    listed = {found["thread_id"] for found in client.threads.search(limit=100)}
    assert "calm-otter-47" not in listed
    thread = str(uuid.uuid4())
    words = ["fork", "calm-otter-47", "--to", thread, "--json"]
    subprocess.run([sys.executable, "-m", "signoff.cli", *words], env=shared.env(), check=True, timeout=60)
    again = wait(client, thread, input=None)
    assert again["__interrupt__"][0]["value"]["question"] == ASKS


def test_a_thread_that_runs_elsewhere_is_not_run_by_the_server(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = str(uuid.uuid4())
    begin_by_session(shared, thread)
    with shared.storage() as storage, storage.checkpointer.runner(thread):
        refused = client.runs.wait(thread, "signoff", command={"resume": "80"}, raise_error=False)
        assert isinstance(refused, dict)
        assert "is running elsewhere" in refused["__error__"]["message"]
        with pytest.raises(httpx.HTTPStatusError, match="is running elsewhere"):
            client.threads.update_state(thread, {"messages": []}, as_node="nudge")
    assert resume_by_session(shared, thread) == "The port is 8080."


def test_a_copy_of_a_thread_waits_for_the_same_and_the_thread_stays(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = str(uuid.uuid4())
    begin_by_session(shared, thread)
    client.threads.get_state(thread)
    before = {found["thread_id"] for found in client.threads.search(limit=100)}
    client.threads.copy(thread)
    (copy,) = {found["thread_id"] for found in client.threads.search(limit=100)} - before
    assert wait(client, copy, input=None)["__interrupt__"][0]["value"]["question"] == ASKS
    assert resume_by_session(shared, thread) == "The port is 8080."


def test_a_thread_deleted_in_the_server_is_deleted_with_its_records(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input=message("ask"))
    wait(client, thread, input=message("8080"))
    client.threads.delete(thread)
    with shared.storage() as storage:
        assert thread not in ids(storage)
        assert recorded(storage.store, thread) == []
    begin_by_session(shared, thread)
    assert client.threads.get_state(thread)["next"] == ["ask_user"], "it may be begun again"


def test_a_thread_that_runs_elsewhere_is_not_deleted_in_the_server(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input=message("ask"))
    with shared.storage() as storage:
        with storage.checkpointer.runner(thread):
            with pytest.raises(httpx.HTTPStatusError, match="is running elsewhere") as refused:
                client.threads.delete(thread)
            assert refused.value.response.status_code == 409
        assert thread in ids(storage)
    assert client.threads.get_state(thread)["next"] == ["ask_user"], "the server knows it still"
    client.threads.delete(thread)


def test_an_edit_of_the_state_keeps_the_outcome(client: SyncLangGraphClient, shared: Shared) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input=message("ask"))
    before = wait(client, thread, input=message("8080"))
    edited = {**before["messages"][0], "content": "Ask me."}
    client.threads.update_state(thread, {"messages": [edited]}, as_node="finish")
    values = client.threads.get_state(thread)["values"]
    assert isinstance(values, dict)
    assert values["messages"][0]["content"] == "Ask me."
    assert values["outcome"] == before["outcome"]


@pytest.mark.thorough
def test_the_database_may_be_postgres(tmp_path: Path, postgres_url: str) -> None:
    shared = Shared(tmp_path)
    env = {**shared.env(), "SIGNOFF_DATABASE": postgres_url}
    with langgraph_dev(tmp_path, env) as server, client_of(server) as client:
        thread = client.threads.create()["thread_id"]
        wait(client, thread, input=message("ask"))
        with postgres_storage(postgres_url) as storage:
            assert is_finished(Session(shared.graph(storage), thread).resume("80"))
            other = str(uuid.uuid4())
            assert isinstance(Session(shared.graph(storage), other).run("ask"), Question)
        outcome = wait(client, other, command={"resume": "8080"})["outcome"]
        assert (outcome["status"], outcome["summary"]) == ("success", "The port is 8080.")
