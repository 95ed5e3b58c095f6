"""The graph on a LangGraph server, as Studio and other clients use it: a real `langgraph dev`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.schema import StreamMode

from signoff.graph.foreign import label
from signoff.graph.machine import LAST, State, edges
from tests.support.servers.dev_server import REPOSITORY, Server, langgraph_dev, quiet_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TURNS = 20
TOOLS = {"list_files", "read_file", "write_file", "edit_file", "search_files"}
QUESTION = "Which port?"

# Knows no position, so that threads do not disturb each other: what comes next follows from the messages.
SCRIPT = f"""
from signoff.graph.messages import is_reply
from signoff.models import call

def script(messages):
    task = next(m.text for m in messages if m.type == "human")
    turn = sum(map(is_reply, messages)) + 1
    if task == "ask":
        answers = [m.text for m in messages if m.type == "tool"]
        if not answers:
            return call("ask_user", question={QUESTION!r}, options=["80", "8080"])
        return call("finish_task", summary=f"The port is {{answers[-1]}}.")
    if task == "long":
        if turn == 1:
            return call("read_file", path="long.txt")
        return call("finish_task", summary="Read it.")
    if turn == {TURNS}:
        return call("finish_task", summary="Wrote and read all notes.")
    steps = [
        [call("write_file", path=f"notes/{{turn}}.txt", content="a line\\nfirst\\n")],
        [call("list_files"), call("read_file", path="notes/1.txt"), call("search_files", pattern="line")],
        [call("edit_file", path=f"notes/{{turn - 2}}.txt", old="first", new="second")],
        ["thinking: ", call("think", thought="Going on.")],
    ]
    return steps[(turn - 1) % len(steps)]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "long.txt").write_text("a line of a long file\n" * 3_000, encoding="utf-8")
    env = quiet_environment(
        SIGNOFF_MODEL=f"scripted:{script}", SIGNOFF_WORKSPACE=str(workspace), XDG_CACHE_HOME=str(folder)
    )
    with langgraph_dev(folder, env) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with get_sync_client(url=server.url, api_key=None, timeout=120) as client:
        yield client


def assistant(client: SyncLangGraphClient) -> str:
    (only,) = client.assistants.search()
    assert only["graph_id"] == "signoff"
    return only["assistant_id"]


def message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def run(client: SyncLangGraphClient, thread: str, text: str) -> dict[str, Any]:
    """Sends a message and waits until the run ends or pauses. Returns the state."""
    done = client.runs.wait(thread, "signoff", input=message(text))
    assert isinstance(done, dict)
    return done


def test_the_drawn_graph_has_the_states_and_labels_of_the_table(client: SyncLangGraphClient) -> None:
    drawn = client.assistants.get_graph(assistant(client))
    labels = {(e["source"], e["target"]): e.get("data") for e in drawn["edges"]}
    assert {node["id"] for node in drawn["nodes"]} == {"__start__", "__end__", *State}
    for source, row in edges().items():
        for target, text in row.items():
            # From the last state a way leads out of the graph, too.
            depends = len(row) > 1 or source is LAST
            assert labels[source, target] == (text if depends else None)


def test_a_question_waits_and_its_answer_by_thread_id_leads_to_the_outcome(
    client: SyncLangGraphClient,
) -> None:
    thread = client.threads.create()["thread_id"]
    paused = run(client, thread, "ask")
    (waiting,) = paused["__interrupt__"]
    assert waiting["value"]["type"] == "question"
    assert waiting["value"]["question"] == QUESTION
    assert waiting["value"]["options"] == ["80", "8080"]
    state = client.threads.get_state(thread)
    assert state["next"] == ["ask_user"]
    assert paused["outcome"] is None
    resumed = client.runs.wait(thread, "signoff", command={"resume": {waiting["id"]: "8080"}})
    assert isinstance(resumed, dict)
    outcome = resumed["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("success", "finish_task")
    assert outcome["summary"] == "The port is 8080."
    assert outcome["thread_id"] == thread
    (record,) = client.store.search_items(("signoff", "outcomes", label(thread)))["items"]
    assert record["value"] == outcome
    assert client.threads.get_state(thread)["next"] == []


def results(client: SyncLangGraphClient, thread: str) -> list[dict[str, Any]]:
    """The tool results of a thread."""
    values = client.threads.get_state(thread)["values"]
    assert isinstance(values, dict)
    return [found for found in values["messages"] if found["type"] == "tool"]


def test_twenty_turns_with_every_tool(client: SyncLangGraphClient, server: Server) -> None:
    thread = client.threads.create()["thread_id"]
    outcome = run(client, thread, "work")["outcome"]
    assert (outcome["status"], outcome["turns"]) == ("success", TURNS)
    notes = {path.name: path.read_text() for path in (server.folder / "workspace/notes").iterdir()}
    assert set(notes) == {f"{turn}.txt" for turn in (1, 5, 9, 13, 17)}
    assert set(notes.values()) == {"a line\nsecond\n"}
    found = results(client, thread)
    assert [result["content"] for result in found if result["status"] != "success"] == []
    assert {result["name"] for result in found} == {*TOOLS, "think", "finish_task"}


def test_a_long_file_is_read_without_blocking_the_server(client: SyncLangGraphClient) -> None:
    thread = client.threads.create()["thread_id"]
    assert run(client, thread, "long")["outcome"]["status"] == "success"
    first, _ = results(client, thread)
    assert (first["name"], first["status"]) == ("read_file", "success")
    assert len(first["content"]) > 19_000


def test_the_stream_shows_the_states_as_they_run(client: SyncLangGraphClient) -> None:
    thread = client.threads.create()["thread_id"]
    modes: list[StreamMode] = ["updates", "tasks", "messages-tuple"]
    parts = list(client.runs.stream(thread, "signoff", input=message("long"), stream_mode=modes))
    ran = [part.data["name"] for part in parts if part.event == "tasks" and "input" in part.data]
    one_turn = ["compress", "decide", "call_llm", "route_tools"]
    assert ran == [*one_turn, "execute", *one_turn[1:], "decide", "review", "finish"]
    # What changes nothing of what is told is not sent.
    changed = [state for part in parts if part.event == "updates" for state in part.data]
    assert changed == [state for state in ran if state != "route_tools"]
    assert any(part.event == "messages" for part in parts)


def test_the_server_ends_with_all_it_started_and_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = REPOSITORY / ".langgraph_api"
    before = kept.exists()
    with langgraph_dev(tmp_path, quiet_environment()) as running:
        assert httpx.get(f"{running.url}/ok", trust_env=False).is_success
    with pytest.raises(ProcessLookupError):
        os.killpg(running.process_group, 0)
    assert "BlockingError" not in running.log.read_text(errors="replace")
    assert kept.exists() == before
