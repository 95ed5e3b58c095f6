"""A graph with delegates on a real `langgraph dev`, as Studio and other clients use it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from signoff.graph.machine import State
from tests.support.servers.dev_server import REPOSITORY, Server, langgraph_dev, quiet_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Each model says its next reply, whichever thread and process asks it.
TEAM = """
from pathlib import Path

from signoff import build_graph, delegate
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

def played(*replies):
    return ScriptedModel(lambda messages: replies[sum(map(is_reply, messages))])

def pay(to: str) -> str:
    "Pay."
    with Path(__file__).with_name("paid.txt").open("a") as file:
        file.write(to + "\\n")
    return f"paid {to}"

asks = played(call("ask_user", question="Which year?"), call("finish_task", summary="It was in that year."))
pays = played(call("pay", to="ada"), call("finish_task", summary="Paid."))
lead = played(
    [call("researcher", task="Find the year."), call("payer", task="Pay ada.")],
    call("finish_task", summary="Found and paid."),
)
team = [
    delegate("researcher", build_graph(asks), description="Finds years."),
    delegate("payer", build_graph(pays, [pay]), description="Pays."),
]
graph = build_graph(lead, team, approvals={"write": True})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("team")
    (folder / "team.py").write_text(TEAM, encoding="utf-8")
    settings = json.loads((REPOSITORY / "langgraph.json").read_text())
    settings["graphs"] = {"team": "./team.py:graph"}
    (folder / "langgraph.json").write_text(json.dumps(settings), encoding="utf-8")
    env = quiet_environment(XDG_CACHE_HOME=str(folder))
    with langgraph_dev(folder, env, folder / "langgraph.json") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with get_sync_client(url=server.url, api_key=None, timeout=120) as client:
        yield client


def begun(client: SyncLangGraphClient) -> tuple[str, list[Any]]:
    """A thread in which both delegates wait, and what they wait for."""
    thread = client.threads.create()["thread_id"]
    sent: Any = {"messages": [{"role": "user", "content": "go"}]}
    state: Any = client.runs.wait(thread, "team", input=sent)
    return thread, state["__interrupt__"]


def resumed(client: SyncLangGraphClient, thread: str, answers: dict[str, Any]) -> Any:
    return client.runs.wait(thread, "team", command={"resume": answers})


def test_the_drawing_is_that_of_every_machine_and_names_the_delegates(client: SyncLangGraphClient) -> None:
    (assistant,) = client.assistants.search()
    states = {"__start__", "__end__", *map(str, State)}
    drawn = client.assistants.get_graph(assistant["assistant_id"])
    nodes: dict[str, Any] = {str(node["id"]): node for node in drawn["nodes"]}
    assert set(nodes) == states
    assert nodes["execute"]["metadata"]["delegates"] == ["researcher", "payer"]
    whole = client.assistants.get_graph(assistant["assistant_id"], xray=True)
    below = {f"{name}:{state}" for name in ("researcher", "payer") for state in states}
    assert {node["id"] for node in whole["nodes"]} == states | below


def test_both_wait_at_once_and_are_answered_by_id_in_any_order(
    client: SyncLangGraphClient, server: Server
) -> None:
    thread, waits = begun(client)
    question, approval = waits
    assert (question["value"]["path"], question["value"]["question"]) == (["researcher"], "Which year?")
    assert approval["value"]["path"] == ["payer"]
    assert approval["value"]["action_requests"][0]["args"] == {"to": "ada"}
    kept = client.threads.get(thread)["interrupts"]
    assert {one["id"] for found in kept.values() for one in found} == {question["id"], approval["id"]}
    assert not (server.folder / "paid.txt").exists()

    state = resumed(client, thread, {approval["id"]: {"decisions": [{"type": "approve"}]}})
    assert [one["id"] for one in state["__interrupt__"]] == [question["id"]]
    assert (server.folder / "paid.txt").read_text() == "ada\n"

    outcome = resumed(client, thread, {question["id"]: "2024"})["outcome"]
    assert (outcome["status"], outcome["claim"], outcome["summary"]) == ("success", "done", "Found and paid.")
    assert (outcome["tree"]["delegates"], outcome["tree"]["turns"]) == (2, 6)
    assert (server.folder / "paid.txt").read_text() == "ada\n"


def test_what_a_person_rejects_is_not_done(client: SyncLangGraphClient, server: Server) -> None:
    paid = server.folder / "paid.txt"
    before = paid.read_text() if paid.exists() else ""
    thread, (question, approval) = begun(client)
    rejected = {"decisions": [{"type": "reject", "message": "Not now."}]}
    state = resumed(client, thread, {question["id"]: "2024", approval["id"]: rejected})
    assert state["outcome"]["status"] == "success"
    assert (paid.read_text() if paid.exists() else "") == before


def test_the_stream_of_all_machines_names_the_namespace_of_each(client: SyncLangGraphClient) -> None:
    thread = client.threads.create()["thread_id"]
    sent: Any = {"messages": [{"role": "user", "content": "go"}]}
    parts = list(
        client.runs.stream(thread, "team", input=sent, stream_mode=["updates"], stream_subgraphs=True)
    )
    spaces = {part.event.partition("|")[2].partition(":")[0] for part in parts if "|" in part.event}
    assert spaces >= {"researcher", "payer"}
