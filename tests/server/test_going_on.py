"""Going on, stopping, undoing by JSON, and delegates, on a server with several graphs."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff.machine import State
from tests.support.benches.studio import client_of, message, new, until, wait
from tests.support.servers.dev_server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=["graphs", pytest.param("own_saver", marks=pytest.mark.thorough)])
def agent(request: pytest.FixtureRequest) -> Iterator[SyncLangGraphClient]:
    """The client of a server on Signoff's database, or on one of its own."""
    with client_of(request.getfixturevalue(request.param)) as client:
        yield client


def begun(client: SyncLangGraphClient, task: str) -> tuple[str, dict[str, Any]]:
    """A new thread with this task, and its values when the run has ended."""
    thread = new(client)
    return thread, wait(client, thread, "agent", input=message(task))


def commanded(client: SyncLangGraphClient, thread: str, name: str, **options: Any) -> dict[str, Any]:
    """The values after a command of one key."""
    return wait(client, thread, "agent", command={"update": {name: options}})


def test_after_a_limit_there_are_more_turns_and_one_id_grants_once(agent: SyncLangGraphClient) -> None:
    thread, values = begun(agent, "limit")
    assert (values["outcome"]["reason"], values["outcome"]["turns"]) == ("turns", 2)
    for _ in range(3):
        assert commanded(agent, thread, "go_on", turns=1, id="a click")["outcome"]["turns"] == 3
    command: Any = {"update": {"go_on": {"turns": 1}}}
    parts = list(agent.runs.stream(thread, "agent", command=command, stream_mode=["values"]))
    assert parts[-1].data["outcome"]["turns"] == 4
    assert commanded(agent, thread, "go_on")["outcome"]["turns"] == 6
    values = commanded(agent, thread, "go_on", turns=10)
    assert values["outcome"]["status"] == "success"
    assert commanded(agent, thread, "go_on", turns=10)["outcome"] == values["outcome"]


def test_after_an_error_it_tries_again(agent: SyncLangGraphClient) -> None:
    thread, values = begun(agent, f"error {uuid.uuid4()}")
    assert values["outcome"]["reason"] == "model_error"
    assert commanded(agent, thread, "go_on")["outcome"]["status"] == "success"


def test_what_waits_comes_back_with_its_interrupt(agent: SyncLangGraphClient) -> None:
    thread, _ = begun(agent, "ask")
    (waiting,) = commanded(agent, thread, "go_on")["__interrupt__"]
    assert waiting["value"]["question"] == "Which colour?"
    values = wait(agent, thread, "agent", command={"resume": {waiting["id"]: "blue"}})
    assert values["outcome"]["status"] == "success"


def test_stop_ends_what_waits_and_going_on_takes_it_up(agent: SyncLangGraphClient) -> None:
    thread, _ = begun(agent, "ask")
    assert commanded(agent, thread, "stop")["outcome"]["reason"] == "cancelled"
    assert commanded(agent, thread, "go_on")["outcome"]["status"] == "success"


def test_undo_takes_back_what_a_task_has_done(agent: SyncLangGraphClient) -> None:
    thread, _ = begun(agent, "pay")
    report = commanded(agent, thread, "undo", ask=False)["outcome"]["undo"]
    assert [one["said"] for one in report["undone"]] == ["taken back"]


def test_a_thread_without_a_task_is_told_so(agent: SyncLangGraphClient) -> None:
    thread = new(agent)
    command: Any = {"update": {"go_on": {}}}
    refused = wait(agent, thread, "agent", command=command, raise_error=False)
    assert thread in refused["__error__"]["message"]
    with pytest.raises(httpx.HTTPStatusError):
        wait(agent, str(uuid.uuid4()), "agent", command=command)


# --- delegates ---


def assistant(client: SyncLangGraphClient, graph: str) -> str:
    (found,) = client.assistants.search(graph_id=graph)
    return found["assistant_id"]


def test_the_drawing_is_that_of_every_machine_and_names_the_delegates(many: SyncLangGraphClient) -> None:
    states = {"__start__", "__end__", *map(str, State)}
    drawn = many.assistants.get_graph(assistant(many, "team"))
    nodes: dict[str, Any] = {str(node["id"]): node for node in drawn["nodes"]}
    assert set(nodes) == states
    assert nodes["execute"]["metadata"]["delegates"] == ["researcher", "payer"]
    whole = many.assistants.get_graph(assistant(many, "team"), xray=True)
    below = {f"{name}:{state}" for name in ("researcher", "payer") for state in states}
    assert {node["id"] for node in whole["nodes"]} == states | below


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_both_wait_at_once_and_are_answered_by_id(
    many: SyncLangGraphClient, graphs: Server, decision: str
) -> None:
    paid = graphs.folder / "paid.txt"
    paid.unlink(missing_ok=True)
    thread = new(many)
    sent: Any = message("go")
    parts = [*many.runs.stream(thread, "team", input=sent, stream_mode=["updates"], stream_subgraphs=True)]
    spaces = {part.event.partition("|")[2].partition(":")[0] for part in parts if "|" in part.event}
    assert spaces >= {"researcher", "payer"}
    until(lambda: many.threads.get(thread)["status"] == "interrupted")
    found = many.threads.get_state(thread)["interrupts"]
    waits: dict[str, Any] = {waiting["value"]["path"][0]: waiting for waiting in found}
    assert waits["researcher"]["value"]["question"] == "Which year?"
    assert waits["payer"]["value"]["action_requests"][0]["args"] == {"to": "ada"}
    assert not paid.exists()
    decided = {waits["payer"]["id"]: {"decisions": [{"type": decision}]}}
    values = wait(many, thread, "team", command={"resume": decided})
    assert [left["id"] for left in values["__interrupt__"]] == [waits["researcher"]["id"]]
    assert paid.exists() == (decision == "approve")
    values = wait(many, thread, "team", command={"resume": {waits["researcher"]["id"]: "2024"}})
    assert (values["outcome"]["status"], values["outcome"]["tree"]["delegates"]) == ("success", 2)
    assert (paid.read_text() if paid.exists() else "") == ("ada\n" if decision == "approve" else "")
