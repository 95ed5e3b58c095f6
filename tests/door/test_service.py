"""The service of the door, over HTTP: a client begins, lists, answers, is late, goes on and streams; the
service is killed and starts again."""

import json
import os
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
from tests.support.plays import THREAD

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "support"
Serve = Callable[..., Any]
paid: list[tuple[str, int]] = []


def refund(order: str, amount: int) -> str:
    """Pay money back."""
    paid.append((order, amount))
    return f"{amount} paid back for {order}"


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def refunds(messages: list[Any]) -> Any:
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
            with httpx.Client(base_url=url, timeout=60, headers={"connection": "close"}) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(60)


def make_app(folder: Path, tools: list[Any], step: Any, **options: Any) -> Any:
    """The app of the example, with another graph."""
    storage = sqlite_storage(folder / "threads.sqlite")
    graph = build_graph(ScriptedModel(step), tools, storage=storage, **options)
    return runpy.run_path(str(EXAMPLE / "service.py"))["make_app"](graph, storage)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    paid.clear()

    def run(step: Any = refunds, **options: Any) -> Any:
        return served(make_app(tmp_path, [refund, look], step, approvals={"refund": True}, **options))

    return run


def answered(client: httpx.Client, wait: dict[str, Any], value: Any) -> httpx.Response:
    return client.post(f"/threads/t/waits/{wait['interrupt_id']}", json=value)


def test_a_person_answers_approves_with_an_edit_and_rejects_the_end_once(serve: Serve) -> None:
    with serve() as client:
        question = client.post("/threads/t", json={"task": "Refund me."}).json()
        assert (question["type"], question["options"]) == ("question", ["A1", "B2"])
        assert client.get("/waiting").json() == [{"thread": "t", **question}]

        approval = answered(client, question, 2).json()
        assert approval["action_requests"][0]["args"] == {"order": "B2", "amount": 500}
        stands = {"condition": "waiting", "waits": [approval], "outcome": None}
        assert client.get("/threads/t").json() == stands
        edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "B2", "amount": 450}}}
        first_end = answered(client, approval, {"decisions": [edit]}).json()
        assert (paid, first_end["finish"]) == ([("B2", 450)], True)

        second_end = answered(client, first_end, "reject: tell the customer").json()
        assert second_end["interrupt_id"] != first_end["interrupt_id"]
        outcome = answered(client, second_end, "yes").json()
        assert (outcome["status"], outcome["summary"]) == ("success", "Paid back, and the customer is told.")
        assert client.get("/waiting").json() == []
        assert client.get("/threads/t").json()["outcome"] == outcome

        late = [answered(client, wait, "yes").status_code for wait in (question, approval, second_end)]
        assert (late, paid) == ([409] * 3, [("B2", 450)])


def test_what_does_not_fit_is_refused_and_can_be_answered_afterwards(serve: Serve) -> None:
    with serve() as client:
        question = client.post("/threads/t", json={"task": "Refund me."}).json()
        before = client.get("/threads/t").json()
        wait, nobody = f"waits/{question['interrupt_id']}", f"waits/{'0' * 32}"
        refused = {
            "another task": (409, "t", {"task": "And me."}),
            "an option that is none": (422, f"t/{wait}", 3),
            "a decision on a question": (422, f"t/{wait}", {"decisions": [{"type": "approve"}]}),
            "no such wait": (409, f"t/{nobody}", "B2"),
            "no such thread": (404, f"t2/{wait}", "B2"),
            "nothing to go on with": (404, "t2/go-on", {"turns": 3}),
            "no turns": (400, "t/go-on", {"turns": 0}),
            "no task": (400, "t2", {"task": " "}),
            "another task, to be streamed": (409, "t/events", {"task": "And me."}),
        }
        codes = {
            name: client.post(f"/threads/{path}", json=body).status_code
            for name, (_, path, body) in refused.items()
        }
        assert codes == {name: code for name, (code, _, _) in refused.items()}
        assert client.get("/threads/t2").status_code == 404
        assert client.get("/threads/t").json() == before
        assert client.post("/threads/t/go-on", json={}).json() == question
        approval = answered(client, question, {"type": "respond", "message": "B2"}).json()
        assert approval["action_requests"][0]["args"]["order"] == "B2"


def test_after_a_limit_it_goes_on_here_and_in_another_program(serve: Serve, tmp_path: Path) -> None:
    with serve(looks, limits={"turns": 2}) as client:
        assert client.post("/threads/t", json={"task": "Look."}).json()["reason"] == "turns"
        assert client.get("/threads/t").json()["condition"] == "ended"
        assert client.post("/threads/t/go-on", json={"turns": 1}).json()["status"] == "limit"
    graph: Graph = build_graph(ScriptedModel(looks), [look], storage=tmp_path / "threads.sqlite")
    with graph:
        assert graph.invoke(go_on(), THREAD)["outcome"]["summary"] == "Seen."


def test_the_events_of_a_run_are_streamed(serve: Serve) -> None:
    with serve() as client:
        with client.stream("POST", "/threads/t/events", json={"task": "Refund me."}) as stream:
            lines = [line.partition(": ")[2] for line in stream.iter_lines() if line]
        names, events = lines[::2], [json.loads(line) for line in lines[1::2]]
        assert names == [event["type"] for event in events]
        assert (names[0], names[-1]) == ("entered", "decided")
        assert events[-1]["decision"]["text"] == "Which order?"
        assert client.get("/threads/t").json()["condition"] == "waiting"


def pays(messages: list[Any]) -> Any:
    if any(message.type == "tool" for message in messages):
        return call("finish_task", summary="It may be paid.", outcome="partial")
    return call("pay", amount=5)


def app_that_pays(folder: Path, *, dies: bool) -> Any:
    def pay(amount: int) -> str:
        """Pay."""
        with (folder / "paid").open("a") as ledger:
            ledger.write(f"{amount}\n")
        if dies:
            os._exit(9)
        return f"paid {amount}"

    return make_app(folder, [pay], pays)


PROGRAM = """
import sys
from pathlib import Path
import uvicorn
sys.path.insert(0, sys.argv[1])
from tests.door.test_service import app_that_pays

app = app_that_pays(Path(sys.argv[3]), dies=sys.argv[4] == "dies")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", ws="none")
"""


def until(condition: Callable[[], bool], failing: str) -> None:
    for _ in range(600):
        with suppress(httpx.ConnectError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError(failing)


@contextmanager
def started(folder: Path, how: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[bytes]"]]:
    """A client of a service in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen([sys.executable, "-c", PROGRAM, EXAMPLE, port, folder, how], cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: client.get("/waiting").status_code == 200, "the service does not answer")
            yield client, server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
        server.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_service_that_was_killed_in_a_tool_continues_the_thread_when_it_starts_again(
    tmp_path: Path,
) -> None:
    with started(tmp_path, "dies") as (client, server):
        with pytest.raises(httpx.TransportError):
            client.post("/threads/t", json={"task": "Pay 5."})
        assert server.wait(60) == 9
    with started(tmp_path, "lives") as (client, _):
        until(lambda: client.get("/threads/t").json()["condition"] == "ended", "it does not go on")
        outcome = client.get("/threads/t").json()["outcome"]
        assert (outcome["summary"], outcome["changes"][0]["came"]) == ("It may be paid.", "unknown")
    assert (tmp_path / "paid").read_text() == "5\n"
