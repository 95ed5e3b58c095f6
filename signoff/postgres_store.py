"""The store in PostgreSQL."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from langgraph.store.base import GetOp, Op, PutOp, Result
from langgraph.store.postgres import PostgresStore
from psycopg import Cursor
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from signoff.graph.foreign import valid_text, valid_values
from signoff.postgres_pool import Database, FencedPool, writing
from signoff.savers import StoreInThreads


class PostgresEntries(StoreInThreads, PostgresStore):
    """LangGraph's PostgreSQL store, usable from sync and async runs alike, and with an atomic `swap`.

    What is written of a thread that is held here is written only while it is (`PostgresThreads.runner`).
    NUL and half characters, which PostgreSQL refuses, become U+FFFD.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(FencedPool(database))
        self.database = database

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = [_savable(op) for op in ops]
        with writing({_thread_of(op.namespace) for op in ops if isinstance(op, PutOp)}):
            return super().batch(ops)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Puts `after` if the value is still `before` (None: there is none). False when it is not.

        Atomic between threads and processes: of two that claim the same entry, one gets it.
        """
        with writing((_thread_of(namespace),)), self.database.cursor(together=True) as cursor:
            return swap_in(cursor, namespace, key, before, after)

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:
        """LangGraph's store does everything by such a cursor, with `pipeline` what must be done as one;
        private as the saver's."""
        with self.database.cursor(together=pipeline) as cursor:
            yield cursor


def swap_in(
    cursor: Cursor[DictRow],
    namespace: tuple[str, ...],
    key: str,
    before: dict[str, Any] | None,
    after: dict[str, Any],
) -> bool:
    """`PostgresEntries.swap` as a part of the cursor's transaction."""
    entry = (".".join(namespace), valid_text(key))
    value = Jsonb(valid_values(after))
    if before is None:
        cursor.execute(
            "INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING key",
            (*entry, value),
        )
    else:
        cursor.execute(
            "UPDATE store SET value = %s, updated_at = CURRENT_TIMESTAMP "
            "WHERE prefix = %s AND key = %s AND value = %s RETURNING key",
            (value, *entry, Jsonb(valid_values(before))),
        )
    return cursor.fetchone() is not None


def _thread_of(namespace: tuple[str, ...]) -> str:
    """The label of the thread that an entry of ours belongs to: ("signoff", "journal", label, …)."""
    return namespace[2] if namespace[:1] == ("signoff",) and len(namespace) > 2 else ""


def _savable(op: Op) -> Op:
    if isinstance(op, GetOp):
        return op._replace(key=valid_text(op.key))
    if isinstance(op, PutOp):
        value = None if op.value is None else valid_values(op.value)
        return op._replace(key=valid_text(op.key), value=value)
    return op
