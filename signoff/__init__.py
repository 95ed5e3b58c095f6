"""Signoff: an explicit finite-state-machine agent loop on LangGraph that ends when the model signs off.

Each name is imported at its first use, so that a program that needs only one does not wait for all.
"""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.graph.build import Graph, build_graph
    from signoff.graph.compiled.delegates import delegate
    from signoff.graph.compiled.going_on import go_on, stop, undo
    from signoff.graph.errors import (
        BadAnswer,
        SetupError,
        SignoffError,
        StorageError,
        ThreadBusy,
        ThreadError,
        ThreadLost,
        ThreadUnknown,
        TooLate,
    )
    from signoff.graph.kinds import Kind
    from signoff.graph.limits import Limits, Prices
    from signoff.graph.outcome import Outcome, outcome_of
    from signoff.graph.policy import LoopPolicy
    from signoff.graph.texts import Texts
    from signoff.nodes.model.retries import ModelRetries
    from signoff.session.commands import Answer
    from signoff.session.decisions import (
        Action,
        Approval,
        Decision,
        Ended,
        Message,
        Paused,
        PendingCall,
        Question,
        Waiting,
    )
    from signoff.session.history import Turn
    from signoff.session.session import Session
    from signoff.session.status import ThreadStatus
    from signoff.storage.postgres import postgres_storage
    from signoff.storage.sqlite import sqlite_storage
    from signoff.storage.threads import Storage
    from signoff.tools.checks import Check
    from signoff.tools.control import ControlTool, standard_controls

__all__ = [
    "Action",
    "Answer",
    "Approval",
    "BadAnswer",
    "Check",
    "ControlTool",
    "Decision",
    "Ended",
    "Graph",
    "Kind",
    "Limits",
    "LoopPolicy",
    "Message",
    "ModelRetries",
    "Outcome",
    "Paused",
    "PendingCall",
    "Prices",
    "Question",
    "Session",
    "SetupError",
    "SignoffError",
    "Storage",
    "StorageError",
    "Texts",
    "ThreadBusy",
    "ThreadError",
    "ThreadLost",
    "ThreadStatus",
    "ThreadUnknown",
    "TooLate",
    "Turn",
    "Waiting",
    "build_graph",
    "delegate",
    "go_on",
    "outcome_of",
    "postgres_storage",
    "sqlite_storage",
    "standard_controls",
    "stop",
    "undo",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.graph.build": ("Graph", "build_graph"),
        "signoff.graph.compiled.delegates": ("delegate",),
        "signoff.graph.compiled.going_on": ("go_on", "stop", "undo"),
        "signoff.graph.errors": (
            "BadAnswer",
            "SetupError",
            "SignoffError",
            "StorageError",
            "ThreadBusy",
            "ThreadError",
            "ThreadLost",
            "ThreadUnknown",
            "TooLate",
        ),
        "signoff.graph.kinds": ("Kind",),
        "signoff.graph.limits": ("Limits", "Prices"),
        "signoff.graph.outcome": ("Outcome", "outcome_of"),
        "signoff.graph.policy": ("LoopPolicy",),
        "signoff.graph.texts": ("Texts",),
        "signoff.nodes.model.retries": ("ModelRetries",),
        "signoff.session.commands": ("Answer",),
        "signoff.session.decisions": (
            "Action",
            "Approval",
            "Decision",
            "Ended",
            "Message",
            "Paused",
            "PendingCall",
            "Question",
            "Waiting",
        ),
        "signoff.session.history": ("Turn",),
        "signoff.session.session": ("Session",),
        "signoff.session.status": ("ThreadStatus",),
        "signoff.storage.postgres": ("postgres_storage",),
        "signoff.storage.sqlite": ("sqlite_storage",),
        "signoff.storage.threads": ("Storage",),
        "signoff.tools.checks": ("Check",),
        "signoff.tools.control": ("ControlTool", "standard_controls"),
    },
)


def __dir__() -> list[str]:
    return __all__
