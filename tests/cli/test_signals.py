"""Ctrl-C and SIGTERM: the first stops the run after its step, the second at once; both can be resumed.

A reply that is still coming in is closed, a tool that runs is waited for. In every state: exit code 4, the
command that goes on, and a thread that ends as if nothing had happened.
"""

import re
import signal
import time
from pathlib import Path

import pytest

from signoff.storage.sqlite import is_locked
from tests.support.benches.cli import Bench, bare, offered, steps, words_of
from tests.support.benches.cli_terminal import SECONDS, run_words, terminal, wait_until

LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="All done.")'
ASK = 'call("ask_user", question="Which?")'
CONFIRM = 'call("finish_task", summary="x", requires_user_confirmation=True)'
SIGNALS = [signal.SIGINT, signal.SIGTERM]
SOON = "Stopping after this step; Ctrl-C again stops at once."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class TestInAModelCall:
    """The signal comes while the model is asked; the model itself sends it, the first time."""

    def signalled(self, bench: Bench, step: str, *numbers: signal.Signals) -> str:
        once = f"(f := __import__('pathlib').Path({str(bench.folder / 'signalled')!r})).exists()"
        # To the process, as from outside; the main thread, which waits for the model, must get to each before
        # it has abandoned the call.
        sent = ", __import__('time').sleep(0.02), ".join(
            f"__import__('os').kill(__import__('os').getpid(), {int(number)})" for number in numbers
        )
        return f"lambda m: ({once} or (f.touch(), {sent}, __import__('time').sleep(0.4)), {step})[-1]"

    @pytest.mark.parametrize("number", SIGNALS)
    @pytest.mark.parametrize("words", [[], ["--json"], ["--quiet"]])
    def test_nothing_of_the_reply_is_kept_and_the_next_run_asks_again(
        self, bench: Bench, number: signal.Signals, words: list[str]
    ) -> None:
        bench.model(steps(LOOK, self.signalled(bench, LOOK, number), DONE))
        result = bench.run("Do it", *words)
        assert (result.exit_code, result.stderr) == (4, "")
        assert (SOON in result.stdout) == (words == [])
        assert (bench.turns(), bench.told()[-1]["turn"]) == (1, 1)
        assert bench.json("show", "t1")["status"] == "stopped"
        assert bench.json("resume", "t1")["outcome"]["turns"] == 3

    @pytest.mark.parametrize("numbers", [SIGNALS, SIGNALS[::-1], [signal.SIGINT] * 2])
    def test_a_second_one_stops_at_once(self, bench: Bench, numbers: list[signal.Signals]) -> None:
        bench.model(steps(LOOK, self.signalled(bench, LOOK, *numbers), DONE))
        result = bench.run()
        assert (result.exit_code, result.stderr) == (4, "")
        go_on = offered(result.stdout)["Go on"]
        assert (bare(go_on), bench.turns()) == (["resume", "t1"], 1)
        assert bench(*go_on).exit_code == 0

    def test_a_finish_that_comes_with_it_does_not_count(self, bench: Bench) -> None:
        bench.model(steps(self.signalled(bench, DONE, signal.SIGTERM)))
        assert (bench.run().exit_code, bench.turns()) == (4, 0)
        found = bench.json("resume", "t1")
        assert (found["exit_code"], found["outcome"]["turns"]) == (0, 1)

    def test_while_a_limit_is_extended(self, bench: Bench) -> None:
        bench.model(steps(LOOK, self.signalled(bench, LOOK, signal.SIGINT), DONE))
        assert bench.run("Look", "--turns", "1").exit_code == 3
        stopped = bench("extend", "t1", "5")
        assert stopped.exit_code == 4
        assert bench(*offered(stopped.stdout)["Go on"]).exit_code == 0


class TestWhileTheModelLoads:
    """Nothing of the run has begun: everything is as it was."""

    @pytest.fixture
    def loading(self, bench: Bench) -> str:
        file = bench.folder / "loading.py"
        file.write_text("import signal; signal.raise_signal(signal.SIGTERM); model = None")
        return f"scripted:{file}"

    def test_of_a_new_thread(self, bench: Bench, loading: str) -> None:
        result = bench.run("x", "--model", loading)
        assert (result.exit_code, result.stderr) == (4, "")
        assert "Nothing was saved yet; run the command again." in result.stdout
        assert bench("show", "t1").exit_code == 2

    @pytest.mark.parametrize(
        ("script", "words", "command"),
        [
            (steps(ASK), ["resume", "t1", "blue"], ["resume", "t1", "your answer"]),
            (steps(CONFIRM), ["resume", "t1", "yes"], ["resume", "t1", "yes"]),
            (f"[{LOOK}] * 9", ["extend", "t1", "5"], ["extend", "t1", "10"]),
            (steps("ValueError()"), ["retry", "t1"], ["retry", "t1"]),
            (steps(DONE), ["run", "More", "--thread", "t1"], None),
        ],
    )
    def test_of_a_thread_that_goes_on(
        self, bench: Bench, loading: str, script: str, words: list[str], command: list[str] | None
    ) -> None:
        bench.model(script)
        bench.run("Do it", "--turns", "2")
        before = bench.json("show", "t1")
        result = bench(*words, "--model", loading)
        assert (result.exit_code, result.stderr) == (4, "")
        assert next((bare(found) for found in offered(result.stdout).values()), None) == command
        assert bench.json("show", "t1") == before


def sleeping(bench: Bench, seconds: float, then: str) -> str:
    """A step that says that it has begun, and takes its time."""
    begun = f"open({str(bench.folder / 'begun')!r}, 'w')"
    return f"lambda m: ({begun}, __import__('time').sleep({seconds}), {then})[2]"


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
class TestProcesses:
    def stopped(self, bench: Bench, number: signal.Signals, *words: str, times: int = 1) -> tuple[str, float]:
        """Sends the signal when the step has begun; what the process printed, and how long it took to end."""
        with bench.start(*run_words(bench, *words), real=not words) as process:
            wait_until((bench.folder / "begun").exists)
            begun = time.monotonic()
            for _ in range(times):
                process.send_signal(number)
                time.sleep(0.3)
            out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (4, "")
        assert not is_locked(bench.database, "t1")
        return out, time.monotonic() - begun

    @pytest.mark.sample(1)
    def test_during_a_model_call(self, bench: Bench, number: signal.Signals) -> None:
        bench.model(steps(sleeping(bench, 2, LOOK), DONE))
        out, seconds = self.stopped(bench, number)
        assert seconds < 2, "the call is abandoned"
        assert (bench.turns(), SOON in out) == (0, True)
        code, out, _ = bench.process(*offered(out)["Go on"])
        assert (code, "✓ read_file  config.py" in out) == (0, True)

    @pytest.mark.timed
    @pytest.mark.sample(1)
    def test_twice_during_a_model_call_that_hangs(self, bench: Bench, number: signal.Signals) -> None:
        bench.model(steps(sleeping(bench, 600, LOOK)))
        out, seconds = self.stopped(bench, number, times=2)
        assert seconds < 10
        code, _, _ = bench.process(*offered(out)["Go on"], "--model", bench.model(steps(DONE)))
        assert code == 0

    @pytest.mark.timed
    @pytest.mark.sample(1)
    def test_during_a_streamed_reply(self, bench: Bench, number: signal.Signals) -> None:
        bench.model(steps(sleeping(bench, 0, "'word ' * 2000"), DONE), delay=0.1)
        out, seconds = self.stopped(bench, number)
        assert seconds < 10, "of about 60: the stream is closed"
        assert ("word" in out, bench.turns()) == (False, 0)
        assert bench.process(*offered(out)["Go on"], "--model", bench.model(steps(DONE)))[0] == 0

    @pytest.mark.sample(1)
    def test_during_a_tool(self, bench: Bench, number: signal.Signals) -> None:
        command = f"touch {bench.folder / 'begun'}; sleep 2; echo ran >> log"
        bench.model(steps(f'call("run_shell", command="{command}")', DONE))
        out, _ = self.stopped(bench, number)
        assert "exit code 0" in out
        assert [event["ok"] for event in bench.told() if event["kind"] == "call"] == [True]
        assert bench.process(*offered(out)["Go on"])[0] == 0
        assert (bench.workspace / "log").read_text() == "ran\n"

    @pytest.mark.timed
    @pytest.mark.thorough
    def test_twice_during_a_tool(self, bench: Bench, number: signal.Signals) -> None:
        command = f"touch {bench.folder / 'begun'}; sleep 300 & wait"
        # The first finish is questioned, since the outcome of the command is unknown.
        bench.model(steps(f'call("run_shell", command="{command}")', DONE, DONE))
        out, seconds = self.stopped(bench, number, times=2)
        assert seconds < 10
        code, out, _ = bench.process(*offered(out)["Go on"])
        assert (code, "unknown" in out) == (0, True)

    @pytest.mark.timed
    @pytest.mark.thorough
    def test_while_the_model_loads(self, bench: Bench, number: signal.Signals) -> None:
        file = bench.folder / "slow.py"
        file.write_text(f"import time; open({str(bench.folder / 'begun')!r}, 'w'); time.sleep(600)")
        out, seconds = self.stopped(bench, number, "--model", f"scripted:{file}")
        assert seconds < 10
        assert "Nothing was saved yet" in out

    @pytest.mark.thorough
    def test_as_json(self, bench: Bench, number: signal.Signals) -> None:
        bench.model(steps(sleeping(bench, 1, LOOK), DONE))
        out, _ = self.stopped(bench, number, "--json")
        assert out.startswith("{"), "nothing else is on stdout"
        assert '"status": "stopped"' in out
        assert bench.json("show", "t1")["status"] == "stopped"


DIALOGUES: dict[str, tuple[str, list[str], str, list[str]]] = {
    # script, options, the prompt → the last words of the commands that it leaves
    "question": (steps(ASK, DONE), [], "your answer > ", ["your answer"]),
    "approval": (
        steps('call("write_file", path="a", content="b")', DONE),
        ["--approve", "write"],
        "respond > ",
        ["approve", "reject: your reason"],
    ),
    "confirmation": (steps(CONFIRM, DONE), [], "what is wrong > ", ["yes", "what is wrong"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["^C", "^D", "SIGTERM"])
@pytest.mark.parametrize("case", DIALOGUES)
@pytest.mark.sample(3)
def test_while_a_person_is_asked_the_question_stays_open(bench: Bench, case: str, how: str) -> None:
    script, options, prompt, answers = DIALOGUES[case]
    bench.model(script)
    with terminal(bench, *run_words(bench, *options)) as shown:
        shown.until(prompt)
        if how == "SIGTERM":
            shown.process.send_signal(signal.SIGTERM)
        else:
            shown.type("\x03" if how == "^C" else "\x04")
        shown.until("signoff resume ")
        assert shown.end() == 4
    found = offered(bench("resume", "t1").stdout)
    assert [re.sub("@[0-9a-f]{6}", "", words[-1]) for words in found.values()] == answers
    assert bench.process(*next(iter(found.values())))[0] == 0


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_says_what_it_does(bench: Bench) -> None:
    command = f"touch {bench.folder / 'begun'}; sleep 2"
    bench.model(steps(f'call("run_shell", command="{command}")', DONE))
    with terminal(bench, *run_words(bench)) as shown:
        wait_until((bench.folder / "begun").exists)
        shown.process.send_signal(signal.SIGINT)
        shown.until(SOON)
        shown.until("Stopped")
        shown.until("Go on: ")
        assert shown.end() == 4
    assert words_of(bench.json("show", "t1")["resume"])[-1] == "t1"
