"""What one server keeps is bounded: shells, rooms of threads, and the bodies that it reads."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.web.terminals import Terminals
from tests.support.benches.web import Opened, WebBench, until

ASK = '[call("ask_user", question="Which port?"), call("finish_task", summary="Done.")]'
COMMANDS = """[
    call("run_shell", command="cd /; kept=1; pwd"),
    call("ask_user", question="And now?"),
    call("run_shell", command="pwd; echo kept ${kept:-nothing}"),
    call("finish_task", summary="Done."),
]"""


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


@dataclass(eq=False)
class Fake:
    """A terminal as the bound sees it."""

    watched: bool = False
    busy: bool = False
    rests: list[str] = field(default_factory=list)

    def is_watched(self) -> bool:
        return self.watched

    def rest(self) -> bool:
        self.rests.append("asked")
        return not self.busy


def test_beyond_the_bound_the_least_recently_used_that_is_free_ends() -> None:
    terminals = Terminals(most=3)
    watched, busy, free, other = Fake(watched=True), Fake(busy=True), Fake(), Fake()
    for one in (watched, busy, free):
        terminals.admit(one)
    terminals.admit(watched)
    terminals.admit(other)
    assert (len(terminals), watched.rests, busy.rests, free.rests) == (3, [], ["asked"], ["asked"])
    other.watched = True
    with pytest.raises(ToolException, match="3 terminals already, and each is in use"):
        terminals.admit(free)
    terminals.leave(busy)
    terminals.admit(free)
    assert len(terminals) == 3


def test_what_nobody_uses_ends_after_some_minutes() -> None:
    now = [0.0]
    terminals = Terminals(idle_seconds=100, clock=lambda: now[0])
    watched, busy, free = Fake(watched=True), Fake(busy=True), Fake()
    for one in (watched, busy, free):
        terminals.admit(one)
    now[0] = 90
    terminals.end_idle()
    terminals.touch(free)
    now[0] = 150
    terminals.end_idle()
    assert (len(terminals), watched.rests, busy.rests, free.rests) == (3, [], ["asked"], [])
    watched.watched, busy.busy, now[0] = False, False, 200
    terminals.end_idle()
    assert (len(terminals), watched.rests) == (1, []), "nobody has watched it for less than the time"
    now[0] = 260
    terminals.end_idle()
    assert len(terminals) == 0
    terminals.touch(free)
    assert len(terminals) == 0


async def test_a_shell_that_ended_unused_begins_anew_and_the_model_is_told(bench: WebBench) -> None:
    async with bench.served(COMMANDS) as opened:
        assert await opened.post("write", text="Go") == (200, {})
        await opened.rests()
        terminals, terminal = opened.hub.terminals, opened.hub.room("t1").terminal
        assert terminal is not None
        assert len(terminals) == 1
        reader = opened.read()
        await until(lambda: reader.events)
        assert terminal.is_watched()
        await reader.leave()
        assert terminal.rest()
        terminals.leave(terminal)
        assert await opened.answer("go on") == (200, {})
        await opened.rests()
        said = "\n".join(str(message.content) for message in opened.messages())
        assert "kept nothing" in said
        assert "folder, variables and background jobs are gone" in said


async def test_a_shell_in_which_something_runs_is_kept(bench: WebBench) -> None:
    async with bench.served(ASK) as opened:
        assert await opened.post("terminal", data="sleep 600 & echo st''arted\n") == (200, {})
        terminal = opened.hub.room("t1").terminal
        assert terminal is not None
        reader = opened.read()
        await until(lambda: b"started" in _shown(opened))
        await reader.leave()
        assert not terminal.rest()
        assert await opened.post("terminal", data="kill %1; wait; echo en''ded\n") == (200, {})
        await until(lambda: b"ended" in _shown(opened))
        async with asyncio.timeout(10):
            while not terminal.rest():
                await asyncio.sleep(0.05)


def _shown(opened: Opened) -> bytes:
    terminal = opened.hub.room("t1").terminal
    return base64.b64decode(terminal.recent_output) if terminal else b""


async def test_terminals_beyond_the_bound_are_refused(bench: WebBench) -> None:
    async with bench.served(ASK) as opened:
        opened.hub.terminals = Terminals(most=2)
        readers = [opened.read(name) for name in ("t1", "t2")]
        await until(lambda: all(reader.events for reader in readers))
        for name in ("t1", "t2"):
            assert await opened.post("terminal", name, data="echo here\n") == (200, {})
        status, told = await opened.post("terminal", "t3", data="echo here\n")
        assert (status, "2 terminals already" in told["problem"]) == (503, True)
        # Once nobody looks at the first one any more there is room.
        await readers[0].leave()
        await until(lambda: b"here" in _shown(opened))
        async with asyncio.timeout(10):
            while (await opened.post("terminal", "t3", data="echo here\n"))[0] != 200:
                await asyncio.sleep(0.05)
        assert len(opened.hub.terminals) == 2
        await readers[1].leave()


async def test_threads_that_do_not_exist_leave_nothing(bench: WebBench) -> None:
    async with bench.served(ASK) as opened:
        assert await opened.post("write", text="Ask") == (200, {})
        await opened.rests()
        for number in range(5):
            await visited(opened, f"random-{number}")
        assert set(opened.hub.rooms) == {"t1"}


async def visited(opened: Opened, thread: str) -> None:
    """Somebody asks for a thread that there is not, in each way."""
    stream = opened.hub.stream(thread)
    await anext(stream)
    await stream.aclose()
    assert (await opened.post("move", thread, move="go_on"))[0] == 422
    assert (await opened.post("answer", thread, interrupt_id="x", texts=["yes"]))[0] in (409, 422)


async def test_of_many_threads_the_rooms_used_last_are_kept(
    bench: WebBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signoff.web.hub.MOST_IDLE", 3)
    async with bench.served(ASK) as opened:
        names = [f"t{number}" for number in range(6)]
        for name in names:
            assert await opened.post("write", name, text="Ask") == (200, {})
            await opened.rests(name)
        await visited(opened, "another")
        assert set(opened.hub.rooms) == set(names[3:])
        # A room that was forgotten is made again as it was.
        reader = opened.read("t0")
        await reader.sees("Which port?")
        await reader.leave()


async def test_the_list_of_threads_shows_a_change_made_here_at_once(
    bench: WebBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What other processes do is not looked for in this test.
    monkeypatch.setattr("signoff.web.hub._LOOK_SECONDS", 60.0)
    async with bench.served(ASK) as opened:
        reader = opened.read("another")
        await until(lambda: reader.events)

        def listed(*words: str) -> bool:
            lists = [found["list"] for kind, found in reader.events if kind == "list"]
            return bool(lists) and all(word in lists[-1] for word in words)

        assert await opened.post("write", text="Ask") == (200, {})
        await until(lambda: listed("t1", "Which port?"))
        assert await opened.answer("8080") == (200, {})
        await until(lambda: listed("Asserted: done"))
        assert (await opened.post("fork"))[0] == 200
        await until(lambda: listed("t1-fork-1"))
        await reader.leave()


async def test_a_body_that_never_ends_is_given_up(bench: WebBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.web.app._BODY_SECONDS", 0.3)

    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    async with bench.served(ASK) as opened, asyncio.timeout(10):
        answer = await opened.client.post(
            "/api/write", content=dripping(), headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["problem"]) == (408, "The request did not arrive in time.")
        assert opened.hub.rooms == {}


@pytest.mark.parametrize("digits", ["9" * 5_000, "0" * 5_000 + "1", "٣" * 5_000])
async def test_a_number_of_thousands_of_digits_is_an_answer_in_words(bench: WebBench, digits: str) -> None:
    steps = '[call("ask_user", question="Which?", options=[]), call("finish_task", summary="Done.")]'
    async with bench.served(steps) as opened:
        assert await opened.post("write", text="Ask") == (200, {})
        await opened.rests()
        assert await opened.answer(digits) == (200, {})
        await opened.rests()
        assert digits in [str(message.content) for message in opened.messages()]
        assert opened.outcome()["status"] == "success"
