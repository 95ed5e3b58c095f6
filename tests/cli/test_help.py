"""The help: every command in one group, in a line of its own, and no type that says nothing."""

import re
from pathlib import Path

import pytest

from signoff.cli.app import COMMANDS, PANELS, Loaded
from tests.support.benches.cli import Bench, one_sentence

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shown(bench: Bench, *words: str, width: int = 100) -> str:
    result = bench(*words, "--help", COLUMNS=str(width), TERMINAL_WIDTH=str(width))
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_every_command_is_in_one_group() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)


def test_the_groups_and_their_commands_stand_in_this_order(bench: Bench) -> None:
    found = re.findall(r"╭─ (.*?) ─|^│ (\w+)  ", shown(bench), re.M)
    expected = ["Options"]
    for panel, names in PANELS.items():
        expected += [panel, *names]
    assert [panel or name for panel, name in found] == expected


def test_a_command_takes_one_line_at_100_columns(bench: Bench) -> None:
    lines = shown(bench).partition("Run a task")[2].splitlines()
    assert not [line for line in lines if line.startswith("│   ")]


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS), ("model", "install"), ("model", "info")]
)
def test_no_type_beside_flags_and_arguments(bench: Bench, command: tuple[str, ...]) -> None:
    assert re.findall(r"<\w+>", shown(bench, *command)) == []


def test_the_docs_have_every_command_with_its_line() -> None:
    found = [line for line in DOCS.read_text("utf-8").splitlines() if line.startswith("| ") and "`" in line]
    rows = []
    for panel, names in PANELS.items():
        for name in names:
            command = Loaded()[name]
            first = (command.help or "").partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| {panel} | `{name}` | {first} |")
    assert found == rows


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no such command": (("dlete",), ("No such command 'dlete'", "signoff --help")),
    "no such option": (("show", "t", "--jsn"), ("--jsn", "signoff show --help")),
    "an argument is missing": (("show",), ("'THREAD'", "See: signoff show --help")),
    "a number out of range": (
        ("run", "x", "--turns", "0"),
        ("--turns is 0; write a whole number from 1 on.",),
    ),
    "a text for a number": (("run", "x", "--turns", "many"), ("--turns", "See: signoff run --help")),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_command_line_says_what_to_do(bench: Bench, case: str) -> None:
    words, parts = WRONG[case]
    one_sentence(bench(*words), *parts)


COLOURS = {
    "asked for": ({"FORCE_COLOR": "1"}, True),
    "asked for and forbidden": ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    "not asked for": ({}, False),
}


@pytest.mark.parametrize("case", COLOURS)
def test_force_color_gives_a_pipe_colours_and_nothing_else(bench: Bench, case: str) -> None:
    env, coloured = COLOURS[case]
    bench.run()
    plain, found = bench("threads").stdout, bench("threads", **env).stdout
    assert bool(re.search(r"\x1b\[[\d;]+m", found)) == coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", found) == plain
    assert "\x1b" not in bench("show", "t1", "--json", **env).stdout
