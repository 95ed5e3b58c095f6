"""Exports a thread as one JSON document, with everything stored for it, for an archive or other programs."""

import importlib.metadata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import message_to_dict
from langgraph.store.base import BaseStore, Item

from signoff.graph.build import Storage
from signoff.graph.compiled.graph import runner
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import checked_thread_id, label
from signoff.nodes.journal import recorded
from signoff.session.path import steps
from signoff.session.status import Condition, look, readable, reading_graph

FORMAT = 1
"""The version of the document."""

_PAGE = 1_000


def export(storage: Storage, thread_id: str) -> dict[str, Any]:
    """The thread with its history, its other channels, its path, its outcomes and its records, as values for
    `json.dumps(…, default=str)`.

    Raises ThreadBusy while it runs, ThreadError if nothing is stored for it, StorageError if it cannot be
    read.
    """
    with runner(storage.checkpointer, checked_thread_id(thread_id)):
        status = look(reading_graph(storage, thread_id), thread_id)
        with readable(thread_id):
            path = steps(storage.checkpointer, thread_id)
            outcomes = [outcome.model_dump() for outcome in recorded(storage.store, thread_id)]
            records = list(entries(storage.store, thread_id))
    if status.condition is Condition.UNKNOWN and not records:
        raise ThreadError(f"There is no thread {status.quoted_id!r}; nothing was exported.")
    waiting = status.waiting
    return {
        "format": FORMAT,
        "signoff": importlib.metadata.version("signoff"),
        "exported": datetime.now(UTC).isoformat(),
        "thread_id": thread_id,
        "condition": str(status.condition),
        "changed": status.changed or None,
        "waiting": {"for": waiting.waits_for, **waiting.document()} if waiting else None,
        "outcome": status.outcome and dict(status.outcome),
        "outcomes": [outcome for outcome in outcomes if outcome["thread_id"] == thread_id],
        "history": [message_to_dict(message) for message in status.values.get("messages", ())],
        "state": {
            name: value for name, value in status.values.items() if name not in ("messages", "outcome")
        },
        "path": [vars(step) for step in path],
        "records": [_record(item) for item in records],
    }


def entries(store: BaseStore, thread_id: str) -> Iterator[Item]:
    """Every store entry of the thread: those under `signoff`, any name, and its label."""
    own = label(thread_id)
    names = {
        found[1]
        for found in store.list_namespaces(prefix=("signoff",), max_depth=2, limit=_PAGE)
        if found[1:]
    }
    for name in sorted(names):
        offset = 0
        while page := store.search(("signoff", name, own), limit=_PAGE, offset=offset):
            # A store matches prefixes of labels, so longer labels must be filtered out.
            yield from (item for item in page if item.namespace[2:3] == (own,))
            offset += len(page)


def _record(item: Item) -> dict[str, Any]:
    name, _, *below = item.namespace[1:]
    return {
        "record": name,
        "below": below,
        "key": item.key,
        "value": item.value,
        "created": item.created_at.isoformat(),
        "updated": item.updated_at.isoformat(),
    }
