"""The terminal of a command in the editor: it shows the live output of the thread's own shell.

The command itself runs, as always, in the shell that keeps its folder, variables and jobs. The client starts
only a viewer, which reads a socket that only this user can open.
"""

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import helpers as made

from signoff.acp.updates import Updates, make_call_id
from signoff.events import CallFinished, CallProgress, CallStarted
from signoff.front.calls import SHELL_END
from signoff.front.choices import SHELL
from signoff.front.work import News

_SECONDS = 5.0
_MOST_WAITING = 1_000_000
_VIEWER = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
end = b""
while data := s.recv(65536):
    data = end + data
    end = data[-4:]
    os.write(1, data[:-4])
os._exit(int(end or b"0"))
"""
"""Prints the output; the last four characters are the exit code."""


@dataclass
class _View:
    """One viewer. waiting: the output that it has not read yet, bounded."""

    terminal_id: str
    writer: "asyncio.Future[asyncio.StreamWriter]"
    server: asyncio.AbstractServer
    waiting: list[bytes] = field(default_factory=list)


class EditorTerminals:
    """The viewers of one client. If it fails to start one, it is not asked again."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._folder = ""
        self._views: dict[str, _View] = {}
        self._fails = False

    async def feed(self, session_id: str, news: News, updates: Updates) -> None:
        """Feeds a viewer, or ends it, before the client is notified of the event."""
        if isinstance(news, CallProgress):
            view = self._views.get(make_call_id(news.reply_id, news.call_id))
            data = news.data.get("data") if isinstance(news.data, Mapping) else None
            if view and isinstance(data, str):
                await _feed(view, data.replace("\n", "\r\n").encode())
        elif isinstance(news, CallFinished) and (
            view := self._views.pop(make_call_id(news.reply_id, news.call_id), None)
        ):
            await self._end_viewer(session_id, view, news)

    async def open(self, session_id: str, news: News, updates: Updates) -> None:
        """Starts a viewer for a command that is about to run."""
        if self._fails or not isinstance(news, CallStarted) or news.name != SHELL or news.path:
            return
        found = make_call_id(news.reply_id, news.call_id)
        try:
            async with asyncio.timeout(_SECONDS):
                view = await self._start_viewer(session_id)
                self._views[found] = view
                updates.terminals.add(found)
                shown = [made.tool_terminal_ref(view.terminal_id)]
                await self._client.session_update(
                    session_id=session_id, update=made.update_tool_call(found, content=shown)
                )
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001  whatever a client says instead, the command goes on without it
            self._fails = True

    async def _start_viewer(self, session_id: str) -> _View:
        self._folder = self._folder or tempfile.mkdtemp(prefix="signoff-acp-")
        place = str(Path(self._folder, str(len(list(Path(self._folder).iterdir())))))
        came: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if came.done():
                writer.close()
            else:
                came.set_result(writer)

        server = await asyncio.start_unix_server(connected, place)
        made_by = await self._client.create_terminal(
            session_id=session_id, command=sys.executable, args=["-ISc", _VIEWER, place]
        )
        return _View(made_by.terminal_id, came, server)

    async def _end_viewer(self, session_id: str, view: _View, news: CallFinished) -> None:
        ended = SHELL_END.search(news.result)
        code = int(ended[1]) if ended and re.fullmatch(r"\d{1,3}", ended[1]) else 1
        with suppress(Exception):
            async with asyncio.timeout(_SECONDS):
                writer = await asyncio.shield(view.writer)
                await _feed(view, b"%04d" % code)
                await writer.drain()
                writer.close()
                await self._client.wait_for_terminal_exit(session_id=session_id, terminal_id=view.terminal_id)
        view.server.close()
        with suppress(Exception):
            async with asyncio.timeout(_SECONDS):
                await self._client.release_terminal(session_id=session_id, terminal_id=view.terminal_id)

    def close(self) -> None:
        for view in self._views.values():
            view.server.close()
            if view.writer.done():
                view.writer.result().close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


async def _feed(view: _View, data: bytes) -> None:
    """Sends the output; keeps a part of it until the viewer has connected."""
    if not view.writer.done():
        if sum(map(len, view.waiting)) < _MOST_WAITING:
            view.waiting.append(data)
        return
    writer = view.writer.result()
    for part in (*view.waiting, data):
        writer.write(part)
    view.waiting.clear()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await writer.drain()
