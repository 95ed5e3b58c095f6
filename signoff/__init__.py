"""Signoff: an explicit finite-state-machine agent loop on LangGraph that ends when the model signs off."""

from signoff.graph.again import extend, go_on, retry
from signoff.graph.build import build_graph
from signoff.graph.errors import SetupError, SignoffError, StorageError, ThreadBusy, ThreadError
from signoff.graph.limits import Limits
from signoff.graph.outcome import Outcome, current_outcome
from signoff.graph.texts import Texts
from signoff.storage import sqlite_storage
from signoff.tools.control import ControlTool, Effect
from signoff.tools.kinds import Kind

__all__ = [
    "ControlTool",
    "Effect",
    "Kind",
    "Limits",
    "Outcome",
    "SetupError",
    "SignoffError",
    "StorageError",
    "Texts",
    "ThreadBusy",
    "ThreadError",
    "build_graph",
    "current_outcome",
    "extend",
    "go_on",
    "retry",
    "sqlite_storage",
]
