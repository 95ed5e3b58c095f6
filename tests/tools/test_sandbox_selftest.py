"""`python -m signoff.tools.sandbox`: it says what holds on this host, and notices what does not."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from signoff.cli.probes import PROBES
from signoff.cli.sandbox import app

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="most of the programs are written for Linux")

NAMES = [probe.name for probe in PROBES]
# Contained by how output is read, and by being in another process: the unsafe one has that too.
HELD_ANYWHERE = {"memory", "time", "output"}


def selftest(kind: str, *more: str, exit_code: int) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["--sandbox", kind, "--json", *more])
    assert done.exit_code == exit_code, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    assert [check["name"] for check in told["checks"]] == NAMES
    assert told["programs"] == len(NAMES)
    return told


@pytest.mark.parametrize("kind", ["auto", "monty"])
def test_everything_is_contained(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    for folder in (workspace, home):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    before = dict(os.environ)
    told = selftest(kind, "--workspace", str(workspace), exit_code=0)
    assert [check for check in told["checks"] if check["tried"] and not check["contained"]] == []
    # Monty has no modules for some of them, which therefore show nothing, and count for nothing.
    assert [check for check in told["checks"] if check["contained"] and not check["tried"]] == []
    assert told["contained"] == told["tried"]
    assert (told["tried"] == len(NAMES)) is (kind != "monty")
    assert told["enforced"]["own network"]
    assert dict(os.environ) == before
    assert os.listdir(workspace) == []
    assert [path for path in home.rglob("*") if path.is_file() or path.name.startswith("python-")] == []


def test_without_a_sandbox_it_says_what_got_through() -> None:
    told = selftest("unsafe", exit_code=1)
    assert not told["enforced"]["own network"]
    assert {check["name"] for check in told["checks"] if check["contained"]} == HELD_ANYWHERE


def test_the_tables_name_what_is_enforced_and_what_got_through() -> None:
    shown = CliRunner().invoke(app, ["--sandbox", "unsafe"]).stdout
    assert "Enforced on this host" in shown
    assert "a file outside was written" in shown
    assert f"{len(NAMES) - len(HELD_ANYWHERE)} of {len(NAMES)} programs got through: read files" in shown
