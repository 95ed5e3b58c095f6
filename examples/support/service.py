"""An agent as a web service: begin, list what waits, answer, go on, stream, restart.

    python examples/support/service.py                                         # a script plays the model
    python examples/support/service.py --model anthropic:claude-sonnet-4-5     # a real one; needs its key

Then, in another terminal, with the ids that the answers tell:

    curl http://127.0.0.1:8000/threads/t1 -H 'Content-Type: application/json' \\
         -d '{"task": "Order 7 came broken."}'
    curl http://127.0.0.1:8000/waiting
    curl http://127.0.0.1:8000/threads/t1/waits/… -H 'Content-Type: application/json' -d '"approve"'
    curl http://127.0.0.1:8000/threads/t1

`orders.sqlite` and `threads.sqlite` appear where you start it. The service needs fastapi and uvicorn, and a
sign-in of yours in front of it before anybody else can reach it.
"""

import argparse
import asyncio
import json
import re
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from langchain_core.tools import tool
from shop import look_up_order, refund

from signoff import (
    BadAnswer,
    Ended,
    Paused,
    Session,
    SetupError,
    ThreadError,
    ThreadUnknown,
    Waiting,
    build_graph,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call


def line(event):
    return f"event: {event.type}\ndata: {json.dumps(event.to_dict())}\n\n"


# 1. The service. It serves any graph, and knows nothing of what the graph's agent does.
def make_app(graph, storage):  # noqa: C901  it is a list of routes
    tasks = set()

    def session(thread):
        # A second task does not answer what waits.
        return Session(graph, thread, on_pending="refuse")

    def shown(decision):
        match decision:
            case Ended(outcome=outcome):  # success, limit or error: it says which
                return outcome.model_dump(mode="json")
            case Waiting():  # what to show, and the id to answer by
                return decision.document()
            case Paused():
                return {"type": "paused"}

    @asynccontextmanager
    async def lifespan(app):
        for row in await storage.athreads("stopped"):  # by a kill or a deploy
            tasks.add(asyncio.create_task(session(row.thread_id).ago_on()))
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        storage.close()

    app = FastAPI(lifespan=lifespan)

    @app.exception_handler(ThreadError)
    async def refused(request: Request, error: ThreadError):
        code = 404 if isinstance(error, ThreadUnknown) else 422 if isinstance(error, BadAnswer) else 409
        return JSONResponse({"error": str(error)}, code)

    @app.exception_handler(SetupError)
    async def wrong(request: Request, error: SetupError):
        return JSONResponse({"error": str(error)}, 400)

    @app.post("/threads/{thread}")
    async def begin(thread: str, task: Annotated[str, Body(embed=True)]):
        return shown(await session(thread).arun(task))

    @app.get("/threads/{thread}")
    async def look(thread: str):
        status = await session(thread).astatus()
        if status.condition == "unknown":
            raise HTTPException(404, "There is no such thread.")
        outcome = status.outcome and status.outcome.model_dump(mode="json")
        waits = [wait.document() for wait in status.waits]
        return {"condition": status.condition, "waits": waits, "outcome": outcome}

    @app.get("/waiting")
    async def waiting():
        rows = await storage.athreads("waiting")
        return [{"thread": row.thread_id, **wait.document()} for row in rows for wait in row.waits]

    @app.post("/threads/{thread}/waits/{interrupt_id}")
    async def answer(thread: str, interrupt_id: str, value: Annotated[Any, Body()]):
        # `by` is whoever is signed in.
        return shown(await session(thread).aresume(value, interrupt_id, by="grace"))

    @app.post("/threads/{thread}/go-on")
    async def further(thread: str, turns: Annotated[int | None, Body(embed=True)] = None):
        return shown(await session(thread).ago_on(turns))

    @app.post("/threads/{thread}/events")  # POST: it runs the thread, and stops when its reader leaves
    async def events(thread: str, task: Annotated[str, Body(embed=True)]):
        happening = session(thread).aevents(task)
        first = await anext(happening)  # what is refused is refused here, before the stream begins

        async def lines():
            async with aclosing(happening):
                yield line(first)
                async for event in happening:
                    yield line(event)

        return StreamingResponse(lines(), media_type="text/event-stream")

    return app


# 2. The agent. `refund` waits for a person; looking up is declared to change nothing, so it need not.
def make_graph(model, storage):
    look_up = tool(look_up_order)
    look_up.metadata = {"kind": "read"}
    prompt = "You work for a shop. Look the order up before you refund anything."
    return build_graph(
        model, [look_up, refund], system_prompt=prompt, approvals={"refund": True}, storage=storage
    )


# 3. The script: it answers by what it has seen, as a model does, so it serves every thread.
def script(messages):
    begin = max(at for at, message in enumerate(messages) if message.type == "human")
    results = [message for message in messages[begin:] if message.type == "tool"]
    if not results:
        (number, *_) = [*re.findall(r"\d+", messages[begin].text), "0"]
        return call("look_up_order", number=int(number))
    if results[-1].name == "look_up_order" and results[-1].status != "error":
        (asked,) = messages[-2].tool_calls
        return call("refund", number=asked["args"]["number"], cents=json.loads(results[-1].text)["cents"])
    return call("finish_task", summary=results[-1].text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A support agent in a web service.")
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a real model; default: a script")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    storage = sqlite_storage("threads.sqlite")
    app = make_app(make_graph(given.model or ScriptedModel(script), storage), storage)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")
