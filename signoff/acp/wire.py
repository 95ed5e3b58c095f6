"""Line-based JSON-RPC messages for the package's connection; invalid ones are answered here."""

from collections.abc import Mapping
from typing import Any

from signoff.front.stdio import BadLine, StdioLines, dump_message, read_message
from signoff.front.text import cut
from signoff.graph.foreign import join_errors

_MOST_ERRORS = 8
_MOST_CHARACTERS = 1_000


class AcpWire:
    """One line per message."""

    def __init__(self, lines: StdioLines) -> None:
        self._lines = lines

    async def send(self, message: dict[str, Any]) -> None:
        if isinstance(error := message.get("error"), Mapping):
            message = message | {"error": _shorten_error(error)}
        try:
            await self._lines.write(dump_message(message))
        except ConnectionError:
            # Nobody waits for this response, so it is not reported.
            if "method" in message and "id" in message:
                raise

    async def receive(self) -> dict[str, Any] | None:
        """Returns the next message; None if the client has disconnected."""
        while (line := await self._lines.read()) is not None:
            found = read_message(line)
            if isinstance(found, BadLine):
                await self.send(found.document())
            elif found is not None:
                return found
        return None

    async def close(self) -> None:
        self._lines.close()


def _shorten_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an error of the package without the client's input, which may have up to 64 MB."""
    data = error.get("data")
    if not isinstance(data, Mapping):
        return dict(error)
    if isinstance(errors := data.get("errors"), list):
        why = cut(join_errors(errors[:_MOST_ERRORS]), _MOST_CHARACTERS)
        return {"code": error["code"], "message": f"{error['message']}: {why}"}
    short = {
        name: cut(value, _MOST_CHARACTERS) if isinstance(value, str) else value
        for name, value in data.items()
    }
    return {**error, "data": short}
