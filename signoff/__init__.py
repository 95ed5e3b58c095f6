"""Signoff: an explicit finite-state-machine agent loop on LangGraph that ends when the model signs off.

Each name is imported at its first use, so that a program that needs only one does not wait for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from signoff.graph.build import Graph, Storage, build_graph
    from signoff.graph.compiled.delegates import delegate
    from signoff.graph.compiled.inputs import go_on
    from signoff.graph.errors import (
        SetupError,
        SignoffError,
        StorageError,
        ThreadBusy,
        ThreadError,
        ThreadLost,
    )
    from signoff.graph.finish.again import extend, retry, undo
    from signoff.graph.history.task import Task
    from signoff.graph.kinds import Effect, Kind
    from signoff.graph.limits import Limits, Prices, TokenCounts
    from signoff.graph.machine import State
    from signoff.graph.outcome import (
        Change,
        CheckRun,
        Outcome,
        RunResult,
        StandingCall,
        TreeUse,
        UndoneCall,
        UndoReport,
        Usage,
        current_outcome,
        outcome_of,
    )
    from signoff.graph.texts import Texts
    from signoff.nodes.model.retries import ModelRetries
    from signoff.session.commands import (
        Answer,
        Choose,
        Extend,
        Retry,
        Stop,
        ThreadCommand,
        Undo,
        request_pause,
    )
    from signoff.session.decisions import (
        Action,
        Approval,
        Confirmation,
        Decision,
        Failed,
        Finished,
        Message,
        Paused,
        PendingCall,
        Question,
        Waiting,
    )
    from signoff.session.expiring import Expired, expire
    from signoff.session.history import Turn
    from signoff.session.path import Step
    from signoff.session.session import Session, pause_on_signals
    from signoff.session.status import Condition, ThreadStatus
    from signoff.storage.postgres import PostgresStorage, postgres_storage
    from signoff.storage.sqlite import SqliteStorage, sqlite_storage
    from signoff.tools.approvals import Policy
    from signoff.tools.checks import Check
    from signoff.tools.control import ControlTool, ResponseFormat, standard_controls

__all__ = [
    "Action",
    "Answer",
    "Approval",
    "Change",
    "Check",
    "CheckRun",
    "Choose",
    "Condition",
    "Confirmation",
    "ControlTool",
    "Decision",
    "Effect",
    "Expired",
    "Extend",
    "Failed",
    "Finished",
    "Graph",
    "Kind",
    "Limits",
    "Message",
    "ModelRetries",
    "Outcome",
    "Paused",
    "PendingCall",
    "Policy",
    "PostgresStorage",
    "Prices",
    "Question",
    "ResponseFormat",
    "Retry",
    "RunResult",
    "Session",
    "SetupError",
    "SignoffError",
    "SqliteStorage",
    "StandingCall",
    "State",
    "Step",
    "Stop",
    "Storage",
    "StorageError",
    "Task",
    "Texts",
    "ThreadBusy",
    "ThreadCommand",
    "ThreadError",
    "ThreadLost",
    "ThreadStatus",
    "TokenCounts",
    "TreeUse",
    "Turn",
    "Undo",
    "UndoReport",
    "UndoneCall",
    "Usage",
    "Waiting",
    "build_graph",
    "current_outcome",
    "delegate",
    "expire",
    "extend",
    "go_on",
    "outcome_of",
    "pause_on_signals",
    "postgres_storage",
    "request_pause",
    "retry",
    "sqlite_storage",
    "standard_controls",
    "undo",
]

# The same names as above for type checkers, by module.
_NAMES = {
    "signoff.graph.build": (
        "Graph",
        "Storage",
        "build_graph",
    ),
    "signoff.graph.compiled.delegates": ("delegate",),
    "signoff.graph.finish.again": (
        "extend",
        "retry",
        "undo",
    ),
    "signoff.graph.compiled.inputs": ("go_on",),
    "signoff.graph.errors": (
        "SetupError",
        "SignoffError",
        "StorageError",
        "ThreadBusy",
        "ThreadError",
        "ThreadLost",
    ),
    "signoff.graph.history.task": ("Task",),
    "signoff.graph.kinds": (
        "Effect",
        "Kind",
    ),
    "signoff.graph.limits": (
        "Limits",
        "Prices",
        "TokenCounts",
    ),
    "signoff.graph.machine": ("State",),
    "signoff.graph.outcome": (
        "Change",
        "CheckRun",
        "Outcome",
        "TreeUse",
        "UndoneCall",
        "UndoReport",
        "Usage",
        "RunResult",
        "StandingCall",
        "current_outcome",
        "outcome_of",
    ),
    "signoff.graph.texts": ("Texts",),
    "signoff.nodes.model.retries": ("ModelRetries",),
    "signoff.session.decisions": (
        "Action",
        "Approval",
        "Confirmation",
        "Decision",
        "Failed",
        "Finished",
        "Message",
        "Paused",
        "PendingCall",
        "Question",
        "Waiting",
    ),
    "signoff.session.history": ("Turn",),
    "signoff.session.commands": (
        "Answer",
        "Choose",
        "Extend",
        "ThreadCommand",
        "Undo",
        "Retry",
        "Stop",
        "request_pause",
    ),
    "signoff.session.path": ("Step",),
    "signoff.session.session": (
        "Session",
        "pause_on_signals",
    ),
    "signoff.session.expiring": (
        "Expired",
        "expire",
    ),
    "signoff.session.status": (
        "Condition",
        "ThreadStatus",
    ),
    "signoff.storage.postgres": (
        "PostgresStorage",
        "postgres_storage",
    ),
    "signoff.storage.sqlite": (
        "SqliteStorage",
        "sqlite_storage",
    ),
    "signoff.tools.approvals": ("Policy",),
    "signoff.tools.checks": ("Check",),
    "signoff.tools.control": (
        "ControlTool",
        "ResponseFormat",
        "standard_controls",
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
