"""Hostile programs in the sandboxes: each is contained, and noticed where there is no sandbox."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from signoff.tools.sandbox import LinuxSandbox, MontySandbox, UnsafeSandbox
from tests.support.attacks.arena import ENVIRONMENT, Arena
from tests.support.attacks.playing import ATTACKS, Make, played

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")

LAYERS: dict[str, Make] = {
    "bubblewrap": LinuxSandbox,
    "inner-layer-alone": partial(LinuxSandbox, bubblewrap=False),
    "monty": MontySandbox,
    "unsafe": partial(UnsafeSandbox, unsafe=True),
}
# Contained by how output is read, and by being in another process: the unsafe one has that too.
HELD_ANYWHERE = {
    *("endless loop", "endless C loop", "sleep", "deaf", "stopped", "endless output", "200 MB of output"),
    *("200 MB value", "memory bomb", "memory of many", "afterwards", "os._exit", "SystemExit", "crash"),
    *("deep recursion", "closed output", "closed handles", "forged answers", "answers without end", "twin"),
    "poisoned interpreter",
}
# Possible for root alone, or where the host itself does not forbid it.
MAY_BE_REFUSED = {"ptrace", "passwords", "mount", "chroot", "setuid", "user namespace", "disks"}
_QUICK = (
    *("home folder", "environment of others", "format string", "write outside", "tcp", "abstract socket"),
    *("socket pair", "kill", "giant file", "daemon", "forged answers", "closed output", "memory files"),
    *("git configuration", "linked environment", "second name", "setuid file"),
)
QUICK = tuple(attack for attack in ATTACKS if attack.name in _QUICK)


def test_there_are_many_programs_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 20


@pytest.mark.parametrize("layer", ["bubblewrap", "unsafe"])
def test_quick_programs_are_contained_and_noticed_without_a_sandbox(layer: str) -> None:
    before = dict(os.environ)
    checks = played(LAYERS[layer], None, QUICK)
    leaked = {check.name for check in checks if not check.contained}
    assert leaked == ({attack.name for attack in QUICK} - HELD_ANYWHERE if layer == "unsafe" else set())
    assert len(checks) == len(QUICK) == len(_QUICK)
    assert dict(os.environ) == before


def test_the_arena_leaves_nothing_behind() -> None:
    with Arena() as arena:
        arena.prepare()
        places = (arena.folder, arena.home_file)
        victim = arena.victim
        assert os.environ[ENVIRONMENT] == arena.secret
        assert arena.received() == ""
    assert not any(place.exists() for place in places)
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)
    assert ENVIRONMENT not in os.environ


# Each takes half a minute: every layer and both kinds of workspace, not every pair.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "with_workspace"),
    [("bubblewrap", True), ("inner-layer-alone", False), ("monty", True)],
)
@pytest.mark.thorough
def test_every_program_is_contained(layer: str, with_workspace: bool, tmp_path: Path) -> None:
    if layer == "monty":
        pytest.importorskip("pydantic_monty")
    checks = played(LAYERS[layer], tmp_path if with_workspace else None)
    assert [check for check in checks if not check.contained] == []
    assert len(checks) == len(ATTACKS)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_program_is_noticed_without_a_sandbox() -> None:
    contained = {check.name for check in played(LAYERS["unsafe"], None) if check.contained}
    assert HELD_ANYWHERE <= contained <= HELD_ANYWHERE | MAY_BE_REFUSED
