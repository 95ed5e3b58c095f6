"""A support agent in a web service: it looks orders up by itself, and refunds what a person has approved.

    python examples/support/service.py                                         # a script plays the model
    python examples/support/service.py --model anthropic:claude-sonnet-4-5     # a real one; needs its key

Then, in another terminal, with the ids that the events and the ticket tell:

    curl -X POST http://127.0.0.1:8000/tickets/t1 -d '{"question": "Order 7 came broken."}'
    curl -N http://127.0.0.1:8000/tickets/t1/events
    curl http://127.0.0.1:8000/tickets/t1
    curl -X POST http://127.0.0.1:8000/tickets/t1/decision \\
         -d '{"decision": "approve", "interrupt_id": "…", "by": "grace"}'

`orders.sqlite` and `threads.sqlite` appear where you start it. The service needs starlette and uvicorn, and a
sign-in of yours in front of it before anybody else can reach it.
"""

import argparse
import asyncio
import json
import re
from contextlib import asynccontextmanager

import uvicorn
from langchain_core.tools import tool
from shop import look_up_order, refund
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from signoff import Answer, Approval, Session, SignoffError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call


# 1. The script: it answers by what it has seen, as a model does, so it serves every ticket.
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


# 2. Tickets. Each is a thread: what it has come to lies in storage, and only its events in this process.
class Ticket:
    def __init__(self, graph, name):
        self.session = Session(graph, name)
        self.told, self.more, self.run = [], asyncio.Condition(), None

    async def work(self, command):
        try:
            async for event in self.session.aevents(command, tokens=False):
                if event.type != "decided":
                    await self.tell(event.type, event.to_dict())
            await self.tell(event.type, event.to_dict())  # once the thread is free for an answer
        except SignoffError as error:
            await self.tell("error", {"type": "error", "message": str(error)})

    async def tell(self, kind, data):
        async with self.more:
            self.told.append(f"event: {kind}\ndata: {json.dumps(data)}\n\n")
            self.more.notify_all()

    async def read(self):
        for at in range(10**9):
            async with self.more:
                await self.more.wait_for(lambda at=at: len(self.told) > at)
            yield self.told[at]

    def begin(self, command):
        if self.run and not self.run.done():
            return JSONResponse({"error": "The agent is at work on this ticket."}, status_code=409)
        self.run = asyncio.create_task(self.work(command))
        return JSONResponse({}, status_code=202)


# 3. The requests. An answer is checked before anything runs: it must fit what waits at this moment.
def ticket(request):
    state, name = request.app.state, request.path_params["ticket"]
    return state.tickets.setdefault(name, Ticket(state.graph, name))


async def ask(request):
    return ticket(request).begin((await request.json())["question"])


async def events(request):
    return StreamingResponse(ticket(request).read(), media_type="text/event-stream")


async def look(request):
    status = await ticket(request).session.astatus()
    if waiting := status.waiting:
        return JSONResponse({"waits_for": waiting.waits_for, "interrupt_id": waiting.interrupt_id,
                             **waiting.document()})  # fmt: skip
    return JSONResponse({"outcome": status.outcome})


async def decide(request):
    given, waiting = await request.json(), (await ticket(request).session.astatus()).waiting
    try:
        if not isinstance(waiting, Approval) or waiting.interrupt_id != given["interrupt_id"]:
            raise SignoffError("This does not wait for a decision, or no longer.")
        waiting.read(given["decision"])
    except SignoffError as error:
        return JSONResponse({"error": str(error)}, status_code=409)
    return ticket(request).begin(Answer(given["decision"], given["interrupt_id"], given["by"]))


# 4. The service. `refund` waits for a person; looking up is declared to change nothing, so it need not.
def make_app(model):
    @asynccontextmanager
    async def lifespan(app):
        look_up = tool(look_up_order)
        look_up.metadata = {"kind": "read"}
        with sqlite_storage("threads.sqlite") as storage:
            prompt = "You work for a shop. Look the order up before you refund anything."
            approvals = {"refund": ["approve", "reject"]}
            app.state.graph = build_graph(
                model, [look_up, refund], system_prompt=prompt, approvals=approvals, storage=storage
            )
            app.state.tickets = {}
            yield

    routes = [
        Route("/tickets/{ticket}", ask, methods=["POST"]),
        Route("/tickets/{ticket}", look),
        Route("/tickets/{ticket}/events", events),
        Route("/tickets/{ticket}/decision", decide, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A support agent in a web service.")
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a real model; default: a script")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    app = make_app(given.model or ScriptedModel(script))
    # A page that stays open must not keep the service from ending.
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning", timeout_graceful_shutdown=1)
