"""What of a reply runs, and what counts, under `Guards`: only what came whole. Where a middleware touches
it, it is so on the machine, too.

LangChain hands the guards a message in which its lenient parser has repaired the arguments.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk

from signoff.models import ScriptedModel, call, reply
from tests.drop_in.guarding import agent, machine
from tests.drop_in.playing import ACCEPTED, GO, around, ended

WHOLE = '{"to": "ada", "amount": 1000}'
PAY, HALF = call("pay", raw=WHOLE), call("pay", raw=WHOLE[:20])
LOST, CUT = reply(PAY, finish_reason="lost"), reply(PAY, finish_reason="length")
ENDED, DONE = call("finish_task", summary="First."), call("finish_task", summary="Second.")


class Client(ScriptedModel):
    """Streams also where it is asked for a whole reply, as many clients do; a reply that is "lost" comes
    without the finish reason that this provider sends."""

    streaming: bool = False

    def __init__(self, *steps: Any, **options: Any) -> None:
        # LangChain asks whether it was set.
        super().__init__(steps, streaming=True, **options)

    def _stream(self, *args: Any, **options: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in super()._stream(*args, **options):
            if chunk.message.response_metadata.get("finish_reason") == "lost":
                chunk.message.response_metadata, chunk.generation_info = {"model_provider": "openai"}, None
            yield chunk

    _astream = BaseChatModel._astream


def run(face: Any, model: Any, *within: Any, way: Any = None, **limits: Any) -> tuple[Any, list[Any]]:
    """The state after a run, and what was paid by a tool that has a default for each argument."""
    paid: list[tuple[str, int]] = []

    def pay(to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        paid.append((to, amount))
        return "paid"

    built = face(model, *within, more=[pay], saved={}, limits={"turns": 9, **limits})
    return (way or (lambda asked: asked.invoke(GO, {"recursion_limit": 999})))(built), paid


# Replies of which nothing may run or count.
VOID: Mapping[str, Any] = {
    "a repairable text": call("pay", raw='{"to": "eve",}'),
    "half a call, then a finish": [HALF, ENDED],
    "half a finish": call("finish_task", raw='{"summary": "First'),
    "dropped after a finish": reply(ENDED, finish_reason="lost"),
}


@pytest.mark.parametrize("case", VOID)
def test_nothing_of_it_runs_and_the_model_is_asked_again(case: str) -> None:
    found, paid = run(agent, Client(VOID[case], PAY, DONE))
    assert (paid, ended(found), found["outcome"]["summary"]) == ([("ada", 1000)], ACCEPTED, "Second.")


WAYS: Mapping[str, Callable[[Any], Any]] = {
    "async": lambda asked: asyncio.run(asked.ainvoke(GO)),
    "listened to": lambda asked: [*asked.stream(GO, stream_mode=["messages", "values"])][-1][1],
}


# LangChain calls its newest way to stream experimental.
@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("way", WAYS)
def test_it_holds_however_the_agent_is_listened_to(way: str) -> None:
    found, paid = run(agent, Client(HALF, LOST, CUT, reply(), PAY, DONE), way=WAYS[way])
    assert (paid, ended(found)) == ([("ada", 1000)], ACCEPTED)


def changes(change: Callable[[AIMessage], AIMessage]) -> Any:
    def changing(request: Any, handler: Any) -> Any:
        response = handler(request)
        said = [change(each) if isinstance(each, AIMessage) else each for each in response.result]
        return replace(response, result=said)

    return around(changing)


def in_another_thread(request: Any, handler: Any) -> Any:
    """Without the context of the call, as a time limit is often written."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(handler, request).result(60)


def new_ids(said: AIMessage) -> AIMessage:
    return AIMessage(said.content, tool_calls=[{**one, "id": f"new-{one['id']}"} for one in said.tool_calls])


def cheaper(said: AIMessage) -> AIMessage:
    calls = [{**one, "args": {"to": "bob"}} if one["name"] == "pay" else one for one in said.tool_calls]
    return said.model_copy(update={"tool_calls": calls})


TOUCHING: Mapping[str, Any] = {
    "in another thread": around(in_another_thread),
    "a new message": changes(new_ids),
    "another argument": changes(cheaper),
}
BOTH = pytest.mark.parametrize("face", [agent, partial(machine, retries=True)], ids=["Guards", "build_graph"])


@BOTH
@pytest.mark.parametrize("case", TOUCHING)
def test_nothing_of_it_runs_where_a_middleware_has_touched_it(case: str, face: Any) -> None:
    found, paid = run(face, Client(HALF, LOST, CUT, DONE), TOUCHING[case])
    assert (paid, ended(found)) == ([], ACCEPTED)


@BOTH
def test_what_a_middleware_writes_into_a_reply_counts_as_written(face: Any) -> None:
    assert run(face, Client([PAY, HALF], DONE), changes(cheaper))[1] == [("bob", 500)]


def test_it_holds_for_a_model_that_a_middleware_takes() -> None:
    other = Client(HALF, LOST, CUT, PAY, DONE)
    found, paid = run(agent, Client(*[ValueError("down")] * 5), ModelFallbackMiddleware(other))
    assert (paid, found["outcome"]["summary"]) == ([("ada", 1000)], "Second.")


def test_a_reply_of_langchains_cache_counts() -> None:
    model = Client(PAY, DONE, cache=True)
    set_llm_cache(InMemoryCache())
    try:
        for _ in range(2):
            assert run(agent, model)[1] == [("ada", 1000)]
    finally:
        set_llm_cache(None)
