"""`signoff lint`: finds faults in the loop of an agent, from its messages."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from signoff.cli.console import stdout_console
from signoff.front.options import Json
from signoff.front.text import cut, one_line, plain, styled
from signoff.graph.errors import SetupError
from signoff.lint.faults import MEANINGS, REPEATS, Fault, FaultKind, faults
from signoff.lint.formats import parse, read_all, read_file, read_trace
from signoff.lint.trace import Result, Trace, TraceReply, names

MOST_ROWS = 20
"""How many faults of one kind are shown to a person; all are in the JSON."""

_ONE = {
    "faults": "fault",
    "messages": "message",
    "replies": "reply",
    "calls": "call",
    "results": "result",
}


class ReportRow(NamedTuple):
    """One line of the table: the message, the call, the fault, and its text."""

    at: str
    call_id: str
    kind: str
    says: str


def document(trace: Trace, found: Sequence[Fault], name: str) -> dict[str, Any]:
    """Returns the whole report as a JSON value."""
    wrong = real(found)
    return {
        "file": name,
        "format": trace.format,
        **_sizes(trace),
        "counts": {str(kind): count for kind, count in Counter(fault.kind for fault in wrong).items()},
        "faults": [_row(fault) for fault in wrong],
        "remarks": [_row(fault) for fault in found if fault.remark],
    }


def real(found: Sequence[Fault]) -> list[Fault]:
    """Returns the faults without the remarks: they decide the exit code."""
    return [fault for fault in found if not fault.remark]


def remarks(found: Sequence[Fault]) -> Iterator[str]:
    """Returns each remark as a line."""
    return (f"Remark on message {fault.at}: {fault.says}." for fault in found if fault.remark)


def _row(fault: Fault) -> dict[str, Any]:
    return {"fault": str(fault.kind), "message": fault.at, "call_id": fault.call_id, "says": fault.says}


def summary(trace: Trace, found: Sequence[Fault]) -> str:
    """Returns one line: how many faults there are, and in what."""
    sizes = ", ".join(_count_noun(count, name) for name, count in _sizes(trace).items())
    said = _count_noun(len(found), "faults") if found else "No fault"
    return f"{said} in {trace.format}: {sizes}."


def table(found: Sequence[Fault]) -> Iterator[ReportRow]:
    """Returns the faults by position; of each kind the first ones, then how many more there are."""
    shown: Counter[FaultKind] = Counter()
    for fault in found:
        shown[fault.kind] += 1
        if shown[fault.kind] <= MOST_ROWS:
            yield ReportRow(str(fault.at), fault.call_id or "", fault.kind, fault.says)
    for kind, count in shown.items():
        if count > MOST_ROWS:
            yield ReportRow("", "", kind, f"{count - MOST_ROWS:,} more; --json shows all")


def meanings(found: Sequence[Fault]) -> Iterator[tuple[str, str]]:
    """Returns the meaning of each fault that was found."""
    kinds = {fault.kind for fault in found}
    return ((str(kind), said) for kind, said in MEANINGS.items() if kind in kinds)


def _sizes(trace: Trace) -> dict[str, int]:
    replies = [entry for entry in trace.entries if isinstance(entry, TraceReply)]
    return {
        "messages": trace.messages,
        "replies": len(replies),
        "calls": sum(len(reply.calls) for reply in replies),
        "results": sum(isinstance(entry, Result) for entry in trace.entries),
    }


def _count_noun(count: int, several: str) -> str:
    return f"{count:,} {_ONE[several] if count == 1 else several}"


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
        help="The tool by which the agent asks a person (default: ask_user and the like). May be repeated.",
    ),
]
DelegateNames = Annotated[
    list[str] | None,
    typer.Option(
        "--delegate",
        metavar="NAME",
        help="A tool whose calls another agent answers: the last one may be open, since that agent may ask a "
        "person. May be repeated.",
    ),
]
Ignore = Annotated[
    list[FaultKind] | None,
    typer.Option("--ignore", metavar="FAULT", help="A fault not to report. May be repeated."),
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        min=2,
        max=1000,
        metavar="N",
        help="How many identical steps in a row are a repetition.",
    ),
]
Run = Annotated[
    int | None,
    typer.Option("--run", min=0, metavar="N", help="Which run, if the file holds several; the first is 0."),
]


def lint(
    trace: TraceFile,
    finish: Finish = None,
    ask: Ask = None,
    delegate: DelegateNames = None,
    ignore: Ignore = None,
    repeats: Repeats = REPEATS,
    run: Run = None,
    as_json: Json = False,
) -> None:
    """Find faults in the loop of any agent, from its messages.

    Exit codes: 0 no fault, 1 at least one, 2 the trace cannot be read.
    """
    name = "stdin" if str(trace) == "-" else str(trace)
    value = parse(read_all(sys.stdin.buffer, name), name) if str(trace) == "-" else read_file(trace)
    history = read_trace(value, name, run)
    known = names(frozenset(finish or ()), frozenset(ask or ()), frozenset(delegate or ()))
    if both := known.finish & known.ask:
        raise SetupError(f"{min(both)!r} cannot both finish and ask; pass it to --finish or to --ask.")
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
