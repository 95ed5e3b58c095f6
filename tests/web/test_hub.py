"""Runs are tasks of the server: nobody who leaves ends one, all see all, and each answer counts once."""

import asyncio
import html
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from signoff import Session, build_graph, sqlite_storage
from signoff.front.database import Database
from signoff.front.settings import recall
from signoff.front.work import Work
from signoff.graph.errors import ThreadError
from signoff.models import ScriptedModel, call
from signoff.session.status import Condition
from signoff.web.beside import Beside
from signoff.web.log import MOST_BYTES, MOST_ENTRIES, Log, changes
from tests.support.benches.web import Opened, WebBench, until
from tests.support.rows import ids

PORT = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("run_shell", command="echo it ran >> ran.txt; cat ran.txt"),
    call(
        "finish_task", summary="The port is set.", pending_issues=["Nobody has tried it."],
        requires_user_confirmation=True,
    ),
]"""
ONE_COMMAND = """[
    call("run_shell", command="echo ran >> ran.txt"),
    call("finish_task", summary="It ran."),
]"""
LONG = """[call("write_file", path=f"{at}.txt", content="x") for at in range(6)] + [
    call("finish_task", summary="Written."),
]"""


@pytest.fixture
def bench(tmp_path: Path) -> WebBench:
    return WebBench(tmp_path)


async def begun(opened: Opened, text: str = "Set the port") -> None:
    assert await opened.post("write", text=text) == (200, {})
    await opened.rests()


async def come_and_go(opened: Opened, thread: str = "t1") -> None:
    reader = opened.read(thread)
    await until(lambda: reader.events)
    await reader.leave()


async def test_a_whole_task_that_two_people_see(bench: WebBench) -> None:
    async with bench.served(PORT, approve="terminal") as opened:
        ada, bob = opened.read(), opened.read()
        await begun(opened)
        for reader in (ada, bob):
            await reader.sees("Which port?", 'data-text="8080"')
        waited = opened.waiting()
        assert await opened.answer("1") == (200, {})
        status, told = await opened.answer("2", interrupt_id=waited.interrupt_id)
        assert (status, told["late"]) == (409, True)
        await opened.rests()
        await bob.sees("Waiting for approval", "echo it ran")
        edited = 'edit: {"command": "echo edited >> ran.txt; cat ran.txt", "timeout": 30}'
        assert await opened.answer(edited) == (200, {})
        await opened.rests()
        for reader in (ada, bob):
            await reader.sees("Finished? Please confirm", "A person changed this call")
        assert await opened.answer("yes") == (200, {})
        await opened.rests()
        for reader in (ada, bob):
            await reader.sees("Asserted: done")
            assert reader.numbers == sorted(set(reader.numbers)), "no event twice"
        assert (bench.workspace / "ran.txt").read_text() == "edited\n"
        assert ada.parts == bob.parts
        late = opened.read()
        await late.sees("Asserted: done", "Which port?")
        assert late.parts == ada.parts
        assert ("terminal" in {kind for kind, _ in ada.events}) is True
        for reader in (ada, bob, late):
            await reader.leave()


async def test_nobody_who_leaves_ends_a_run(bench: WebBench) -> None:
    async with bench.served(LONG, delay=0.05) as opened:
        reader = opened.read()
        assert await opened.post("write", text="Read") == (200, {})
        await until(lambda: reader.events)
        await reader.leave()
        assert opened.hub.room("t1").here
        await opened.rests()
        assert opened.outcome()["status"] == "success"
        again = opened.read()
        await again.sees("Asserted: done")
        await again.leave()


async def test_of_many_answers_at_once_one_counts(bench: WebBench) -> None:
    async with bench.served(PORT, approve="terminal") as opened:
        await begun(opened)
        await opened.answer("1")
        await opened.rests()
        waiting = opened.waiting()
        body = {"interrupt_id": waiting.interrupt_id, "shown": waiting.document()["shown"]}
        found = await asyncio.gather(*(opened.post("answer", texts=["approve"], **body) for _ in range(20)))
        assert sorted(status for status, _ in found) == [200] + [409] * 19
        assert all("too late" in told["problem"] for status, told in found if status == 409)
        await opened.rests()
        assert (bench.workspace / "ran.txt").read_text() == "it ran\n"


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.01, 0.1])
@pytest.mark.sample(2)
async def test_a_client_that_goes_in_the_middle_of_an_approval(bench: WebBench, moment: float) -> None:
    async with bench.served(PORT, approve="terminal") as opened:
        await begun(opened)
        await opened.answer("1")
        await opened.rests()
        waiting = opened.waiting()
        sending = asyncio.create_task(opened.answer("approve"))
        await asyncio.sleep(moment)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await opened.rests()
        # It has reached the server as a whole, or not at all; sent again it runs at most once.
        again = {"interrupt_id": waiting.interrupt_id, "shown": waiting.document()["shown"]}
        await opened.post("answer", texts=["approve"], **again)
        await opened.rests()
        assert (bench.workspace / "ran.txt").read_text() == "it ran\n"


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, bench: WebBench) -> WebBench:
    if request.param == "postgres":
        bench.database = Database(request.getfixturevalue("postgres_url"), named=True)
    return bench


async def test_two_servers_on_one_database(shared: WebBench) -> None:
    async with shared.served(PORT, approve="terminal") as one, shared.served(PORT, approve="terminal") as two:
        here, there = one.read(), two.read()
        await begun(one)
        await there.sees("Which port?")
        waiting = one.waiting()
        sent = {"interrupt_id": waiting.interrupt_id, "texts": ["1"]}
        found = await asyncio.gather(one.post("answer", **sent), two.post("answer", **sent))
        assert sorted(status for status, _ in found) == [200, 409]
        await one.rests()
        await two.rests()
        await here.sees("Waiting for approval")
        await there.sees("Waiting for approval")
        for reader in (here, there):
            await reader.leave()


async def test_a_thread_that_another_process_runs_is_watched(shared: WebBench) -> None:
    async with shared.served(LONG, delay=0.2) as one, shared.served(LONG) as two:
        there = two.read()
        assert await one.post("write", text="Read") == (200, {})
        await there.sees("Another process runs this thread", "write_file")
        status, told = await two.post("write", text="And this")
        assert (status, "running" in told["problem"]) == (409, True)
        assert await two.post("move", move="pause") == (200, {})
        await one.rests()
        await there.sees("Stopped", 'data-move="go_on"')
        assert await two.post("move", move="go_on") == (200, {})
        await two.rests()
        await there.sees("Asserted: done")
        await there.leave()


async def test_a_thread_that_somebody_has_left_before_it_began_is_watched(shared: WebBench) -> None:
    async with shared.served(LONG, delay=0.1) as one, shared.served(LONG) as two:
        for _ in range(2):
            await come_and_go(two)
        there = two.read()
        await until(lambda: there.events)
        await begun(one)
        await there.sees("Asserted: done")
        await there.leave()


class SlowOnce(Beside):
    """Brings what one read has found late, as a busy disk does."""

    slow = False

    async def do(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        found, slow = await super().do(work, *args, **kwargs), self.slow
        self.slow = False
        if slow:
            await asyncio.sleep(1)
        return found


async def test_what_was_read_first_is_not_shown_last(bench: WebBench) -> None:
    async with bench.served(PORT) as opened:
        opened.hub.beside = beside = SlowOnce()
        reader = opened.read()
        await until(lambda: reader.events)
        room = opened.hub.room("t1")
        beside.slow = True
        reading = asyncio.create_task(room.refresh())
        await until(lambda: not beside.slow)
        await begun(opened)
        await room.refresh()
        await reading
        assert "Which port?" in "".join(room.parts.values())
        await reader.sees("Which port?")
        await reader.leave()


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.005, 0.02])
async def test_a_thread_that_is_deleted_as_a_run_begins_is_deleted_or_runs(
    bench: WebBench, moment: float
) -> None:
    async with bench.served(LONG, delay=0.05) as opened:
        await begun(opened)
        deleting = asyncio.create_task(opened.post("delete"))
        await asyncio.sleep(moment)
        begins = (await opened.post("write", text="Again"))[0]
        deleted = (await deleting)[0]
        threads = ids(opened.hub.storage)
        if (deleted, begins) == (409, 200):
            assert (threads, opened.hub.room("t1").here) == (["t1"], True)
        elif begins == 200:
            # It was deleted first, and began anew.
            assert (deleted, opened.hub.room("t1").here) == (200, True)
        else:
            assert (deleted, begins, threads) == (200, 422, [])
        await opened.rests()


async def test_the_threads_are_watched_again_after_the_database_could_not_be_read(bench: WebBench) -> None:
    async with bench.served(LONG) as one, bench.served(LONG) as two:
        there = two.read("other")
        await until(lambda: there.events)
        for before, after in (("checkpoints", "away"), ("away", "checkpoints")):
            with closing(sqlite3.connect(bench.database.where)) as connection:
                connection.execute(f"ALTER TABLE {before} RENAME TO {after}")
                connection.commit()
            await asyncio.sleep(1.5)
        await begun(one)
        await until(lambda: "t1" in two.hub.listed)
        await there.leave()


async def test_nothing_is_left_of_a_thread_that_there_is_not(bench: WebBench) -> None:
    async with bench.served(LONG) as opened:
        reader = opened.read()
        await until(lambda: reader.events)
        before = len(asyncio.all_tasks())
        for number in range(20):
            await come_and_go(opened, f"no-{number}")
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert list(opened.hub.rooms) == ["t1"]
        await reader.leave()


async def test_a_limit_an_error_a_stop_a_fork_and_the_end_of_a_thread(bench: WebBench) -> None:
    async with bench.served(LONG, turns=2) as opened:
        reader = opened.read()
        await begun(opened)
        await reader.sees("Turn limit reached", 'data-move="go_on"')
        assert await opened.post("move", move="go_on", turns=10) == (200, {})
        await opened.rests()
        await reader.sees("Asserted: done", "data-fork=")
        checkpoint = reader.parts["p-turn-1-2"].partition('data-fork="')[2].partition('"')[0]
        status, found = await opened.post("fork", at=checkpoint)
        assert (status, found) == (200, {"thread": "t1-fork-1"})
        copied = opened.read("t1-fork-1")
        await copied.sees("Stopped", "Forked here")
        assert "p-turn-1-2" in copied.parts
        assert "p-turn-1-3" not in copied.parts
        assert await opened.post("move", "t1-fork-1", move="stop") == (200, {})
        await opened.rests("t1-fork-1")
        await copied.sees("Cancelled")
        assert await opened.post("delete", "t1-fork-1") == (200, {})
        await until(lambda: copied.events[-1][0] == "gone")
        assert (await opened.post("delete", "t1-fork-1"))[0] == 422
        assert ids(opened.hub.storage) == ["t1"]
        await reader.leave()


async def test_a_pause_that_comes_at_once_counts(bench: WebBench) -> None:
    async with bench.served(LONG, delay=0.2) as opened:
        room = opened.hub.room("t1")
        for step in ({"what": "write", "text": "Read"}, {"what": "move", "move": "go_on"}):
            beginning = asyncio.create_task(opened.post(**step))
            await until(lambda: room.here)
            # Its thread has hardly begun.
            assert await opened.post("move", move="pause") == (200, {})
            assert (await beginning)[0] == 200
            await opened.rests()
            assert opened.status().condition is Condition.PAUSED


async def test_of_two_first_tasks_the_settings_of_the_one_that_runs_count(bench: WebBench) -> None:
    async with bench.served(LONG, delay=0.1) as opened:
        found = await asyncio.gather(
            opened.post("write", text="One", settings={"turns": 2}),
            opened.post("write", text="Two", settings={"turns": 5, "tools": "none"}),
        )
        assert sorted(status for status, _ in found) == [200, 409]
        await opened.rests()
        first = found[0][0] == 200
        assert opened.outcome()["turns"] == (2 if first else 5)
        settings = recall(opened.hub.storage.store, "t1")
        assert settings is not None
        assert settings.tools == (("files", "shell") if first else ())


class KilledError(BaseException):
    """The end of a process in the middle of a command."""


async def killed_in_a_command(opened: Opened) -> None:
    def run(*_: object) -> NoReturn:
        raise KilledError

    work = Work(opened.hub.storage, "t1", opened.hub.given, opened.hub.models, lambda _: None, run)
    with pytest.raises(KilledError):
        await asyncio.to_thread(work.go, "Run it")


async def test_a_command_of_a_killed_server_runs_again_only_when_somebody_says_so(bench: WebBench) -> None:
    async with bench.served(ONE_COMMAND) as opened:
        await killed_in_a_command(opened)
        reader = opened.read()
        early = {"interrupt_id": opened.waiting().interrupt_id}
        # It is asked at once, although nothing has run here.
        await reader.sees("may already have been done", "Run it again")
        assert 'data-move="go_on"' not in reader.parts["moves"]
        assert not (bench.workspace / "ran.txt").exists()
        found = await asyncio.gather(*(opened.post("again", **early) for _ in range(3)))
        assert sorted(status for status, _ in found) == [200, 409, 409]
        await opened.rests()
        await reader.sees("Asserted: done")
        assert (await opened.post("again", **early))[0] == 409
        assert (bench.workspace / "ran.txt").read_text() == "ran\n"
        await reader.leave()


async def test_that_nobody_knows_of_a_command_is_reported_as_a_failure(bench: WebBench) -> None:
    async with bench.served(ONE_COMMAND) as opened:
        await killed_in_a_command(opened)
        reader = opened.read()
        await reader.sees("Report that it is not known")
        button = re.search(r'data-text="([^"]+)"', reader.parts["ask"])
        assert button is not None
        assert await opened.answer(html.unescape(button[1])) == (200, {})
        await opened.rests()
        told = [message for message in opened.messages() if message.type == "tool"]
        assert ("not known whether this was done" in told[0].content, told[0].status) == (True, "error")
        assert '"output"' not in told[0].content
        await reader.leave()


async def test_an_option_that_is_a_number_is_meant_by_its_words(bench: WebBench) -> None:
    steps = """[
        call("ask_user", question="How many?", options=["2", "3", "5"]),
        call("ask_user", question="And now?", options=["2", "3", "5"]),
        call("finish_task", summary="Asked."),
    ]"""
    async with bench.served(steps) as opened:
        await begun(opened)
        assert await opened.answer("3") == (200, {})
        await opened.rests()
        assert (await opened.answer("1", "2"))[0] == 422
        assert await opened.answer("1") == (200, {})
        await opened.rests()
        told = [message.content for message in opened.messages() if message.name == "ask_user"]
        assert ["3" in told[0], "2" in told[1]] == [True, True]


async def test_settings_are_given_to_a_thread_that_has_not_begun(bench: WebBench) -> None:
    async with bench.served(LONG) as opened:
        status, told = await opened.post("write", text="Read", settings={"workspace": "/nowhere"})
        assert (status, "not an existing folder" in told["problem"]) == (422, True)
        assert await opened.post("write", text="Read", settings={"turns": 1}) == (200, {})
        await opened.rests()
        assert opened.outcome()["reason"] == "turns"
        status, told = await opened.post("write", text="More", settings={"turns": 9})
        assert (status, "has already begun" in told["problem"]) == (422, True)


async def test_a_model_that_cannot_be_had_is_told_and_loses_nothing(bench: WebBench) -> None:
    async with bench.served(LONG) as opened:
        status, told = await opened.post(
            "write", text="Read", settings={"model": "scripted:/nowhere/model.py"}
        )
        assert (status, "model.py" in told["problem"]) == (422, True)
        assert not opened.hub.room("t1").here


async def test_hostile_words_are_text_wherever_they_stand(bench: WebBench) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>\\u202e"
    steps = f"""[
        reply("{evil}", call("think", thought="{evil}", approach="{evil}", status="{evil}")),
        call("run_shell", command="echo '{evil}'"),
        call("ask_user", question="{evil}", options=["{evil}", "b"]),
        call("finish_task", summary="{evil}", pending_issues=["{evil}"], requires_user_confirmation=True),
    ]"""
    async with bench.served(steps, approve="terminal") as opened:
        reader = opened.read()
        await begun(opened, evil)
        for answer in ("approve", "1", "yes"):
            await opened.rests()
            assert (await opened.answer(answer))[0] == 200
        await opened.rests()
        await reader.sees("Asserted: done", "&lt;script&gt;")
        parts = [found["put"] for kind, found in reader.events if kind in ("all", "parts")]
        told = "\n".join(markup for put in parts for markup in put.values())
        told += opened.hub.listed
        assert "<img" not in told
        assert "<script" not in told
        assert "\u202e" not in told
        await reader.leave()


async def test_the_terminal_is_shared_and_its_flood_is_bounded(bench: WebBench) -> None:
    async with bench.served(LONG) as opened:
        one, two = opened.read(), opened.read()
        assert await opened.post("terminal", data="echo $((6*7))tytwo\n", rows=10, cols=60) == (200, {})
        for reader in (one, two):
            await reader.types("42tytwo")
        assert await opened.post("terminal", data="head -c 30000000 /dev/zero | tr '\\0' x\n") == (200, {})
        await asyncio.sleep(1)
        assert await opened.post("terminal", data="\x03") == (200, {})
        await asyncio.sleep(0.5)
        assert await opened.post("terminal", data="echo it is $((6*7)) again\n") == (200, {})
        await one.types("it is 42 again")
        room = opened.hub.room("t1")
        assert len(list(room.log.after(room.log.last - 1) or ())) == 1
        assert len(room.terminal.recent_output if room.terminal else "") < 400_000
        for reader in (one, two):
            await reader.leave()


async def test_a_log_is_bounded_and_says_when_a_place_has_gone() -> None:
    log = Log()
    for number in range(MOST_ENTRIES + 10):
        await log.add("live", str(number))
    assert log.after(5) is None
    assert log.after(log.last + 1) is None
    assert [entry.data for entry in log.after(log.last - 2) or ()] == [str(MOST_ENTRIES + n) for n in (8, 9)]
    assert list(log.after(log.last) or ()) == []
    for _ in range(10):
        await log.add("parts", "x" * (MOST_BYTES // 2))
    assert log.after(log.last - 3) is None
    assert not await log.wait(log.last, 0.01)


def test_only_what_has_changed_is_sent() -> None:
    before = {"p-1": "a", "head": "h"}
    assert not changes(before, dict(before))
    change = changes(before, {"p-1": "a", "p-2": "b", "head": "H"})
    assert (change.put, change.order) == ({"p-2": "b", "head": "H"}, ["p-1", "p-2", "head"])
    assert changes(before, {"p-1": "A", "head": "h"}).document() == {"put": {"p-1": "A"}, "order": None}


async def test_a_reader_who_never_reads_costs_nothing_and_catches_up(bench: WebBench) -> None:
    async with bench.served(LONG) as opened:
        room = opened.hub.room("t1")
        slow = opened.hub.stream("t1")
        assert b"event: all" in await anext(slow)
        for number in range(MOST_ENTRIES + 100):
            await room.log.add("live", f'"{number}"')
        assert b"event: all" in await anext(slow), "its place has gone, so it is told everything"
        await slow.aclose()
        assert (opened.hub.readers, room.log.readers) == (0, 0)


async def test_an_answer_to_something_else_is_refused(bench: WebBench) -> None:
    async with bench.served(PORT, approve="terminal") as opened:
        await begun(opened)
        assert (await opened.post("write", text="another task"))[0] == 422
        await opened.answer("1")
        await opened.rests()
        for texts, status in ((["maybe"], 422), (["approve", "approve"], 422), (["edit: no"], 422)):
            assert (await opened.answer(*texts))[0] == status
        assert (await opened.answer("approve", shown="another"))[0] == 422
        assert not (bench.workspace / "ran.txt").exists()
        with pytest.raises(ThreadError):
            await opened.hub.room("t1").move("dance", 1)


async def test_a_thread_of_a_program_is_shown_and_never_run_with_other_tools(bench: WebBench) -> None:
    asking = [call("ask_user", question="Which port?", options=["8080", "9090"])]
    with sqlite_storage(bench.database.where) as storage:
        Session(build_graph(ScriptedModel(asking), storage=storage), "t1").run("do it")
    async with bench.served(PORT) as opened:
        reader = opened.read()
        await reader.sees("Which port?")
        before = opened.status().values
        for refused in (
            await opened.answer("8080"),
            await opened.post("write", text="more"),
            await opened.post("move", move="stop"),
        ):
            assert (refused[0], "--graph" in refused[1]["problem"]) == (422, True), refused
        assert opened.status().values == before
        await reader.leave()
