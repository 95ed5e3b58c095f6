"""Deletes a thread and all that is stored of it.

That is its checkpoints, journal, records, settings, place in the workers' queue, the files that hold its long
results, and the folder of its Python. Both checkpointers use `delete_thread` here, so that a server, a
program and the command line all leave nothing behind. Only a row of `signoff_runners` in PostgreSQL stays, an
id and a number: without it a runner that lost its connection before could mistake a new thread with the same
id for its own and write to it.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from signoff.graph.errors import StorageError
from signoff.graph.foreign import Outputs, checked_thread_id, file_name_of, label, outputs_folder
from signoff.tools.workspace import OUTPUTS

_KEPT = re.compile(re.escape(OUTPUTS) + r"/([\w-]+\.txt)")


class DeletingSaver(Protocol):
    """A checkpointer that locks threads, and knows the rows that belong to them."""

    def runner(self, thread_id: str) -> AbstractContextManager[None]: ...

    def workspace_of(self, thread_id: str) -> str | None:
        """Returns the workspace of this thread in the command line; None when it is unknown."""

    def delete_rows(self, thread_id: str) -> None:
        """Deletes the rows of a thread whose lock is held, in one transaction."""


def delete_thread(saver: DeletingSaver, thread_id: str) -> None:
    """Deletes the thread if it exists. Raises ThreadBusy while it runs."""
    # It imports the sandboxes, which most users of a database do not need.
    from signoff.tools.sandbox.folder import remove_folder

    checked_thread_id(thread_id)
    with saver.runner(thread_id):
        # The files first: after a crash in between, the thread still exists and can be deleted again.
        for file in _in_workspace(saver, thread_id):
            file.unlink(missing_ok=True)
        outputs = Outputs.of(outputs_folder(), saver, thread_id)
        if outputs.owner:
            remove_folder(str(outputs.own))
        saver.delete_rows(thread_id)


def _in_workspace(saver: DeletingSaver, thread_id: str) -> Iterator[Path]:
    """Deletes the files in the thread's workspace that hold the full texts of its results."""
    # It imports the whole graph, which most users of a database do not need.
    from signoff.session.status import look, reading_graph

    workspace = saver.workspace_of(thread_id)
    if workspace is None:
        return
    folder = Path(workspace) / OUTPUTS
    if not folder.is_dir() or folder.resolve() != Path(workspace).resolve() / OUTPUTS:
        # The model may have put a link there; nothing is deleted through a link.
        return
    try:
        messages = look(reading_graph(_Threads(saver)), thread_id).values.get("messages", ())
    except StorageError:
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


Execute = Callable[[str, tuple[str, ...]], Any]
"""Executes a statement in a transaction; returns the first value of its first row, or None."""


@dataclass(frozen=True)
class Dialect:
    """The tables of checkpoints, and how a database compares namespaces: by characters, with an index.

    value: the placeholder of a statement.
    """

    tables: tuple[str, ...]
    value: str
    least: str
    below: str
    order: str


SQLITE = Dialect(("checkpoints", "writes"), "?", ">=", "<", "prefix")
POSTGRES = Dialect(
    ("checkpoints", "checkpoint_blobs", "checkpoint_writes"), "%s", "~>=~", "~<~", "prefix USING ~<~"
)


def delete_rows(execute: Execute, dialect: Dialect, thread_id: str) -> None:
    """Deletes the rows of a thread from the tables of checkpoints, and its entries from the store.

    Its entries are those whose namespace is `signoff`, any name and the thread, or begins with these.
    """
    value, between = (
        dialect.value,
        f"prefix {dialect.least} {dialect.value} AND prefix {dialect.below} {dialect.value}",
    )
    for table in dialect.tables:
        execute(f"DELETE FROM {table} WHERE thread_id = {value}", (thread_id,))
    # The names are looked up, not listed here, so that names added later are included.
    first = f"SELECT prefix FROM store WHERE {between} ORDER BY {dialect.order} LIMIT 1"
    begin, end = "signoff.", "signoff/"  # the character after the dot
    while found := execute(first, (begin, end)):
        name = found.split(".")[1]
        own = f"signoff.{name}.{label(thread_id)}"
        execute(f"DELETE FROM store WHERE prefix = {value} OR ({between})", (own, f"{own}.", f"{own}/"))
        begin = f"signoff.{name}/"


def workspace_of(execute: Execute, dialect: Dialect, thread_id: str) -> str | None:
    """Returns the workspace in the settings that the command line stores for a thread."""
    query = f"SELECT value FROM store WHERE prefix = {dialect.value} AND key = {dialect.value}"
    found = execute(query, (f"signoff.threads.{label(thread_id)}", "settings"))
    settings = json.loads(found) if isinstance(found, str | bytes) else found
    return settings.get("workspace") if isinstance(settings, dict) else None


def lock_of(thread_id: str) -> str:
    """Returns the lock name that the jobs of a thread have in the workers' queue."""
    return f"signoff:{label(thread_id)}"
