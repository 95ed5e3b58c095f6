"""The terminal pane in an application: a real shell, the agent's commands, and a person who types."""

import asyncio
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from tests.support.benches.pane import desk, wheel
from tests.support.terminals import found, long_sleep

pytestmark = pytest.mark.slow

LEAVE = "ctrl+right_square_bracket"
FULL_SCREEN = """
import curses
def show(screen):
    screen.addstr(0, 0, "FULL SCREEN")
    screen.refresh()
    while screen.getkey() != "q":
        pass
curses.wrapper(show)
"""


async def test_a_command_of_the_agent_appears_as_if_it_were_typed(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        running = person.run("echo hello $WHO; sleep 0.5; printf 'no newline'; (exit 3)")
        await person.sees(lambda: "hello agent" in person.lines)
        assert person.title == "terminal · $ echo hello $WHO; sleep 0.5; printf 'no newline'; (exit 3)"
        assert person.pane.running is not None
        result = await running
        assert (result.exit_code, result.output) == (3, "hello agent\nno newline")
        await person.sees(lambda: person.title == "terminal · idle")
        await person.run("echo one\necho two")
        await person.sees(lambda: person.at_prompt() and "two" in person.lines)
        command = "$ echo hello $WHO; sleep 0.5; printf 'no newline'; (exit 3)"
        expected = [command, "hello agent", "no newline", "$ echo one", "  echo two", "one", "two", "> "]
        assert person.lines == expected


async def test_a_person_types_commands(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        await person.types("echo one\n")
        await person.sees(lambda: "one" in person.lines)
        await person.types("half a li")
        await person.sees(lambda: person.lines[-1] == "> half a li")
        await person.pilot.press("backspace", "up", "left", "home", "delete", "f5")
        await person.sees(lambda: person.lines[-1] == "> half a l")
        await person.run("echo two")
        await person.sees(lambda: person.lines == ["> echo one", "one", "$ echo two", "two", "> "])


async def test_a_person_answers_a_password_prompt(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        running = person.run("read -s -p 'Password: ' word; echo; echo ${#word}")
        await person.sees(lambda: person.title == "terminal · asks for a password")
        for _ in range(8):
            await person.pilot.pause(0.1)
            assert person.title == "terminal · asks for a password"
        assert person.pane.has_class("-asks")
        await person.types("secret\n")
        assert (await running).output == "Password: \n6\n"
        await person.sees(lambda: person.title == "terminal · idle")
        assert not any("secret" in line for line in person.lines)


async def test_ctrl_c_and_interrupt_end_a_command(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        for by_key in (True, False):
            running = person.run(long_sleep())
            await person.sees(lambda: bool(found()))
            if by_key:
                await person.pilot.press("ctrl+c")
            else:
                await asyncio.to_thread(person.pane.interrupt)
            result = await running
            assert (result.exit_code, result.output) == (130, "^C\n")
            await person.sees(lambda: not found())
        await person.sees(person.at_prompt)
        assert person.lines == [f"$ {long_sleep()}", "^C", f"$ {long_sleep()}", "^C", "> "]


@pytest.mark.timed
async def test_what_is_typed_and_not_read_does_not_keep_ctrl_c_waiting(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        running = person.run(long_sleep())
        await person.sees(lambda: bool(found()))
        person.pane.post_message(events.Paste("x" * 600_000))
        await person.pilot.pause(0.1)
        begun = time.monotonic()
        await person.pilot.press("ctrl+c")
        await person.pilot.pause()
        assert time.monotonic() - begun < 10
        person.pane.interrupt()
        running.cancel()


async def test_the_shell_has_the_size_of_the_pane(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        for size in ((100, 30), (40, 10), (300, 80)):
            await person.pilot.resize_terminal(*size)
            await person.pilot.pause()
            expected = f"{person.pane.size.height} {person.pane.size.width}\n"
            assert (await person.run("stty size")).output == expected
            assert (person.pane.terminal.rows, person.pane.terminal.cols) == person.pane.size[::-1]


@pytest.mark.parametrize("program", ["less", "vi", "curses"])
async def test_a_full_screen_program_leaves_the_screen_as_it_was(tmp_path: Path, program: str) -> None:
    if program != "curses" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "file").write_text("".join(f"FULL SCREEN {n}\n" for n in range(200)))
    (tmp_path / "program.py").write_text(FULL_SCREEN)
    commands = {"less": "less file", "vi": "vi file", "curses": f"{sys.executable} program.py"}
    async with desk(tmp_path) as person:
        await person.run("echo before")
        await person.sees(lambda: person.lines == ["$ echo before", "before", "> "])
        running = person.run(commands[program])
        await person.sees(lambda: person.lines[0].startswith("FULL SCREEN"))
        assert person.pane.terminal.alternate
        await person.pilot.resize_terminal(60, 15)
        await person.pilot.pause(0.2)
        if program == "less":
            person.pane.post_message(wheel(person.pane))
            await person.sees(lambda: person.lines[0] == "FULL SCREEN 3")
        await person.types("\x1b:q!\n" if program == "vi" else "q")
        assert (await running).exit_code == 0
        await person.sees(lambda: person.lines[:2] == ["$ echo before", "before"] and person.at_prompt())
        assert not any("FULL SCREEN" in line for line in person.lines[3:])


async def test_scrolling_back(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        await person.run("seq 100")
        await person.sees(lambda: person.lines[-2:] == ["100", "> "])
        pane = person.pane
        await person.pilot.press("shift+pageup")
        assert pane.back == pane.size.height - 1
        top = pane.render_line(0).text.strip()
        assert str(pane.border_subtitle) == f"↑ {pane.back} lines back · shift+end returns"
        await person.run("seq 10")
        await person.pilot.pause(0.2)
        assert pane.render_line(0).text.strip() == top
        pane.post_message(wheel(pane))
        await person.sees(lambda: pane.render_line(0).text.strip() == str(int(top) + 3))
        await person.pilot.press("shift+home")
        assert pane.render_line(1).text.strip() == "1"
        await person.pilot.press("x")
        assert pane.back == 0


async def test_one_key_leads_out_and_every_other_is_the_shells(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        assert str(person.pane.border_subtitle) == "ctrl+] leaves"
        running = person.run("stty raw -echo; head -c 9 | od -An -tx1; stty sane")
        await person.sees(lambda: person.title.startswith("terminal · $ stty"))
        await person.pilot.pause(0.3)
        await person.pilot.press("ctrl+q", "tab", "ctrl+c", "ctrl+p", "f5")
        assert (await running).output.strip() == "11 09 03 10 1b 5b 31 35 7e"
        assert person.pane.has_focus
        await person.pilot.press(LEAVE)
        assert isinstance(person.pilot.app.focused, Input)
        await person.types("x")
        assert person.pilot.app.query_one(Input).value == "x"


@pytest.mark.parametrize("bracketed", [False, True])
async def test_a_paste_reaches_the_program(tmp_path: Path, bracketed: bool) -> None:
    before = "printf '\\033[?2004h'; " if bracketed else ""
    async with desk(tmp_path) as person:
        running = person.run(f"{before}stty raw -echo; head -c {15 if bracketed else 3} | cat -v; stty sane")
        await person.pilot.pause(0.4)
        person.pane.post_message(events.Paste("a\x1b\nb"))
        assert (await running).output == ("^[[200~a^Mb^[[201~" if bracketed else "a^Mb")


async def test_a_question_of_a_program_is_answered_only_where_it_reads_keys(tmp_path: Path) -> None:
    ask = "printf '\\033[6n'"
    async with desk(tmp_path) as person:
        result = await person.run(
            f"stty raw -echo; {ask}; IFS= read -rsd R at; stty sane; echo ${{at:1}}", 10
        )
        assert re.fullmatch(r"\[\d+;1\n", result.output)
        assert (await person.run(f"{ask}; sleep 0.3; echo done")).output == "done\n"
        await person.pilot.pause(0.2)
        assert person.lines[-2:] == ["done", "> "]


async def test_strings_for_a_terminal_do_nothing(tmp_path: Path) -> None:
    evil = r"printf '\033]52;c;ZXZpbA==\007\033]0;evil\007\033]8;;http://evil\033\\[/bold]\u202ex\n'"
    async with desk(tmp_path) as person:
        await person.run(evil)
        await person.sees(lambda: "[/bold]⟨U+202E⟩x" in person.lines)
        assert person.pilot.app.clipboard == ""
        assert "evil" not in person.pilot.app.title
        # What a command looks like in the title is only text as well.
        running = person.run("echo '[/bold]\x1b[31m'; sleep 1")
        await person.sees(lambda: person.title == "terminal · $ echo '[/bold]␛[31m'; sleep 1")
        await running


async def test_a_flood_does_not_hold_up_the_application(tmp_path: Path) -> None:
    async with desk(tmp_path) as person:
        running = person.run("head -c 10000000 /dev/zero | tr '\\0' x | fold -w 70; echo; echo END")
        waited, longest = time.monotonic(), 0.0
        while "END" not in person.lines:
            # Time of this thread: what other processes take from it is not the application's doing.
            begun = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - begun)
            assert time.monotonic() - waited < 60
        assert longest < 1
        assert (await running).exit_code == 0
        await person.pilot.press("shift+home")
        shown = [person.pane.terminal.line(y).text for y in range(-person.pane.terminal.history_lines, 0)]
        assert any("MB of output not shown" in line for line in shown)
