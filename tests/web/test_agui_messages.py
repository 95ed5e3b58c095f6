"""What a client of AG-UI writes: it begins a task once, and what is refused leaves the client's history."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.benches.agui import Seen, applied, events_of, run_input
from tests.support.benches.web import WebBench, until
from tests.support.rows import ids
from tests.web.test_agui import LONG, TASK, asked, run


@pytest.fixture
def bench(tmp_path: Any) -> WebBench:
    return WebBench(tmp_path)


MESSAGES: dict[str, Any] = {
    "nothing": {"id": "m", "role": "user", "content": " "},
    "a picture": {"id": "m", "role": "user", "content": [{"type": "image", "source": {"type": "data"}}]},
    "no id": {"role": "user", "content": "Go"},
    "a number for an id": {"id": 1, "role": "user", "content": "Go"},
    "no content": {"id": "m", "role": "user"},
    "too much": {"id": "m", "role": "user", "content": "x" * 400_001},
}
SECOND = {"id": "n", "role": "user", "content": "SECOND"}


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_message_that_is_no_text_begins_nothing(bench: WebBench, name: str) -> None:
    async with bench.served(LONG) as opened:
        seen = await run(opened, messages=[MESSAGES[name]])
        assert (seen.error[0], seen.error[1].endswith(".")) == ("refused", True)
        assert ids(opened.hub.storage) == []


def users(seen: Seen) -> list[str]:
    return [one["content"] for one in seen.messages if one["role"] == "user"]


@pytest.mark.parametrize("name", ["a task while it waits", *MESSAGES])
@pytest.mark.sample(3)
async def test_a_refused_message_leaves_the_history_of_its_client(bench: WebBench, name: str) -> None:
    message = MESSAGES.get(name, SECOND)
    async with bench.served(TASK) as opened:
        first = await asked(opened)
        refused = await run(opened, messages=[*first.messages, message])
        assert (refused.error[0], users(refused)) == ("refused", ["Set the port"])
        # What the client holds now is all that it sends from here on: nothing begins by a look.
        look = await run(opened, messages=refused.messages)
        assert (look.interrupts, users(look)) == (first.interrupts, ["Set the port"])
        seen = await run(opened, messages=look.messages, **look.answer("1"))
        assert users(await run(opened, messages=seen.messages)) == ["Set the port"]


async def test_a_message_while_the_thread_runs_begins_nothing_later(bench: WebBench) -> None:
    async with bench.served(LONG, delay=0.05) as opened:
        running = asyncio.create_task(run(opened, "Write"))
        await until(lambda: opened.hub.room("t1").here)
        refused = await run(opened, "Write", "SECOND")
        assert refused.error[0] == "busy"
        assert "SECOND" not in users(refused)
        first = await running
        look = await run(opened, messages=refused.messages)
        assert look.last["result"] == first.last["result"]
        assert users(look) == ["Write"]


async def test_a_message_whose_run_comes_to_nothing_is_taken_back(
    bench: WebBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the model takes longer to be made ready than a client is kept waiting for.
    monkeypatch.setattr("signoff.web.room._BEGIN_SECONDS", 0.0)
    async with bench.served(LONG, approve="nothing_like_it") as opened:
        seen = await run(opened, "Write")
        assert (seen.error[0], users(seen)) == ("refused", [])
        assert "TEXT_MESSAGE_START" in seen.types, "it was taken first"
        assert (await run(opened, messages=seen.messages)).last["result"] == {"status": "unknown"}


async def test_a_move_does_not_send_a_message_along(bench: WebBench) -> None:
    async with bench.served(LONG, turns=2) as opened:
        first = await run(opened, "Write")
        extend = {"signoff": {"move": "go_on", "turns": 10}}
        left = [*first.messages, SECOND]
        seen = await run(opened, messages=left, forwardedProps=extend)
        assert (seen.last["result"]["status"], users(seen)) == ("success", ["Write"])


async def test_a_thread_that_another_process_runs_is_running_from_the_first_state_on(bench: WebBench) -> None:
    async with bench.served(TASK) as opened:
        await asked(opened)
        with opened.hub.storage.checkpointer.runner("t1"):
            seen = await run(opened)
        states = [event["snapshot"] for event in seen.events if event["type"] == "STATE_SNAPSHOT"]
        assert [state["condition"] for state in states] == ["running", "running"]
        assert {state["waitsFor"] for state in states} == {None}
        assert {tuple(state["moves"]) for state in states} == {("pause",)}
        assert seen.interrupts == []


async def test_parts_of_text_are_one_text(bench: WebBench) -> None:
    parts = [{"type": "text", "text": "Go"}, {"type": "text", "text": "on \ud800"}]
    async with bench.served('[call("finish_task", summary="Done.")]') as opened:
        body = json.dumps(run_input(messages=[{"id": "m\ud800", "role": "user", "content": parts}]))
        headers = {"Content-Type": "application/json"}
        answer = await opened.client.post("/agui", content=body, headers=headers)
        seen = applied(events_of(answer.text))
        assert seen.messages[0]["content"].startswith("Go\non ")
        assert seen.last["result"]["status"] == "success"
