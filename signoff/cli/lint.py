"""`signoff lint`: what is wrong with the way an agent's loop went, read from its messages."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from signoff.cli.display import stdout_console
from signoff.front.options import Json
from signoff.front.text import cut, one_line, plain, styled
from signoff.graph.errors import SetupError
from signoff.lint.faults import REPEATS, Fault, FaultKind, faults
from signoff.lint.formats import read_trace
from signoff.lint.reading import parse, read_file, taken
from signoff.lint.report import document, meanings, real, remarks, summary, table
from signoff.lint.trace import Trace, names

_LONGEST = 400
_ID = 40
# Lines of a file or a pipe are not wrapped.
_NO_WRAP = 1000


TraceFile = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE.json",
        help="The messages of one run, as LangChain, OpenAI or Anthropic write them, or AgentDojo, inspect, "
        "SWE-agent, mini-swe-agent or tau-bench; - reads stdin.",
        show_default=False,
    ),
]
Finish = Annotated[
    list[str] | None,
    typer.Option(
        "--finish",
        metavar="NAME",
        help="The tool by which that agent finishes (default: finish_task, task_done, final_answer, "
        "attempt_completion, submit and the like). May be repeated.",
    ),
]
Ask = Annotated[
    list[str] | None,
    typer.Option(
        "--ask",
        metavar="NAME",
        help="The tool by which it asks a person (default: ask_user and the like). May be repeated.",
    ),
]
Ignore = Annotated[
    list[FaultKind] | None,
    typer.Option("--ignore", metavar="FAULT", help="A fault not to report. May be repeated."),
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats", min=2, max=1000, metavar="N", help="How many times the same work is a repetition."
    ),
]
Run = Annotated[
    int | None,
    typer.Option(
        "--run", min=0, metavar="N", help="Which run, where the file holds several; the first is 0."
    ),
]


def lint(
    trace: TraceFile,
    finish: Finish = None,
    ask: Ask = None,
    ignore: Ignore = None,
    repeats: Repeats = REPEATS,
    run: Run = None,
    as_json: Json = False,
) -> None:
    """Find the faults of an agent's loop in its messages: exit code 0: none, 1: some, 2: unreadable."""
    name = "stdin" if str(trace) == "-" else str(trace)
    value = parse(taken(sys.stdin.buffer, name), name) if str(trace) == "-" else read_file(trace)
    history = read_trace(value, name, run)
    known = names(frozenset(finish or ()), frozenset(ask or ()))
    if both := known.finish & known.ask:
        raise SetupError(f"{min(both)!r} cannot both finish and ask; give it to --finish or to --ask.")
    found = [fault for fault in faults(history, known, repeats) if fault.kind not in (ignore or ())]
    if as_json:
        sys.stdout.write(json.dumps(document(history, found, name), indent=2) + "\n")
    else:
        _print(history, found)
    if real(found):
        raise typer.Exit(1)


def _print(history: Trace, every: list[Fault]) -> None:
    console, found = stdout_console(), real(every)
    if not console.is_terminal:
        console.width = _NO_WRAP
    if found:
        shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for title in ("message", "call", "fault", "what"):
            shown.add_column(
                title,
                justify="right" if title == "message" else "left",
                no_wrap=title in ("message", "fault"),
                overflow="fold",
            )
        for row in table(found):
            says = cut(one_line(row.says), _LONGEST)
            shown.add_row(row.at, styled(cut(one_line(row.call_id), _ID)), row.kind, styled(says))
        console.print(shown)
        console.print()
        for kind, said in meanings(found):
            console.print(Text.assemble((kind, "bold"), f": {said}"), soft_wrap=True)
    console.print(Text(plain(summary(history, found))), soft_wrap=True)
    for line in remarks(every):
        console.print(Text(plain(cut(one_line(line), _LONGEST))), soft_wrap=True)
