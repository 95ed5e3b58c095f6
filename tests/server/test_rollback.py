"""`rollback` is refused, however a request asks for it; the run is cancelled, and the server goes on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Session
from signoff.server import ServerSaver
from signoff.session.decisions import Question
from tests.support.benches.studio import Shared, begun, client_of, message, until, wait
from tests.support.ends import is_finished
from tests.support.servers.dev_server import Server, langgraph_dev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUN = {"assistant_id": "signoff", "input": message("ask"), "multitask_strategy": "rollback"}
COMMAND = {
    "id": 7,
    "method": "run.start",
    "params": {"assistant_id": "signoff", "input": message("ask"), "multitaskStrategy": "rollback"},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return Shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def server(shared: Shared) -> Iterator[Server]:
    with langgraph_dev(shared.folder, shared.env(delay=0.2)) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[SyncLangGraphClient]:
    with client_of(server) as client:
        yield client


def post(url: str, sent: Any) -> str:
    """Returns why the request was refused."""
    response = httpx.post(url, content=sent if isinstance(sent, str) else json.dumps(sent), timeout=60)
    assert response.status_code == 400
    return str(response.json()["detail"])


Way = Callable[[str, str, str], str]
"""Asks a server for a rollback of a run: its address, the thread, the run."""

WAYS: dict[str, Way] = {
    "create": lambda url, thread, _: post(f"{url}/threads/{thread}/runs", RUN),
    "wait": lambda url, thread, _: post(f"{url}/threads/{thread}/runs/wait", RUN),
    "stream": lambda url, thread, _: post(f"{url}/threads/{thread}/runs/stream", RUN),
    "escaped": lambda url, thread, _: post(
        f"{url}/threads/{thread}/runs", json.dumps(RUN).replace("rollback", "\\u0072ollback")
    ),
    "a command": lambda url, thread, _: post(f"{url}/threads/{thread}/commands", COMMAND),
    "cancel": lambda url, thread, run: post(f"{url}/threads/{thread}/runs/{run}/cancel?action=rollback", {}),
    "cancel and wait": lambda url, thread, run: post(
        f"{url}/threads/{thread}/runs/{run}/cancel?wait=true&action=rollback", {}
    ),
    "cancel several": lambda url, thread, run: post(
        f"{url}/runs/cancel?action=rollback", {"thread_id": thread, "run_ids": [run]}
    ),
    "cancel all": lambda url, *_: post(f"{url}/runs/cancel?action=rollback", {"status": "all"}),
}


def statuses(client: SyncLangGraphClient, thread: str) -> list[str]:
    return [run["status"] for run in client.runs.list(thread)]


@pytest.mark.parametrize("joined", [False, True], ids=["unheard", "with a client that waits"])
@pytest.mark.parametrize("ask", WAYS.values(), ids=list(WAYS))
@pytest.mark.sample(4)
def test_the_run_is_cancelled_and_its_thread_and_all_others_go_on(
    client: SyncLangGraphClient, server: Server, shared: Shared, ask: Way, joined: bool
) -> None:
    (shared.workspace / "log.txt").unlink(missing_ok=True)
    thread = begun(client, shared)
    run = client.runs.list(thread)[0]["run_id"]
    if joined:
        with httpx.stream("GET", f"{server.url}/threads/{thread}/runs/{run}/stream", timeout=60) as events:
            # The server has joined it to the run before it asks.
            assert events.is_success
            refusal = ask(server.url, thread, run)
    else:
        refusal = ask(server.url, thread, run)
    assert refusal.startswith("A run is not rolled back")
    assert statuses(client, thread) == ["interrupted"]
    until(lambda: client.threads.get(thread)["status"] != "busy", "the thread is not free")
    other = client.threads.create()["thread_id"]
    assert "__interrupt__" in wait(client, other, input=message("ask"))
    # What it has done is still there, and goes on.
    with shared.storage() as storage:
        ended = Session(shared.graph(storage), thread).run()
    assert is_finished(ended)
    assert ended.outcome.status == "success"


REFUSED: dict[str, tuple[str, str, Any]] = {
    "a run of no thread": ("POST", "/runs/wait", RUN),
    "several runs": ("POST", "/runs/batch", [{**RUN, "multitask_strategy": "enqueue"}, RUN]),
    "a cron job": ("POST", "/runs/crons", {**RUN, "schedule": "0 0 1 1 *"}),
    "a cron job of the thread": ("POST", "/threads/{thread}/runs/crons", {**RUN, "schedule": "0 0 1 1 *"}),
    "to delete a run": ("DELETE", "/threads/{thread}/runs/{run}", None),
    "a run on a thread that waits": ("POST", "/threads/{thread}/runs", RUN),
    "a cancel of a run that has ended": ("POST", "/threads/{thread}/runs/{run}/cancel?action=rollback", {}),
}


@pytest.mark.parametrize(("method", "path", "sent"), REFUSED.values(), ids=list(REFUSED))
def test_where_nothing_is_to_be_undone_nothing_changes(
    client: SyncLangGraphClient, server: Server, method: str, path: str, sent: Any
) -> None:
    thread = client.threads.create()["thread_id"]
    wait(client, thread, input=message("ask"))
    (run,) = client.runs.list(thread)
    state = client.threads.get_state(thread)
    place = server.url + path.format(thread=thread, run=run["run_id"])
    refused = httpx.request(method, place, json=sent, headers={"origin": "https://smith.langchain.com"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (400, "*")
    assert client.runs.list(thread) == [run]
    assert client.threads.get_state(thread)["checkpoint"] == state["checkpoint"]
    assert wait(client, thread, input=message("80"))["outcome"]["summary"] == "The port is 80."


def test_the_question_of_a_browser_whether_it_may_ask_cancels_nothing(
    client: SyncLangGraphClient, server: Server, shared: Shared
) -> None:
    (shared.workspace / "log.txt").unlink(missing_ok=True)
    thread = begun(client, shared)
    run = client.runs.list(thread)[0]["run_id"]
    place = f"{server.url}/threads/{thread}/runs/{run}/cancel?action=rollback"
    origin = {"origin": "https://smith.langchain.com", "access-control-request-method": "POST"}
    assert httpx.options(place, headers=origin).is_success
    assert statuses(client, thread) == ["running"]
    client.runs.cancel(thread, run, wait=True)


ALLOWED: dict[str, Any] = {
    "another strategy": {**RUN, "multitask_strategy": "interrupt"},
    "the word in a message": {**RUN, "multitask_strategy": "enqueue", "input": message("rollback")},
    "the word elsewhere": {
        **RUN,
        "multitask_strategy": "enqueue",
        "metadata": {"multitask_strategy": "rollback"},
    },
}


@pytest.mark.parametrize("sent", ALLOWED.values(), ids=list(ALLOWED))
def test_other_requests_pass(client: SyncLangGraphClient, server: Server, sent: Any) -> None:
    thread = client.threads.create()["thread_id"]
    response = httpx.post(f"{server.url}/threads/{thread}/runs", json=sent)
    assert response.is_success
    client.runs.cancel(thread, response.json()["run_id"], wait=True)


async def test_a_rollback_that_comes_by_another_way_keeps_the_steps(tmp_path: Path) -> None:
    """Such as by a web socket; an exception would end the server's worker."""
    shared = Shared(tmp_path)
    with shared.storage() as storage:
        session = Session(shared.graph(storage), "t")
        assert isinstance(await session.arun("ask"), Question)
        await ServerSaver(storage).adelete_for_runs(["a run"])
        assert is_finished(await session.aresume("80"))
