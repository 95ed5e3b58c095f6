"""`signoff pause`: asks the process that runs a thread to pause it; a request never outlives the run."""

import signal
from pathlib import Path

import pytest

from signoff import request_pause, sqlite_storage
from tests.support.benches.cli import PROGRAM, Bench, bare, offered, one_sentence, steps, words_of
from tests.support.benches.cli_terminal import SECONDS, run_words, terminal, wait_for, wait_until

pytestmark = pytest.mark.slow

LOOK = 'call("read_file", path="config.py")'
ANOTHER = 'call("read_file", path=f"{len(m)}.py")'
DONE = 'call("finish_task", summary="All done.")'
ASK = 'call("ask_user", question="Which?")'
NOTED = "Another process asks for a pause; stopping after this step."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def paused(then: str, thread: str = "t1") -> str:
    """A step of the model during which a second process asks for a pause."""
    words = [*PROGRAM, "pause", thread]
    return f"lambda m: (__import__('subprocess').run({words!r}, check=True), {then})[1]"


REPLIES: dict[str, tuple[str, list[str], int]] = {
    # the reply that comes meanwhile, how it goes on, the turns in the end
    "a call": (LOOK, [DONE], 2),
    "text": ('"Hm."', [DONE], 2),
    "a finish": (DONE, [], 1),
    "a question": (ASK, [DONE], 2),
}


@pytest.mark.parametrize("case", REPLIES)
@pytest.mark.sample(2)
def test_during_a_model_call(bench: Bench, case: str) -> None:
    reply, rest, turns = REPLIES[case]
    bench.model(steps(paused(reply), *rest))
    result = bench.run()
    assert (result.exit_code, result.stderr, NOTED in result.stdout) == (4, "", True)
    assert bench.json("show", "t1")["status"] == "stopped"
    assert bench.turns() == 1
    go_on = offered(result.stdout)["Go on"]
    assert bare(go_on) == ["resume", "t1"]
    after = bench(*go_on)
    if case == "a question":
        assert after.exit_code == 4
        after = bench(*offered(after.stdout)["Answer"])
    assert (after.exit_code, bench.turns()) == (0, turns)


@pytest.mark.parametrize("words", [["--json"], ["--quiet"]])
@pytest.mark.sample(1)
def test_however_it_is_told(bench: Bench, words: list[str]) -> None:
    bench.model(steps(paused(LOOK), DONE))
    result = bench.run("x", *words)
    assert (result.exit_code, result.stderr, "resume" in result.stdout) == (4, "", True)


@pytest.mark.thorough
def test_while_an_answer_is_worked_on(bench: Bench) -> None:
    """The answer is kept: it is not asked for again."""
    bench.model(steps(ASK, paused(LOOK), 'lambda m: call("finish_task", summary=m[-3].text)'))
    bench.run()
    assert bench("resume", "t1", "blue").exit_code == 4
    assert bench.json("resume", "t1")["outcome"]["summary"] == "blue"


@pytest.mark.thorough
def test_after_more_turns_were_granted(bench: Bench) -> None:
    bench.model(steps(LOOK, paused(LOOK), DONE))
    assert bench.run("x", "--turns", "1").exit_code == 3
    stopped = bench("extend", "t1", "5")
    assert stopped.exit_code == 4
    assert bench.json(*bare(offered(stopped.stdout)["Go on"]))["outcome"]["turns"] == 3


@pytest.mark.thorough
def test_only_the_thread_that_is_meant(bench: Bench) -> None:
    bench.model(steps(f"[{LOOK}, {LOOK}]", paused(LOOK, "t2"), LOOK, DONE))
    with sqlite_storage(bench.database) as storage, storage.checkpointer.runner("t2"):
        assert bench.run().exit_code == 0


TOO_LATE: dict[str, tuple[str, list[str], list[str]]] = {
    # the script, how the run that was asked went, the run that follows
    "it waits": (steps(ASK, LOOK, DONE), ["run", "Do it", "-t", "t1"], ["resume", "t1", "blue"]),
    "a limit ended it": (steps(LOOK, LOOK, DONE), ["run", "x", "-t", "t1", "--turns", "1"], ["extend", "t1"]),
    "it is done": (steps(DONE, LOOK, DONE), ["run", "Do it", "-t", "t1"], ["run", "More", "-t", "t1"]),
    "it never began": (steps(LOOK, DONE), ["threads"], ["run", "Do it", "-t", "t1"]),
}


@pytest.mark.parametrize("case", TOO_LATE)
@pytest.mark.sample(2)
def test_a_request_that_came_too_late_pauses_no_later_run(
    bench: Bench, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, before, after = TOO_LATE[case]
    monkeypatch.chdir(bench.workspace)
    bench.model(script)
    bench(*before)
    with sqlite_storage(bench.database) as storage:
        request_pause(storage.store, "t1")
    assert bench(*after).exit_code == 0


def test_what_does_not_run_cannot_be_paused_and_nothing_pauses_the_next_run(bench: Bench) -> None:
    bench.model(steps(ASK, LOOK, DONE))
    one_sentence(bench("pause", "t1"), "no thread 't1'", "signoff threads")
    bench.run()
    one_sentence(bench("pause", "t1"), "'t1' is not running", "nothing to pause")
    one_sentence(bench("pause", "t2"), "no thread 't2'", "signoff threads")
    assert bench("resume", "t1", "blue").exit_code == 0
    one_sentence(bench("pause", "t1"), "'t1' is not running")
    assert bench("run", "Again", "-t", "t1", "-m", bench.model(f"[{DONE}] * 9")).exit_code == 0


class TestProcesses:
    def test_pause_resume_done(self, bench: Bench) -> None:
        bench.model(f"[lambda m: (__import__('time').sleep(0.3), {ANOTHER})[1]] * 500")
        with bench.start(*run_words(bench, "--turns", "500"), real=True) as runner:
            wait_for(bench, 2)
            code, out, err = bench.process("pause", "t1")
            assert (code, err) == (0, "")
            told, errors = runner.communicate(timeout=SECONDS)
        assert (runner.returncode, errors, NOTED in told) == (4, "", True)
        promised = words_of(out.removeprefix("Pause requested. When it has paused, go on with: "))
        assert promised == offered(told)["Go on"]
        turns = bench.turns()
        model = bench.model(f"[{LOOK}] * {turns} + [{DONE}]")
        code, out, _ = bench.process(*promised, "--model", model)
        assert (code, bench.turns()) == (0, turns + 1), out

    @pytest.mark.thorough
    def test_a_command_that_runs_is_waited_for(self, bench: Bench) -> None:
        asked = bench.folder / "asked"
        command = f"touch {bench.folder / 'begun'}; until [ -e {asked} ]; do sleep 0.1; done; echo ran >> log"
        bench.model(steps(f'call("run_shell", command="{command}")', DONE))
        with bench.start(*run_words(bench)) as runner:
            wait_until((bench.folder / "begun").exists)
            assert bench.process("pause", "t1")[0] == 0
            asked.touch()
            told, _ = runner.communicate(timeout=SECONDS)
        assert (runner.returncode, (bench.workspace / "log").read_text()) == (4, "ran\n")
        assert bench.process(*offered(told)["Go on"])[0] == 0
        assert (bench.workspace / "log").read_text() == "ran\n"

    @pytest.mark.thorough
    def test_in_a_terminal_it_says_who_asked(self, bench: Bench) -> None:
        bench.model(steps(paused(LOOK), DONE))
        with terminal(bench, *run_words(bench)) as shown:
            shown.until(NOTED)
            shown.until("Go on: ")
            assert shown.end() == 4

    @pytest.mark.thorough
    def test_while_a_person_is_asked_nothing_runs(self, bench: Bench) -> None:
        with terminal(bench, *run_words(bench)) as shown:
            shown.until("your own words > ")
            code, _, err = bench.process("pause", "t1")
            assert (code, "not running" in err) == (2, True)
            shown.type("1\n")
            assert shown.end() == 0

    def test_a_process_that_hangs_or_was_killed(self, bench: Bench) -> None:
        hangs = bench.folder / "hangs"
        bench.model(steps(LOOK, f"lambda m: (open({str(hangs)!r}, 'w'), __import__('time').sleep(600))"))
        with bench.start(*run_words(bench)) as runner:
            wait_until(hangs.exists)
            assert bench.process("pause", "t1")[0] == 0
            assert bench.process("pause", "t1")[0] == 0, "asking twice changes nothing"
            runner.send_signal(signal.SIGKILL)
        code, out, _ = bench.process("resume", "t1", "--model", bench.model(steps(LOOK, LOOK, DONE)))
        assert code == 0, out
