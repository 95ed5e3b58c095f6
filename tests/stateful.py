"""Threads driven by rules in any order, killed at any write, and opened again: what must hold always holds.

Run as a program: `python -m tests.stateful --examples 10000 [--steps 50] [--seconds N] [--seed N]`. It prints
figures as it goes, and fails with the shortest sequence of rules that breaks something.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    rule,
    run_state_machine_as_test,
)

from signoff import Action
from signoff.session.commands import Answer, Extend, Retry, Stop
from signoff.session.path import steps as path_of
from signoff.session.status import Condition
from tests.support.arguments import at_least
from tests.support.hypothesis_runs import drawn_settings, program_options
from tests.support.stateful.drawn import (
    ANSWERS,
    NONSENSE,
    TASKS,
    during,
    kills,
    onward,
    pending,
    said,
    which,
)
from tests.support.stateful.moves import Moves
from tests.support.stateful.watch import same


class Threads(Moves):
    """The rules: what may be done at any time to up to three threads of one database."""

    @rule(
        at=which,
        task=st.sampled_from(TASKS),
        said=said,
        kill=kills,
        during=during,
        by_step=st.booleans(),
        pending=pending,
    )
    def task(self, at: int, task: str, by_step: bool, pending: Any, **how: Any) -> None:
        self._move(self._thread(at), task, by_step=by_step, pending=pending, **how)

    # Three names for the one that does most: Hypothesis draws all rules alike, and leaves some out.
    @rule(how=onward)
    def goes_on(self, how: dict[str, Any]) -> None:
        self._goes_on(**how)

    @rule(how=onward)
    def goes_further(self, how: dict[str, Any]) -> None:
        self._goes_on(**how)

    @rule(how=onward)
    def goes_to_its_end(self, how: dict[str, Any]) -> None:
        self._goes_on(**how)

    @rule(answer=st.sampled_from(ANSWERS), how=onward)
    def answer(self, answer: Any, how: dict[str, Any]) -> None:
        self._that(lambda thread, rest: self._answer(thread, answer, rest), how, Condition.WAITING)

    @rule(turns=st.integers(0, 3), how=onward)
    def extend(self, turns: int, how: dict[str, Any]) -> None:
        self._that(lambda thread, rest: self._move(thread, Extend(turns), **rest), how, "limit")

    @rule(how=onward)
    def retry(self, how: dict[str, Any]) -> None:
        self._that(lambda thread, rest: self._move(thread, Retry(), **rest), how, "error")

    @rule(how=onward)
    def stop(self, how: dict[str, Any]) -> None:
        # While it runs nobody is there to stop it again.
        self._that(
            lambda thread, rest: self._move(thread, Stop(), kill=rest["kill"]),
            how,
            Condition.WAITING,
            Condition.STOPPED,
        )

    @rule(at=which, move=st.sampled_from(NONSENSE))
    def nonsense(self, at: int, move: Any) -> None:
        """What often cannot be, where the thread stands; once, as nothing changes by it."""
        if not self.tried:
            self.tried = True
            self._move(self._thread(at), move)

    @rule()
    def opens_again(self) -> None:
        if not self.used:
            return
        before = {thread: self._look(thread) for thread in self.threads}
        self._open()
        for thread, status in before.items():
            assert same(status, self._look(thread)), "the thread stands elsewhere after a restart"

    @rule(at=which, point=st.none() | st.integers(0, 5) | st.floats(0, 1), kill=kills)
    def fork(self, at: int, point: Any, kill: int) -> None:
        thread, target = self._thread(at), "c"
        if target in self.threads:
            return
        before = self._stands(thread)
        if isinstance(point, float):
            path = path_of(self.world.storage.checkpointer, thread)
            point = path[int(point * (len(path) - 1))].checkpoint_id if path else "none"
        self._guarded(lambda: self.world.session(thread).fork(point, target), kill, legal=None)
        assert same(before, self._look(thread)), "a fork has changed the thread that it is of"
        if self._look(target).condition is not Condition.UNKNOWN:
            self.threads.append(target)
            self.watches[target] = self.watches[thread].forked(target)
            self.world.forked(thread, target)
            self.figures["forks"] += 1
            self._check(target)

    def _thread(self, at: int) -> str:
        return self.threads[at % len(self.threads)]

    def _that(self, move: Callable[[str, dict[str, Any]], None], how: dict[str, Any], *stand: str) -> None:
        """Does it with a thread that stands so; else what comes next with any.

        No rule is left out by what a thread stands at: the moment of a kill is not always the same one, and
        then Hypothesis could not play an example again.
        """
        rest = {name: value for name, value in how.items() if name not in ("at", "by_step")}
        thread = next((thread for thread, stood in self.stood.items() if stood in stand), None)
        if thread is None:
            self._goes_on(**how)
        else:
            move(thread, rest)

    def _goes_on(self, at: int, by_step: bool, **how: Any) -> None:
        """Whatever comes next, as a driver that means well does it."""
        thread = self._thread(at)
        status = self._stands(thread)
        handed_out = not isinstance(status.waiting, Action) or thread in self.told
        if status.waiting is not None and handed_out:
            self._answer(thread, "approve", how)
        else:
            begins = status.condition in (Condition.UNKNOWN, Condition.ENDED)
            self._move(thread, "do it" if begins else None, by_step=by_step, **how)

    def _answer(self, thread: str, answer: Any, how: dict[str, Any]) -> None:
        told = self.told.get(thread)
        if isinstance(told, Action) and isinstance(answer, str):
            answer = self._act(thread, told)
        self._move(thread, Answer(answer), **how)


def play(examples: int, steps: int, number: int | None = None) -> None:
    """Runs that many machines, of up to so many steps: always the same ones, or by the seed `number`."""
    machine = type("Threads", (Threads,), {})
    if number is not None:
        machine = seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=drawn_settings(examples, number, stateful_step_count=steps),
    )


def main(arguments: list[str]) -> int:
    parser = program_options(__doc__, "examples", 10_000)
    parser.add_argument("--steps", type=at_least(1), default=50)
    given = parser.parse_args(arguments)
    begun, done, number = time.monotonic(), 0, given.seed
    while done < given.examples and time.monotonic() - begun < given.seconds:
        batch = min(50, given.examples - done)
        play(batch, given.steps, number)
        done, number = done + batch, number + 1
        print(f"{done} examples in {time.monotonic() - begun:.0f} s, last seed {number - 1}", flush=True)
    for name, times in sorted(Threads.figures.items()):
        print(f"{times:8,} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
