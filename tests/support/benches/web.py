"""The web application in the event loop of a test, on a real database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from signoff.front.settings import Given
from signoff.session.status import ThreadStatus, look, reading_graph
from signoff.web.app import Application
from signoff.web.gate import Gate
from signoff.web.hub import Hub
from tests.support.benches.project import ProjectBench

SECONDS = 60.0


class Opened:
    """The hub with a thread t1, and a client that is let in."""

    def __init__(self, hub: Hub, client: httpx.AsyncClient) -> None:
        self.hub, self.client = hub, client

    async def post(self, what: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """The status and the document of an answer."""
        answer = await self.client.post(f"/api/{what}", json={"thread": "t1", **body})
        return answer.status_code, answer.json()

    async def answer(self, *texts: str) -> tuple[int, dict[str, Any]]:
        """Answers what waits now, as a page that shows it would."""
        wait = self.status().wait()
        assert wait is not None
        document = wait.document()
        asked = {name: document.get(name, "") for name in ("interrupt_id", "shown")}
        return await self.post("answer", texts=list(texts), **asked)

    def status(self) -> ThreadStatus:
        return look(reading_graph(self.hub.storage), "t1")

    def messages(self) -> list[Any]:
        return list(self.status().values["messages"])

    async def rests(self) -> None:
        """Waits until nothing runs."""
        async with asyncio.timeout(SECONDS):
            while self.hub.room("t1").here:
                await asyncio.sleep(0.01)

    def outcome(self) -> dict[str, Any]:
        outcome = self.status().outcome
        return outcome.model_dump(mode="json") if outcome else {}


class WebBench(ProjectBench):
    """A workspace, a database, scripted models, and the application on them."""

    @asynccontextmanager
    async def served(self, steps: str) -> AsyncIterator[Opened]:
        given = Given(workspace=self.workspace, tools="files,shell", model=self.model(steps))
        with self.database.open() as storage:
            hub, gate = Hub(self.database, storage, given), Gate("127.0.0.1", 8000)
            watching = asyncio.create_task(hub.watch())
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
