"""`python -m signoff.tools.sandbox`: what the Python sandbox enforces here, as a few programs see it."""

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

from signoff.cli.app import Sentences
from signoff.cli.console import stdout_console
from signoff.cli.probes import PROBES, ProbeResult, selftest
from signoff.front.text import cut, one_line
from signoff.tools import choose_sandbox
from signoff.tools.sandbox.tool import SandboxKind

app: typer.Typer = typer.Typer(name="python -m signoff.tools.sandbox", cls=Sentences, add_completion=False)

_MOST_SEEN = 100


@app.callback(invoke_without_command=True)
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

    Exit codes: 0 all that could be tried was contained, 1 something leaked, 2 there is no sandbox here.
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
    raise typer.Exit(1 if any(check.leaked for check in checks) else 0)


def document(held: Mapping[str, bool | str], checks: Sequence[ProbeResult]) -> str:
    """Returns the whole result as JSON, in ASCII."""
    contained = sum(check.contained for check in checks)
    return json.dumps(
        {
            "enforced": dict(held),
            "programs": len(checks),
            "tried": sum(check.tried for check in checks),
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


def checks_table(checks: Sequence[ProbeResult]) -> Table:
    """Returns the table of the programs, one per row, with their output sanitised."""
    table = Table("program", "tries to", "contained", "seen", "s", box=None, padding=(0, 2, 0, 0))
    for check in checks:
        contained = Text("yes", "green") if check.tried else Text("cannot try", "dim")
        verdict = Text("LEAKED", "bold red") if check.leaked else contained
        seen = Text(cut(one_line(check.observed), _MOST_SEEN), "red" if check.leaked else "")
        table.add_row(check.name, check.tries, verdict, seen, f"{check.seconds:.1f}")
    return table


def summary(checks: Sequence[ProbeResult]) -> Text:
    """Returns the result in one line."""
    leaked = [check.name for check in checks if check.leaked]
    tried = [check for check in checks if check.tried]
    if leaked:
        return Text(f"{len(leaked)} of {len(tried)} programs got through: {', '.join(leaked)}.", "red")
    lacking = len(checks) - len(tried)
    also = f"; {lacking} could not be tried here" if lacking else ""
    return Text(f"All {len(tried)} programs were contained{also}.", "green")
