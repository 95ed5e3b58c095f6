"""What an outcome is made of."""

from signoff.graph.limits import TokenCounts
from signoff.graph.outcome import (
    Change,
    CheckRun,
    RunResult,
    StandingCall,
    TreeUse,
    UndoneCall,
    UndoReport,
    Usage,
)

__all__ = [
    "Change",
    "CheckRun",
    "RunResult",
    "StandingCall",
    "TokenCounts",
    "TreeUse",
    "UndoReport",
    "UndoneCall",
    "Usage",
]
