"""Threads driven by rules in any order, killed at any write, and opened again: what must hold always holds.

Run as a program: `python -m tests.stateful --examples 10000 [--steps 50] [--seconds N] [--seed N]`. It prints
figures as it goes, and fails with the shortest sequence of rules that breaks something.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from signoff import Action, Session, SignoffError
from signoff.session.moves import Answer, Extend, Move, Retry, Stop
from signoff.session.path import steps as path_of
from signoff.session.standing import Condition, Standing
from tests.arguments import at_least
from tests.stateful_cast import Settings
from tests.stateful_drawn import (
    ANSWERS,
    NONSENSE,
    TASKS,
    during,
    kills,
    onward,
    pending,
    said,
    settings_,
    which,
)
from tests.stateful_outside import outside
from tests.stateful_watch import Watch, fits, legal, same
from tests.stateful_world import World

MEMORY = Path("/dev/shm")


class Threads(RuleBasedStateMachine):
    """Up to three threads of one database. `figures` are of all machines of this process."""

    figures: ClassVar = Counter[str]()

    @initialize(given=settings_)
    def begin(self, given: Settings) -> None:
        self.figures["examples"] += 1
        # In memory, where the system offers that: a close on a disk waits for it.
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.world = World(self.folder / "threads.sqlite", given)
        self.threads = ["a", "b"]
        self.watches = {name: Watch(name) for name in self.threads}
        # What this process was told last: a driver acts on that.
        self.told: dict[str, Any] = {}
        # Where each thread stood last: its condition, and for one that has ended its outcome's status.
        self.stood: dict[str, str] = {}
        # Where each stands, for as long as nothing has been done to it.
        self.seen: dict[str, Standing] = {}
        self.used = self.tried = False

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            shutil.rmtree(self.folder)

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
        for thread, standing in before.items():
            assert same(standing, self._look(thread)), "the thread stands elsewhere after a restart"

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
        standing = self._stands(thread)
        handed_out = not isinstance(standing.waiting, Action) or thread in self.told
        if standing.waiting is not None and handed_out:
            self._answer(thread, "approve", how)
        else:
            begins = standing.condition in (Condition.UNKNOWN, Condition.ENDED)
            self._move(thread, "do it" if begins else None, by_step=by_step, **how)

    def _answer(self, thread: str, answer: Any, how: dict[str, Any]) -> None:
        told = self.told.get(thread)
        if isinstance(told, Action) and isinstance(answer, str):
            answer = self._act(thread, told)
        self._move(thread, Answer(answer), **how)

    def _stands(self, thread: str) -> Standing:
        return self.seen.get(thread) or self._look(thread)

    def _look(self, thread: str) -> Standing:
        self.seen[thread] = standing = self.world.session(thread).standing()
        return standing

    def _open(self) -> None:
        self.world.close()
        self.world.open()
        self.told.clear()
        self.seen.clear()
        self.used = False

    def _act(self, thread: str, action: Action) -> Any:
        """Does what was handed over, as a careful driver does: it looks first when it is not the first."""
        token = action.args["name"]
        if self.world.effects[thread, token]:
            assert action.unknown, f"{token} was handed out again as if nobody had done it"
            return f"did {token}"
        self.world.running = thread
        return self.world.happen(token)

    def _move(
        self,
        thread: str,
        move: Move,
        said: tuple[str, ...] | list[str] = (),
        kill: int = 0,
        during: tuple[int, str] | None = None,
        by_step: bool = False,
        pending: Any = "answer",
    ) -> None:
        world = self.world
        session, before = world.session(thread, pending), self._stands(thread)
        allowed = legal(move, before, pending)
        self.watches[thread].moves(move, before)
        if isinstance(move, Answer) and allowed:
            world.approve(thread, before.waiting, move.value)
        world.queue[:], world.running = said, thread
        asked = during[1] if during else ""
        world.during = (during[0], outside(asked, session, world)) if during else None
        decision = self._guarded(lambda: self._drive(session, move, by_step), kill, allowed)
        reached, world.during = world.during is None, None
        self.figures[f"in the middle: {asked}"] += bool(asked) and reached
        self.figures[f"{type(move).__name__}: {type(decision).__name__ if allowed else 'refused'}"] += 1
        if not allowed:
            assert same(before, self._look(thread)), f"{move!r} was refused and has changed something"
            return
        if decision is not None:
            self.told[thread] = decision
            paused = reached and asked in ("pause", "request")
            fits(decision, self._look(thread), paused=paused, by_step=by_step)
        else:
            self._look(thread)
        self._check(thread)

    def _drive(self, session: Session, move: Move, by_step: bool) -> Any:
        if self.world.settings.by_loop:
            return asyncio.run(session.astep(move) if by_step else session.arun(move))
        return session.step(move) if by_step else session.run(move)

    def _guarded(self, work: Callable[[], Any], kill: int, legal: bool | None) -> Any:
        """What `work` gives; None when it was killed, or refused as it had to be. legal: None for either."""
        world, found = self.world, None
        world.fuse.left = kill
        try:
            found = work()
        except BaseException as error:
            # What a dead process raises reaches nobody.
            if not world.fuse.dead and (legal or not isinstance(error, SignoffError)):
                raise
        else:
            assert legal is not False or world.fuse.dead, "what cannot be was done"
        world.fuse.left = 0
        if world.fuse.dead:
            self.figures["kills"] += 1
            self._open()
            return None
        return found

    def _check(self, thread: str) -> None:
        session, standing = self.world.session(thread), self._stands(thread)
        faults = [*self.world.faults, *self.watches[thread].faults(standing, self.world)]
        assert not faults, faults
        if self.figures["steps"] % 10 == 0:
            session.history()
        self.figures["steps"] += 1
        self.used, self.tried = True, False
        self.stood[thread] = standing.outcome["status"] if standing.outcome else standing.condition
        if standing.outcome:
            self.figures[f"ended: {standing.outcome['status']}, {standing.outcome['reason']}"] += 1


def play(examples: int, steps: int, number: int | None = None) -> None:
    """Runs that many machines, of up to so many steps: always the same ones, or by the seed `number`."""
    machine = type("Threads", (Threads,), {})
    if number is not None:
        machine = seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=number is None,
            database=None,
            deadline=None,
            print_blob=True,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=at_least(1), default=10_000)
    parser.add_argument("--steps", type=at_least(1), default=50)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
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
