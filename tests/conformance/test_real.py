"""The public tasks with a real model behind a proxy that counts. Here a script stands in for the provider."""

from collections import Counter

import pytest

from loopcheck.bench import Bench
from loopcheck.faults import NOTHING, Fault
from loopcheck.player import Player
from loopcheck.real import Provider, list_ways, play_real
from loopcheck.replies import Finish, Reply
from loopcheck.sources.task import Task
from loopcheck.stage import ModelRequest, Stage
from loopcheck.world import TaskWorld
from tests.conformance.tiny import LOOP, QUESTION, TURNS

pytestmark = pytest.mark.slow


class Knows(Player):
    """A model that plays the solution: it goes by its own count, since the world is not in its hands."""

    def __init__(self, task: Task) -> None:
        calls = Counter(task.key(call) for call in task.calls)
        super().__init__(
            task, task.turns, Fault(NOTHING), lambda _: calls, finish="call", can_ask=True, die=print
        )


class Claims(Knows):
    """One that says at once that all is done."""

    def reply(self, asked: ModelRequest) -> Reply:
        return Reply((Finish("All is done."),))


@pytest.mark.parametrize("task", [TURNS, QUESTION], ids=lambda task: str(task.name))
@pytest.mark.parametrize("kind", [Knows, Claims])
def test_a_model_that_solves_the_task_is_told_from_one_that_claims_it(kind: type[Knows], task: Task) -> None:
    with (
        Bench(LOOP) as bench,
        Stage(kind(task), TaskWorld(task, Fault(NOTHING), print), bench.hello.manner) as stage,
    ):
        provider = Provider(stage.url, "any", price_in=1.0, price_out=2.0)
        assert list_ways(bench) == ["any", "call"]
        run = play_real(bench, "loop", task, "call", 1, provider)
    assert (run.end, run.solved, run.turns > len(task.calls)) == ("success", kind is Knows, kind is Knows)
    assert run.dollars == pytest.approx((run.tokens_in + 2 * run.tokens_out) / 1e6, abs=1e-6)


def test_a_provider_that_is_away_is_an_error_of_the_run() -> None:
    with Bench(LOOP) as bench:
        run = play_real(bench, "loop", TURNS, "call", 1, Provider("http://127.0.0.1:9/v1", "gone"))
    assert (run.end, run.solved, run.turns) == ("error", False, 0)
