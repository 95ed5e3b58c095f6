"""A thread, driven: what is beside the session itself."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.graph.history.task import Task
    from signoff.session.commands import Choose, ThreadCommand, request_pause
    from signoff.session.expiring import Expired, expire
    from signoff.session.path import Step
    from signoff.session.session import pause_on_signals
    from signoff.session.status import Condition

__all__ = [
    "Choose",
    "Condition",
    "Expired",
    "Step",
    "Task",
    "ThreadCommand",
    "expire",
    "pause_on_signals",
    "request_pause",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.graph.history.task": ("Task",),
        "signoff.session.commands": ("Choose", "ThreadCommand", "request_pause"),
        "signoff.session.expiring": ("Expired", "expire"),
        "signoff.session.path": ("Step",),
        "signoff.session.session": ("pause_on_signals",),
        "signoff.session.status": ("Condition",),
    },
)
