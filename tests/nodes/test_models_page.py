"""docs/how-to/models.md: its commands name models as the program reads them, its defaults are the code's."""

import re
import shlex
from pathlib import Path

from typer.main import get_command

from signoff import ModelRetries
from signoff.cli.app import app
from signoff.nodes.model.providers import provider_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/models.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


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
