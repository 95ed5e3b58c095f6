"""The web application on a bench: its hub and its routes in the event loop of a test, on a real database."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from signoff.front.settings import Given
from signoff.session.status import ThreadStatus, look, reading_graph
from signoff.web.app import Application
from signoff.web.gate import Gate
from signoff.web.hub import Hub
from tests.support.benches.project import ProjectBench

SECONDS = 20.0


class Reader:
    """Somebody who reads the stream of a thread: every event, and what the page would show."""

    def __init__(self, hub: Hub, thread: str) -> None:
        self.events: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.parts: dict[str, str] = {}
        self._task = asyncio.create_task(self._read(hub, thread))

    async def _read(self, hub: Hub, thread: str) -> None:
        buffer = b""
        async for part in hub.stream(thread):
            buffer += part
            if not buffer.endswith(b"\n\n"):
                continue
            data, buffer = buffer, b""
            lines = [line for line in data.decode().splitlines() if line[:1] not in ("", ":")]
            fields = dict(line.split(": ", 1) for line in lines)
            if "event" not in fields:
                continue
            found = json.loads(fields["data"])
            self.events.append((fields["event"], found))
            if "id" in fields:
                self.numbers.append(int(fields["id"]))
            if fields["event"] in ("all", "parts"):
                self.parts |= found["put"]
                if found["order"] is not None:
                    self.parts = {name: self.parts[name] for name in found["order"]}

    @property
    def page(self) -> str:
        return "\n".join(self.parts.values())

    async def sees(self, *words: str) -> None:
        await until(lambda: all(word in self.page for word in words), lambda: self.page)

    async def types(self, words: str) -> None:
        """Waits until the terminal has shown these words."""

        def shown() -> bool:
            data = [found["data"] for kind, found in self.events if kind == "terminal"]
            # What was shown before this reader came is in the whole state that it is given.
            data += [found["terminal"]["data"] for kind, found in self.events if found.get("terminal")]
            return words.encode() in b"".join(map(base64.b64decode, data))

        await until(shown)

    async def leave(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


class Opened:
    """The hub and a client that is let in."""

    def __init__(self, hub: Hub, client: httpx.AsyncClient) -> None:
        self.hub, self.client = hub, client

    def read(self, thread: str = "t1") -> Reader:
        return Reader(self.hub, thread)

    async def post(self, what: str, thread: str = "t1", **body: Any) -> tuple[int, dict[str, Any]]:
        """The status and the document of an answer."""
        answer = await self.client.post(f"/api/{what}", json={"thread": thread, **body})
        return answer.status_code, answer.json()

    async def answer(self, *texts: str, thread: str = "t1", **body: Any) -> tuple[int, dict[str, Any]]:
        """Answers what waits now, as a page that shows it would."""
        waiting = self.waiting(thread)
        # Nothing waits any more where somebody else was quicker.
        document = waiting.document() if waiting else {}
        found = {name: document.get(name, "") for name in ("interrupt_id", "shown")} | body
        return await self.post("answer", thread, texts=list(texts), **found)

    def status(self, thread: str = "t1") -> ThreadStatus:
        return look(reading_graph(self.hub.storage), thread)

    def waiting(self, thread: str = "t1") -> Any:
        return self.status(thread).wait()

    def messages(self, thread: str = "t1") -> list[Any]:
        return list(self.status(thread).values["messages"])

    async def rests(self, thread: str = "t1") -> None:
        await until(lambda: not self.hub.room(thread).here)

    def outcome(self, thread: str = "t1") -> dict[str, Any]:
        outcome = self.status(thread).outcome
        return outcome.model_dump(mode="json") if outcome else {}


class WebBench(ProjectBench):
    """A workspace, a database, scripted models, and servers on them."""

    @asynccontextmanager
    async def served(self, steps: str, delay: float = 0.0, **given: Any) -> AsyncIterator[Opened]:
        options = {"workspace": self.workspace, "tools": "files,shell", "model": self.model(steps, delay)}
        with self.database.open() as storage:
            hub = Hub(self.database, storage, Given(**{**options, **given}))
            watching = asyncio.create_task(hub.watch())
            gate = Gate("127.0.0.1", 8000)
            transport = httpx.ASGITransport(Application(lambda: hub, gate, lambda: None).asgi)
            headers = {"Authorization": f"Bearer {gate.token}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:8000", headers=headers
            ) as client:
                try:
                    yield Opened(hub, client)
                finally:
                    await hub.end()
                    watching.cancel()
                    with suppress(asyncio.CancelledError):
                        await watching
                    hub.models.close()


async def until(condition: Callable[[], Any], told: Callable[[], str] = str) -> None:
    """Waits until `condition` holds."""
    async with asyncio.timeout(SECONDS):
        try:
            while not condition():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            print(told()[:3_000])
            raise
