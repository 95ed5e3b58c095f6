"""`python -m tests.command_line` writes docs/reference/command-line.md: every command with its arguments and
options, as the command itself knows them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from signoff.cli.app import app

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "command-line.md"
_HEAD = """\
# Options of the commands

`signoff --help` and `signoff COMMAND --help` print what stands here; `python -m tests.command_line` writes
this page from the commands. [How to use it](../how-to/command-line.md) has a page of its own;
[Settings](settings.md) says what decides: an option, a variable, or the file.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *_commands("signoff", get_command(app))])


def _commands(name: str, command: Any) -> Iterator[str]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield _command(name, command)
        return
    for each, found in inside.items():
        if not found.hidden:
            yield from _commands(f"{name} {each}", found)


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join([name, *(_argument(one) for one in arguments)])
    told = " ".join((command.help or "").split())
    rows = [
        *(f"| `{_argument(one)}` | {_text(one.help)} |" for one in arguments if one.help),
        *(f"| {_names(one)} | {_text(one.help)} |" for one in options),
    ]
    table = ["| option | meaning |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"## `{usage}`", "", told, "", *table, ""])


def _argument(one: Any) -> str:
    name = (one.metavar or one.name.upper()).strip("[]")
    return name if one.required else f"[{name}]"


def _names(one: Any) -> str:
    value = "" if one.is_flag or one.count else f" {one.metavar or one.name.upper()}"
    names = [*one.opts, *one.secondary_opts]
    return ", ".join(f"`{name}{value if name == names[0] else ''}`" for name in names)


def _text(told: str | None) -> str:
    return " ".join((told or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
