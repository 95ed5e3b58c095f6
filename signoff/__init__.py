"""Signoff: an explicit finite-state-machine agent loop on LangGraph that ends when the model signs off."""

from signoff.graph.again import extend, go_on, retry
from signoff.graph.build import build_graph
from signoff.graph.errors import SetupError, SignoffError, StorageError, ThreadBusy, ThreadError, ThreadLost
from signoff.graph.limits import Limits
from signoff.graph.outcome import Outcome, current_outcome
from signoff.graph.prices import Prices
from signoff.graph.texts import Texts
from signoff.postgres import postgres_storage
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
from signoff.session.expiry import expire
from signoff.session.moves import Answer, Extend, Retry
from signoff.session.pausing import request_pause
from signoff.session.session import Session
from signoff.session.signals import pause_on_signals
from signoff.storage import sqlite_storage
from signoff.tools.control import ControlTool, Effect
from signoff.tools.kinds import Kind

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
