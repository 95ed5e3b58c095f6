"""Runs hostile programs in a sandbox and looks from outside at what got through."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from signoff.tools.sandbox.attacks.arena import BOUNDS, Arena, Grounds, end
from signoff.tools.sandbox.attacks.attack import Attack, Observed, Sampler, marked, processor_time
from signoff.tools.sandbox.attacks.boundary import BOUNDARY
from signoff.tools.sandbox.attacks.exhaust import EXHAUSTING, LARGE
from signoff.tools.sandbox.attacks.reach import INTRUDING, REACHING
from signoff.tools.sandbox.base import Sandbox

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


@dataclass(frozen=True)
class Check:
    """One hostile program: what it tries, whether the sandbox held, what was seen, and how long it took.

    files_over, bytes_over: by how much it exceeded its limits before it was ended.
    """

    name: str
    tries: str
    contained: bool
    observed: str
    seconds: float
    files_over: int = 0
    bytes_over: int = 0


def selftest(
    sandbox: Sandbox,
    on_check: Callable[[Check], None] | None = None,
    *,
    attacks: tuple[Attack, ...] = ATTACKS,
) -> list[Check]:
    """Runs every attack in `sandbox` and judges each by what it did, not by what it reports.

    Passes the result of each attack to `on_check` when it is done. Raises SetupError when the sandbox does
    not start.
    """
    checks = []
    with Arena() as arena, Grounds() as grounds:
        within = sandbox.moved(grounds.folder, BOUNDS) if any(one.in_grounds for one in attacks) else sandbox
        for attack in attacks:
            if attack.in_grounds:
                grounds.prepare()
            check = _check(within if attack.in_grounds else sandbox, arena, grounds, attack)
            checks.append(check)
            if on_check:
                on_check(check)
        if within is not sandbox:
            within.close()
    return checks


def _check(sandbox: Sandbox, arena: Arena, grounds: Grounds, attack: Attack) -> Check:
    began = time.monotonic()
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
    over = (observed.made.files_over, observed.made.bytes_over) if observed.made else (0, 0)
    return Check(attack.name, attack.tries, not leak, told, time.monotonic() - began, *over)


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
