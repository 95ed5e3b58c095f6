"""docs/how-to/studio.md: its programs run as they stand, and what it says of files and fields is so."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Limits
from tests.support.benches.studio import message, new, values_of, wait
from tests.support.pages import blocks, read
from tests.support.servers.dev_server import REPOSITORY, Server, quiet_environment

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


def program(folder: Path, name: str, *words: str) -> list[str]:
    command = [sys.executable, name, *words]
    done = subprocess.run(
        command, cwd=folder, env=quiet_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
def test_begun_in_the_server_resumed_from_python_and_back(many: SyncLangGraphClient, graphs: Server) -> None:
    thread = new(many)
    wait(many, thread, "ticket", input=message("Change the port."))
    assert program(graphs.folder, "go_on.py", thread, "8080") == ["Which port?", "The port is 8080."]
    question, thread = program(graphs.folder, "begin.py")
    assert question == "Which port?"
    # It comes by itself where the server has a single graph.
    many.threads.create(thread_id=thread)
    values = wait(many, thread, "ticket", command={"resume": "80"})
    assert values["outcome"]["summary"] == "The port is 80."


@pytest.mark.slow
def test_the_form_and_the_input_have_the_users_own_fields(many: SyncLangGraphClient) -> None:
    (only,) = many.assistants.search(graph_id="ticket")
    schemas = many.assistants.get_schemas(only["assistant_id"])
    assert set((schemas["context_schema"] or {})["properties"]) == {"user_id", *FIELDS}
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
