"""A store that can be copied, and in which a process can be killed at any operation."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp

Entries = Mapping[tuple[tuple[str, ...], str], Mapping[str, Any]]


class Killed(BaseException):
    """The process ends here, as by `kill -9`."""


class Shelf(BaseStore):
    """A store of a few entries that can be copied; `lives` operations, then the process is killed."""

    def __init__(self, entries: Entries, lives: int | None = None) -> None:
        self.entries: dict[tuple[tuple[str, ...], str], Mapping[str, Any]] = dict(entries)
        self.operations = 0
        self._lives = lives

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        self._live()
        return [self._one(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        self._live()
        if self.entries.get((namespace, key)) != before:
            return False
        self.entries[namespace, key] = after
        return True

    def _live(self) -> None:
        if self.operations == self._lives:
            raise Killed
        self.operations += 1

    def _one(self, op: Op) -> Any:
        if isinstance(op, GetOp):
            found = self.entries.get((op.namespace, op.key))
            moment = cast(Any, None)
            return (
                None
                if found is None
                else Item(
                    value=dict(found),
                    key=op.key,
                    namespace=op.namespace,
                    created_at=moment,
                    updated_at=moment,
                )
            )
        if isinstance(op, PutOp) and op.value is not None:
            self.entries[op.namespace, op.key] = op.value
            return None
        raise NotImplementedError(f"{op!r} is no operation of a node")
