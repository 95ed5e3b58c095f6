"""docs/how-to/studio.md: its programs run as they stand, and what it says of files and fields is so."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from signoff.graph.state import Context
from tests.support.servers.dev_server import REPOSITORY, langgraph_dev, quiet_environment

PAGE = (REPOSITORY / "docs/how-to/studio.md").read_text(encoding="utf-8")
ENV = quiet_environment()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_every_field_of_the_form_is_told() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.partition("The form of a run")[2].partition("\n\n#")[0], re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(Context.model_fields)


def test_the_settings_for_a_graph_of_ones_own_differ_from_ours_in_the_graph_alone() -> None:
    (own,) = map(json.loads, blocks("json"))
    ours = json.loads((REPOSITORY / "langgraph.json").read_text())
    assert own.pop("graphs") != ours.pop("graphs")
    assert own == ours


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the page, under the names that it gives them."""
    folder = tmp_path_factory.mktemp("docs")
    for name, program in zip(("my_agent.py", "go_on.py", "begin.py"), blocks("python"), strict=True):
        assert f"`{name}`" in PAGE
        (folder / name).write_text(program)
    (folder / "langgraph.json").write_text(*blocks("json"))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[SyncLangGraphClient]:
    # A relative path, as the page has it.
    env = {**ENV, "SIGNOFF_DATABASE": "threads.sqlite"}
    config = folder / "langgraph.json"
    with langgraph_dev(folder, env, config) as server, get_sync_client(url=server.url) as client:
        yield client


def program(folder: Path, name: str, *words: str) -> list[str]:
    command = [sys.executable, name, *words]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def wait(client: SyncLangGraphClient, thread: str, **given: Any) -> Any:
    return client.runs.wait(thread, "agent", **given)


@pytest.mark.slow
@pytest.mark.thorough
def test_begun_in_the_server_resumed_from_python(client: SyncLangGraphClient, folder: Path) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input={"messages": [{"role": "user", "content": "Change the port."}]})
    assert program(folder, "go_on.py", thread, "8080") == ["Which port?", "The port is 8080."]


@pytest.mark.slow
def test_begun_in_python_resumed_in_the_server(client: SyncLangGraphClient, folder: Path) -> None:
    question, thread = program(folder, "begin.py")
    assert question == "Which port?"
    assert thread in {found["thread_id"] for found in client.threads.search()}
    assert client.threads.get_state(thread)["next"] == ["ask_user"]
    assert wait(client, thread, command={"resume": "80"})["outcome"]["summary"] == "The port is 80."


@pytest.mark.slow
def test_the_form_and_the_input_have_the_users_own_fields(client: SyncLangGraphClient) -> None:
    (only,) = client.assistants.search()
    schemas = client.assistants.get_schemas(only["assistant_id"])
    form = (schemas["context_schema"] or {})["properties"]
    assert set(form) == {"user_id", *Context.model_fields}
    taken = schemas["input_schema"] or {}
    assert (taken["required"], list(taken["properties"])) == (["messages"], ["messages", "ticket"])
    assert {"messages", "outcome", "ticket"} <= set((schemas["output_schema"] or {})["properties"])
    thread = client.threads.create()["thread_id"]
    given = {"messages": [{"role": "user", "content": "Change the port."}], "ticket": 7}
    paused = wait(client, thread, input=given, context={"user_id": "ann", "turns": 5})
    assert paused["ticket"] == 7
    values: Any = client.threads.get_state(thread)["values"]
    assert (values["ticket"], "task" in values) == (7, False)
    with pytest.raises(Exception, match="user_id: Input should be a valid string"):
        wait(client, thread, command={"resume": "80"}, context={"user_id": 3})
    # A name that the form does not have is left out by the server itself.
    assert wait(client, thread, command={"resume": "80"}, context={"usr": "ann"})["ticket"] == 7
