"""Going on, stopping and undoing by JSON, on a running `langgraph dev` with its own saver and with ours."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff import ThreadUnknown
from tests.support.benches.studio import client_of, message, until
from tests.support.servers.dev_server import Server, langgraph_dev, quiet_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What comes next follows from the messages, so that threads do not disturb each other.
AGENT = '''
from pathlib import Path
import time
from langchain_core.tools import StructuredTool
from signoff import build_graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

HERE = Path(__file__).parent
failed = set()

def look(place: str) -> str:
    """Look somewhere."""
    return "nothing in " + place

def slow(place: str) -> str:
    """Work slowly."""
    with (HERE / "effects.txt").open("a") as log:
        log.write(place + "\\n")
    while not (HERE / "go").exists():
        time.sleep(0.05)
    return "worked"

def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"

def script(messages):
    task = next(m.text for m in messages if m.type == "human")
    turn = sum(map(is_reply, messages)) + 1
    if task == "limit" and turn < 9:
        return call("look", place=str(turn))
    if task.startswith("error") and task not in failed:
        failed.add(task)
        raise ValueError("no quota")
    if task == "ask" and turn == 1:
        return call("ask_user", question="Which colour?")
    if task == "pay" and turn == 1:
        return call("pay", to="ada")
    if task == "kill" and turn == 1:
        return call("slow", place="a")
    if task == "kill":
        return call("finish_task", summary="It may have run.", outcome="partial")
    return call("finish_task", summary="Done.")

undoable = StructuredTool.from_function(pay, metadata={"undo": lambda args, result: "taken back"})
graph = build_graph(ScriptedModel(script), [look, slow, undoable], limits={"turns": 2})
'''
SAVERS: dict[str, dict[str, Any]] = {
    "the server's own": {},
    "Signoff's": {
        "checkpointer": {"path": "signoff.server.checkpointer"},
        "store": {"path": "signoff.server.store"},
    },
}


def written(folder: Path, saver: dict[str, Any]) -> Path:
    """The configuration of a server in this folder."""
    (folder / "agent.py").write_text(AGENT)
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}, **saver}))
    return config


@pytest.fixture(scope="module", params=SAVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    config = written(folder, SAVERS[request.param])
    with langgraph_dev(folder, quiet_environment(XDG_CACHE_HOME=str(folder)), config) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with client_of(server) as client:
        yield client


def begun(client: SyncLangGraphClient, task: str) -> tuple[str, dict[str, Any]]:
    """A new thread with this task, and its values when the run has ended."""
    thread = client.threads.create()["thread_id"]
    values = client.runs.wait(thread, "agent", input=message(task))
    assert isinstance(values, dict)
    return thread, values


def commanded(client: SyncLangGraphClient, thread: str, name: str, **options: Any) -> dict[str, Any]:
    """The values after a command of one key."""
    command: Any = {"update": {name: options}}
    values = client.runs.wait(thread, "agent", command=command)
    assert isinstance(values, dict)
    return values


def test_after_a_limit_there_are_more_turns_and_one_id_grants_once(client: SyncLangGraphClient) -> None:
    thread, values = begun(client, "limit")
    assert (values["outcome"]["reason"], values["outcome"]["turns"]) == ("turns", 2)
    for _ in range(3):
        assert commanded(client, thread, "go_on", turns=1, id="a click")["outcome"]["turns"] == 3
    assert commanded(client, thread, "go_on")["outcome"]["turns"] == 5
    values = commanded(client, thread, "go_on", turns=10)
    assert values["outcome"]["status"] == "success"
    assert commanded(client, thread, "go_on", turns=10)["outcome"] == values["outcome"]


def test_after_an_error_it_tries_again(client: SyncLangGraphClient) -> None:
    thread, values = begun(client, f"error {time.time()}")
    assert values["outcome"]["reason"] == "model_error"
    assert commanded(client, thread, "go_on")["outcome"]["status"] == "success"


def test_what_waits_comes_back_with_its_interrupt(client: SyncLangGraphClient) -> None:
    thread, _ = begun(client, "ask")
    (wait,) = commanded(client, thread, "go_on")["__interrupt__"]
    assert wait["value"]["question"] == "Which colour?"
    values = client.runs.wait(thread, "agent", command={"resume": {wait["id"]: "blue"}})
    assert isinstance(values, dict)
    assert values["outcome"]["status"] == "success"


def test_stop_ends_what_waits_and_going_on_takes_it_up(client: SyncLangGraphClient) -> None:
    thread, _ = begun(client, "ask")
    assert commanded(client, thread, "stop")["outcome"]["reason"] == "cancelled"
    assert commanded(client, thread, "go_on")["outcome"]["status"] == "success"


def test_undo_takes_back_what_a_task_has_done(client: SyncLangGraphClient) -> None:
    thread, values = begun(client, "pay")
    assert values["outcome"]["status"] == "success"
    report = commanded(client, thread, "undo", ask=False)["outcome"]["undo"]
    assert [one["said"] for one in report["undone"]] == ["taken back"]


def test_the_stream_goes_on_too(client: SyncLangGraphClient) -> None:
    thread, _ = begun(client, "limit")
    command: Any = {"update": {"go_on": {"turns": 1}}}
    parts = list(client.runs.stream(thread, "agent", command=command, stream_mode=["values"]))
    assert parts[-1].data["outcome"]["turns"] == 3


def test_a_thread_without_a_task_is_told_so(client: SyncLangGraphClient) -> None:
    thread = client.threads.create()["thread_id"]
    answer: Any = client.runs.wait(thread, "agent", command={"update": {"go_on": {}}}, raise_error=False)
    assert answer["__error__"]["error"] == ThreadUnknown.__name__
    with pytest.raises(httpx.HTTPStatusError):
        client.runs.wait("00000000-0000-0000-0000-000000000000", "agent", command={"update": {"go_on": {}}})


def test_after_a_kill_in_a_tool_it_goes_on_and_no_effect_runs_twice(tmp_path: Path) -> None:
    config = written(tmp_path, SAVERS["Signoff's"])
    env = quiet_environment(XDG_CACHE_HOME=str(tmp_path))
    effects = tmp_path / "effects.txt"
    with langgraph_dev(tmp_path, env, config) as server, client_of(server) as client:
        thread = client.threads.create()["thread_id"]
        client.runs.create(thread, "agent", input=message("kill"))
        until(effects.exists, "the tool does not run")
        server.kill()
    (tmp_path / "go").touch()
    with langgraph_dev(tmp_path, env, config) as server, client_of(server) as client:
        # The server may have lost its list of threads, which it writes every ten seconds only.
        client.threads.create(thread_id=thread, if_exists="do_nothing")
        outcome = commanded(client, thread, "go_on")["outcome"]
    assert (outcome["status"], effects.read_text()) == ("success", "a\n")
