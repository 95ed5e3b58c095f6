"""Serves one client over stdin and stdout, until it disconnects or the process is asked to end."""

import asyncio
import os
import signal
from typing import Any, BinaryIO

from acp import run_agent

from signoff.acp.agent import SignoffAgent
from signoff.acp.wire import AcpWire
from signoff.front.database import Database
from signoff.front.driving import pause_all
from signoff.front.settings import Given
from signoff.front.stdio import StdioLines
from signoff.load import load_graph

_CLOSING_SECONDS = 2.0


def serve(database: Database, given: Given, named: str | None, reading: BinaryIO, writing: BinaryIO) -> None:
    """Serves, then pauses all runs, which can continue later. named: the user's own graph."""
    with database.open() as storage:
        saved = {"checkpointer": storage.checkpointer, "store": storage.store}
        own = None if named is None else load_graph(named).copy(saved)
        agent = SignoffAgent(database, storage, given, own)
        rested = asyncio.run(_serve(agent, reading, writing))
        agent.models.close()
    if not rested:
        # A model call cannot be cancelled from here, and everything finished is saved.
        os._exit(0)


async def _serve(agent: SignoffAgent, reading: BinaryIO, writing: BinaryIO) -> bool:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    lines = StdioLines(reading, writing)
    theirs: Any = agent
    listening = asyncio.ensure_future(run_agent(theirs, AcpWire(lines), use_unstable_protocol=True))
    ending = asyncio.ensure_future(ends.wait())
    await asyncio.wait({listening, ending}, return_when=asyncio.FIRST_COMPLETED)
    # First, so that everything that waits to read from or write to the client learns that it has gone.
    lines.close()
    for opened in agent.sessions.values():
        opened.cancelled.set()
    rested = await pause_all(agent.drivers)
    await asyncio.wait({listening}, timeout=_CLOSING_SECONDS)
    agent.close()
    for task in (listening, ending):
        task.cancel()
    return rested
