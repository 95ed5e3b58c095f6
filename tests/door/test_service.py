"""The service of the door, over HTTP: a client begins, lists, answers, is late, goes on and streams; and what
was killed goes on when the service starts again."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from langchain_core.tools import StructuredTool

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.interrupting import interrupt_process
from tests.support.plays import GO, THREAD
from tests.support.waiting import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "support"
Serve = Callable[..., TestClient]
paid: list[tuple[str, int]] = []


def refund(order: str, amount: int) -> str:
    """Pay money back."""
    paid.append((order, amount))
    return f"{amount} paid back for {order}"


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


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A client of the app of the example, with another graph."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    paid.clear()

    def run(step: Any = refunds, **options: Any) -> TestClient:
        storage = sqlite_storage(tmp_path / "threads.sqlite")
        rules = {"approvals": {"refund": True}, **options}
        graph = build_graph(ScriptedModel(step), [refund], storage=storage, **rules)
        return TestClient(runpy.run_path(str(EXAMPLE / "service.py"))["make_app"](graph, storage))

    return run


def answered(client: TestClient, wait: dict[str, Any], value: Any) -> Any:
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
        refused: list[tuple[int, str, Any]] = [
            (409, "t", {"task": "And me."}),
            (409, "t/events", {"task": "And me."}),
            (422, f"t/{wait}", 3),
            (409, f"t/{nobody}", "B2"),
            (404, f"t2/{wait}", "B2"),
            (404, "t2/go-on", {"turns": 3}),
            (400, "t/go-on", {"turns": 0}),
            (400, "t2", {"task": " "}),
        ]
        codes = [client.post(f"/threads/{path}", json=body).status_code for _, path, body in refused]
        assert codes == [code for code, _, _ in refused]
        assert client.get("/threads/t2").status_code == 404
        assert client.get("/threads/t").json() == before
        assert client.post("/threads/t/go-on", json={}).json() == question
        approval = answered(client, question, {"type": "respond", "message": "B2"}).json()
        assert approval["action_requests"][0]["args"]["order"] == "B2"


def test_after_a_limit_it_goes_on(serve: Serve) -> None:
    steps = ["hm", "and", "so", call("finish_task", summary="Seen.")]
    with serve(steps, limits={"turns": 2}) as client:
        assert client.post("/threads/t", json={"task": "Look."}).json()["reason"] == "turns"
        assert client.get("/threads/t").json()["condition"] == "ended"
        assert client.post("/threads/t/go-on", json={"turns": 1}).json()["status"] == "limit"
        assert client.post("/threads/t/go-on", json={}).json()["summary"] == "Seen."


def test_the_events_of_a_run_are_streamed(serve: Serve) -> None:
    with serve() as client:
        with client.stream("POST", "/threads/t/events", json={"task": "Refund me."}) as stream:
            lines = [line.partition(": ")[2] for line in stream.iter_lines() if line]
        names, events = lines[::2], [json.loads(line) for line in lines[1::2]]
        assert names == [event["type"] for event in events]
        assert (names[0], names[-1]) == ("entered", "decided")
        assert events[-1]["decision"]["text"] == "Which order?"
        assert client.get("/threads/t").json()["condition"] == "waiting"


def test_what_was_killed_in_a_tool_goes_on_when_the_service_starts(serve: Serve, tmp_path: Path) -> None:
    pays = StructuredTool.from_function(interrupt_process, name="refund")
    with (
        build_graph(ScriptedModel([call("refund")]), [pays], storage=tmp_path / "threads.sqlite") as graph,
        pytest.raises(KeyboardInterrupt),
    ):
        graph.invoke(GO, THREAD)
    with serve([call("finish_task", summary="It may have run.", outcome="partial")]) as client:
        assert until(lambda: client.get("/threads/t").json()["condition"] == "ended")
        outcome = client.get("/threads/t").json()["outcome"]
    assert (outcome["summary"], outcome["changes"][0]["came"]) == ("It may have run.", "unknown")
