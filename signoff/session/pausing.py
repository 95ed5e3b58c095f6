"""Asking a run of another process to pause: a request in the store, which the run reads between states."""

import time
from collections.abc import Sequence
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from signoff.graph.compiled.runner import checked_thread_id
from signoff.nodes.journal import label

_PAUSE = "pause"


def _place(thread_id: str) -> tuple[str, ...]:
    return ("signoff", "requests", label(checked_thread_id(thread_id)))


def request_pause(store: BaseStore, thread_id: str) -> None:
    """Asks whoever runs the thread to pause it. A run that begins later does not heed it."""
    store.put(_place(thread_id), _PAUSE, {"at": time.time()})


def look_for_request(thread_id: str) -> GetOp:
    return GetOp(_place(thread_id), _PAUSE)


def drop_request(thread_id: str) -> PutOp:
    return PutOp(_place(thread_id), _PAUSE, None)


def requested(found: Sequence[Any]) -> bool:
    """Whether a pause was asked for."""
    return isinstance(found[0], Item)
