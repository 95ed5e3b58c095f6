"""The terminal of a thread: what it keeps of a flood, its own words, and a person who types in it."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.front.settings import Given
from signoff.front.work import Models, Work
from signoff.session.decisions import Action
from signoff.tools.pty.shell import ShellResult
from signoff.web.pane_shell import MOST, Backlog, announced
from signoff.web.terminal import SharedTerminal
from signoff.web.terminals import Terminals
from tests.support.benches.project import ProjectBench
from tests.support.terminals import found, long_sleep, until


def test_the_backlog_keeps_order_and_the_end() -> None:
    backlog = Backlog()
    assert backlog.add(b"one")
    assert not backlog.add("two")
    backlog.add(b"x" * 600)
    assert [backlog.take() for _ in range(4)] == [b"one", "two", b"x" * 600, None]


def test_what_the_backlog_loses_is_said_and_its_modes_are_kept() -> None:
    backlog = Backlog()
    backlog.add(b"\x1b[?1049h\x1b[?10")
    for _ in range(40):
        backlog.add(b"49l\x1b[?25l" + b"line\n" * 2_000)
    taken = []
    while (item := backlog.take()) is not None:
        taken.append(item)
    assert taken[0] == b"\x18\x1b[?1049l\x1b[?25l\x1b[m"
    assert isinstance(taken[1], str)
    assert "0.2 MB of output not shown" in taken[1]
    assert MOST / 2 < sum(len(item) for item in taken[2:] if isinstance(item, bytes)) <= MOST


def test_a_long_command_is_announced_in_part() -> None:
    assert announced("a\x1b\nb") == "\x1b[1;32m$\x1b[39m a␛\n  b"
    assert announced("\n".join("x" * 20)).endswith("x\n  … 8 more lines")
    assert len(announced("x" * 10_000_000)) < 2_000


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[SharedTerminal]:
    opened = SharedTerminal(str(tmp_path), lambda: None, lambda: True, Terminals())
    yield opened
    opened.close()


def shown(terminal: SharedTerminal) -> str:
    while terminal.take():
        pass
    return base64.b64decode(terminal.recent_output).decode()


def test_a_person_who_ends_the_shell_gets_a_new_one(terminal: SharedTerminal) -> None:
    terminal.open()
    terminal.write(b"cd /; exit\n")

    def told() -> bool:
        # Enter is lost if the shell is just about to end.
        terminal.write(b"\n")
        return "[The shell has ended; this is a new one.]" in shown(terminal)

    assert until(told, 20)
    result = terminal.run("pwd", 20)
    assert (result.output, result.restarted) == (f"{terminal.workspace}\n", True)
    assert not terminal.run("pwd", 20).restarted


def test_a_persons_program_is_not_typed_into(terminal: SharedTerminal) -> None:
    terminal.open()
    terminal.write(f"{long_sleep()}\n".encode())
    assert until(lambda: bool(found()), 20)
    with pytest.raises(ToolException, match="still running"):
        terminal.run("echo x", 20)
    assert until(lambda: "[not run: A program" in shown(terminal))
    terminal.interrupt()
    assert until(lambda: not found())
    assert terminal.run("echo x", 20).output == "x\n"


def test_ctrl_c_does_not_wait_behind_what_no_program_reads(terminal: SharedTerminal) -> None:
    with ThreadPoolExecutor() as threads:
        running = threads.submit(terminal.run, f"stty -echo -icanon; {long_sleep()}", 60)
        assert until(lambda: bool(found()), 20)
        for _ in range(9):
            terminal.write(b"x" * 100_000)
        terminal.interrupt()
        assert running.result(20).exit_code == 130
    assert not found()


def test_nothing_is_left_of_a_terminal_that_was_closed(terminal: SharedTerminal) -> None:
    terminal.run(f"setsid -f {long_sleep()}; nohup {long_sleep()} >/dev/null 2>&1 & {long_sleep()} &", 20)
    assert until(lambda: len(found()) == 3)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(terminal.run, long_sleep(), 60)
        assert until(lambda: len(found()) == 4)
        terminal.close()
        with pytest.raises(ToolException, match="closed"):
            running.result(20)
    assert not found()
    with pytest.raises(ToolException, match="closed"):
        terminal.run("echo x", 20)


def test_a_command_that_is_run_once_more_tells_how_long_it_took(tmp_path: Path) -> None:
    """Nobody handed it out in this process, so that no session has measured it."""
    bench = ProjectBench(tmp_path)
    took = ShellResult(
        0, "made", timed_out=False, waiting_for=None, restarted=False, seconds=3.0, truncated=0
    )
    with bench.database.open() as storage:
        given = Given(workspace=bench.workspace, tools="shell")
        work = Work(storage, "t1", given, Models(), lambda _: None, lambda *_: took)
        answer = work.act(Action("i", "run_shell", {"command": "make"}, "terminal"), work.settings())
    assert isinstance(answer, dict)
    assert (answer["seconds"], answer["output"].splitlines()[0]) == (3.0, "made")
