"""What docs/how-to/studio.md says of a server with several graphs: programs, going on, undo, delegates."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Limits
from tests.support.benches.studio import client_of, message, new, values_of, wait
from tests.support.pages import blocks, read
from tests.support.programs import run_program
from tests.support.servers.dev_server import REPOSITORY, Server
from tests.support.waiting import wait_until

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
    values: dict[str, Any] = wait(client, thread, "agent", command={"update": {name: options}})
    return values


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


def test_what_waits_comes_back_with_its_interrupt_and_a_stop_ends_it(agent: SyncLangGraphClient) -> None:
    thread, _ = begun(agent, "ask")
    (waiting,) = commanded(agent, thread, "go_on")["__interrupt__"]
    assert waiting["value"]["question"] == "Which colour?"
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


def test_both_wait_at_once_and_are_answered_by_id(many: SyncLangGraphClient, graphs: Server) -> None:
    paid = graphs.folder / "paid.txt"
    paid.unlink(missing_ok=True)
    thread = new(many)
    sent: Any = message("go")
    parts = [*many.runs.stream(thread, "team", input=sent, stream_mode=["updates"], stream_subgraphs=True)]
    spaces = {part.event.partition("|")[2].partition(":")[0] for part in parts if "|" in part.event}
    assert spaces >= {"researcher", "payer"}
    wait_until(lambda: many.threads.get(thread)["status"] == "interrupted")
    found = many.threads.get_state(thread)["interrupts"]
    waits: dict[str, Any] = {waiting["value"]["path"][0]: waiting for waiting in found}
    assert waits["researcher"]["value"]["question"] == "Which year?"
    assert waits["payer"]["value"]["action_requests"][0]["args"] == {"to": "ada"}
    assert not paid.exists()
    values = wait(many, thread, "team", command={"resume": {waits["payer"]["id"]: "approve"}})
    assert [left["id"] for left in values["__interrupt__"]] == [waits["researcher"]["id"]]
    assert paid.exists()
    values = wait(many, thread, "team", command={"resume": {waits["researcher"]["id"]: "2024"}})
    assert (values["outcome"]["status"], values["outcome"]["tree"]["delegates"]) == ("success", 2)
    assert paid.read_text() == "ada\n"


# --- its programs run as they stand, and what it says of files and fields is so ---

PAGE = "docs/how-to/studio.md"
FIELDS = {"system_prompt", "model", "model_seconds", *Limits.model_fields} - {"prices"}


def test_every_field_of_the_form_is_told() -> None:
    form = read(PAGE).partition("The form of a run")[2].partition("\n\n#")[0]
    rows = re.findall(r"^\| (`.*?`) \|", form, re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == FIELDS


def test_the_settings_for_a_graph_of_ones_own_differ_from_ours_in_the_graph_alone() -> None:
    (own,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    ours = json.loads((REPOSITORY / "langgraph.json").read_text())
    assert own.pop("graphs") != ours.pop("graphs")
    assert own == ours


def test_begun_in_the_server_resumed_from_python_and_back(many: SyncLangGraphClient, graphs: Server) -> None:
    thread, folder = new(many), graphs.folder
    wait(many, thread, "ticket", input=message("Change the port."))
    assert (
        run_program(folder / "go_on.py", thread, "8080", folder=folder) == "Which port?\nThe port is 8080.\n"
    )
    question, thread = run_program(folder / "begin.py", folder=folder).splitlines()
    assert question == "Which port?"
    # It comes by itself where the server has a single graph.
    many.threads.create(thread_id=thread)
    values = wait(many, thread, "ticket", command={"resume": "80"})
    assert values["outcome"]["summary"] == "The port is 80."


def test_the_form_and_the_input_have_the_users_own_fields(many: SyncLangGraphClient) -> None:
    (only,) = many.assistants.search(graph_id="ticket")
    schemas = many.assistants.get_schemas(only["assistant_id"])
    form = (schemas["context_schema"] or {})["properties"]
    assert all(field["description"] for name, field in form.items() if name != "user_id")
    assert (form["system_prompt"]["langgraph_type"], form["model"]["langgraph_nodes"]) == (
        "prompt",
        ["call_llm"],
    )
    assert set(form) == {"user_id", *FIELDS}
    taken = schemas["input_schema"] or {}
    assert (taken["required"], list(taken["properties"])) == (["messages"], ["messages", "ticket"])
    assert {"messages", "outcome", "ticket"} <= set((schemas["output_schema"] or {})["properties"])
    thread = new(many)
    given: Any = {**message("Change the port."), "ticket": 7}
    assert wait(many, thread, "ticket", input=given, context={"user_id": "ann", "turns": 5})["ticket"] == 7
    assert values_of(many, thread)["ticket"] == 7
    answer: Any = {"resume": "80"}
    refused = wait(many, thread, "ticket", command=answer, context={"user_id": 3}, raise_error=False)
    assert "user_id" in refused["__error__"]["message"]
    # A name that the form does not have is left out by the server itself.
    assert wait(many, thread, "ticket", command=answer, context={"usr": "ann"})["ticket"] == 7
