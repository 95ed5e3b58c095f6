"""Finds the faults of agent loops in message histories, of this package and of others."""

from signoff.lint.faults import MEANINGS, Fault, FaultKind, faults
from signoff.lint.formats import read_file, read_trace
from signoff.lint.trace import (
    ControlNames,
    Result,
    Trace,
    TraceCall,
    TraceMessage,
    TraceReply,
    Unreadable,
    names,
)

__all__ = [
    "MEANINGS",
    "ControlNames",
    "Fault",
    "FaultKind",
    "Result",
    "Trace",
    "TraceCall",
    "TraceMessage",
    "TraceReply",
    "Unreadable",
    "faults",
    "names",
    "read_file",
    "read_trace",
]
