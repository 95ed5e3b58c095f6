"""A connection to the server, which has to ask for something in time, and to take the answer."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""For the head of a request, from the first moment."""
TAKE_SECONDS = 60.0
"""For the next part of an answer. A page that slept longer asks for everything anew when it wakes up."""


class Connection(H11Protocol):
    """Closed when it sends no whole head in time, or takes nothing of an answer: many that say nothing would
    keep everybody out, and what they do not take is held for them."""

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
            # More of a body that was refused is no request, either.
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
            # To close it would be to wait until it has taken what is left.
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
