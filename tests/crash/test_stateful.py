"""Threads driven in any order, killed at any write and opened again: see `tests/stateful.py`."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import Extend, Failed, Finished, Limits, Retry, SignoffError, sqlite_storage
from signoff.nodes.journal import recorded
from signoff.session.commands import Stop
from signoff.session.status import Condition
from tests.stateful import Threads, play
from tests.support.benches.session import DONE, Bench
from tests.support.stateful.cast import Settings
from tests.support.stateful.checks import history_faults, shrunk
from tests.support.stateful.world import Killed, World


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("number", "steps"), [*enumerate([50, 25, 25, 10, 10, 10, 10])])
@pytest.mark.thorough
def test_any_order(number: int, steps: int, figure: Callable[[str], None]) -> None:
    """A sample of what `python -m tests.stateful` plays: long examples find more, short ones more often."""
    Threads.figures.clear()
    begun = time.monotonic()
    play(25, steps, number)
    count = Threads.figures
    figure(
        f"stateful, 25 examples of up to {steps} steps in {time.monotonic() - begun:.0f} s: "
        f"{count['steps']} moves done, {count['kills']} kills, {count['forks']} forks"
    )
    assert count["kills"] > 15


def test_a_few_in_any_order() -> None:
    play(15, 6)


# What is said in the task that is killed, its settings, and what comes after the kill.
MOVES: dict[str, tuple[list[str], Settings, Any]] = {
    "a stop": (["act"], Settings(), Stop()),
    "the next task": (["act"], Settings(), "and that"),
    "the next task, of one that waited": (["ask"], Settings(), "and that"),
    "another try": (["broken"], Settings(), Retry()),
    "more turns": (["act"], Settings(limits=Limits(turns=1)), Extend(2)),
}


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[[Settings], World]]:
    made: list[World] = []

    def new(settings: Settings) -> World:
        made.append(World(tmp_path / f"{len(made)}.sqlite", settings))
        return made[-1]

    yield new
    for world in made:
        world.close()


def after_a_kill(world: World, said: list[str], move: Any, moment: int) -> bool:
    """Goes on with `move` after a kill at that moment; fails when it loses anything. False when the thread
    had come to its end before."""
    world.queue[:], world.running, world.fuse.left = said, "a", moment
    killed = False
    try:
        world.session("a").run("do it")
    except Killed:
        killed = True
    world.close()
    world.open()
    stood = world.session("a").status()
    if stood.condition is Condition.UNKNOWN:
        # Nothing of the task was saved yet.
        return killed
    before = list(stood.values.get("messages", ()))
    world.queue.clear()
    try:
        decision = world.session("a").run(move)
    except SignoffError:
        # Not possible where the thread stands, as when it had not ended.
        return killed
    after = world.session("a").status().values["messages"]
    lost = [*shrunk(before, after), *history_faults(after, ended=True, was_routed=False)]
    assert not lost, (moment, lost)
    assert [m.text for m in after if m.type == "human"][:1] == ["do it"], moment
    assert isinstance(decision, Finished | Failed)
    assert decision.outcome.reason == ("cancelled" if isinstance(move, Stop) else "finish_task"), moment
    assert decision.outcome.task in {one.task for one in recorded(world.storage.store, "a")}
    return killed


@pytest.mark.parametrize("name", MOVES)
def test_nothing_is_lost_by_what_comes_after_a_kill(worlds: Callable[[Settings], World], name: str) -> None:
    said, settings, move = MOVES[name]
    # The message, its first step, the reply, its end: where more is saved than the checkpoints say.
    for moment in (4, 6, 19, 25, 35):
        after_a_kill(worlds(settings), list(said), move, moment)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.thorough
def test_nothing_is_lost_at_any_moment(worlds: Callable[[Settings], World], name: str) -> None:
    said, settings, move = MOVES[name]
    moment = 1
    while after_a_kill(worlds(settings), list(said), move, moment):
        moment += 1
    assert moment > 20


def test_a_stop_after_a_killed_retry_cancels(worlds: Callable[[Settings], World]) -> None:
    world = worlds(Settings())
    world.queue[:], world.running = ["broken"], "a"
    world.session("a").run("do it")
    world.fuse.left = 4
    with pytest.raises(Killed):
        world.session("a").retry()
    world.close()
    world.open()
    decision = world.session("a").stop()
    assert isinstance(decision, Failed)
    assert decision.outcome.reason == "cancelled"


def test_a_task_after_a_dialogue_that_ended_is_its_own(tmp_path: Path) -> None:
    """It is no answer to what the model said last, not even when it is read again later."""
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        session = Bench(storage)("Let me see.", DONE, talk="natural", limits=Limits(turns=1))
        first, second = session.run("do it"), session.run("and that")
        assert isinstance(first, Finished)
        assert isinstance(second, Finished)
        assert second.outcome.task != first.outcome.task
        assert session.status().task.id == second.outcome.task
        assert {turn.task for turn in session.history()} == {first.outcome.task, second.outcome.task}
