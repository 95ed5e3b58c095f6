"""`python -m signoff.machine`: the machine, drawn."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from signoff import SetupError
from signoff.cli.app import Sentences
from signoff.graph.drawing.diagram import mermaid, svg

app: typer.Typer = typer.Typer(name="python -m signoff.machine", cls=Sentences, add_completion=False)

FILES = {"machine.mmd": mermaid, "machine.svg": svg}

Svg = Annotated[bool, typer.Option("--svg", help="Print the SVG picture instead of Mermaid.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Write both, machine.mmd and machine.svg, there."),
]


@app.callback(invoke_without_command=True)
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
