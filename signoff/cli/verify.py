"""`signoff verify`: the machine of a graph, explored."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from signoff import SetupError
from signoff.cli.console import stdout_console
from signoff.front.options import Json
from signoff.front.text import one_line, styled
from signoff.load import load_graph
from signoff.verify import Verification, verify_graph

_PIPE = 160


def verify(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:GRAPH",
            help="The graph, or a function that makes it: package.module:graph or path/to/file.py:graph.",
            show_default=False,
        ),
    ],
    finish: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Arguments of a valid finish, where those generated from its schema do not fit.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Model-check a graph without calling its model or tools.

    Exit codes: 0 every property holds, 1 one is broken, 2 wrong usage.

    Replies, results of tools and checks, answers, kills and new messages are tried in every order, with the
    control tools, policies and texts of the graph. Of a graph with delegates two are played together with it.
    """
    begun = time.monotonic()
    with redirect_stdout(sys.stderr):
        # Output of the user's own code must not mix with the table or the document.
        found = verify_graph(load_graph(graph), _arguments(finish))
    if as_json:
        sys.stdout.write(json.dumps(_document(found), indent=2) + "\n")
    else:
        _print(found, time.monotonic() - begun)
    if not found.held:
        raise typer.Exit(1)


def _arguments(finish: str | None) -> Mapping[str, Any] | None:
    if finish is None:
        return None
    try:
        given = json.loads(finish)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise SetupError("""--finish needs a JSON object, such as '{"summary": "All of it."}'.""")
    return given


def _document(found: Verification) -> dict[str, Any]:
    return {
        "held": found.held,
        "worlds": [asdict(world) for world in found.worlds],
        "properties": [
            {
                "name": each.name,
                "sentence": each.sentence,
                "held": each.held,
                **({} if each.held else {"why": each.why, "by": list(each.by)}),
            }
            for each in found.properties
        ],
    }


def _print(found: Verification, seconds: float) -> None:
    console = stdout_console()
    if not console.is_terminal:
        console.width = _PIPE
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("property", "", "what must hold"):
        shown.add_column(title, overflow="fold", no_wrap=title != "what must hold")
    for each in found.properties:
        mark = Text("held", "green") if each.held else Text("broken", "bold red")
        shown.add_row(each.name, mark, each.sentence)
    console.print(shown)
    for each in found.properties:
        if not each.held:
            console.print()
            text = f"{each.name}: {each.why}\n  by {' / '.join(each.by)}"
            console.print(styled("\n".join(map(one_line, text.splitlines())), "red"), soft_wrap=True)
    console.print()
    for world in found.worlds:
        runs = f"{world.runs:,} runs of up to {world.longest} replies and events"
        text = f"{world.tools}: {world.states:,} states, {world.transitions:,} transitions, {runs}"
        console.print(styled(one_line(text)), soft_wrap=True)
    held = sum(each.held for each in found.properties)
    text = f"{held} of {len(found.properties)} properties held, in {seconds:.0f} seconds."
    console.print(Text(text, "bold green" if found.held else "bold red"), soft_wrap=True)
