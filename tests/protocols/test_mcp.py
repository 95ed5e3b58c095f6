"""`signoff mcp` as other programs start it: tools run threads, and each answer counts once."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from langchain_core.messages import messages_from_dict
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from signoff import sqlite_storage
from tests.protocols.conftest import text_of
from tests.support.rpc import FAILS, NEVER, Peer, Refused, fill_in, signoff
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parents[1] / "support" / "servers"
PUT_AWAY = {"result": {"action": "decline"}}
APPROVE, REJECT = fill_in(decision="approve"), fill_in(decision="reject", message="No")
EDITED = '{"command": "echo edited >> FILE"}'
EDIT = fill_in(decision="edit", arguments=EDITED)
HELLO = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "x", "version": "1"}}


class Client(Peer):
    """A program and the server that it has started."""

    def __init__(self, command: Sequence[str], folder: Path, **capabilities: Any) -> None:
        super().__init__(command, folder)
        self.request("initialize", **HELLO, capabilities=capabilities)
        self.send(method="notifications/initialized")

    def begin(self, tool: str, **arguments: Any) -> int:
        return self.start("tools/call", name=tool, arguments=arguments, _meta={"progressToken": tool})

    def call(self, tool: str, *answers: Any, **arguments: Any) -> dict[str, Any]:
        """Returns what a tool says of its thread. answers: what a person fills in."""
        self.answers.extend(answers)
        result = self.response(self.begin(tool, **arguments))
        assert not self.answers, "fewer forms were shown"
        content = dict(result["structuredContent"])
        assert result["isError"] == (content["status"] in ("error", "refused"))
        return content

    def read(self, uri: str) -> dict[str, Any]:
        return dict(json.loads(self.request("resources/read", uri=uri)["contents"][0]["text"]))


@pytest.fixture(scope="module")
def command(folder: Path) -> list[str]:
    return signoff("mcp", folder / "threads.sqlite", "--approve", "terminal", "--turns", "4")


@pytest.fixture(scope="module")
def with_forms(folder: Path, command: list[str]) -> Iterator[Client]:
    with Client(command, folder, elicitation={}) as client:
        yield client


@pytest.fixture(scope="module")
def client(folder: Path, command: list[str]) -> Iterator[Client]:
    with Client(command, folder) as client:
        yield client


def named(answers: Any, file: Path) -> Any:
    return json.loads(json.dumps(answers).replace("FILE", file.name))


# What a person fills in, one form after the other, and what then stands in the file.
FORMS: dict[str, tuple[list[Any], str]] = {
    "changed, but not as an edit": ([fill_in(decision="approve", arguments=EDITED), EDIT], "edited\n"),
    "edited wrongly": ([fill_in(decision="edit", arguments="no JSON"), EDIT], "edited\n"),
}


@pytest.mark.parametrize("case", FORMS)
def test_a_call_is_decided_in_a_form(with_forms: Client, file: Path, case: str) -> None:
    answers, wrote = FORMS[case]
    first = len(with_forms.asked)
    ended = with_forms.call("run_task", *named(answers, file), task=f"run {file.name}")
    assert (ended["status"], ended["outcome"]["summary"], text_of(file)) == ("success", "It ran.", wrote)
    forms = [params for _, params in with_forms.asked[first:]]
    fields = forms[0]["requestedSchema"]["properties"]
    assert fields["decision"]["enum"] == ["approve", "edit", "reject", "respond"]
    assert file.name in json.loads(fields["arguments"]["default"])["command"]
    # A form that is shown again says first why.
    for again in forms[1:]:
        assert again["message"].endswith(forms[0]["message"])
        assert again["message"] != forms[0]["message"]


def test_each_of_two_calls_has_a_form_and_all_are_shown_again(with_forms: Client, file: Path) -> None:
    wrong = fill_in(decision="edit", arguments="no JSON")
    ended = with_forms.call("run_task", APPROVE, wrong, APPROVE, REJECT, task=f"two {file.name}")
    assert (ended["status"], text_of(file)) == ("success", "one\n")


BROKEN: dict[str, Any] = {
    "an error": FAILS,
    "an error of other types": {"error": {"code": "x", "message": 5}},
    "a field that is no text": fill_in(answer={"deep": 1}),
}


def test_a_form_without_an_answer_leaves_the_thread_waiting(with_forms: Client, file: Path) -> None:
    waits = with_forms.call("run_task", PUT_AWAY, task=f"ask {file.name}")
    assert (waits["status"], waits["waits_for"]) == ("waiting", "answer")
    assert (waits["question"]["question"], waits["question"]["options"]) == ("Which port?", ["8080", "9090"])
    for case, answer in BROKEN.items():
        assert with_forms.call("resume", answer, thread=waits["thread"]) == waits, case
    assert with_forms.call("resume", fill_in(answer="8080"), thread=waits["thread"])["status"] == "success"
    assert text_of(file) == "8080"


def test_a_client_without_forms_answers_by_resume(client: Client, file: Path) -> None:
    """tests/faces has what a decision comes to."""
    waits = client.call("run_task", task=f"run {file.name}")
    assert (waits["status"], waits["waits_for"]) == ("waiting", "approval")
    thread, waiting_id = waits["thread"], waits["waiting_id"]
    refused = {"thread": thread, "status": "refused"}
    proper = {"thread": thread, "waiting_id": waiting_id, "answer": ["approve"]}
    for wrong in ({"waiting_id": ""}, {"waiting_id": f"{'0' * 4}{waiting_id[4:]}"}, {"answer": "maybe"}):
        assert client.call("resume", **{**proper, **wrong}) == refused
    assert client.call("resume", thread=thread) == waits
    assert text_of(file) == ""
    assert client.call("resume", **proper)["status"] == "success"
    assert client.call("resume", **proper) == refused
    assert text_of(file) == "ran\n"


def test_a_limit_more_turns_and_progress(client: Client, file: Path) -> None:
    client.heard.clear()
    limited = client.call("run_task", task=f"write {file.name}")
    assert (limited["status"], limited["outcome"]["reason"]) == ("limit", "turns")
    news = [params for method, params in client.heard if method == "notifications/progress"]
    steps = [params["progress"] for params in news]
    assert steps == sorted(set(steps))
    assert any(limited["thread"] in params["message"] for params in news)
    assert client.call("go_on", thread=limited["thread"], turns=5)["status"] == "success"
    assert client.call("resume", thread=limited["thread"])["status"] == "refused"


def test_an_error_is_told_and_tried_again(client: Client, file: Path) -> None:
    failed = client.call("run_task", task=f"fail {file}")
    assert (failed["status"], failed["outcome"]["reason"]) == ("error", "model_error")
    file.touch()
    assert client.call("go_on", thread=failed["thread"])["outcome"]["summary"] == "Better."


def test_resources_tell_the_outcome_and_the_record(client: Client, file: Path) -> None:
    thread = f"a/b {file.name}"
    client.call("run_task", task=f"run {file.name}", thread=thread)
    uris = [f"signoff://threads/{quote(thread, safe='')}/{what}" for what in ("outcome", "record")]
    listed = [resource["uri"] for resource in client.request("resources/list")["resources"]]
    assert listed[:2] == uris
    outcome, record = map(client.read, uris)
    assert (outcome["thread"], outcome["status"]) == (thread, "waiting")
    assert record == {**outcome, "messages": record["messages"]}
    client.call("resume", thread=thread, answer="approve", waiting_id=waiting_id(client, thread))
    record = client.read(uris[1])
    kinds = [message.type for message in messages_from_dict(record["messages"])]
    assert (record["outcome"]["summary"], kinds) == ("It ran.", ["human", "ai", "tool", "ai", "tool", "ai"])
    for unknown in ("signoff://threads/none/outcome", "signoff://threads/a", "file:///etc/passwd"):
        with pytest.raises(Refused):
            client.read(unknown)


def waiting_id(client: Client, thread: str) -> str:
    return str(client.call("resume", thread=thread)["waiting_id"])


def test_a_thread_that_runs_is_not_called_waiting(client: Client, folder: Path, file: Path) -> None:
    running, waits = f"runs {file.name}", client.call("run_task", task=f"ask {file.name}")
    thread = waits["thread"]
    with sqlite_storage(folder / "threads.sqlite") as storage, storage.checkpointer.runner(thread):
        outcome = client.read(f"signoff://threads/{thread}/outcome")
        assert (outcome["status"], "question" in outcome) == ("running", False)
        for answer in ({}, {"answer": "1", "waiting_id": waits["waiting_id"]}):
            assert client.call("resume", thread=thread, **answer)["status"] == "refused"
    assert client.read(f"signoff://threads/{thread}/outcome")["status"] == "waiting"
    first = client.begin("run_task", task=f"slow {file}", thread=running)
    client.wait_for(lambda: any(running in str(params) for _, params in client.heard))
    again = {"thread": running, "status": "refused"}
    assert client.call("run_task", task="Another", thread=running) == again
    # A client that no longer waits pauses it.
    client.send(method="notifications/cancelled", params={"requestId": first})
    file.with_suffix(".go").touch()
    uri = f"signoff://threads/{quote(running)}/outcome"
    wait_until(lambda: client.read(uri)["status"] != "running")
    assert not file.with_suffix(".1").exists()
    assert client.call("resume", thread=running)["status"] == "success"


# A call, and the thread that its refusal names.
WRONG: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "an argument that there is not": ("run_task", {"task": "x", "mode": "fast"}, None),
    "a task of 2 MB": ("run_task", {"task": "x" * 2_000_000}, None),
    "a task for a thread that waits": ("run_task", {"task": "Another", "thread": "t"}, "t"),
    "an unknown thread": ("resume", {"thread": "none"}, "none"),
    "an answer to something else": ("resume", {"thread": "t", "answer": "1", "waiting_id": "0"}, "t"),
    "a thread id that cannot be kept": ("go_on", {"thread": "a\0"}, None),
    "a tool that there is not": ("teleport", {}, None),
}


def test_a_wrong_call_is_refused_and_names_its_thread(client: Client, file: Path) -> None:
    waits = client.call("run_task", task=f"ask {file.name}", thread="t")
    for case, (tool, arguments, thread) in WRONG.items():
        result = client.response(client.begin(tool, **arguments))
        named_thread = {} if thread is None else {"thread": thread}
        assert result["structuredContent"] == {**named_thread, "status": "refused"}, case
        assert (result["isError"], len(result["content"][0]["text"]) < 400) == (True, True), case
    assert client.call("resume", thread="t") == waits


# --- the process ---


def test_lines_that_are_no_messages_and_an_end_in_the_middle_of_a_form(folder: Path) -> None:
    database = folder / "noisy.sqlite"
    options = ["--graph", f"{SERVERS / 'noisy_graph.py'}:graph", "--config", "none"]
    command = [sys.executable, "-m", "signoff.cli", "mcp", *options]
    # Every line that it writes is read as JSON.
    with Peer([*command, "--database", str(database)], folder) as peer:
        with pytest.raises(Refused):
            peer.request("tools/list")
        hello = {**HELLO, "protocolVersion": "1999-01-01", "capabilities": {"elicitation": {}}}
        assert peer.request("initialize", **hello)["protocolVersion"] >= "2025"
        peer.send(method="notifications/initialized")
        for line in (b"no JSON", b"[1]", b'{"jsonrpc": "2.0", "id": 3}'):
            peer.write(line)
        peer.send(id="odd", method="tools/list", params=[1])
        with pytest.raises(Refused) as refused:
            peer.response("odd")
        assert refused.value.code == -32600
        peer.send(id=77, **APPROVE)
        tools = [tool["name"] for tool in peer.request("tools/list")["tools"]]
        assert tools == ["run_task", "resume", "go_on"]
        peer.answers.append(NEVER)
        peer.start("tools/call", name="run_task", arguments={"task": "Add", "thread": "t"})
        peer.wait_for(lambda: peer.asked)
        assert peer.end() == 0
    with sqlite_storage(database) as storage:
        assert [row.thread_id for row in storage.threads(condition="waiting")] == ["t"]


@pytest.mark.thorough
async def test_the_adapters_of_langchain(command: list[str], folder: Path, file: Path) -> None:
    stdio = {"transport": "stdio", "command": command[0], "args": command[1:], "cwd": folder}
    async with MultiServerMCPClient({"signoff": cast(Any, stdio)}).session("signoff") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def told(name: str, **arguments: Any) -> Any:
            made = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
            return (await tools[name].ainvoke(made)).artifact["structured_content"]

        waits = await told("run_task", task=f"run {file.name}")
        answer = {"thread": waits["thread"], "waiting_id": waits["waiting_id"], "answer": "approve"}
        assert (await told("resume", **answer))["status"] == "success"
    assert text_of(file) == "ran\n"
