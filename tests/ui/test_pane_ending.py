"""A shell, a program or the application that ends or is killed leaves a usable terminal, or nothing."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from langchain_core.tools import ToolException
from ptyprocess import PtyProcess  # type: ignore[import-untyped]  # the package has no types

from tests.support.benches.pane import desk
from tests.support.terminals import found, long_sleep, until


async def test_a_person_ends_the_shell(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        await person.types("cd /; exit\n")
        await person.sees(lambda: person.lines[-1] == "exit")
        await asyncio.sleep(0.1)
        await person.types("\n")
        await person.sees(lambda: person.lines[-1] == "> ")
        assert "[The shell has ended; this is a new one.]" in person.lines
        result = await person.run("pwd")
        assert (result.output, result.restarted) == (f"{tmp_path}\n", True)
        assert not (await person.run("pwd")).restarted


async def test_a_persons_program_is_not_typed_into(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        await person.types("cat\n")
        await person.pilot.pause(0.2)
        with pytest.raises(ToolException, match="still running"):
            await person.run("echo x")
        await person.sees(lambda: any(line.startswith("[not run: A program") for line in person.lines))
        assert person.lines[0] == "> cat"
        await person.pilot.press("ctrl+d")
        await person.sees(person.at_prompt)
        assert (await person.run("echo x")).output == "x\n"


async def test_nothing_is_left_when_the_application_ends(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        await person.run(f"setsid -f {long_sleep()}; nohup {long_sleep()} >/dev/null 2>&1 & {long_sleep()} &")
        await person.sees(lambda: len(found()) == 3)
        running = person.run(long_sleep())
        await person.sees(lambda: len(found()) == 4)
    with pytest.raises(ToolException, match="closed"):
        await running
    assert not found()
    with pytest.raises(ToolException, match="closed"):
        person.pane.run("echo x", 1)


PROGRAM = """
import sys
from threading import Thread
sys.path[:0] = [{root!r}]
from tests.support.benches.pane import Desk
from signoff.ui.pane import TerminalPane
from pathlib import Path
class Agent(Desk):
    def on_mount(self):
        pane = self.query_one(TerminalPane)
        def work():
            pane.run({command!r}, 60)
            self.call_from_thread(self.exit)
        Thread(target=work, daemon=True).start()
Agent(Path({folder!r})).run()
"""


def application(folder: Path, command: str) -> PtyProcess:
    """The application in a terminal of its own, running one command and ending after it."""
    text = PROGRAM.format(root=str(Path(__file__).parents[2]), command=command, folder=str(folder))
    return PtyProcess.spawn([sys.executable, "-c", text], env={**os.environ, "TERM": "xterm-256color"})


@pytest.mark.slow
@pytest.mark.thorough
def test_nothing_reaches_the_users_own_terminal(tmp_path: Path) -> None:
    evil = r"printf '\033]52;c;ZXZpbA==\007\033]0;evil\007\033P+q544e\033\\\033[6n\u202eshown\n'; sleep 1"
    process, written = application(tmp_path, evil), b""
    try:
        while True:
            written += process.read(65_536)
    except EOFError:
        process.close()
    assert "⟨U+202E⟩shown".encode() in written
    for string in (b"]52;", b"ZXZpbA==", b"]0;evil", b"+q544e", "\u202e".encode()):
        assert string not in written.replace(b"printf", b"").split(b"sleep 1")[-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.sample(1)
def test_nothing_is_left_when_the_application_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    process = application(tmp_path, f"{long_sleep()} & {long_sleep()}")
    assert until(lambda: len(found()) == 2, 20)
    os.kill(process.pid, number)
    assert until(lambda: not found(), 10)
    process.close(force=True)
