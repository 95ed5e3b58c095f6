"""Deletes the files of a thread: its long results, and the folder of its Python."""

import re
from collections.abc import Iterator
from pathlib import Path

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.errors import StorageError, ThreadError
from signoff.graph.foreign import Outputs, file_name_of, label, outputs_folder
from signoff.storage.threads import Storage
from signoff.tools.workspace import OUTPUTS

_KEPT = re.compile(re.escape(OUTPUTS) + r"/([\w-]+\.txt)")


def delete_files(saver: BaseCheckpointSaver[str], store: BaseStore, thread_id: str) -> None:
    """Deletes the files of a thread that is held here."""
    # It imports the sandboxes, which most users of a database do not need.
    from signoff.tools.sandbox.folder import remove_folder

    for file in _in_workspace(saver, store, thread_id):
        file.unlink(missing_ok=True)
    outputs = Outputs.of(outputs_folder(), saver, thread_id)
    if outputs.owner:
        remove_folder(str(outputs.own))


def _in_workspace(saver: BaseCheckpointSaver[str], store: BaseStore, thread_id: str) -> Iterator[Path]:
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
        messages = look(reading_graph(Storage(saver, store)), thread_id).values.get("messages", ())
    except (StorageError, ThreadError):
        # A thread that cannot be read can still be deleted.
        return
    for message in messages:
        # The names that `capped` and the truncation of a long prompt give to files. The text of a tool may
        # name any file: only files that a tool of that name has written count.
        name = message.name or message.type
        own = file_name_of(name, "").rpartition("-")[0]
        named = (file for file in _KEPT.findall(message.text) if file.rpartition("-")[0] == own)
        yield from (folder / file for file in {file_name_of(name, message.text), *named})


def lock_of(thread_id: str) -> str:
    """The lock name that the jobs of a thread have in the workers' queue."""
    return f"signoff:{label(thread_id)}"
