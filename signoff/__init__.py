"""Signoff: an explicit finite-state-machine agent loop on LangGraph that ends when the model signs off.

Each name is imported when it is first used: a program that only asks for one does not wait for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from signoff.graph.build import build_graph
    from signoff.graph.compiled.inputs import extend, go_on, retry
    from signoff.graph.errors import (
        SetupError,
        SignoffError,
        StorageError,
        ThreadBusy,
        ThreadError,
        ThreadLost,
    )
    from signoff.graph.kinds import Effect, Kind
    from signoff.graph.limits import Limits, Prices
    from signoff.graph.outcome import Outcome, current_outcome
    from signoff.graph.texts import Texts
    from signoff.session.decisions import (
        Action,
        Approval,
        Confirmation,
        Decision,
        Failed,
        Finished,
        Message,
        Paused,
        Question,
    )
    from signoff.session.moves import Answer, Extend, Retry, request_pause
    from signoff.session.session import Session, pause_on_signals
    from signoff.session.standing import expire
    from signoff.storage.postgres import postgres_storage
    from signoff.storage.sqlite import sqlite_storage
    from signoff.tools.control import ControlTool

__all__ = [
    "Action",
    "Answer",
    "Approval",
    "Confirmation",
    "ControlTool",
    "Decision",
    "Effect",
    "Extend",
    "Failed",
    "Finished",
    "Kind",
    "Limits",
    "Message",
    "Outcome",
    "Paused",
    "Prices",
    "Question",
    "Retry",
    "Session",
    "SetupError",
    "SignoffError",
    "StorageError",
    "Texts",
    "ThreadBusy",
    "ThreadError",
    "ThreadLost",
    "build_graph",
    "current_outcome",
    "expire",
    "extend",
    "go_on",
    "pause_on_signals",
    "postgres_storage",
    "request_pause",
    "retry",
    "sqlite_storage",
]

# By module what stands above for type checkers, and nothing else.
_NAMES = {
    "signoff.graph.build": ("build_graph",),
    "signoff.graph.compiled.inputs": ("extend", "go_on", "retry"),
    "signoff.graph.errors": (
        "SetupError",
        "SignoffError",
        "StorageError",
        "ThreadBusy",
        "ThreadError",
        "ThreadLost",
    ),
    "signoff.graph.kinds": ("Effect", "Kind"),
    "signoff.graph.limits": ("Limits", "Prices"),
    "signoff.graph.outcome": ("Outcome", "current_outcome"),
    "signoff.graph.texts": ("Texts",),
    "signoff.session.decisions": (
        "Action",
        "Approval",
        "Confirmation",
        "Decision",
        "Failed",
        "Finished",
        "Message",
        "Paused",
        "Question",
    ),
    "signoff.session.moves": ("Answer", "Extend", "Retry", "request_pause"),
    "signoff.session.session": ("Session", "pause_on_signals"),
    "signoff.session.standing": ("expire",),
    "signoff.storage.postgres": ("postgres_storage",),
    "signoff.storage.sqlite": ("sqlite_storage",),
    "signoff.tools.control": ("ControlTool",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
