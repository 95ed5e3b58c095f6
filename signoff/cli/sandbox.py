"""`signoff sandbox`: shows what the Python sandbox enforces on this host, tested with a few programs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from signoff.cli.console import stdout_console
from signoff.cli.probes import PROBES, Check, selftest
from signoff.front.text import cut, one_line
from signoff.tools.sandbox.tool import SandboxKind, choose_sandbox

app = typer.Typer(help="Show what the sandbox for Python allows on this machine.", no_args_is_help=True)

_MOST_SEEN = 100


@app.callback()
def sandbox() -> None:
    """The sandbox for the model's Python."""


@app.command("selftest")
def run_selftest(
    kind: Annotated[
        SandboxKind,
        typer.Option("--sandbox", help="Which sandbox; unsafe is none."),
    ] = "auto",
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", metavar="FOLDER", help="A folder that the code may read."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show what the sandbox of this host really enforces: small programs try what it forbids.

    Exit codes: 0 all contained, 1 something leaked, 2 there is no sandbox here.
    """
    chosen = choose_sandbox(kind, workspace=workspace)
    held = chosen.enforced()
    working = Console(stderr=True)
    quiet = as_json or not working.is_terminal
    with nullcontext() if quiet else working.status("") as status:
        checks = []
        for check in selftest(kind):
            checks.append(check)
            if status:
                status.update(f"{check.name} ({len(checks)} of {len(PROBES)} programs)")
    chosen.close()
    if as_json:
        typer.echo(document(held, checks))
    else:
        console = stdout_console()
        console.print(enforcement_table(held), "", checks_table(checks), "", summary(checks))
    raise typer.Exit(0 if all(check.contained for check in checks) else 1)


def document(held: Mapping[str, bool | str], checks: Sequence[Check]) -> str:
    """Returns the whole result as JSON, in ASCII."""
    contained = sum(check.contained for check in checks)
    return json.dumps(
        {
            "enforced": dict(held),
            "programs": len(checks),
            "contained": contained,
            "checks": [asdict(check) for check in checks],
        },
        indent=2,
    )


def enforcement_table(held: Mapping[str, bool | str]) -> Table:
    """Returns the table of what the sandbox says it enforces."""
    table = Table(title="Enforced on this host", title_justify="left", box=None, show_header=False)
    for name, value in held.items():
        said = "no" if value is False else "yes" if value is True else cut(one_line(value), _MOST_SEEN)
        table.add_row(Text(name), Text(said, "yellow" if value is False else "green"))
    return table


def checks_table(checks: Sequence[Check]) -> Table:
    """Returns the table of the programs, one per row, with their output sanitised."""
    table = Table("program", "tries to", "contained", "seen", "s", box=None, padding=(0, 2, 0, 0))
    for check in checks:
        contained = Text("yes", "green") if check.tried else Text("cannot try", "dim")
        verdict = contained if check.contained else Text("LEAKED", "bold red")
        seen = Text(cut(one_line(check.observed), _MOST_SEEN), "" if check.contained else "red")
        table.add_row(check.name, check.tries, verdict, seen, f"{check.seconds:.1f}")
    return table


def summary(checks: Sequence[Check]) -> Text:
    """Returns the result in one line."""
    leaked = [check.name for check in checks if not check.contained]
    lacking = sum(not check.tried for check in checks)
    if not leaked:
        also = f"; {lacking} had nothing to try it with" if lacking else ""
        return Text(f"All {len(checks)} programs were contained{also}.", "green")
    return Text(f"{len(leaked)} of {len(checks)} programs got through: {', '.join(leaked)}.", "red")
