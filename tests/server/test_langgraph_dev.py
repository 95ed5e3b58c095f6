"""A real `langgraph dev` as Studio and other clients use it: the graph, its form, streams and refusals."""

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.schema import StreamMode

from signoff import Session, postgres_storage
from signoff.machine import State
from signoff.records import read_ended
from tests.support.benches.studio import Shared, begun, client_of, message, new, values_of, wait
from tests.support.servers.dev_server import Server, langgraph_dev
from tests.support.servers.studio_model import QUESTION, TURNS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def only(client: SyncLangGraphClient) -> str:
    """The assistant that the graph has by itself."""
    (found,) = client.assistants.search(metadata={"created_by": "system"})
    return found["assistant_id"]


def test_the_drawing_has_every_state_with_a_description_and_its_events_on_the_edges(
    client: SyncLangGraphClient,
) -> None:
    drawn = client.assistants.get_graph(only(client))
    nodes = {node["id"]: node.get("metadata", {}).get("description") for node in drawn["nodes"]}
    assert set(nodes) == {"__start__", "__end__", *State}
    assert all(nodes[name] for name in State)
    labels = {(edge["source"], edge["target"]): edge.get("data") for edge in drawn["edges"]}
    assert (labels["call_llm", "route_tools"], labels["call_llm", "finish"]) == ("replied", "failed")


def test_the_form_sets_a_run_or_an_assistant(client: SyncLangGraphClient) -> None:
    context: dict[str, Any] = {"system_prompt": "You keep bees.", "turns": 1, "model": ""}
    outcome = wait(client, new(client), input=message("prompt"), context=context)["outcome"]
    assert outcome["summary"].startswith("You keep bees.")
    assistant = client.assistants.create("signoff", context=context)["assistant_id"]
    outcome = wait(client, new(client), assistant, input=message("work a.txt"))["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("limit", "turns")
    client.assistants.delete(assistant)


def test_a_form_that_does_not_fit_is_told_and_the_thread_goes_on(client: SyncLangGraphClient) -> None:
    thread = new(client)
    for name, value in {"model": "second", "turns": 0, "cost": 1.0}.items():
        context: Any = {name: value}
        refused = wait(client, thread, input=message("prompt"), context=context, raise_error=False)
        assert {"model": "ScriptedModel", "cost": "prices"}.get(name, name) in refused["__error__"]["message"]
    assert wait(client, thread, input=message("prompt"))["outcome"]["status"] == "success"


def test_a_question_waits_and_an_inbox_is_understood(server: Server, client: SyncLangGraphClient) -> None:
    thread = new(client)
    paused = wait(client, thread, input=message("ask"))
    (waiting,) = paused["__interrupt__"]
    assert (waiting["value"]["question"], paused["outcome"]) == (QUESTION, None)
    assert client.threads.get_state(thread)["next"] == ["ask_user"]
    run = {"assistant_id": "signoff", "command": {"resume": None}}
    told = httpx.post(f"{server.url}/threads/{thread}/runs/wait", json=run, trust_env=False).json()
    assert told["__error__"]["message"]
    ended = wait(client, thread, command={"resume": [{"type": "response", "args": "8080"}]})
    assert (ended["outcome"]["summary"], ended["decision"]["rule"]) == ("The port is 8080.", "claimed")
    assert ended["outcome"]["thread_id"] == thread
    assert client.threads.get_state(thread)["next"] == []
    shown = {"messages", "outcome", "decision", "phases", "digest", "acting"}
    assert set(values_of(client, thread)) <= shown
    assert all(set(state["values"]) <= shown for state in client.threads.get_history(thread))


def test_the_stream_shows_the_states_as_they_run(client: SyncLangGraphClient, shared: Shared) -> None:
    (shared.workspace / "long.txt").write_text("a line of a long file\n" * 3_000)
    thread = new(client)
    modes: list[StreamMode] = ["updates", "tasks", "messages-tuple"]
    parts = list(client.runs.stream(thread, "signoff", input=message("read long.txt"), stream_mode=modes))
    ran = [part.data["name"] for part in parts if part.event == "tasks" and "input" in part.data]
    one_turn = ["compress", "decide", "call_llm", "route_tools"]
    assert ran == [*one_turn, "execute", *one_turn[1:], "decide", "review", "finish"]
    # What changes nothing of what is told is not sent.
    changed = [state for part in parts if part.event == "updates" for state in part.data]
    assert changed == [state for state in ran if state != "route_tools"]
    assert any(part.event == "messages" for part in parts)
    result = next(found for found in values_of(client, thread)["messages"] if found["type"] == "tool")
    assert (result["status"], len(result["content"]) > 19_000) == ("success", True)


ORIGINS = {
    None: 200,
    "https://smith.langchain.com": 200,
    "http://localhost:3000": 200,
    "https://evil.example": 403,
    "https://smith.langchain.com.evil.example": 403,
    "http://localhost.evil.example": 403,
    "null": 403,
}


def test_a_strange_page_cannot_use_the_server(server: Server) -> None:
    for origin, status in ORIGINS.items():
        # What a browser sends for any page without asking first.
        headers = {"Content-Type": "text/plain", **({"Origin": origin} if origin else {})}
        sent = httpx.post(f"{server.url}/threads", content="{}", headers=headers, trust_env=False)
        assert sent.status_code == status, origin


# --- a rollback is refused: effects cannot be taken back ---

RUN = {"assistant_id": "signoff", "input": message("ask"), "multitask_strategy": "rollback"}
COMMAND = {
    "id": 7,
    "method": "run.start",
    "params": {"assistant_id": "signoff", "input": message("ask"), "multitaskStrategy": "rollback"},
}
# A path and what is sent there.
WAYS: dict[str, tuple[str, Any]] = {
    "a run": ("/threads/{thread}/runs", json.dumps(RUN).replace("rollback", "\\u0072ollback")),
    "a command": ("/threads/{thread}/commands", json.dumps(COMMAND)),
    "a cancel": ("/threads/{thread}/runs/{run}/cancel?wait=true&action=rollback", "{}"),
}


@pytest.mark.parametrize(
    "way", ["a cancel", *(pytest.param(way, marks=pytest.mark.thorough) for way in ("a run", "a command"))]
)
def test_the_run_is_cancelled_and_what_it_has_done_stays_and_goes_on(
    client: SyncLangGraphClient, server: Server, shared: Shared, way: str
) -> None:
    path, sent = WAYS[way]
    file = f"{way.replace(' ', '-')}.txt"
    thread = begun(client, shared, file)
    run = client.runs.list(thread)[0]["run_id"]
    # The question of a browser whether it may ask cancels nothing.
    place = f"{server.url}{path.format(thread=thread, run=run)}"
    origin = {"origin": "https://smith.langchain.com", "access-control-request-method": "POST"}
    assert httpx.options(place, headers=origin, trust_env=False).is_success
    assert client.runs.get(thread, run)["status"] == "running"
    assert httpx.post(place, content=sent, timeout=60, trust_env=False).status_code == 400
    assert [found["status"] for found in client.runs.list(thread)] == ["interrupted"]
    wait_until(lambda: client.threads.get(thread)["status"] != "busy")
    assert "__interrupt__" in wait(client, new(client), input=message("ask"))
    assert shared.go_on(thread).status == "success"
    assert len(shared.lines(file)) == len(set(shared.lines(file))) >= TURNS - 3


REFUSED: dict[str, tuple[str, str, Any]] = {
    "several runs": ("POST", "/runs/batch", [{**RUN, "multitask_strategy": "enqueue"}, RUN]),
    "a cron job of the thread": ("POST", "/threads/{thread}/runs/crons", {**RUN, "schedule": "0 0 1 1 *"}),
    "to delete a run": ("DELETE", "/threads/{thread}/runs/{run}", None),
    "a run on a thread that waits": ("POST", "/threads/{thread}/runs/stream", RUN),
    "a cancel of a run that has ended": ("POST", "/threads/{thread}/runs/{run}/cancel?action=rollback", {}),
}
ALLOWED = {**RUN, "multitask_strategy": "enqueue", "input": message("rollback")}


@pytest.mark.thorough
def test_where_nothing_is_to_be_undone_nothing_changes(client: SyncLangGraphClient, server: Server) -> None:
    thread = new(client)
    wait(client, thread, input=message("ask"))
    (run,) = client.runs.list(thread)
    state = client.threads.get_state(thread)
    headers = {"origin": "https://smith.langchain.com"}
    for case, (method, path, sent) in REFUSED.items():
        place = server.url + path.format(thread=thread, run=run["run_id"])
        refused = httpx.request(method, place, json=sent, headers=headers, trust_env=False)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (400, "*"), case
        assert client.runs.list(thread) == [run], case
        assert client.threads.get_state(thread)["checkpoint"] == state["checkpoint"], case
    assert wait(client, thread, input=message("80"))["outcome"]["summary"] == "The port is 80."
    other = new(client)
    response = httpx.post(f"{server.url}/threads/{other}/runs", json=ALLOWED, trust_env=False)
    assert response.is_success
    client.runs.cancel(other, response.json()["run_id"], wait=True)


# --- one database for the server and everything else: a thread goes on wherever somebody takes it up ---

ANSWERED = "The port is 8080."


def test_a_thread_begun_in_the_server_is_answered_elsewhere(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread = new(client)
    wait(client, thread, input=message("ask"))
    # The server's graph has tools and approvals of its own, which the command line has not.
    assert shared.signoff("resume", thread, "8080")["status"] == "error"
    assert shared.go_on(thread, "8080").summary == ANSWERED
    assert values_of(client, thread)["outcome"]["summary"] == ANSWERED
    assert client.threads.get_state(thread)["next"] == []


def begin_by_session(shared: Shared, thread: str) -> None:
    with shared.storage() as storage:
        Session(shared.graph(storage), thread).run("ask")


def test_a_thread_begun_elsewhere_appears_in_the_server_and_goes_on_there(
    client: SyncLangGraphClient, shared: Shared
) -> None:
    thread, unlisted = str(uuid.uuid4()), str(uuid.uuid4())
    words = ["--workspace", str(shared.workspace), "--tools", "files"]
    assert shared.signoff("run", "ask", "--thread", thread, *words)["status"] == "waiting"
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


def test_a_thread_goes_to_and_fro(client: SyncLangGraphClient, shared: Shared) -> None:
    """Each runner makes channel versions of its own kind; the thread must not notice."""
    thread = new(client)
    wait(client, thread, input=message("ask"))
    shared.go_on(thread, "8080")
    for at in range(2):
        assert wait(client, thread, input=message(f"there {at}"))["outcome"]["status"] == "success"
        assert shared.go_on(thread, f"here {at}").status == "success"
    said = [found["content"] for found in values_of(client, thread)["messages"] if found["type"] == "human"]
    assert said == ["ask", "8080", *(f"{where} {at}" for at in range(2) for where in ("there", "here"))]
    with shared.storage() as storage:
        assert len(read_ended(storage.store, thread)) == 5


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
    assert shared.go_on(thread, "8080").summary == ANSWERED


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
