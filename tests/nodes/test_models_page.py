"""docs/how-to/models.md: its programs run as they stand, and its commands and defaults are those of the program."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from signoff import ModelRetries
from signoff.cli.app import app
from signoff.nodes.model.providers import provider_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/models.md").read_text(encoding="utf-8")
KEYS = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), "none")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(blocks("python"))))
def test_every_program_runs_as_it_stands(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    program = blocks("python")[at]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    (printed,) = blocks("text")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (printed if "print(" in program else "")


def test_every_command_exists_with_its_options() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # the app is a group
    known = {option for parameter in commands["run"].params for option in parameter.opts}
    for line in "".join(blocks("sh")).splitlines():
        words = shlex.split(line)
        assert words[:2] == ["signoff", "run"]
        assert {word for word in words if word.startswith("--")} <= known
        name = words[words.index("--model") + 1]
        assert (provider_name(name) is None) is ("--base-url" in words)
    assert "--model-tries" in known


def test_the_defaults_are_those_of_the_policy() -> None:
    found = ModelRetries()
    waits = f"first_wait={found.first_wait}, longest_wait={found.longest_wait}"
    assert f"`ModelRetries(tries={found.tries}, {waits})`" in PAGE
