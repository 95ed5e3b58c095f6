"""What the recorded outcomes say: how tasks end, how long they take, which reminders help."""

from signoff.graph.finish.recorded import EndFigures, Figures, NudgeFigures, RefusalFigures
from signoff.stats.numbers import CAPS, stats
from signoff.stats.records import TaskRecord, rate, read_ended

__all__ = [
    "CAPS",
    "EndFigures",
    "Figures",
    "NudgeFigures",
    "RefusalFigures",
    "TaskRecord",
    "rate",
    "read_ended",
    "stats",
]
