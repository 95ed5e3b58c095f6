"""JSON-RPC messages over lines, as the package's connection takes them; bad ones are answered here."""

import json
from typing import Any

from signoff.front.stdio import BadLine, StdioLines, read_message


class AcpWire:
    """One line for each message."""

    def __init__(self, lines: StdioLines) -> None:
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
            if isinstance(found, BadLine):
                await self.send(found.document())
            elif found is not None:
                return found
        return None

    async def close(self) -> None:
        self._lines.close()
