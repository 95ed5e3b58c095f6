"""Measures what the two guards against finishing twice save: `python -m benchmarks.double_finish`.

- A real model (the extra `local`), called again after its `finish_task` was accepted: how often it finishes
  again. The outer guard normally ends such a run; here it is disabled.
- A server that streams ten slow `finish_task` calls in one reply, with and without the inner guard.
- The scripted model with the same reply.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from signoff import build_graph, standard_controls
from signoff.graph.history.received import received as whole
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call
from signoff.models.local import local_model
from signoff.models.local.install import server_version
from signoff.models.local.weights import missing_packages
from signoff.nodes.model.guard import guarded
from signoff.tools.toolbox import make_toolbox
from tests.support.servers.hostile_server import HostileServer, finishes

CALLS = 10
BOX = make_toolbox([], standard_controls())
TASK = "What is 6 times 7? Give the answer in the summary of finish_task."


@dataclass(frozen=True)
class Reply:
    """One streamed reply. tokens: those generated and paid for, `estimated` after a truncation.

    sent: chunks that the provider sent. closed: seconds until it saw the connection close early.
    """

    finishes: int
    chunks: int
    tokens: int
    estimated: bool
    seconds: float
    sent: int
    closed: float | None = None


@dataclass(frozen=True)
class Again:
    """A model that was called again after its finish had been accepted: how often, and what it called.

    turns: after which the graph, with the outer guard, ended the run.
    """

    model: str
    turns: int
    times: int
    finished_again: int
    called: list[str]
    seconds: float


def streamed(model: BaseChatModel) -> tuple[AIMessage, int, float]:
    """Returns a model's reply, its chunks, and the seconds that it took."""
    begun = time.monotonic()
    chunks = list(model.bind_tools(BOX.every).stream("Do it."))
    return whole(chunks), len(chunks), time.monotonic() - begun


def measured(model: BaseChatModel, sent: Callable[[], tuple[int, float | None]]) -> Reply:
    message, chunks, seconds = streamed(model)
    usage, (count, closed) = message.usage_metadata, sent()
    return Reply(
        finishes=len(message.tool_calls),
        chunks=chunks,
        tokens=usage["output_tokens"] if usage else 0,
        estimated=message.response_metadata["signoff"].get("estimated", False),
        seconds=round(seconds, 3),
        sent=count,
        closed=closed,
    )


def with_a_server(pause: float) -> dict[str, Reply]:
    """Returns the same reply from a server on loopback, with and without the inner guard."""
    found = {}
    for name, guard in (("with", True), ("without", False)):
        with HostileServer(finishes(CALLS, pause)) as server, chat(server) as model:

            def sent(server: HostileServer = server, guard: bool = guard) -> tuple[int, float | None]:
                closed = server.left[0] - server.requests[0] if guard and server.gone.wait(60) else None
                return server.pieces, closed and round(closed, 3)

            found[name] = measured(guarded(model, BOX) if guard else model, sent)
    return found


@contextmanager
def chat(server: HostileServer) -> Iterator[ChatOpenAI]:
    key = SecretStr("none")
    model = ChatOpenAI(model="slow", base_url=server.url, api_key=key, stream_usage=True, max_retries=0)
    yield model
    model.root_client.close()


def with_a_script() -> dict[str, Reply]:
    """Returns the same reply from the scripted model, which counts four characters as a token."""
    found = {}
    for name, guard in (("with", True), ("without", False)):
        finish = call("finish_task", summary="All of it is done, and checked.")
        model = ScriptedModel([[finish] * CALLS])

        def sent(model: ScriptedModel = model) -> tuple[int, None]:
            return model.chunks_sent, None

        found[name] = measured(guarded(model, BOX) if guard else model, sent)
    return found


def with_the_embedded_model(times: int) -> Again | None:
    """Finishes a task, then keeps calling the model on the finished history; None if it is not installed."""
    if server_version() is None or missing_packages():
        return None
    with local_model(max_tokens=256) as model:
        # Without the message about the end: only what the model was shown and said itself.
        result = build_graph(model, control_tools=standard_controls(answer="none")).invoke(
            {"messages": [("user", TASK)]}
        )
        history: list[BaseMessage] = [SystemMessage(DEFAULT_TEXTS.system), *result["messages"]]
        begun, called = time.monotonic(), list[str]()
        for _ in range(times):
            reply = model.bind_tools(BOX.every).invoke(history)
            called.append(", ".join(found["name"] for found in reply.tool_calls) or "(text)")
            accepted = DEFAULT_TEXTS.results["accepted"]
            history += [reply, *(ToolMessage(accepted, tool_call_id=one["id"]) for one in reply.tool_calls)]
        again = sum("finish_task" in names for names in called)
        turns, seconds = result["outcome"]["turns"], round(time.monotonic() - begun, 1)
        return Again(model.model_name, turns, times, again, called, seconds)


def table(title: str, replies: dict[str, Reply]) -> Table:
    """Returns the two replies side by side."""
    shown = Table("", "with the inner guard", "without", title=title, title_justify="left")
    pair = replies["with"], replies["without"]
    shown.add_row("finish_task calls received", *(str(one.finishes) for one in pair))
    shown.add_row("chunks received", *(str(one.chunks) for one in pair))
    shown.add_row("chunks sent by the provider", *(str(one.sent) for one in pair))
    shown.add_row("tokens generated", *(f"{one.tokens}{' (estimated)' * one.estimated}" for one in pair))
    shown.add_row("seconds", *(f"{one.seconds:.2f}" for one in pair))
    if any(one.closed for one in pair):
        closed = (f"after {one.closed:.2f} s" if one.closed else "never: all chunks sent" for one in pair)
        shown.add_row("the server saw the connection close", *closed)
    return shown


def main(
    times: Annotated[
        int, typer.Option(min=1, help="Number of calls to the embedded model after its finish.")
    ] = 5,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between two chunks of the server.")] = 0.05,
    model: Annotated[bool, typer.Option(help="Whether to include the embedded model.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the savings of the guards against finishing twice."""
    server, script = with_a_server(pause), with_a_script()
    again = with_the_embedded_model(times) if model else None
    if as_json:
        found: dict[str, Any] = {
            "embedded_model": asdict(again) if again else None,
            "server": {name: asdict(one) for name, one in server.items()},
            "scripted": {name: asdict(one) for name, one in script.items()},
        }
        print(json.dumps(found, indent=2))
        return
    console = Console()
    if again:
        console.print(
            f"{again.model}: with the outer guard, the run ended after {again.turns} turn(s). Without it, "
            f"called again {again.times} times, it finished again {again.finished_again} times "
            f"({again.seconds:g} s).\n"
        )
    else:
        console.print("The embedded model was left out (it needs the extra signoff[local]).\n")
    console.print(table(f"A server that streams {CALLS} slow finish_task calls", server))
    console.print(table(f"The scripted model with {CALLS} finish_task calls", script))


if __name__ == "__main__":
    typer.run(main)
