"""The command `signoff acp` on a bench: a process of its own, driven by the client of the package `acp`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    CancelElicitationResponse,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from signoff.acp.agent import SignoffAgent
from signoff.acp.wire import AcpWire
from signoff.front.driving import pause_all
from signoff.front.settings import Given
from signoff.front.stdio import StdioLines
from signoff.graph.build import Graph
from tests.support.benches.project import ProjectBench

SECONDS = 60.0
NEVER = "never"
"""A client that never answers."""
FAILS = "fails"
"""A client whose dialog fails."""


class Editor:
    """The client's side. decisions: what its person chooses, one after the other; a mapping is a form that
    they fill in."""

    def __init__(self, *decisions: Any) -> None:
        self.decisions = list(decisions)
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.terminals: dict[str, asyncio.subprocess.Process] = {}
        self.printed: dict[str, bytes] = {}
        self.exits: list[int | None] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, tool_call: Any, options: Any, **_: Any) -> RequestPermissionResponse:
        self.asked.append((tool_call, [option.option_id for option in options]))
        chosen = self.decisions.pop(0)
        if chosen == FAILS:
            raise acp.RequestError(-32000, "There is no window.")
        if chosen == NEVER:
            await asyncio.Event().wait()
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.asked.append((message, mode))
        filled = self.decisions.pop(0)
        if filled is None:
            return CancelElicitationResponse(action="cancel")
        return AcceptElicitationResponse(action="accept", content=filled)

    async def create_terminal(self, command: str, args: Any = None, **_: Any) -> CreateTerminalResponse:
        process = await asyncio.create_subprocess_exec(
            command, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        name = f"terminal-{len(self.terminals)}"
        self.terminals[name] = process
        return CreateTerminalResponse(terminal_id=name)

    async def wait_for_terminal_exit(self, terminal_id: str, **_: Any) -> WaitForTerminalExitResponse:
        output, _none = await self.terminals[terminal_id].communicate()
        self.printed[terminal_id] = output
        self.exits.append(self.terminals[terminal_id].returncode)
        return WaitForTerminalExitResponse(exit_code=self.terminals[terminal_id].returncode)

    async def terminal_output(self, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        return TerminalOutputResponse(output=self.printed[terminal_id].decode(), truncated=False)

    async def release_terminal(self, terminal_id: str, **_: Any) -> None:
        process = self.terminals[terminal_id]
        if process.returncode is None:
            process.kill()
            await process.wait()

    def on_connect(self, conn: Any) -> None:
        pass

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.updates if one.session_update == kind)

    def of(self, *kinds: str) -> list[Any]:
        return [one for one in self.updates if one.session_update in kinds]

    async def sees(self, condition: Callable[["Editor"], Any]) -> None:
        """Waits until what was told fulfils this."""
        async with asyncio.timeout(SECONDS):
            while not condition(self):
                await asyncio.sleep(0.01)


class Inside:
    """A client of an agent."""

    def __init__(self, client: Any, editor: Editor, agent: Any, folder: Path) -> None:
        self.client, self.editor, self.agent, self.folder = client, editor, agent, folder

    async def new(self) -> str:
        found = await self.client.new_session(cwd=str(self.folder), mcp_servers=[])
        return str(found.session_id)

    async def load(self, session: str) -> None:
        await self.client.load_session(cwd=str(self.folder), session_id=session, mcp_servers=[])

    async def prompt(self, session: str, text: str) -> str:
        found = await self.client.prompt(session_id=session, prompt=[acp.text_block(text)] if text else [])
        return str(found.stop_reason)


class Connected(Inside):
    """A client, and the process that it has started."""

    def __init__(self, client: Any, editor: Editor, process: Any, folder: Path) -> None:
        super().__init__(client, editor, None, folder)
        self.process = process

    async def ends(self) -> int:
        """Closes the connection, as an editor does that ends; the exit code of the process."""
        self.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            return int(await self.process.wait())


def _wire(reading: int, writing: int) -> AcpWire:
    return AcpWire(StdioLines(os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0)))


class AcpBench(ProjectBench):
    """A workspace, a database, scripted models, and agents on them."""

    def command(self, steps: str, *options: str, delay: float = 0.0) -> list[str]:
        model = self.model(steps, delay)
        return [
            *(sys.executable, "-m", "signoff.cli", "acp", "--model", model, "--config", "none"),
            *("--database", str(self.database.where), "--tools", "files,shell", *options),
        ]

    @asynccontextmanager
    async def edited(
        self,
        steps: str,
        *decisions: Any,
        forms: bool = False,
        terminal: bool = False,
        options: Sequence[str] = (),
        delay: float = 0.0,
        command: Sequence[str] = (),
    ) -> AsyncIterator[Connected]:
        editor = Editor(*decisions)
        elicitation = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
        words = [*command] or self.command(steps, *options, delay=delay)
        async with acp.spawn_agent_process(
            editor,  # type: ignore[arg-type]  # it offers what is asked of it
            *words,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            cwd=self.workspace,
            transport_kwargs={"limit": 100_000_000, "stderr": None},
            use_unstable_protocol=True,
        ) as (client, process):
            connected = Connected(client, editor, process, self.workspace)
            async with asyncio.timeout(SECONDS):
                await client.initialize(
                    protocol_version=acp.PROTOCOL_VERSION,
                    client_capabilities=ClientCapabilities(terminal=terminal, elicitation=elicitation),
                )
            yield connected
            with suppress(ProcessLookupError):
                await connected.ends()

    @asynccontextmanager
    async def inside(
        self,
        steps: str,
        *decisions: Any,
        forms: bool = False,
        own: Graph | None = None,
        version: int = acp.PROTOCOL_VERSION,
        delay: float = 0.0,
        **given: Any,
    ) -> AsyncIterator["Inside"]:
        """The same agent in the event loop of the test: what is fast enough for every case of a table."""
        options = {"tools": "files,shell", "model": self.model(steps, delay)} if own is None else {}
        to_agent, to_client = os.pipe(), os.pipe()
        with self.database.open() as storage:
            saved = {"checkpointer": storage.checkpointer, "store": storage.store}
            graph = own.copy(saved) if own else None
            agent: Any = SignoffAgent(self.database, storage, Given(**{**options, **given}), graph)
            wires: list[Any] = [_wire(to_agent[0], to_client[1]), _wire(to_client[0], to_agent[1])]
            served = asyncio.create_task(acp.run_agent(agent, wires[0], use_unstable_protocol=True))
            editor = Editor(*decisions)
            theirs: Any = editor
            client = acp.connect_to_agent(theirs, wires[1], use_unstable_protocol=True)
            elicitation = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
            await client.initialize(
                protocol_version=version, client_capabilities=ClientCapabilities(elicitation=elicitation)
            )
            try:
                yield Inside(client, editor, agent, self.workspace)
            finally:
                await pause_all(agent.drivers)
                await client.close()
                await wires[0].close()
                await served
                agent.models.close()
                agent.close()


class Raw:
    """A client that speaks lines: what the package's own would not send."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, **message: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def answer(self, wanted: Any) -> Any:
        """The answer to the request of this id."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while True:
                found = json.loads(await self.process.stdout.readline())
                if "method" not in found and found["id"] == wanted:
                    return found

    async def asks(self, method: str) -> Any:
        """The next request of this method."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while True:
                found = json.loads(await self.process.stdout.readline())
                if found.get("method") == method:
                    return found


@asynccontextmanager
async def raw(command: Sequence[str], folder: Path) -> AsyncIterator[Raw]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        limit=100_000_000,
    )
    try:
        yield Raw(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
