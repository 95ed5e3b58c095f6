"""One database for `langgraph dev` and everything else: a thread goes on wherever somebody takes it up."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.types import Command
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Session, outcome_of, postgres_storage
from signoff.records import read_ended
from tests.support.benches.studio import Shared, client_of, message, new, values_of, wait
from tests.support.servers.dev_server import langgraph_dev
from tests.support.servers.studio_model import QUESTION

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ANSWERED = "The port is 8080."


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def resume_by_session(shared: Shared, thread: str) -> str:
    return str(shared.go_on(thread, "8080").summary)


def resume_by_graph(shared: Shared, thread: str) -> str:
    with shared.storage() as storage:
        graph = shared.graph(storage)
        (waiting,) = graph.get_state(config(thread)).interrupts
        return outcome_of(graph.invoke(Command(resume={waiting.id: "8080"}), config(thread))).summary


def refused_by_a_command(shared: Shared, thread: str) -> str:
    # The server's graph has tools and approvals of its own, which the command line has not.
    assert shared.signoff("resume", thread, "8080")["status"] == "error"
    return resume_by_session(shared, thread)


@pytest.mark.parametrize("resume", [resume_by_session, resume_by_graph, refused_by_a_command])
def test_a_thread_begun_in_the_server_is_answered_elsewhere(
    client: SyncLangGraphClient, shared: Shared, resume: Callable[[Shared, str], str]
) -> None:
    thread = new(client)
    (waiting,) = wait(client, thread, input=message("ask"))["__interrupt__"]
    assert waiting["value"]["question"] == QUESTION
    assert resume(shared, thread) == ANSWERED
    assert values_of(client, thread)["outcome"]["summary"] == ANSWERED
    assert client.threads.get_state(thread)["next"] == []


def begin_by_session(shared: Shared, thread: str) -> None:
    with shared.storage() as storage:
        Session(shared.graph(storage), thread).run("ask")


def begin_by_command(shared: Shared, thread: str) -> None:
    words = ["--workspace", str(shared.workspace), "--tools", "files"]
    assert shared.signoff("run", "ask", "--thread", thread, *words)["status"] == "waiting"


@pytest.mark.parametrize("begin", [begin_by_session, begin_by_command])
def test_a_thread_begun_elsewhere_appears_in_the_server_and_goes_on_there(
    client: SyncLangGraphClient, shared: Shared, begin: Callable[[Shared, str], None]
) -> None:
    thread, unlisted = str(uuid.uuid4()), str(uuid.uuid4())
    begin(shared, thread)
    begin_by_session(shared, "calm-otter-47")
    listed = {found["thread_id"] for found in client.threads.search(limit=100)}
    # The server takes no other ids than UUIDs.
    assert (thread in listed, "calm-otter-47" in listed) == (True, False)
    begin_by_session(shared, unlisted)
    for name in (thread, unlisted):
        state = client.threads.get_state(name)
        assert state["next"] == ["ask_user"]
        ((waiting,),) = [task["interrupts"] for task in state["tasks"]]
        outcome = wait(client, name, command={"resume": {waiting["id"]: "8080"}})["outcome"]
        assert (outcome["status"], outcome["summary"]) == ("success", ANSWERED)
        assert shared.go_on(name).summary == ANSWERED


def test_a_thread_goes_to_and_fro(client: SyncLangGraphClient, shared: Shared) -> None:
    """Each runner makes channel versions of its own kind; the thread must not notice."""
    thread = new(client)
    wait(client, thread, input=message("ask"))
    shared.go_on(thread, "8080")
    for at in range(4):
        assert wait(client, thread, input=message(f"there {at}"))["outcome"]["status"] == "success"
        assert shared.go_on(thread, f"here {at}").status == "success"
    said = [found["content"] for found in values_of(client, thread)["messages"] if found["type"] == "human"]
    assert said == ["ask", "8080", *(f"{where} {at}" for at in range(4) for where in ("there", "here"))]
    with shared.storage() as storage:
        assert len(read_ended(storage.store, thread)) == 9
        here = [state.values for state in shared.graph(storage).get_state_history(config(thread))]
    there = client.threads.get_history(thread, limit=1_000)
    assert [len(state["values"].get("messages", ())) for state in there] == [  # type: ignore[union-attr]  # not nested
        len(values.get("messages", ())) for values in here
    ]


def test_copies_wait_for_the_same_and_the_thread_stays(client: SyncLangGraphClient, shared: Shared) -> None:
    thread, fork = str(uuid.uuid4()), str(uuid.uuid4())
    begin_by_session(shared, thread)
    shared.signoff("fork", thread, "--to", fork)
    before = {found["thread_id"] for found in client.threads.search(limit=100)}
    client.threads.copy(thread)
    (copy,) = {found["thread_id"] for found in client.threads.search(limit=100)} - before
    for name in (fork, copy):
        assert wait(client, name, input=None)["__interrupt__"][0]["value"]["question"] == QUESTION
    assert resume_by_session(shared, thread) == ANSWERED


def test_a_thread_that_runs_elsewhere_is_neither_run_nor_edited_nor_deleted(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = new(client)
    wait(client, thread, input=message("ask"))
    with shared.storage() as storage, storage.runner(thread):
        refused = wait(client, thread, command={"resume": "80"}, raise_error=False)
        assert thread in refused["__error__"]["message"]
        with pytest.raises(httpx.HTTPStatusError):
            client.threads.update_state(thread, {"messages": []}, as_node="nudge")
        with pytest.raises(httpx.HTTPStatusError) as conflict:
            client.threads.delete(thread)
        assert conflict.value.response.status_code == 409
    assert client.threads.get_state(thread)["next"] == ["ask_user"]
    assert resume_by_session(shared, thread) == ANSWERED


def test_a_thread_deleted_in_the_server_is_deleted_with_its_records(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = new(client)
    wait(client, thread, input=message("prompt"))
    client.threads.delete(thread)
    with shared.storage() as storage:
        assert thread not in [row.thread_id for row in storage.threads(limit=1_000)]
        assert read_ended(storage.store, thread) == []
    begin_by_session(shared, thread)
    assert client.threads.get_state(thread)["next"] == ["ask_user"], "it may be begun again"


def test_an_edit_of_the_state_keeps_the_outcome(client: SyncLangGraphClient) -> None:
    thread = new(client)
    before = wait(client, thread, input=message("prompt"))
    edited = {**before["messages"][0], "content": "Ask me."}
    client.threads.update_state(thread, {"messages": [edited]}, as_node="finish")
    values = values_of(client, thread)
    assert (values["messages"][0]["content"], values["outcome"]) == ("Ask me.", before["outcome"])


@pytest.mark.thorough
def test_the_database_may_be_postgresql(tmp_path: Path, postgres_url: str) -> None:
    shared = Shared(tmp_path)
    env = {**shared.env(), "SIGNOFF_DATABASE": postgres_url}
    with langgraph_dev(tmp_path, env) as server, client_of(server) as client:
        thread, other = new(client), str(uuid.uuid4())
        wait(client, thread, input=message("ask"))
        with postgres_storage(postgres_url) as storage:
            Session(shared.graph(storage), thread).resume("8080")
            Session(shared.graph(storage), other).run("ask")
        assert values_of(client, thread)["outcome"]["summary"] == ANSWERED
        assert wait(client, other, command={"resume": "8080"})["outcome"]["summary"] == ANSWERED
