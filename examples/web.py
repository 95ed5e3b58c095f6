"""A thread in a web page: `python examples/web.py 8000`.

GET /threads/ID/events streams what happens in the thread, from the start or after the event `Last-Event-ID`.
POST /threads/ID gives it a task, `{"task": …}`, or somebody's answer to what it waits for:
`{"answer": …, "interrupt_id": …, "by": …}`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import uvicorn
from langgraph.config import get_stream_writer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from signoff import Answer, Session, SignoffError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call


def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    get_stream_writer()({"step": "asking the bank"})
    return f"paid {amount} to {to}"


class Thread:
    """The events of one thread that happened in this process. Whoever reads them only reads: a page that is
    closed stops nothing, and several can look on."""

    def __init__(self, thread_id: str) -> None:
        self.session = Session(graph, thread_id)
        self.told: list[str] = []
        self.more = asyncio.Condition()
        self.running: asyncio.Task[None] | None = None

    async def run(self, command: str | Answer) -> None:
        try:
            async for event in self.session.aevents(command):
                await self.tell(event.type, event.to_dict())
        except SignoffError as error:
            await self.tell("error", {"type": "error", "message": str(error)})

    async def tell(self, kind: str, data: dict) -> None:
        async with self.more:
            self.told.append(f"id: {len(self.told) + 1}\nevent: {kind}\ndata: {json.dumps(data)}\n\n")
            self.more.notify_all()

    async def read(self, after: int) -> AsyncIterator[str]:
        while True:
            async with self.more:
                while len(self.told) <= after:
                    await self.more.wait()
                news = self.told[after:]
            for one in news:
                yield one
            after += len(news)


threads: dict[str, Thread] = {}


def thread(request: Request) -> Thread:
    name = request.path_params["name"]
    return threads.get(name) or threads.setdefault(name, Thread(name))


async def events(request: Request) -> Response:
    after = int(request.headers.get("last-event-id", "0"))
    return StreamingResponse(thread(request).read(after), media_type="text/event-stream")


async def go_on(request: Request) -> Response:
    given, one = await request.json(), thread(request)
    if one.running is not None and not one.running.done():
        return JSONResponse({"error": "The thread is running; wait until it asks or ends."}, status_code=409)
    command = (
        given["task"] if "task" in given else Answer(given["answer"], given["interrupt_id"], given["by"])
    )
    one.running = asyncio.create_task(one.run(command))
    return JSONResponse({}, status_code=202)


script = [call("pay", to="ada", amount=500), call("finish_task", summary="Ada has her money.")]
app = Starlette(
    routes=[
        Route("/threads/{name}/events", events),
        Route("/threads/{name}", go_on, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    with sqlite_storage("threads.sqlite") as storage:
        graph = build_graph(ScriptedModel(script), tools=[pay], approvals={"pay": True}, storage=storage)
        port = int(sys.argv[1])
        # A page that stays open must not keep the server from ending.
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
