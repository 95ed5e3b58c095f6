"""The self-test of the sandbox: it holds what it should, and the test notices when it does not."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from signoff.cli.sandbox import app
from signoff.tools.sandbox import LinuxSandbox, MontySandbox, Sandbox, UnsafeSandbox, choose_sandbox
from signoff.tools.sandbox.attacks.arena import ENVIRONMENT, Arena
from signoff.tools.sandbox.selftest import ATTACKS, selftest

linux = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")
pytestmark = linux

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


@pytest.fixture(params=["auto", "unsafe"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = choose_sandbox(request.param)
    yield made
    made.close()


def test_there_are_many_programs_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 20


def test_quick_programs_are_contained_and_noticed_without_a_sandbox(sandbox: Sandbox) -> None:
    before = dict(os.environ)
    checks = selftest(sandbox, attacks=QUICK)
    leaked = {check.name for check in checks if not check.contained}
    unsafe = isinstance(sandbox, UnsafeSandbox)
    assert leaked == ({attack.name for attack in QUICK} - HELD_ANYWHERE if unsafe else set())
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


# Each takes half a minute: every layer and both kinds of workspace, not every pair. The command below runs
# them in the layers that are the first choice, with a workspace.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "with_workspace"),
    [("inner-layer-alone", False), ("monty", True)],
)
@pytest.mark.thorough
def test_every_program_is_contained(layer: str, with_workspace: bool, tmp_path: Path) -> None:
    workspace = tmp_path if with_workspace else None
    if layer == "monty":
        pytest.importorskip("pydantic_monty")
    sandbox = MontySandbox(workspace) if layer == "monty" else LinuxSandbox(workspace, bubblewrap=False)
    checks = selftest(sandbox)
    sandbox.close()
    assert [check for check in checks if not check.contained] == []


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_says_what_is_enforced(tmp_path: Path) -> None:
    told = selftest_by_command("auto", "--workspace", str(tmp_path), exit_code=0)
    assert told["enforced"]["own network"]
    assert told["contained"] == told["programs"]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_self_test_can_fail() -> None:
    told = selftest_by_command("unsafe", exit_code=1)
    assert not told["enforced"]["own network"]
    contained = {check["name"] for check in told["checks"] if check["contained"]}
    assert HELD_ANYWHERE <= contained <= HELD_ANYWHERE | MAY_BE_REFUSED


def selftest_by_command(kind: str, *more: str, exit_code: int) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["selftest", "--sandbox", kind, "--json", *more])
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == exit_code
    assert told["programs"] == len(told["checks"]) == len(ATTACKS)
    return told
