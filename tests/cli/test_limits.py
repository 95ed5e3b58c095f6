"""`signoff run --tokens … --seconds …`: remembered with the thread, and shown when they are reached."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from signoff.front.settings import Given, Settings, settle
from tests.support.benches.cli import Bench, offered, steps
from tests.support.servers.hostile_server import HostileServer, silent

LOOK = 'reply(call("read_file", path="config.py"), usage=(90, 10))'
CHEAP = 'reply(call("finish_task", summary="All done."), usage=(9, 1))'
THINK = 'reply(call("think", thought="hm"), usage=(90, 10))'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_limit_of_tokens_ends_the_task_and_extend_goes_on(bench: Bench) -> None:
    bench.model(steps(LOOK, THINK, CHEAP))
    shown = bench.run("Look", "--tokens", "200")
    assert shown.exit_code == 3
    assert "Token limit reached" in shown.stdout
    assert bench(*offered(shown.stdout)["Continue with more turns"]).exit_code == 0


def test_the_limits_hold_for_the_threads_next_task(bench: Bench) -> None:
    bench.model(steps(CHEAP, LOOK, THINK))
    assert bench.run("Look", "--tokens", "200", "--seconds", "60").exit_code == 0
    found = bench.json("run", "Look again", "-t", "t1")
    assert (found["exit_code"], found["outcome"]["reason"], found["outcome"]["turns"]) == (3, "tokens", 2)
    assert "Extend it" in found["outcome"]["next"]


def test_the_same_again_and_again_is_shown(bench: Bench) -> None:
    bench.model(steps(*[LOOK] * 5))
    shown = bench.run("Look")
    assert shown.exit_code == 3
    assert "it repeated itself" in shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--tokens", "0"),
        ("--tokens", "x"),
        ("--seconds", "0"),
        ("--seconds", "nan"),
        ("--model-seconds", "0"),
        ("--model-seconds", "nan"),
    ],
)
def test_a_limit_that_is_none_is_refused(bench: Bench, words: tuple[str, str]) -> None:
    assert bench.run("Look", *words).exit_code == 2


def test_what_is_given_is_remembered() -> None:
    first = settle(Given(tokens=100, seconds=1.5), None, {})
    assert (first.limits.tokens, first.limits.seconds) == (100, 1.5)
    second = settle(Given(tokens=7), first, {})
    assert (second.limits.tokens, second.limits.seconds) == (7, 1.5)
    old = Settings.model_validate({"workspace": ".", "model": "m", "turns": 3, "talk_turns": 2})
    assert settle(Given(), old, {}).limits.tokens is None


def test_how_long_a_model_may_be_silent_is_remembered() -> None:
    assert settle(Given(), None, {}).model_seconds == 300
    first = settle(Given(model_seconds=7.5), None, {})
    assert settle(Given(turns=3), first, {}).model_seconds == 7.5
    assert settle(Given(model_seconds=9), first, {}).model_seconds == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [(("--model-seconds", "0.4"), 1, "model_error"), (("--seconds", "0.4"), 3, "seconds")],
)
def test_a_silent_provider_ends_the_run(bench: Bench, words: tuple[str, str], code: int, reason: str) -> None:
    with HostileServer(silent) as server:
        address = ("--model", "m", "--base-url", server.url)
        found = bench.json("run", "Look", "-t", "t1", *address, *words, OPENAI_API_KEY="none")
    assert (found["exit_code"], found["outcome"]["reason"]) == (code, reason)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_silent_run(bench: Bench, number: signal.Signals) -> None:
    def kill() -> None:
        assert server.asked.wait(20)
        at.append(time.monotonic())
        os.kill(os.getpid(), number)

    at = list[float]()
    with HostileServer(silent) as server:
        thread = threading.Thread(target=kill)
        thread.start()
        address = ("--model", "m", "--base-url", server.url)
        found = bench.json("run", "Look", "-t", "t1", *address, OPENAI_API_KEY="none")
        took = time.monotonic() - at[0]
        thread.join()
    assert (found["exit_code"], len(server.requests), took < 2) == (4, 1, True)
    assert bench.json("show", "t1")["status"] == "stopped"
