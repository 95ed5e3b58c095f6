"""A connection to the server, with deadlines for sending a request and for reading the response."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Time for the head of a request, from the moment of connecting."""
TAKE_SECONDS = 60.0
"""Time for reading the next part of a response. A page that slept longer reloads everything when it wakes."""


class Connection(H11Protocol):
    """Closes when the client sends no complete head in time, or reads nothing of a response.

    Many silent connections would keep everyone else out, and unread responses take memory.
    """

    _late: asyncio.TimerHandle | None = None
    _full: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            # The rest of a refused body is not a request, either.
            self._expect()
        else:
            self._forget()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def _watch(self, left: int) -> None:
        self._take()
        self._full = self.loop.call_later(TAKE_SECONDS, self._look_again, left)

    def _look_again(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._watch(left)
        else:
            # A regular close would wait until the client has read the rest.
            self.transport.abort()

    def resume_writing(self) -> None:
        self._take()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._take()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _take(self) -> None:
        if self._full is not None:
            self._full.cancel()
            self._full = None
