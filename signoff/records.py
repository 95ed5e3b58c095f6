"""The outcomes that a database has recorded: figures of how tasks end, and ratings."""

from signoff.graph.finish.recorded import DelegateFigures, EndFigures, Figures, NudgeFigures, RefusalFigures
from signoff.stats.numbers import stats
from signoff.stats.records import Entries, RecordedItem, TaskRecord, rate, read_ended

__all__ = [
    "DelegateFigures",
    "EndFigures",
    "Entries",
    "Figures",
    "NudgeFigures",
    "RecordedItem",
    "RefusalFigures",
    "TaskRecord",
    "rate",
    "read_ended",
    "stats",
]
