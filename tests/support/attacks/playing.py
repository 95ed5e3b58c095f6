"""Runs hostile programs in a sandbox and looks from outside at what got through."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from signoff.tools.sandbox.base import Sandbox
from tests.support.attacks.arena import ALL, BOUNDS, TOP, Arena, Grounds, end
from tests.support.attacks.attack import Attack, Observed, Sampler, marked, processor_time
from tests.support.attacks.boundary import BOUNDARY
from tests.support.attacks.exhaust import EXHAUSTING, LARGE
from tests.support.attacks.reach import INTRUDING, REACHING

ATTACKS: tuple[Attack, ...] = (*REACHING, *INTRUDING, *EXHAUSTING, *BOUNDARY)

_IDLE = 0.1
_SETTLE = 0.1
_MOST_SAID = 120
_PROLOGUE = """
try:
    import ctypes
    ctypes.CDLL(None).prctl(15, MARK.encode(), 0, 0, 0)
except BaseException:
    pass
"""

Make = Callable[..., Sandbox]
"""Makes a sandbox of one kind, for a workspace and with `bounds`."""


@dataclass(frozen=True)
class Check:
    """One hostile program: what it tries, whether the sandbox held, and what was seen."""

    name: str
    tries: str
    contained: bool
    observed: str


def played(
    make: Make, workspace: Path | None, attacks: Sequence[Attack] = ATTACKS, closed: frozenset[str] = TOP
) -> list[Check]:
    """Runs every attack in a sandbox and judges each by what it did, not by what it reports.

    closed: what must not change in the grounds; they can be changed where that is not all.
    """
    options = {} if closed == ALL else {"writable": True}
    checks = []
    with (
        Arena() as arena,
        Grounds(closed) as grounds,
        closing(make(workspace)) as sandbox,
        closing(make(grounds.folder, bounds=BOUNDS, **options)) as within,
    ):
        for attack in attacks:
            if attack.in_grounds:
                grounds.prepare()
            checks.append(_check(within if attack.in_grounds else sandbox, arena, grounds, attack))
    return checks


def _check(sandbox: Sandbox, arena: Arena, grounds: Grounds, attack: Attack) -> Check:
    arena.prepare()
    thread = f"{arena.mark}-{attack.name}"
    observed = _observed(sandbox, arena, attack, thread)
    if attack.in_grounds:
        observed = replace(observed, grounds=grounds, made=grounds.added_files())
    leak = attack.leak(observed)
    sandbox.close(thread)
    left = _remove_leftovers(arena)
    leak = "; ".join(filter(None, (leak, left)))
    told = leak or _ending(observed)
    return Check(attack.name, attack.tries, not leak, told)


def _observed(sandbox: Sandbox, arena: Arena, attack: Attack, thread: str) -> Observed:
    given = "".join(f"{name} = {value!r}\n" for name, value in arena.names().items())
    with Sampler(arena, LARGE) as sampler:
        due = time.monotonic() + attack.timeout
        result = sandbox.run(given + _PROLOGUE + attack.code, timeout=attack.timeout, thread=thread)
        late = max(0.0, time.monotonic() - due)
    busy = _busy(arena)
    after = sandbox.run("print(6 * 7)", timeout=5.0, thread=thread)
    return Observed(arena, result, after, late, busy, sampler.seen)


def _busy(arena: Arena) -> float:
    """Returns the processor time, in seconds, that the program uses after its call has returned."""
    processes = marked(arena.mark)
    if not processes:
        return 0.0
    # On a busy host it takes a moment until the program has stopped.
    time.sleep(_SETTLE)
    before = processor_time(processes)
    time.sleep(_IDLE)
    return processor_time(processes) - before


def _remove_leftovers(arena: Arena) -> str:
    """Returns what the program left behind, and removes it."""
    deadline = time.monotonic() + 1.0
    # The kernel takes a moment to end killed processes.
    while (alive := marked(arena.mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in alive:
        end(process)
    folders = arena.leftover_files(f"{arena.mark}-many")
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    told = [f"{len(alive)} processes were left behind"] if alive else []
    return "; ".join([*told, *(["files were left behind"] if folders else [])])


def _ending(observed: Observed) -> str:
    result = observed.result
    said = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    how = {"ok": "ended", "error": "failed", "memory": "out of memory"}.get(result.exit, result.exit)
    return f"{how}: {said[-1][:_MOST_SAID]}" if said else how
