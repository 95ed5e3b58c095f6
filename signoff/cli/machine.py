"""`signoff verify` and `signoff diagram`: the machine, explored and drawn."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from signoff.cli.console import stdout_console
from signoff.front.options import Json
from signoff.front.text import one_line, styled
from signoff.graph.drawing.diagram import mermaid, svg
from signoff.graph.errors import SetupError
from signoff.verify.explore import OVERALL, Broken, Exploration, Explorer
from signoff.verify.properties import PROPERTIES
from signoff.verify.worlds import load_graph, worlds

_SENTENCES: Mapping[str, str] = {**{one.name: one.sentence for one in PROPERTIES}, **OVERALL}
_LENGTH = 5
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
    control tools, policies and texts of the graph.
    """
    begun = time.monotonic()
    with redirect_stdout(sys.stderr):
        # Output of the user's own code must not mix with the table or the document.
        shown = worlds(load_graph(graph), _arguments(finish))
        found = {world.name: Explorer(world).run() for world in shown}
    broken = {one.name: one for visited in reversed(found.values()) for one in reversed(visited.broken)}
    if as_json:
        sys.stdout.write(json.dumps(_document(found, broken), indent=2) + "\n")
    else:
        _print(found, broken, time.monotonic() - begun)
    if broken:
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


def _document(found: Mapping[str, Exploration], broken: Mapping[str, Broken]) -> dict[str, Any]:
    return {
        "held": not broken,
        "worlds": [
            {
                "tools": name,
                "states": one.states,
                "transitions": one.transitions,
                "runs": one.sequences(_LENGTH),
            }
            for name, one in found.items()
        ],
        "properties": [
            {
                "name": name,
                "sentence": sentence,
                "held": name not in broken,
                **({"why": broken[name].why, "by": list(broken[name].path)} if name in broken else {}),
            }
            for name, sentence in _SENTENCES.items()
        ],
    }


def _print(found: Mapping[str, Exploration], broken: Mapping[str, Broken], seconds: float) -> None:
    console = stdout_console()
    if not console.is_terminal:
        console.width = _PIPE
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("property", "", "what must hold"):
        shown.add_column(title, overflow="fold", no_wrap=title != "what must hold")
    for name, sentence in _SENTENCES.items():
        mark = Text("broken", "bold red") if name in broken else Text("held", "green")
        shown.add_row(name, mark, sentence)
    console.print(shown)
    for one in broken.values():
        console.print()
        text = f"{one.name}: {one.why}\n  by {' / '.join(one.path)}"
        console.print(styled("\n".join(map(one_line, text.splitlines())), "red"), soft_wrap=True)
    console.print()
    for name, visited in found.items():
        runs = f"{visited.sequences(_LENGTH):,} runs of up to {_LENGTH} replies and events"
        text = f"{name}: {visited.states:,} states, {visited.transitions:,} transitions, {runs}"
        console.print(styled(one_line(text)), soft_wrap=True)
    held = len(_SENTENCES) - len(broken)
    text = f"{held} of {len(_SENTENCES)} properties held, in {seconds:.0f} seconds."
    console.print(Text(text, "bold red" if broken else "bold green"), soft_wrap=True)


FILES = {"machine.mmd": mermaid, "machine.svg": svg}

Svg = Annotated[bool, typer.Option("--svg", help="Print the SVG picture instead of Mermaid.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Write both, machine.mmd and machine.svg, there."),
]


def diagram(as_svg: Svg = False, output: Output = None) -> None:
    """Draw the machine from its table, as Mermaid or SVG."""
    if output is None:
        sys.stdout.write(svg() if as_svg else mermaid())
        return
    if as_svg:
        raise typer.BadParameter(
            "--svg prints the picture, --output writes both files: use only one of them."
        )
    for path in write(output):
        typer.echo(path)


def write(folder: Path) -> list[Path]:
    """Write both drawings into `folder`, which is created when it is missing. Returns their paths.

    Raises SetupError when they cannot be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in FILES.items():
            (folder / name).write_text(draw(), encoding="utf-8", newline="\n")
    except OSError as error:
        raise SetupError(f"Cannot write to {folder} ({error.strerror}); choose another folder.") from error
    return [folder / name for name in FILES]
