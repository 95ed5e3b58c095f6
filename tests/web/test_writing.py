"""What begins a task, however often it is sent; and where the commands of the thread then run."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from tests.support.benches.agui import run_input
from tests.support.benches.web import Opened, WebBench, until
from tests.support.rows import ids

DONE = '[call("finish_task", summary=f"Done, {at}.") for at in range(9)]'
WHERE = """[
    call("run_shell", command="pwd; pwd > where.txt"),
    call("finish_task", summary="Done."),
]"""


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


def tasks(opened: Opened) -> list[str]:
    return [str(message.content) for message in opened.messages() if message.type == "human"]


async def test_a_request_that_is_sent_again_begins_nothing_twice(bench: WebBench) -> None:
    async with bench.served(DONE) as opened:
        for _ in range(3):
            assert await opened.post("write", text="Go", request="r1", settings={"turns": 5}) == (200, {})
            await opened.rests()
        assert tasks(opened) == ["Go"]
        assert await opened.post("write", text="Go", request="r2") == (200, {})
        await opened.rests()
        assert tasks(opened) == ["Go", "Go"]


async def test_not_while_it_runs_or_all_at_once(bench: WebBench) -> None:
    async with bench.served(DONE, delay=0.2) as opened:
        found = await asyncio.gather(*(opened.post("write", text="Go", request="r1") for _ in range(6)))
        assert found == [(200, {})] * 6
        assert await opened.post("write", text="Go", request="r1") == (200, {})
        assert (await opened.post("write", text="Go", request="r2"))[0] == 409
        await opened.rests()
        assert tasks(opened) == ["Go"]


async def test_not_after_a_restart_or_by_another_server(bench: WebBench) -> None:
    async with bench.served(DONE) as opened:
        assert await opened.post("write", text="Go", request="r1") == (200, {})
        await opened.rests()
    async with bench.served(DONE, delay=0.2) as one, bench.served(DONE) as two:
        for opened in (one, two):
            assert await opened.post("write", text="Go", request="r1") == (200, {})
        assert await one.post("write", text="More", request="r2") == (200, {})
        await until(lambda: "More" in tasks(two))
        assert await two.post("write", text="More", request="r2") == (200, {})
        await one.rests()
        assert tasks(two) == ["Go", "More"]


async def test_a_request_that_was_refused_may_be_sent_again(bench: WebBench) -> None:
    async with bench.served(DONE) as opened:
        for settings in ({"workspace": "/nowhere"}, {"model": "scripted:/nowhere/model.py"}):
            status, _ = await opened.post("write", text="Go", request="r1", settings=settings)
            assert status == 422
        model = str(opened.hub.given.model)
        assert await opened.post("write", text="Go", request="r1", settings={"model": model}) == (200, {})
        await opened.rests()
        assert tasks(opened) == ["Go"]


async def test_the_same_id_with_other_words_is_refused(bench: WebBench) -> None:
    async with bench.served(DONE) as opened:
        assert await opened.post("write", text="Go", request="r1") == (200, {})
        for _ in range(2):
            status, told = await opened.post("write", text="Go on", request="r1")
            assert (status, "a different message with this ID" in told["problem"]) == (422, True)
            await opened.rests()
        reply = next(message.id for message in opened.messages() if message.type == "ai")
        assert (await opened.post("write", text="Go on", request=reply))[0] == 422
        assert tasks(opened) == ["Go"]


@pytest.mark.parametrize("request_id", ["a b", "a\n", "x" * 101, "\ud800", "../x", "é"])
async def test_an_id_that_is_none_is_refused(bench: WebBench, request_id: str) -> None:
    async with bench.served(DONE) as opened:
        body = json.dumps({"thread": "t1", "text": "Go", "request": request_id})
        headers = {"Content-Type": "application/json"}
        assert (await opened.client.post("/api/write", content=body, headers=headers)).status_code == 422
        assert ids(opened.hub.storage) == []


@pytest.mark.parametrize("typed", ["two", "0", "", "1.5", "1000000", None, "9" * 5_000])
async def test_turns_are_a_number_or_refused_in_a_sentence(bench: WebBench, typed: str | None) -> None:
    async with bench.served(DONE, turns=7) as opened:
        if typed is not None:
            status, told = await opened.post("write", text="Go", settings={"turns": typed})
            assert (status, "is not a valid number of turns; type" in told["problem"]) == (422, True)
            status, told = await opened.post("move", move="go_on", turns=typed)
            assert (status, "is not a valid number of turns; type" in told["problem"]) == (422, True)
        assert await opened.post("write", text="Go", settings={"turns": "12"}) == (200, {})
        await opened.rests()
        assert opened.hub.room("t1").given.turns == 12


async def shown_in_the_terminal(opened: Opened, words: str) -> None:
    def shown() -> bool:
        terminal = opened.hub.room("t1").terminal
        return terminal is not None and words.encode() in base64.b64decode(terminal.recent_output)

    await until(shown)


async def test_commands_run_in_the_folder_of_the_thread_also_when_a_terminal_was_open_before(
    bench: WebBench,
) -> None:
    other = bench.folder / "other"
    other.mkdir()
    async with bench.served(WHERE) as opened:
        reader = opened.read()
        assert await opened.post("terminal", data="echo $((6*7))tytwo\n", rows=10, cols=60) == (200, {})
        await reader.types("42tytwo")
        before = opened.hub.room("t1").terminal
        assert await opened.post("write", text="Go", settings={"workspace": str(other)}) == (200, {})
        await opened.rests()
        assert (other / "where.txt").read_text() == f"{other}\n"
        assert not (bench.workspace / "where.txt").exists()
        await reader.types("The shell was closed because the thread now works in ")
        await shown_in_the_terminal(opened, str(other))
        now = opened.hub.room("t1").terminal
        assert now is not None
        assert now is not before
        assert (now.size, len(opened.hub.terminals)) == ((10, 60), 1)
        await reader.leave()


async def test_a_folder_that_is_refused_leaves_the_terminal_as_it_is(bench: WebBench) -> None:
    async with bench.served(WHERE) as opened:
        assert await opened.post("terminal", data="kept=1; echo be''gun\n") == (200, {})
        await shown_in_the_terminal(opened, "begun")
        assert (await opened.post("write", text="Go", settings={"workspace": "/nowhere"}))[0] == 422
        assert await opened.post("terminal", data="echo kept=${kept}!\n") == (200, {})
        await shown_in_the_terminal(opened, "kept=1!")


async def test_a_pause_of_a_thread_that_there_is_not_is_refused_and_leaves_nothing(bench: WebBench) -> None:
    async with bench.served(DONE) as opened:
        for number in range(5):
            status, told = await opened.post("move", f"no-{number}", move="pause")
            assert (status, "There is no thread" in told["problem"]) == (422, True)
            forwarded = {"forwardedProps": {"signoff": {"move": "pause"}}}
            answer = await opened.client.post("/agui", json=run_input(f"no-{number}", **forwarded))
            assert "There is no thread" in answer.text
        assert opened.hub.storage.store.search(("signoff", "requests")) == []
        assert opened.hub.rooms == {}


async def test_nothing_is_kept_of_what_a_protocol_was_told_when_its_last_reader_has_gone(
    bench: WebBench,
) -> None:
    steps = '[call("write_file", path="a.txt", content="x" * 20_000) for _ in range(4)]'
    async with bench.served(f'{steps} + [call("finish_task", summary="Done.")]') as opened:
        answer = await opened.client.post("/agui", json=run_input("t1", "Go"))
        assert len(answer.text) > 80_000
        room = opened.hub.room("t1")
        assert (room.events.readers, room.events.after(0)) == (0, None)
        again = await opened.client.post("/agui", json=run_input("t1"))
        assert "RUN_FINISHED" in again.text
