"""What Studio is given by a real server: the graph, the chat's input, the form of a run; and who may ask."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Limits
from signoff.graph.machine import WHAT_IT_DOES
from tests.studio_picture import PICTURE, describe, draw
from tests.support.benches.studio import Shared, client_of, message, wait
from tests.support.servers.dev_server import Server, langgraph_dev, quiet_environment
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    shared = Shared(tmp_path_factory.mktemp("studio"))
    with langgraph_dev(shared.folder, shared.env()) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with client_of(server) as client:
        yield client


def only(client: SyncLangGraphClient) -> str:
    """The assistant that every graph has by itself."""
    (found,) = client.assistants.search(metadata={"created_by": "system"})
    return found["assistant_id"]


def test_every_node_is_described(client: SyncLangGraphClient) -> None:
    drawn = client.assistants.get_graph(only(client))
    told = {node["id"]: node.get("metadata", {}).get("description") for node in drawn["nodes"]}
    assert {name: text for name, text in told.items() if text} == WHAT_IT_DOES


def test_the_picture_in_the_docs_is_what_the_server_says(server: Server) -> None:
    """`python -m tests.studio_picture` draws it anew."""
    assert PICTURE.read_text(encoding="utf-8") == draw(describe(server))


def test_the_schemas_make_a_chat_and_a_form(client: SyncLangGraphClient) -> None:
    schemas = client.assistants.get_schemas(only(client))
    taken = schemas["input_schema"] or {}
    assert (taken["required"], list(taken["properties"])) == (["messages"], ["messages"])
    kinds = {kind["$ref"].rpartition("/")[2] for kind in taken["properties"]["messages"]["items"]["oneOf"]}
    assert (taken["properties"]["messages"]["type"], kinds >= {"HumanMessage", "AIMessage"}) == (
        "array",
        True,
    )
    assert {"messages", "outcome"} <= set((schemas["output_schema"] or {})["properties"])
    fields = (schemas["context_schema"] or {})["properties"]
    assert set(fields) == {"system_prompt", "model", "model_seconds", *Limits.model_fields} - {"prices"}
    assert all(field["description"] for field in fields.values())
    assert fields["system_prompt"]["langgraph_type"] == "prompt"
    assert fields["system_prompt"]["langgraph_nodes"] == fields["model"]["langgraph_nodes"] == ["call_llm"]


@pytest.mark.parametrize("where", ["run", "assistant", "configurable"])
def test_the_context_form_sets_a_run(client: SyncLangGraphClient, where: str) -> None:
    thread = client.threads.create()["thread_id"]
    context: dict[str, Any] = {"system_prompt": "You keep bees.", "turns": 1, "model": ""}
    chosen, given = "signoff", {"context": context}
    if where == "assistant":
        chosen, given = client.assistants.create("signoff", context=context)["assistant_id"], {}
    elif where == "configurable":
        given = {"config": {"configurable": context}}
    done = client.runs.wait(thread, chosen, input=message("prompt"), **given)  # type: ignore[call-overload]  # by keyword
    assert done["outcome"]["summary"].startswith("You keep bees.")
    thread = client.threads.create()["thread_id"]
    done = client.runs.wait(thread, chosen, input=message("work"), **given)  # type: ignore[call-overload]  # by keyword
    assert (done["outcome"]["status"], done["outcome"]["reason"]) == ("limit", "turns")
    if where == "assistant":
        client.assistants.delete(chosen)


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"model": "second"}, "ScriptedModel has no name that can be changed"),
        ({"turns": 0}, "turns"),
        ({"cost": 1.0}, "prices"),
    ],
)
def test_a_context_that_does_not_fit_is_said_in_words(
    client: SyncLangGraphClient, context: dict[str, Any], says: str
) -> None:
    thread = client.threads.create()["thread_id"]
    with pytest.raises(Exception, match=says):
        client.runs.wait(thread, "signoff", input=message("prompt"), context=context)
    assert wait(client, thread, input=message("prompt"))["outcome"]["status"] == "success", (
        "the thread goes on"
    )


def test_the_model_in_the_form_is_asked_of_the_same_provider(tmp_path: Path) -> None:
    finish = Reply(calls=[tool_call("finish_task", summary="Done.")])
    with FakeProvider([finish] * 3) as provider:
        env = quiet_environment(SIGNOFF_MODEL="first", OPENAI_BASE_URL=provider.url)
        with (
            langgraph_dev(tmp_path, env) as running,
            get_sync_client(url=running.url, api_key=None) as client,
        ):
            for context in ({"model": "second"}, {}, {"model": "third"}):
                thread = client.threads.create()["thread_id"]
                done = client.runs.wait(thread, "signoff", input=message("go"), context=context)
                assert isinstance(done, dict)
                assert done["outcome"]["status"] == "success"
        assert [request.body["model"] for request in provider.requests] == ["second", "first", "third"]


def test_an_answer_of_null_gets_a_sentence_and_an_inbox_is_understood(
    server: Server, client: SyncLangGraphClient
) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input=message("ask"))
    run = {"assistant_id": "signoff", "command": {"resume": None}}
    told = httpx.post(f"{server.url}/threads/{thread}/runs/wait", json=run, trust_env=False).text
    assert "nothing would be delivered; pass text" in told
    done = wait(client, thread, command={"resume": [{"type": "response", "args": "8080"}]})
    assert (done["outcome"]["summary"], done["decision"]["rule"]) == ("The port is 8080.", "claimed")
    values = client.threads.get_state(thread)["values"]
    assert set(values) <= {"messages", "outcome", "decision", "phases", "digest", "acting"}


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("https://smith.langchain.com", 200),
        ("https://eu.smith.langchain.com", 200),
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8123", 200),
        ("https://evil.example", 403),
        ("https://smith.langchain.com.evil.example", 403),
        ("https://evilsmith.langchain.com", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
    ],
)
@pytest.mark.sample(4)
def test_a_strange_page_cannot_use_the_server(server: Server, origin: str | None, status: int) -> None:
    # What a browser sends for any page without asking first.
    headers = {"Content-Type": "text/plain", **({"Origin": origin} if origin else {})}
    found = httpx.post(f"{server.url}/threads", content="{}", headers=headers, trust_env=False)
    assert found.status_code == status
