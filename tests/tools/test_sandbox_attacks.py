"""Hostile programs in the sandboxes: each is contained, and noticed where there is no sandbox."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from signoff.tools.sandbox import Bounds, LinuxSandbox, MontySandbox, UnsafeSandbox
from tests.support.attacks.arena import ALL, ENVIRONMENT, Arena
from tests.support.attacks.playing import ATTACKS, Make, played

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")


def _unsafe(workspace: Path | None, writable: bool = True, bounds: Bounds | None = None) -> UnsafeSandbox:
    return UnsafeSandbox(workspace, unsafe=True, bounds=bounds)


KINDS: dict[str, Make] = {"linux": LinuxSandbox, "monty": MontySandbox, "unsafe": _unsafe}
# Contained by how output is read, what is looked at from outside, a temporary folder of its own, and by being
# in another process: the unsafe one has that too.
HELD_ANYWHERE = {
    *("endless loop", "endless C loop", "sleep", "deaf", "stopped", "endless output", "200 MB of output"),
    *("200 MB value", "memory bomb", "afterwards", "os._exit", "SystemExit", "crash"),
    *("deep recursion", "closed output", "closed handles", "forged answers", "answers without end", "twin"),
    *("poisoned interpreter", "many files", "thread bomb"),
}
# Possible for root alone, where the host itself does not forbid it, or only as fast as its disk is.
MAY_BE_REFUSED = {
    *("ptrace", "passwords", "mount", "chroot", "setuid", "user namespace", "disks"),
    "empty files",
}
_QUICK = (
    *("home folder", "environment of others", "format string", "write outside", "tcp", "abstract socket"),
    *("socket pair", "kill", "giant file", "daemon", "forged answers", "closed output", "memory files"),
    *("git configuration", "own state", "locks", "traps", "setuid file"),
    *("shared maps", "pages in pipes", "sets of rules"),
)
QUICK = tuple(attack for attack in ATTACKS if attack.name in _QUICK)


def test_there_are_many_programs_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 20


@pytest.mark.parametrize("kind", ["linux", "unsafe"])
def test_quick_programs_are_contained_and_noticed_without_a_sandbox(kind: str) -> None:
    before = dict(os.environ)
    checks = played(KINDS[kind], None, QUICK)
    leaked = {check.name for check in checks if not check.contained}
    assert leaked == ({attack.name for attack in QUICK} - HELD_ANYWHERE if kind == "unsafe" else set())
    assert len(checks) == len(QUICK) == len(_QUICK)
    assert dict(os.environ) == before


def test_nothing_changes_in_a_workspace_that_is_read_only() -> None:
    checks = played(LinuxSandbox, None, [attack for attack in ATTACKS if attack.in_grounds], ALL)
    assert [check for check in checks if not check.contained] == []


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


# Each takes half a minute.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "with_workspace"), [("linux", True), ("linux", False), ("monty", True)])
@pytest.mark.thorough
def test_every_program_is_contained(kind: str, with_workspace: bool, tmp_path: Path) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    checks = played(KINDS[kind], tmp_path if with_workspace else None)
    assert [check for check in checks if not check.contained] == []
    assert len(checks) == len(ATTACKS)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_program_is_noticed_without_a_sandbox() -> None:
    contained = {check.name for check in played(KINDS["unsafe"], None, closed=ALL) if check.contained}
    assert HELD_ANYWHERE <= contained <= HELD_ANYWHERE | MAY_BE_REFUSED


_WITHOUT_LANDLOCK = """
import errno, sys
from signoff.graph.errors import SetupError
from signoff.tools.sandbox import choose_sandbox, confine
confine.NUMBERS["landlock_create_ruleset"] = (444, 444)
confine.libc().prctl(38, 1, 0, 0, 0)
confine.install([confine.FilterRule("landlock_create_ruleset", error=errno.ENOSYS)])
if sys.argv[1] == "none":
    sys.modules["pydantic_monty"] = None
for kind in ("auto", "linux"):
    try:
        print(type(choose_sandbox(kind)).__name__)
    except SetupError as error:
        print("refused:", "Landlock" in str(error))
"""


@pytest.mark.parametrize(
    ("monty", "expected"), [("monty", "MontySandbox\nrefused: True\n"), ("none", "refused: True\n" * 2)]
)
def test_without_landlock_it_is_monty_or_refused(monty: str, expected: str) -> None:
    if monty == "monty":
        pytest.importorskip("pydantic_monty")
    command = [sys.executable, "-c", _WITHOUT_LANDLOCK, monty]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (expected, "")
