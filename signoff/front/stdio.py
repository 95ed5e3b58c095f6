"""The standard streams of a program that uses them for a protocol: nothing else reads or writes there.

Separate threads read and write, so that a client that never reads, or never writes, blocks neither the event
loop nor the end of the process.
"""

import asyncio
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_LINE = 64_000_000
"""Most bytes of a message; a longer one is skipped and refused."""
_HEAD = 1_000
_WAITING = 64
_MOST_ID = 200
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
_ID = re.compile(rb'[{,]\s*"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")')


def claim_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Returns the program's input and output. From now on, all other code, including libraries and child
    processes, writes to stderr instead of stdout, and finds stdin at its end."""
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        # There is no stderr.
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0)


@dataclass(frozen=True)
class LongLine:
    """A skipped line. head: its beginning. size: in bytes."""

    head: bytes
    size: int


class StdioLines:
    """Reads and writes lines. Belongs to one event loop."""

    def __init__(self, reading: BinaryIO, writing: BinaryIO, most: int = MOST_LINE) -> None:
        self._reading, self._writing, self._most = reading, writing, most
        self._loop = asyncio.get_running_loop()
        self._come: asyncio.Queue[bytes | LongLine | None] = asyncio.Queue()
        self._room = threading.Semaphore(_WAITING)
        self._go: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._open: set[asyncio.Future[None]] = set()
        self.closed = False
        for work in (self._read, self._write):
            threading.Thread(target=work, name="signoff-stdio", daemon=True).start()

    async def read(self) -> bytes | LongLine | None:
        """Returns the next line; None at the end, or if the client no longer reads."""
        line = await self._come.get()
        self._room.release()
        return line

    async def write(self, line: bytes) -> None:
        """Returns when the line is written. Raises ConnectionError if the client can no longer read it."""
        if self.closed:
            raise ConnectionError("The client has gone.")
        written: asyncio.Future[None] = self._loop.create_future()
        self._open.add(written)
        written.add_done_callback(self._open.discard)
        self._go.put((line, written))
        await written

    def close(self) -> None:
        """Stops writing; pending writes raise an error."""
        if self.closed:
            return
        self.closed = True
        for written in list(self._open):
            if not written.done():
                written.set_exception(ConnectionError("The client has gone."))
                # Retrieved here: its waiter may be gone.
                written.exception()
        self._come.put_nowait(None)

    # --- in their own threads ---

    def _read(self) -> None:
        while True:
            try:
                line = self._line()
            except (OSError, ValueError):
                line = None
            self._room.acquire()
            if not self._tell(self._come.put_nowait, line) or line is None:
                return

    def _line(self) -> bytes | LongLine | None:
        line = self._reading.readline(self._most + 1)
        if len(line) <= self._most:
            return line or None
        head, size = line[:_HEAD], len(line)
        while line and not line.endswith(b"\n"):
            line = self._reading.readline(_HEAD * _HEAD)
            size += len(line)
        return LongLine(head, size)

    def _write(self) -> None:
        while True:
            line, written = self._go.get()
            try:
                left = memoryview(line)
                while left:
                    left = left[self._writing.write(left) :]
            except (OSError, ValueError):
                self._tell(self.close)
                return
            if not self._tell(_resolve, written):
                return

    def _tell(self, callback: object, *args: object) -> bool:
        """Calls back into the event loop; returns whether it still exists."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)  # type: ignore[arg-type]  # as it takes them
        except RuntimeError:
            return False
        return True


def _resolve(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)


class BadLine:
    """A line that is not a message. request: the id of the request, if it could be read."""

    def __init__(self, code: int, why: str, request: Any = None) -> None:
        self.code, self.why, self.request = code, why, request

    def document(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.request, "error": {"code": self.code, "message": self.why}}


def read_message(line: bytes | LongLine) -> dict[str, Any] | BadLine | None:
    """Returns the message in a line; None if it is neither a request nor a response.

    A response has an object or null as its result, or an error with a number and a text; any other response
    becomes such an error, so that its waiter learns of it.
    """
    if isinstance(line, LongLine):
        return _refuse_long(line)
    if not line.strip():
        return None
    try:
        found = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return BadLine(PARSE_ERROR, "This line is not JSON.")
    if not isinstance(found, Mapping) or not ("method" in found or "id" in found):
        return BadLine(INVALID_REQUEST, "This is not a JSON-RPC message; send one object per line.")
    if not _is_id(found.get("id")):
        return BadLine(
            INVALID_REQUEST,
            f"The id of a message must be a number, or a text of at most {_MOST_ID} characters.",
        )
    if "method" not in found:
        return _read_answer(found)
    if not isinstance(found["method"], str):
        return BadLine(INVALID_REQUEST, "The method of a message must be given as text.", found.get("id"))
    return dict(found)


def dump_message(message: Mapping[str, Any]) -> bytes:
    """Returns the line of a message. Numbers that JSON does not have (NaN, infinity) become text."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(message), parse_constant=str)
        text = json.dumps(finite, separators=(",", ":"))
    return text.encode() + b"\n"


def _refuse_long(line: LongLine) -> BadLine:
    # A response has one of our ids, not one of the client's.
    named = _ID.search(line.head) if b'"method"' in line.head else None
    why = f"The message has {line.size:,} bytes, which is too long; send a shorter one."
    return BadLine(INVALID_REQUEST, why, json.loads(named[1]) if named else None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _is_id(found: Any) -> bool:
    if isinstance(found, str):
        return len(found) <= _MOST_ID
    return found is None or (isinstance(found, int) and not isinstance(found, bool))


def _read_answer(found: Mapping[str, Any]) -> dict[str, Any] | None:
    own, error, result = found["id"], found.get("error"), found.get("result")
    if own is None:
        # It concerns a message that the client could not read; a response would lead to another one.
        return None
    if error is None and (result is None or isinstance(result, Mapping)):
        return dict(found) | {"result": result}
    said = error if isinstance(error, Mapping) else {"message": error}
    code, why = said.get("code"), said.get("message")
    is_number = isinstance(code, int) and not isinstance(code, bool)
    told = {
        **said,
        "code": code if is_number else INTERNAL_ERROR,
        "message": why if isinstance(why, str) else "The answer does not fit the protocol.",
    }
    return {"jsonrpc": "2.0", "id": own, "error": told}
