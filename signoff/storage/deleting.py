"""Deletes a thread and all that is stored of it.

That is its checkpoints, its entries in the store (journal, records, settings, orders to workers), the files
that hold its long results, and the folder of its Python.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.errors import StorageError, ThreadError
from signoff.graph.foreign import Outputs, file_name_of, label, outputs_folder
from signoff.tools.workspace import OUTPUTS

_KEPT = re.compile(re.escape(OUTPUTS) + r"/([\w-]+\.txt)")
_MOST = 100_000


def delete_all_of(
    saver: BaseCheckpointSaver[Any],
    store: BaseStore,
    thread_id: str,
    clear: Callable[[tuple[str, ...]], None],
) -> None:
    """Deletes what belongs to a thread that is held here, but for its checkpoints: those go last. After a
    crash in between the thread can still be seen, and deleted again. clear: deletes a namespace."""
    # It imports the sandboxes, which most users of a database do not need.
    from signoff.tools.sandbox.folder import remove_folder

    for file in _in_workspace(saver, store, thread_id):
        file.unlink(missing_ok=True)
    outputs = Outputs.of(outputs_folder(), saver, thread_id)
    if outputs.owner:
        remove_folder(str(outputs.own))
    own = label(thread_id)
    for namespace in store.list_namespaces(prefix=("signoff", "*", own), limit=_MOST):
        # LangGraph takes a label such as "*" for any.
        if namespace[2] == own:
            clear(namespace)


def _in_workspace(saver: BaseCheckpointSaver[Any], store: BaseStore, thread_id: str) -> Iterator[Path]:
    """The files in the thread's workspace that hold the full texts of its results."""
    # It imports the whole graph, which most users of a database do not need.
    from signoff.session.status import look, reading_graph

    settings = store.get(("signoff", "threads", label(thread_id)), "settings")
    workspace = None if settings is None else settings.value.get("workspace")
    if workspace is None:
        return
    folder = Path(workspace) / OUTPUTS
    if not folder.is_dir() or folder.resolve() != Path(workspace).resolve() / OUTPUTS:
        # The model may have put a link there; nothing is deleted through a link.
        return
    try:
        messages = look(reading_graph(_Threads(saver)), thread_id).values.get("messages", ())
    except (StorageError, ThreadError):
        # A thread that cannot be read can still be deleted.
        return
    for message in messages:
        # The names that `capped` and the truncation of a long prompt give to files. The text of a tool may
        # name any file: only files that a tool of that name has written count.
        name = message.name or message.type
        own = file_name_of(name, "").rpartition("-")[0]
        named = (found for found in _KEPT.findall(message.text) if found.rpartition("-")[0] == own)
        yield from (folder / found for found in {file_name_of(name, message.text), *named})


@dataclass(frozen=True)
class _Threads:
    """A storage from which only threads are read."""

    checkpointer: Any
    store: Any = None


def lock_of(thread_id: str) -> str:
    """The lock name that the jobs of a thread have in the workers' queue."""
    return f"signoff:{label(thread_id)}"
