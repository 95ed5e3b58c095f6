"""The public tasks with a real model behind a proxy that counts. Here a script stands in for the provider."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from loopcheck.bench import Bench
from loopcheck.faults import NOTHING, Fault
from loopcheck.player import Player
from loopcheck.real import (
    Provider,
    Proxy,
    RealRun,
    choose_tasks,
    estimate_start,
    list_ways,
    play_real,
    save_real,
    write_pairs,
)
from loopcheck.replies import Call, Finish, Reply
from loopcheck.sources.task import Key, Task
from loopcheck.stage import ModelRequest, Stage
from loopcheck.world import TaskWorld
from tests.conformance.tiny import LOOP, QUESTION, TURNS

pytestmark = pytest.mark.slow


class Knows(Player):
    """A model that plays the solution: it goes by its own count, since the world is not in its hands."""

    def __init__(self, task: Task, bench: Bench) -> None:
        super().__init__(
            task, task.turns, Fault(NOTHING), self._every, finish="call", can_ask=True, die=print
        )
        self._calls = Counter(task.key(call) for call in task.calls)

    def _every(self, turn: int) -> Counter[Key]:
        return self._calls


class Claims(Knows):
    """One that says at once that all is done."""

    def reply(self, asked: ModelRequest) -> Reply:
        return Reply((Finish("All is done."),))


@contextmanager
def served(kind: type[Knows], task: Task, *words: str) -> Iterator[tuple[Bench, Provider]]:
    with Bench([*LOOP, *words]) as bench:
        brain = kind(task, bench)
        with Stage(brain, TaskWorld(task, Fault(NOTHING), print), bench.hello.manner) as stage:
            yield bench, Provider(stage.url, "any", price_in=1.0, price_out=2.0)


@pytest.mark.parametrize("task", [TURNS, QUESTION], ids=lambda task: str(task.name))
def test_a_model_that_solves_the_task_is_seen_to_solve_it(task: Task) -> None:
    with served(Knows, task) as (bench, provider):
        found = play_real(bench, "loop", task, "call", 1, provider)
    assert (found.end, found.solved) == ("success", True)
    assert found.turns > len(task.calls)
    assert found.tokens_in > 0
    assert found.dollars == pytest.approx((found.tokens_in + 2 * found.tokens_out) / 1e6, abs=1e-6)


class Loops(Knows):
    """One that never ends."""

    def reply(self, asked: ModelRequest) -> Reply:
        return Reply((Call("look", {"of": "Ann"}),))


def test_a_run_has_the_turn_limit_that_was_asked_for() -> None:
    with served(Loops, TURNS, "ends at its limit") as (bench, provider):
        found = play_real(bench, "loop", TURNS, "call", 1, provider, turns=3)
    assert (found.end, found.turns, found.solved) == ("limit", 3, False)


def test_a_model_that_only_claims_it_is_seen_to_claim_it() -> None:
    with served(Claims, TURNS) as (bench, provider):
        found = play_real(bench, "loop", TURNS, "call", 1, provider)
    assert (found.end, found.solved) == ("success", False)
    assert "| loop | by a call | 1 | 0 | 1 | success 1 |" in write_pairs([found], provider)


def test_a_provider_that_is_away_is_an_error_of_the_run() -> None:
    with Bench(LOOP) as bench:
        found = play_real(bench, "loop", TURNS, "call", 1, Provider("http://127.0.0.1:9/v1", "gone"))
    assert (found.end, found.solved, found.turns) == ("error", False, 0)


def test_a_provider_that_answers_with_no_http_is_an_error_of_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, Bench(LOOP) as bench:

        def babble() -> None:
            with suppress(OSError):
                while True:
                    with there.accept()[0] as one:
                        one.recv(1000)
                        one.sendall(b"220 mail.example\r\n")

        threading.Thread(target=babble, daemon=True).start()
        url = f"http://127.0.0.1:{there.getsockname()[1]}/v1"
        found = play_real(bench, "loop", TURNS, "call", 1, Provider(url, "none"))
    assert (found.end, found.solved, found.turns) == ("error", False, 0)


def test_what_a_finishing_call_changes_is_told_in_pairs(tmp_path: Path) -> None:
    runs = [
        RealRun("loop", "tiny", "a", 1, "any", "success", solved=False, turns=2),
        RealRun("loop", "tiny", "a", 1, "call", "success", solved=True, turns=3),
        RealRun("loop", "tiny", "b", 1, "any", "limit", turns=9),
    ]
    provider = Provider("http://127.0.0.1:9/v1", "small")
    told = write_pairs(runs, provider)
    assert "| loop | in words | 2 | 0 | 1 | success 1, limit 1 | 5.5 | 0 | 0 | 0.0000 |" in told
    assert "loop, pairs: 1. Solved by a call alone: 1, in words alone: 0. Said done, wrongly: 1" in told
    save_real(runs, provider, "2026-11-25", tmp_path / "real.json", turns=9)
    saved = json.loads((tmp_path / "real.json").read_text())
    assert saved["most_turns"] == 9
    assert [run["way"] for run in saved["runs"]] == ["any", "call", "any"]
    assert "key" not in saved


def test_a_small_model_gets_tasks_that_fit() -> None:
    tasks = [TURNS, QUESTION]
    assert choose_tasks(tasks, 1, 5, max(map(estimate_start, tasks))) == choose_tasks(tasks, 1, 2, None)
    assert choose_tasks(tasks, 1, 5, 1) == []


def test_a_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    assert Provider.from_key("SOME_KEY", url="http://127.0.0.1:9/v1", model="m").key == "secret"


def test_a_framework_ends_in_the_ways_that_it_claims() -> None:
    with Bench(LOOP) as bench:
        assert list_ways(bench) == ["any", "call"]


def test_the_proxy_asks_for_what_a_stream_used() -> None:
    with (
        served(Knows, TURNS) as (_, provider),
        Proxy(provider, TaskWorld(TURNS, Fault(NOTHING), print)) as proxy,
    ):
        body = {"messages": [{"role": "user", "content": "Pay ada 5."}], "stream": True, "tools": []}
        status, _, data = proxy._ask(json.dumps({**body, "stream_options": {"include_usage": True}}).encode())
    assert status == 200
    assert b"data: [DONE]" in data
