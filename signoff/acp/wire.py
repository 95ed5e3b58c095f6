"""JSON-RPC messages over lines, as the package's connection takes them; bad ones are answered here."""

import json
import re
from collections.abc import Mapping
from typing import Any

from signoff.front.stdio import Lines, TooLong

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
_ID = re.compile(rb'[{,]\s*"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")')


class Wire:
    """One line for each message."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self._lines.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except ConnectionError:
            # What nobody waits for is told to nobody.
            if "method" in message and "id" in message:
                raise

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the client has gone."""
        while (line := await self._lines.read()) is not None:
            found = read_message(line)
            if isinstance(found, Refused):
                await self.send(found.document())
            elif found is not None:
                return found
        return None

    async def close(self) -> None:
        self._lines.close()


class Refused:
    """A line that is no message. id: of the request, where that can still be read."""

    def __init__(self, code: int, why: str, request: Any = None) -> None:
        self.code, self.why, self.request = code, why, request

    def document(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.request, "error": {"code": self.code, "message": self.why}}


def read_message(line: bytes | TooLong) -> dict[str, Any] | Refused | None:
    """The message of a line; None for an empty one."""
    if isinstance(line, TooLong):
        named = _ID.search(line.head)
        why = f"The message has {line.size:,} bytes, which is too long; send less at once."
        return Refused(INVALID_REQUEST, why, json.loads(named[1]) if named else None)
    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return Refused(PARSE_ERROR, "This line is not JSON.")
    if not isinstance(found, Mapping) or not ("method" in found or "id" in found):
        return Refused(INVALID_REQUEST, "This is not a message of JSON-RPC; send one object a line.")
    if not isinstance(found.get("method", ""), str):
        return Refused(INVALID_REQUEST, "The method of a message is its name, as text.", _plain_id(found))
    if not isinstance(found.get("id"), int | str | None):
        return Refused(INVALID_REQUEST, "The id of a message is a number or a text.")
    return dict(found)


def _plain_id(found: Mapping[str, Any]) -> Any:
    return found.get("id") if isinstance(found.get("id"), int | str) else None
