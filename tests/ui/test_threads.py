"""The application on threads that stand somewhere: waiting, killed, run by another process, hostile, huge."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from ptyprocess import PtyProcess  # type: ignore[import-untyped]  # the package has no types

from signoff.graph.inside.installing import install_hint
from signoff.session.status import reading_graph
from tests.support.benches.ui import UiBench
from tests.support.prepared import Prepared

pytestmark = pytest.mark.slow

DONE = '[call("finish_task", summary="Done.")]'
ASKS = '[call("ask_user", question="Which port?"), call("finish_task", summary="It is set.")]'
SHELL = '[call("run_shell", command="echo run by the model >> ran.txt; sleep {}"), ' + DONE[1:]
SLOW = '[*[call("write_file", path=f"{n}.md", content="x") for n in range(9)], ' + DONE[1:]


@pytest.fixture
def bench(tmp_path: Path) -> UiBench:
    return UiBench(tmp_path)


def command(bench: UiBench, *words: str) -> list[str]:
    return [sys.executable, "-m", "signoff.cli", *words, "--database", str(bench.database)]


def begin(bench: UiBench, steps: str, *words: str, delay: float = 0.0) -> subprocess.Popen[str]:
    """`signoff run` on thread t1 in another process."""
    options = ("--thread", "t1", "--workspace", str(bench.workspace), "--model", bench.model(steps, delay))
    nobody = subprocess.DEVNULL
    words = ("run", "Do it", *options, *words, "--database", str(bench.database))
    return Prepared(words, stdout=nobody, stderr=nobody, stdin=nobody, text=True)


@pytest.mark.thorough
async def test_a_waiting_thread_is_answered_where_it_stands(bench: UiBench) -> None:
    assert begin(bench, ASKS).wait(60) == 4
    async with bench.opened() as opened:
        assert opened.word == "waits for your answer"
        assert "Which port?" in opened.screen()
        await opened.send("8080")
        await opened.rests()
        assert opened.outcome["summary"] == "It is set."


@pytest.mark.thorough
@pytest.mark.thorough
async def test_a_thread_that_ended_shows_its_end_and_takes_the_next_task(bench: UiBench) -> None:
    assert begin(bench, DONE.replace("]", ', call("finish_task", summary="Again.")]')).wait(60) == 0
    async with bench.opened() as opened:
        assert opened.word == "Asserted: done"
        assert "done." in opened.said()
        await opened.send("Once more")
        await opened.rests()
        assert "again." in opened.said()


async def test_a_killed_thread_goes_on(bench: UiBench) -> None:
    process = begin(bench, SLOW, delay=0.15)
    await written(bench, "2.md")
    process.kill()
    process.wait()
    async with bench.opened() as opened:
        assert opened.word == "stopped"
        assert "f5 continues" in opened.said()
        await opened.press("p")
        await opened.rests()
        assert (opened.word, opened.outcome["turns"]) == ("Asserted: done", 10)


async def test_who_comes_second_watches(bench: UiBench) -> None:
    process = begin(bench, SLOW, delay=0.25)
    await written(bench, "1.md")
    async with bench.opened() as opened:
        assert opened.word.startswith("watching")
        await opened.send("Do something else")
        assert "It is running; F5 pauses it." in opened.noted()
        seen = opened.said().count("write_file")
        await opened.until(lambda: opened.said().count("write_file") > seen)
        await opened.until(lambda: not opened.desk.watching)
        assert process.wait(60) == 0
        assert (opened.word, opened.said().count("write_file {")) == ("Asserted: done", 9)
        assert sum(opened.desk.machine.taken.values()) == 9 * 4 + 6


@pytest.mark.thorough
@pytest.mark.thorough
async def test_who_watches_can_ask_for_a_pause_and_then_go_on(bench: UiBench) -> None:
    process = begin(bench, SLOW, delay=0.25)
    await written(bench, "1.md")
    async with bench.opened() as opened:
        await opened.press("p")
        assert await asyncio.to_thread(process.wait, 60) == 4
        await opened.until(lambda: not opened.desk.watching)
        assert opened.word == "stopped"
        await opened.press("p")
        await opened.rests()
        assert opened.outcome["turns"] == 10


@pytest.mark.thorough
@pytest.mark.thorough
async def test_two_that_begin_at_once_the_second_is_told(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(DONE)) as opened:
        process = begin(bench, SLOW, delay=0.15)
        await written(bench, "1.md")
        await opened.send("Me too")
        await opened.until(lambda: opened.word.startswith("watching"))
        assert process.wait(60) == 0
        await opened.until(lambda: not opened.desk.watching)
        assert opened.word == "Asserted: done"


KILLED = """
import asyncio, sys
from contextlib import suppress
from pathlib import Path
from tests.support.benches.ui import UiBench
from tests.support.prepared import Prepared

async def main():
    bench = object.__new__(UiBench)
    folder = Path(sys.argv[1])
    from signoff.front.database import Database
    bench.folder, bench.workspace, bench.database = folder, folder / "project", Database(sys.argv[2], True)
    async with bench.opened(model=sys.argv[3]) as opened:
        await opened.send("Go")
        await opened.until(lambda: False)

asyncio.run(main())
"""


@pytest.mark.parametrize(("key", "times"), [("u", 1), ("g", 2)])
@pytest.mark.sample(1)
async def test_an_application_killed_in_a_command_asks_what_became_of_it(
    bench: UiBench, key: str, times: int
) -> None:
    model = bench.model(SHELL.format(600))
    words = [sys.executable, "-c", KILLED, str(bench.folder), str(bench.database), model]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": root}, start_new_session=True) as process:
        await written(bench, "ran.txt")
        os.killpg(process.pid, signal.SIGKILL)
    Path(model.removeprefix("scripted:")).write_text(
        Path(bench.model(SHELL.format(0)).removeprefix("scripted:")).read_text()
    )
    async with bench.opened() as opened:
        await opened.press("p")
        await opened.rests(at="action")
        assert "may already have been done" in opened.screen()
        await opened.press(key)
        if key == "g":
            await opened.until(lambda: opened.desk.pane and opened.desk.pane.running)
            assert opened.desk.pane is not None
            opened.desk.pane.interrupt()
        await opened.rests()
        assert opened.outcome["status"] == "success"
        assert (bench.workspace / "ran.txt").read_text().count("run by the model") == times


async def test_leaving_while_it_runs_pauses_it(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(SLOW, delay=0.3)) as opened:
        await opened.send("Go")
        await opened.until(lambda: opened.desk.status.facts.turn >= 2)
        await opened.press("q")
        await opened.until(lambda: not opened.app.is_running)
    with bench.database.open() as storage:
        state = reading_graph(storage).get_state({"configurable": {"thread_id": "t1"}})
        assert not storage.checkpointer.is_running("t1")
        assert 2 <= sum(message.type == "ai" for message in state.values["messages"]) < 10


async def written(bench: UiBench, name: str) -> None:
    """Waits until the workspace holds this file."""
    for _ in range(1200):
        if (bench.workspace / name).exists():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} was not written")


@pytest.mark.parametrize("how", ["hung up", "killed"])
@pytest.mark.thorough
async def test_an_application_that_loses_its_terminal_loses_nothing(bench: UiBench, how: str) -> None:
    options = ["--thread", "t1", "--workspace", str(bench.workspace), "--model", bench.model(SLOW, 0.2)]
    terminal = PtyProcess.spawn(command(bench, "ui", *options), dimensions=(40, 120))
    reading = asyncio.create_task(asyncio.to_thread(drained, terminal))
    for _ in range(400):
        # It takes no keys before it is there.
        await asyncio.sleep(0.1)
        with suppress(OSError):
            terminal.write(b"\x7fGo\r")
        if (bench.workspace / "1.md").exists():
            break
    if how == "hung up":
        terminal.kill(signal.SIGHUP)
    else:
        terminal.kill(signal.SIGKILL)
    await reading
    terminal.close(force=True)
    async with bench.opened() as opened:
        assert opened.word == "stopped"
        await opened.press("p")
        await opened.rests()
        assert opened.outcome["turns"] == 10


def drained(terminal: PtyProcess) -> None:
    """Reads what the application draws until it is gone."""
    with suppress(EOFError, OSError):
        while terminal.read(65_536):
            pass


def test_without_a_terminal_it_is_told(bench: UiBench) -> None:
    done = subprocess.run(
        command(bench, "ui"), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("The application needs a terminal")


@pytest.mark.parametrize(
    ("word", "missing", "extra"), [("ui", "textual", "ui"), ("serve", "starlette", "web")]
)
def test_without_its_packages_it_names_the_command(
    bench: UiBench, word: str, missing: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {command(bench, word)[3:]!r}; "
        "from signoff.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert install_hint(extra) in done.stderr
