"""The hub: the threads that are open in a page or run here, and the changes in the database."""

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from signoff import Session
from signoff.front.database import Database, OpenStorage
from signoff.front.settings import Given, recall, remember
from signoff.front.thread_ids import checked_thread_id, forked_thread_id, new_thread_id
from signoff.front.threads import row
from signoff.front.work import Models
from signoff.session.status import reading_graph
from signoff.web.beside import Beside
from signoff.web.log import Log, event
from signoff.web.render import thread_list
from signoff.web.room import Room
from signoff.web.terminals import Terminals

MOST_RUNS = 64
"""How many threads run on one server at once."""
MOST_READERS = 400
_LISTED = 60
_LOOK_SECONDS = 0.5
_LIST_SECONDS = 1.0
_ALIVE_SECONDS = 15.0
_IDLE_SECONDS = 300.0
MOST_IDLE = 64
"""How many idle rooms are kept: as many as can have run at once."""
_SHORTEST_SECONDS = 0.15
_AWAY_SECONDS = 2.0
_SLICE = 65_536
_END_SECONDS = 4.0


@dataclass
class Seen:
    """The database when the hub last checked it.

    stamp: of its files. here: the threads that ran here. next_list: when to list the threads; 0 for never.
    """

    stamp: Any
    here: frozenset[str] = frozenset()
    next_list: float = 0.0


class Hub:
    """Owns every run and every terminal of the server. Everything happens in one event loop."""

    def __init__(self, database: Database, storage: OpenStorage, given: Given) -> None:
        self.database, self.storage, self.given = database, storage, given
        self.models = Models()
        self.beside = Beside()
        self.rooms: dict[str, Room] = {}
        self.readers = 0
        self.listed = ""
        self.closing = asyncio.Event()
        self.terminals = Terminals()
        self._slots = threading.Semaphore(MOST_RUNS)
        self._moved, self._listing = asyncio.Event(), asyncio.Lock()
        self._away = False
        """Whether the last attempt to read the database failed."""

    def room(self, thread_id: str) -> Room:
        """Returns the room of a thread; creates it on first use."""
        checked_thread_id(thread_id)
        found = self.rooms.get(thread_id)
        if found is None:
            given = self.storage, thread_id, self.given, self.models, self._slots, self.beside
            found = self.rooms[thread_id] = Room(*given, self.terminals, self._moved.set)
        found.used = time.monotonic()
        return found

    @contextmanager
    def asked(self, thread_id: str) -> Iterator[Room]:
        """Provides the room of a thread while a request to it is carried out."""
        room = self.room(thread_id)
        room.requests += 1
        try:
            yield room
        finally:
            room.requests -= 1
            self._left(room)

    def _left(self, room: Room) -> None:
        """Drops the room if it is empty, and the least recently used ones if there are too many."""
        room.used = time.monotonic()
        if room.idle and not room.keeps:
            self._drop(room)
        idle = [other for other in self.rooms.values() if other.idle and other.terminal is None]
        if len(idle) > MOST_IDLE:
            for other in sorted(idle, key=lambda each: each.used)[:-MOST_IDLE]:
                self._drop(other)

    def _drop(self, room: Room) -> None:
        if self.rooms.get(room.thread_id) is room:
            del self.rooms[room.thread_id]

    async def new_id(self) -> str:
        taken = await self.beside.do(self.storage.checkpointer.threads)
        return new_thread_id({*taken, *self.rooms})

    # --- reading ---

    async def stream(self, thread_id: str) -> AsyncGenerator[bytes, None]:
        """Yields the current state of the thread for a reader, then every change. Never ends by itself."""
        room = self.room(thread_id)
        room.log.readers += 1
        self.readers += 1
        try:
            await room.fresh()
            room.keep_fresh()
            if not self.listed:
                await self._list()
            seq: int | None = None
            while not self.closing.is_set() and not room.gone:
                entries = None if seq is None else room.log.after(seq)
                if entries is None:
                    # A new reader, or one so slow that the next entries were dropped.
                    seq = room.log.last
                    whole = room.whole(self.listed)
                    # A stalled reader then holds one slice, not a whole copy.
                    for begin in range(0, len(whole), _SLICE):
                        yield whole[begin : begin + _SLICE]
                    continue
                for entry in entries:
                    seq = entry.seq
                    yield event(entry.kind, entry.data, entry.seq)
                if seq is not None and seq == room.log.last and not await self.wait_for_more(room.log, seq):
                    yield b": still here\n\n"
            if room.gone:
                yield event("gone", "{}")
        finally:
            room.leave()
            self.readers -= 1
            self._left(room)

    async def wait_for_more(self, log: Log, seq: int) -> bool:
        """Waits briefly for an entry after this number; returns whether there is one or the server ends."""
        closing = asyncio.ensure_future(self.closing.wait())
        more = asyncio.ensure_future(log.wait(seq, _ALIVE_SECONDS))
        try:
            await asyncio.wait({closing, more}, return_when=asyncio.FIRST_COMPLETED)
            return self.closing.is_set() or (more.done() and more.result())
        finally:
            # Not awaited: a cancellation of this reader at that moment would be taken for theirs.
            closing.cancel()
            more.cancel()

    # --- noticing ---

    async def watch(self) -> None:
        """Notices what other processes do, lists the threads, and drops unused rooms."""
        async with asyncio.TaskGroup() as group:
            listing = group.create_task(self._list_own())
            await self._look()
            listing.cancel()

    async def _list_own(self) -> None:
        """Lists the threads again as soon as something has changed here."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            began = time.monotonic()
            if self.readers:
                await self._try(self._list)
            await asyncio.sleep(max(_SHORTEST_SECONDS, 3 * (time.monotonic() - began)))

    async def _look(self) -> None:
        seen = Seen(self._stamp())
        while not self.closing.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            if self.closing.is_set():
                # Nothing is read any more; the code that ends the hub also ends the terminals.
                return
            await self.beside.do(self.terminals.end_idle)
            self._forget()
            if self.readers:
                await self._try(lambda: self._look_once(seen))

    async def _try(self, look: Callable[[], Awaitable[None]]) -> None:
        """Checks the database; if it cannot be read for a while, a later check tries again."""
        try:
            await look()
        except Exception as error:  # noqa: BLE001  whatever one look raises, the next one is made
            if not self._away:
                logging.getLogger(__name__).warning("the threads cannot be listed: %s", error)
            self._away = True
            await asyncio.sleep(_AWAY_SECONDS)
        else:
            self._away = False

    async def _look_once(self, seen: "Seen") -> None:
        # A file's timestamps show a write; a database server has to be queried.
        before, seen.stamp = seen.stamp, self._stamp()
        here = frozenset(name for name, room in self.rooms.items() if room.here)
        moved = seen.stamp != before or seen.stamp is None or here != seen.here
        for room in list(self.rooms.values()):
            # Checked in any case: a run ends after its last write, and nothing else reports its end.
            if room.log.readers and not room.here and (await self._runs(room) or moved):
                room.changed.set()
        if moved:
            seen.next_list = seen.next_list or time.monotonic()
        if seen.next_list and time.monotonic() >= seen.next_list:
            began, seen.here, seen.next_list = time.monotonic(), here, 0.0
            await self._list()
            if seen.stamp != self._stamp():
                seen.next_list = began + 10 * (time.monotonic() - began) + _LIST_SECONDS

    async def _runs(self, room: Room) -> bool:
        """Whether another process has started or stopped running the thread since the last check."""
        running = await self.beside.do(self.storage.checkpointer.is_running, room.thread_id)
        before, room.elsewhere = room.elsewhere, running
        return bool(before != running)

    def _stamp(self) -> Any:
        if self.database.is_postgres:
            return None
        found = []
        for name in (self.database.where, f"{self.database.where}-wal"):
            with contextlib.suppress(OSError):
                stat = os.stat(name)
                found.append((stat.st_mtime_ns, stat.st_size))
        return found

    async def _list(self) -> None:
        # One after the other: an older state must not be sent after a newer one.
        async with self._listing:
            if self.closing.is_set():
                return
            here = frozenset(name for name, room in self.rooms.items() if room.here)
            listed = await self.beside.do(self._read_list, here)
            if listed != self.listed:
                self.listed = listed
                data = json.dumps({"list": listed})
                for room in list(self.rooms.values()):
                    if room.log.readers:
                        await room.log.add("list", data)

    def _read_list(self, here: frozenset[str]) -> str:
        names = self.storage.checkpointer.threads()[:_LISTED]
        return thread_list([row(self.storage, name) for name in names], here)

    def _forget(self) -> None:
        now = time.monotonic()
        for room in list(self.rooms.values()):
            if room.idle and room.terminal is None and now - room.used > _IDLE_SECONDS:
                self._drop(room)

    # --- doing ---

    async def fork(self, thread_id: str, at: str | None) -> str:
        """Copies the thread as it was at this checkpoint; returns the id of the copy."""
        target = await self.beside.do(self._fork, thread_id, at)
        self._moved.set()
        return target

    def _fork(self, thread_id: str, at: str | None) -> str:
        target = forked_thread_id(thread_id, self.storage.checkpointer.threads())
        Session(reading_graph(self.storage, thread_id), thread_id).fork(at, target)
        if settings := recall(self.storage.store, thread_id):
            remember(self.storage.store, target, settings)
        return target

    async def delete(self, thread_id: str) -> None:
        """Deletes the thread with all its data. Raises ThreadBusy while it runs."""
        with self.asked(thread_id) as room:
            await room.delete()
            self._drop(room)
        await self._list()

    async def end(self) -> bool:
        """Pauses all runs and ends the terminals; returns whether everything came to rest in time."""
        self.closing.set()
        for room in self.rooms.values():
            room.close()
        end = time.monotonic() + _END_SECONDS
        while any(room.here for room in self.rooms.values()) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for room in self.rooms.values():
            await self.beside.do(room.close_terminal)
        for room in self.rooms.values():
            room.stop_reading()
        await self.beside.end()
        return not any(room.here for room in self.rooms.values())
