"""The service of the door, over HTTP: a client begins, lists, answers, is late, goes on and streams; the
service is killed and starts again."""

import json
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from signoff import Graph, build_graph, go_on, sqlite_storage
from signoff.models import ScriptedModel, call

EXAMPLE = Path(__file__).parents[2] / "examples" / "support"
ANSWER = {"type": "respond", "message": "B2"}
paid: list[tuple[str, int]] = []


def refund(order: str, amount: int) -> str:
    """Pay money back."""
    paid.append((order, amount))
    return f"{amount} paid back for {order}"


def step(messages: list[Any]) -> Any:
    """Asks which order, pays back, and asks to confirm the end; after a refusal it says more."""
    names = [message.name for message in messages if message.type == "tool"]
    if "ask_user" not in names:
        return call("ask_user", question="Which order?", options=["A1", "B2"])
    if "refund" not in names:
        order = next(message.text for message in messages if message.name == "ask_user")
        return call("refund", order=order, amount=500)
    told = ", and the customer is told" if names[-1] == "finish_task" else ""
    return call("finish_task", summary=f"Paid back{told}.", requires_user_confirmation=True)


def looks(messages: list[Any]) -> Any:
    number = sum(message.type == "tool" for message in messages)
    return call("look", place=str(number)) if number < 3 else call("finish_task", summary="Seen.")


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@contextmanager
def served(app: Any) -> Iterator[httpx.Client]:
    """A client of the app, which runs in a server of its own on 127.0.0.1."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # a client may come before the server is ready
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=30, headers={"connection": "close"}) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    make_app = runpy.run_path(str(EXAMPLE / "service.py"))["make_app"]

    @contextmanager
    def run(make_step: Any = step, **options: Any) -> Iterator[httpx.Client]:
        storage = sqlite_storage(tmp_path / "threads.sqlite")
        options = {"tools": [refund, look], "approvals": {"refund": True}, **options}
        graph = build_graph(ScriptedModel(make_step), storage=storage, **options)
        with served(make_app(graph, storage)) as client:
            yield client

    return run


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def answered(client: httpx.Client, wait: dict[str, Any], value: Any, thread: str = "t1") -> httpx.Response:
    return client.post(f"/threads/{thread}/waits/{wait['interrupt_id']}", json=value)


def test_a_person_answers_approves_with_an_edit_and_rejects_the_end_once(serve: Any) -> None:
    with serve() as client:
        question = client.post("/threads/t1", json={"task": "Refund me."}).json()
        assert (question["type"], question["options"]) == ("question", ["A1", "B2"])
        assert client.get("/waiting").json() == [{"thread": "t1", **question}]

        approval = answered(client, question, 2).json()
        assert approval["action_requests"][0]["args"] == {"order": "B2", "amount": 500}
        assert client.get("/threads/t1").json() == {
            "condition": "waiting",
            "waits": [approval],
            "outcome": None,
        }
        edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "B2", "amount": 450}}}
        first_end = answered(client, approval, {"decisions": [edit]}).json()
        assert (paid, first_end["finish"]) == ([("B2", 450)], True)

        second_end = answered(client, first_end, "reject: tell the customer").json()
        assert second_end["interrupt_id"] != first_end["interrupt_id"]
        outcome = answered(client, second_end, "yes").json()
        assert (outcome["status"], outcome["summary"]) == ("success", "Paid back, and the customer is told.")
        assert client.get("/waiting").json() == []
        assert client.get("/threads/t1").json()["outcome"] == outcome

        late = [answered(client, wait, "yes").status_code for wait in (question, approval, second_end)]
        assert (late, paid) == ([409] * 3, [("B2", 450)])


def test_what_does_not_fit_is_refused_and_can_be_answered_afterwards(serve: Any) -> None:
    with serve() as client:
        question = client.post("/threads/t1", json={"task": "Refund me."}).json()
        before = client.get("/threads/t1").json()
        refused = {
            "another task": client.post("/threads/t1", json={"task": "And me."}),
            "an option that is none": answered(client, question, 3),
            "a decision on a question": answered(client, question, {"decisions": [{"type": "approve"}]}),
            "no such wait": client.post(f"/threads/t1/waits/{'0' * 32}", json="B2"),
            "no such thread": client.post(f"/threads/t2/waits/{question['interrupt_id']}", json="B2"),
            "nothing to go on with": client.post("/threads/t2/go-on", json={"turns": 3}),
            "no such thread to look at": client.get("/threads/t2"),
            "no turns": client.post("/threads/t1/go-on", json={"turns": 0}),
            "no task": client.post("/threads/t2", json={"task": " "}),
        }
        assert {case: response.status_code for case, response in refused.items()} == {
            "another task": 409,
            "an option that is none": 422,
            "a decision on a question": 422,
            "no such wait": 409,
            "no such thread": 404,
            "nothing to go on with": 404,
            "no such thread to look at": 404,
            "no turns": 400,
            "no task": 400,
        }
        assert client.get("/threads/t1").json() == before
        assert client.post("/threads/t1/go-on", json={}).json() == question
        assert answered(client, question, ANSWER).json()["action_requests"][0]["args"]["order"] == "B2"


def test_after_a_limit_it_goes_on(serve: Any) -> None:
    with serve(looks, limits={"turns": 2}) as client:
        assert client.post("/threads/t1", json={"task": "Look."}).json()["reason"] == "turns"
        assert client.get("/threads/t1").json()["condition"] == "ended"
        assert client.post("/threads/t1/go-on", json={"turns": 1}).json()["status"] == "limit"
        assert client.post("/threads/t1/go-on", json={}).json()["summary"] == "Seen."


def test_the_events_of_a_run_are_streamed(serve: Any) -> None:
    with serve() as client:
        with client.stream("POST", "/threads/t1/events", json={"task": "Refund me."}) as stream:
            lines = [line.partition(": ")[2] for line in stream.iter_lines() if line]
        names, events = lines[::2], [json.loads(line) for line in lines[1::2]]
        assert names == [event["type"] for event in events]
        assert (names[0], names[-1]) == ("entered", "decided")
        assert events[-1]["decision"]["text"] == "Which order?"
        assert client.get("/threads/t1").json()["condition"] == "waiting"
        assert client.post("/threads/t1/events", json={"task": "And me."}).status_code == 409


_DIES = """
import os, sys
sys.path.insert(0, sys.argv[1])
import uvicorn
from service import make_app
from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call

def pay(amount: int) -> str:
    '''Pay.'''
    with open("paid", "a") as ledger:
        ledger.write(f"{amount}\\n")
    if sys.argv[3] == "dies":
        os._exit(9)
    return f"paid {amount}"

def step(messages):
    if any(message.type == "tool" for message in messages):
        return call("finish_task", summary="It may be paid.", outcome="partial")
    return call("pay", amount=5)

storage = sqlite_storage("threads.sqlite")
graph = build_graph(ScriptedModel(step), [pay], storage=storage)
app = make_app(graph, storage)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", ws="none")
"""


def _ready(client: httpx.Client, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        assert server.poll() is None, "the service has ended"
        with suppress(httpx.ConnectError):
            client.get("/waiting")
            return
        time.sleep(0.1)
    raise AssertionError("the service does not answer")


@pytest.mark.slow
def test_a_service_that_was_killed_in_a_tool_continues_the_thread_when_it_starts_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "dies.py").write_text(_DIES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    @contextmanager
    def started(how: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[bytes]"]]:
        server = subprocess.Popen([sys.executable, "dies.py", str(EXAMPLE), port, how], cwd=tmp_path)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                _ready(client, server)
                yield client, server
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
            server.wait(20)

    with started("dies") as (client, server):
        with pytest.raises(httpx.TransportError):
            client.post("/threads/t1", json={"task": "Pay 5."})
        assert server.wait(20) == 9
    with started("lives") as (client, server):
        for _ in range(200):
            found = client.get("/threads/t1").json()
            if found["condition"] == "ended":
                break
            assert found["condition"] in ("running", "stopped")
            time.sleep(0.05)
        outcome = found["outcome"]
        assert (outcome["summary"], outcome["changes"][0]["came"]) == ("It may be paid.", "unknown")
    assert (tmp_path / "paid").read_text() == "5\n"


def test_a_graph_of_the_service_is_any_graph(serve: Any, tmp_path: Path) -> None:
    """Another program goes on with a thread that the service began."""
    with serve(looks, limits={"turns": 2}) as client:
        client.post("/threads/t1", json={"task": "Look."})
    graph: Graph = build_graph(ScriptedModel(looks), [look], storage=tmp_path / "threads.sqlite")
    with graph:
        result = graph.invoke(go_on(), {"configurable": {"thread_id": "t1"}})
    assert result["outcome"]["summary"] == "Seen."
