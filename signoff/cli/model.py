"""`python -m signoff.models.local`: installs the embedded model, and shows its state."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from signoff import SetupError
from signoff.cli.app import Sentences
from signoff.front.text import plain
from signoff.models.local import local_model
from signoff.models.local.install import ModelInfo, is_installed, model_info
from signoff.models.local.install import install as install_packages
from signoff.models.local.weights import STAGE_WORDS, Stage, ensure_weights
from signoff.models.local.weights import Progress as OnProgress

app: typer.Typer = typer.Typer(
    name="python -m signoff.models.local",
    cls=Sentences,
    help="Install the embedded model, which needs no key and no network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JSON = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


@contextmanager
def model_progress(console: Console) -> Iterator[OnProgress]:
    """Shows one progress bar with its subject on `console`; yields an `on_progress` callback."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        shown: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in shown:
                # The next stage replaces the line of the previous one.
                for before in shown.values():
                    bars.update(before, visible=False)
                shown[stage] = bars.add_task(STAGE_WORDS[stage], amount="")
            bars.update(shown[stage], completed=done, total=total or None, amount=_amount(stage, done, total))

        yield show


def _amount(stage: str, done: int, total: int) -> str:
    if stage == Stage.LOAD:
        return "ready" if total else ""
    if stage == Stage.INSTALL:
        return f"{done} of {total}"
    return f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"


@app.command()
def install(
    reinstall: Annotated[bool, typer.Option("--reinstall", help="Fetch the packages again.")] = False,
    as_json: JSON = False,
) -> None:
    """Install, join and verify the embedded model, and load it once to see that it works.

    `python -m signoff.models.local info` says where it comes from and where it is kept.
    """
    problems = Console(stderr=True)
    try:
        with model_progress(Console(stderr=True, quiet=as_json)) as on_progress:
            if reinstall or not is_installed():
                install_packages(on_progress, reinstall)
            ensure_weights(on_progress)
            with local_model(on_progress=on_progress):
                pass
    except SetupError as error:
        problems.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from error
    known = model_info()
    if as_json:
        _show(known, as_json)
    else:
        print(plain(f"Ready: {known.name} ({known.size / 1e6:,.0f} MB) in {known.path}"))


@app.command()
def info(as_json: JSON = False) -> None:
    """Say where the embedded model is, whether it is verified, and whether it is ready."""
    _show(model_info(), as_json)


def _show(known: ModelInfo, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(known), indent=2))
        return
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_row("model", known.name)
    rows.add_row("licence", known.licence)
    rows.add_row("origin", known.origin)
    rows.add_row("weights", f"{known.path} ({known.size / 1e6:,.0f} MB, {known.weights})")
    rows.add_row("sha256", known.sha256)
    rows.add_row(
        "packages", f"{known.packages_installed} of {known.packages_needed} installed in {sys.prefix}"
    )
    rows.add_row("xllamacpp", known.xllamacpp or "not installed")
    rows.add_row("ready", "[green]yes[/green]" if known.ready else f"[yellow]no[/yellow]: {known.next_step}")
    Console().print(rows)
