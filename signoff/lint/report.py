"""What was found, as a JSON value and as lines for a person."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from signoff.lint.faults import MEANINGS, Fault, FaultKind
from signoff.lint.trace import Result, Trace, TraceReply

MOST_ROWS = 20
"""Faults of one kind that are shown to a person; all are in the JSON."""

_ONE = {
    "faults": "fault",
    "messages": "message",
    "replies": "reply",
    "calls": "call",
    "results": "result",
}


class ReportRow(NamedTuple):
    """One line of the table: the message, the call, the fault, and what it says."""

    at: str
    call_id: str
    kind: str
    says: str


def document(trace: Trace, found: Sequence[Fault], name: str) -> dict[str, Any]:
    """The whole report as a JSON value."""
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
    """The faults without the remarks: what the exit code speaks of."""
    return [fault for fault in found if not fault.remark]


def remarks(found: Sequence[Fault]) -> Iterator[str]:
    """Each remark as a line."""
    return (f"Remark on message {fault.at}: {fault.says}." for fault in found if fault.remark)


def _row(fault: Fault) -> dict[str, Any]:
    return {"fault": str(fault.kind), "message": fault.at, "call_id": fault.call_id, "says": fault.says}


def summary(trace: Trace, found: Sequence[Fault]) -> str:
    """One line: how many faults there are, in what."""
    sizes = ", ".join(_counted(count, name) for name, count in _sizes(trace).items())
    said = _counted(len(found), "faults") if found else "No fault"
    return f"{said} in {trace.format}: {sizes}."


def table(found: Sequence[Fault]) -> Iterator[ReportRow]:
    """The faults by position; of each kind the first ones, then how many more there are."""
    shown: Counter[FaultKind] = Counter()
    for fault in found:
        shown[fault.kind] += 1
        if shown[fault.kind] <= MOST_ROWS:
            yield ReportRow(str(fault.at), fault.call_id or "", fault.kind, fault.says)
    for kind, count in shown.items():
        if count > MOST_ROWS:
            yield ReportRow("", "", kind, f"{count - MOST_ROWS:,} more; --json shows all")


def meanings(found: Sequence[Fault]) -> Iterator[tuple[str, str]]:
    """Each fault that was found, and what it is."""
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


def _counted(count: int, several: str) -> str:
    return f"{count:,} {_ONE[several] if count == 1 else several}"
