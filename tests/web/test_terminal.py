"""The terminal of a thread: one shell for the model and all people, bounded, and nothing outlives it."""

import base64
import re

import pytest

from tests.support.benches.served import New, Place, Reader, Thread
from tests.support.process_table import gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ASK = 'call("ask_user", question="And now?")'
DONE = 'call("finish_task", summary="Done.")'


def shell(command: str) -> str:
    return f'call("run_shell", command={command!r})'


def steps(*parts: str) -> str:
    return f"[{', '.join(parts)}]"


def types(thread: Thread, line: str) -> None:
    assert thread.post("terminal", data=f"{line}\n") == (200, {})


def typed(thread: Thread) -> str:
    """What the terminal shows to somebody who comes now."""
    with thread.reading() as reader:
        reader.until(lambda: reader.events)
        return reader.typed


def pid_of(reader: Reader, name: str) -> int:
    """The number of a process that the terminal has shown as `name=number`."""
    reader.until(lambda: re.search(rf"{name}=\d+\s", reader.typed))
    return int(re.findall(rf"{name}=(\d+)\s", reader.typed)[-1])


def test_people_and_the_model_share_it(new: New) -> None:
    thread = new(
        steps(shell("kept=$((6*7)); pwd"), ASK, shell('echo "$kept $(pwd) $typed"'), DONE), approve="none"
    )
    with thread.reading() as ada, thread.reading() as bob:
        thread.begin()
        for reader in (ada, bob):
            reader.types("kept=$((6*7)); pwd")
        types(thread, "cd /; typed=by$((1+1)); echo seen$((1+1))")
        for reader in (ada, bob):
            reader.types("seen2")
        assert "42 / by2" in thread.answered("go on").results()[-1]


def test_the_model_is_told_that_a_person_has_ended_the_shell(new: New) -> None:
    thread = new(steps(shell("kept=1"), ASK, shell("echo ${kept:-nothing}; pwd"), DONE), approve="none")
    thread.begin()
    types(thread, "exit")

    def is_told() -> bool:
        # Enter is lost if the shell is just about to end.
        types(thread, "")
        return "this is a new one" in typed(thread)

    wait_until(is_told)
    result = thread.answered("go on").results()[-1]
    assert "nothing" in result
    assert str(thread.folder) in result
    assert "variables" in result, "they are gone"


def test_a_persons_program_is_not_typed_into_and_ctrl_c_reaches_it(new: New) -> None:
    thread = new(steps(ASK, shell("echo x"), shell("echo y"), DONE), approve="none")
    with thread.reading() as reader:
        thread.begin()
        types(thread, "(echo in=$BASHPID; exec sleep 600)")
        program = pid_of(reader, "in")
        thread.answer("go on")
        reader.types("not run")
        assert thread.post("terminal", data="\x03")[0] == 200
        assert gone(program, seconds=60)
    refused, *_ = thread.look().results()[1:]
    assert "x\n" not in refused


def test_a_flood_is_bounded_and_what_is_lost_is_said(new: New) -> None:
    thread = new("[]")
    with thread.reading() as reader:
        types(thread, "head -c 5000000 /dev/zero | tr '\\0' x; echo it is $((6*7)) again")
        reader.types("it is 42 again")
        assert "MB of output not shown" in reader.typed
        assert len(reader.typed) < 5_000_000
    with thread.reading() as late:
        late.types("it is 42 again")
        (whole,) = [event["terminal"]["data"] for kind, event in late.events if kind == "all"]
        assert len(base64.b64decode(whole)) < 300_000


def test_commands_run_in_the_folder_that_the_first_task_names(new: New, place: Place) -> None:
    thread = new(steps(shell("pwd > where.txt"), DONE), approve="none")
    with thread.reading() as reader:
        assert thread.post("terminal", data="echo shell=$BASHPID\n", rows=10, cols=60)[0] == 200
        first = pid_of(reader, "shell")
        assert thread.write(settings={"workspace": "/nowhere"}) == 422
        types(thread, "echo shell=$BASHPID")
        assert pid_of(reader, "shell") == first, "a folder that is refused ends no shell"
        thread.begin()
        assert gone(first, seconds=60)
        reader.types(f"thread now works in {thread.folder}")
        types(thread, "stty size; echo shell=$BASHPID")
        reader.types("10 60")
    assert (thread.ran("where.txt"), (place.workspace / "where.txt").exists()) == (
        f"{thread.folder}\n",
        False,
    )


def test_nothing_outlives_its_thread(new: New) -> None:
    thread = new(steps(DONE))
    thread.begin()
    with thread.reading() as reader:
        types(thread, "setsid -f sh -c 'echo away=$$; exec sleep 600'; echo shell=$BASHPID")
        types(thread, "sh -c 'echo in=$$; exec nohup sleep 600'")
        started = [pid_of(reader, name) for name in ("away", "shell", "in")]
    assert thread.post("delete")[0] == 200
    assert gone(*started, seconds=60)


@pytest.mark.thorough
def test_a_server_keeps_64_shells_and_ends_an_idle_one_for_a_new_one(place: Place) -> None:
    with place.serve() as served:
        thread = Thread(place, served, "[]")

        def ask(name: str, line: str) -> int:
            return thread.post("terminal", name, data=f"{line}\n")[0]

        assert [ask(f"idle-{number}", "kept=1") for number in range(64)] == [200] * 64
        wait_until(lambda: len(served.children()) >= 64)
        # One after another the idle ones end.
        assert [ask(f"busy-{number}", "sleep 600") for number in range(64)] == [200] * 64
        wait_until(lambda: ask("one-more", "echo here") == 503)
        # Each is a helper, a shell and what runs in it; with the idle ones there were more.
        assert len(served.children()) <= 64 * 3
