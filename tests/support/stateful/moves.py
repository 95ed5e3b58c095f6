"""How the stateful test moves a thread: guarded, as it may be killed at any moment, and then checked."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, initialize

from signoff import Action, Session, SignoffError
from signoff.session.commands import Answer, ThreadCommand
from signoff.session.status import ThreadStatus
from tests.support.stateful.cast import Settings
from tests.support.stateful.drawn import settings_
from tests.support.stateful.outside import outside
from tests.support.stateful.watch import Watch, fits, legal, same
from tests.support.stateful.world import World

MEMORY = Path("/dev/shm")


class Moves(RuleBasedStateMachine):
    """Threads of one database. `figures` are of all machines of this process."""

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
        self.seen: dict[str, ThreadStatus] = {}
        self.used = self.tried = False

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            shutil.rmtree(self.folder)

    def _stands(self, thread: str) -> ThreadStatus:
        return self.seen.get(thread) or self._look(thread)

    def _look(self, thread: str) -> ThreadStatus:
        self.seen[thread] = status = self.world.session(thread).status()
        return status

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
        move: ThreadCommand,
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

    def _drive(self, session: Session, move: ThreadCommand, by_step: bool) -> Any:
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
        session, status = self.world.session(thread), self._stands(thread)
        faults = [*self.world.faults, *self.watches[thread].faults(status, self.world)]
        assert not faults, faults
        if self.figures["steps"] % 10 == 0:
            session.history()
        self.figures["steps"] += 1
        self.used, self.tried = True, False
        self.stood[thread] = status.outcome["status"] if status.outcome else status.condition
        if status.outcome:
            self.figures[f"ended: {status.outcome['status']}, {status.outcome['reason']}"] += 1
