"""What of a reply runs, and what counts, under `Guards` as on the machine: only what came whole.

LangChain hands the guards a message in which its lenient parser has repaired the arguments. The model here
streams as a provider's package does: text in pieces, a finish reason at the end.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from tests.drop_in.guarding import agent, machine
from tests.drop_in.playing import ACCEPTED, GO, around, ended

WHOLE = '{"to": "ada", "amount": 1000}'


def streamed(
    *calls: tuple[str, str], reason: str | None = "tool_calls", **metadata: Any
) -> list[AIMessageChunk]:
    """The chunks of a reply with these calls, each a name and the text of its arguments. reason: None if the
    connection is lost before the end."""
    provider = {"model_provider": "openai"}
    chunks = [AIMessageChunk(content="", response_metadata=provider)]
    for at, (name, text) in enumerate(calls):
        begin = tool_call_chunk(name=name, args="", id=f"{name}-{at}-{len(text)}", index=at)
        pieces = [tool_call_chunk(args=text[i : i + 5], index=at) for i in range(0, len(text), 5)]
        chunks += [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in [begin, *pieces]]
    ends = {**provider, **metadata, **({"finish_reason": reason} if reason else {})}
    return [*chunks, AIMessageChunk(content="", response_metadata=ends)]


PAY = streamed(("pay", WHOLE))
DONE = streamed(("finish_task", '{"summary": "Second."}'))


class Client(BaseChatModel):
    """Streams one after another of `replies`; the last one stays. An exception is raised."""

    replies: Sequence[Any]
    streaming: bool = False
    _at: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "client"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        said = self.replies[min(self._at, len(self.replies) - 1)]
        self._at += 1
        if isinstance(said, Exception):
            raise said
        for chunk in said:
            yield ChatGenerationChunk(message=chunk.model_copy(deep=True))


def client(*replies: Any) -> Client:
    # LangChain asks whether it was set.
    return Client(replies=replies, streaming=True)


class Payments:
    """A tool with defaults for all of its arguments, and what it has paid."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []

    def pay(self, to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        self.made.append((to, amount))
        return "paid"


FACES = pytest.mark.parametrize(
    "face", [agent, partial(machine, retries=True)], ids=["Guards", "build_graph"]
)
HALF = streamed(("pay", WHOLE[:20]))
LOST = streamed(("pay", WHOLE), reason=None)
CUT = streamed(("pay", WHOLE), reason="length")
NOTHING: list[AIMessageChunk] = []
ENDED = ("finish_task", '{"summary": "First."}')


def run(face: Any, model: Any, *within: Any, way: Any = None, **limits: Any) -> tuple[Any, list[Any]]:
    """The state after a run, and what was paid."""
    payments = Payments()
    built = face(model, *within, more=[payments.pay], saved={}, limits={"turns": 9, **limits})
    return (way or (lambda asked: asked.invoke(GO, {"recursion_limit": 999})))(built), payments.made


# Replies of which nothing may run or count.
VOID: Mapping[str, list[AIMessageChunk]] = {
    "a repairable text": streamed(("pay", '{"to": "eve",}')),
    "half a call, then a finish": streamed(("pay", WHOLE[:20]), ENDED),
    "half a finish": streamed(("finish_task", '{"summary": "First')),
    "dropped after the name": streamed(("pay", ""), reason=None),
    "dropped after a finish": streamed(ENDED, reason=None),
    "a finish, MAX_TOKENS": streamed(ENDED, reason="MAX_TOKENS"),
}


@FACES
@pytest.mark.parametrize("case", VOID)
def test_nothing_of_it_runs_and_the_model_is_asked_again(case: str, face: Any) -> None:
    found, paid = run(face, client(VOID[case], PAY, DONE))
    assert (paid, ended(found), found["outcome"]["summary"]) == ([("ada", 1000)], ACCEPTED, "Second.")
    replies = [message for message in found["messages"] if isinstance(message, AIMessage)]
    calls = {call["id"] for said in replies for call in [*said.tool_calls, *said.invalid_tool_calls]}
    assert {message.tool_call_id for message in found["messages"] if message.type == "tool"} >= calls


async def events(asked: Any, version: Any) -> Any:
    if version == "v3":
        stream = await asked.astream_events(GO, version="v3")
        return [values async for values in stream.values][-1]
    heard = asked.astream_events(GO, version=version)
    return [event["data"]["output"] async for event in heard if event["event"] == "on_chain_end"][-1]


WAYS: Mapping[str, Callable[[Any], Any]] = {
    "async": lambda asked: asyncio.run(asked.ainvoke(GO)),
    "listened to": lambda asked: [*asked.stream(GO, stream_mode=["messages", "values"])][-1][1],
    "events": lambda asked: asyncio.run(events(asked, "v2")),
    "protocol": lambda asked: asyncio.run(events(asked, "v3")),
}


# LangChain calls its newest way to stream experimental.
@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@FACES
@pytest.mark.parametrize("way", WAYS)
def test_it_holds_however_the_agent_is_listened_to(way: str, face: Any) -> None:
    found, paid = run(face, client(HALF, LOST, CUT, NOTHING, PAY, DONE), way=WAYS[way])
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
    calls = [{**call, "id": f"new-{call['id']}"} for call in said.tool_calls]
    return said.model_copy(update={"tool_calls": calls})


def cheaper(said: AIMessage) -> AIMessage:
    calls = [{**call, "args": {**call["args"], "amount": 10}} for call in said.tool_calls]
    return said.model_copy(update={"tool_calls": calls})


TOUCHING: Mapping[str, Any] = {
    "in another thread": around(in_another_thread),
    "new ids": changes(new_ids),
    "a new message": changes(lambda said: AIMessage(said.content, tool_calls=new_ids(said).tool_calls)),
    "another argument": changes(cheaper),
}


@FACES
@pytest.mark.parametrize("case", TOUCHING)
def test_nothing_of_it_runs_where_a_middleware_has_touched_it(case: str, face: Any) -> None:
    found, paid = run(face, client(HALF, LOST, CUT, DONE), TOUCHING[case])
    assert (paid, ended(found)) == ([], ACCEPTED)


@FACES
@pytest.mark.parametrize("copies", [True, False], ids=["a copy", "a new message"])
def test_what_a_middleware_writes_into_a_reply_counts_as_written(copies: bool, face: Any) -> None:
    def rewrites(said: AIMessage) -> AIMessage:
        if not said.tool_calls or said.tool_calls[0]["name"] != "pay":
            return said
        calls: Any = [{**said.tool_calls[0], "args": {"to": "bob"}}, *said.tool_calls[1:]]
        if copies:
            return said.model_copy(update={"tool_calls": calls})
        return AIMessage("", tool_calls=calls, invalid_tool_calls=said.invalid_tool_calls)

    model = client(streamed(("pay", WHOLE), ("pay", WHOLE[:20])), DONE)
    assert run(face, model, changes(rewrites))[1] == [("bob", 500)]


@FACES
@pytest.mark.parametrize("how", ["a fallback", "a model of a middleware"])
def test_it_holds_for_a_model_that_a_middleware_takes(how: str, face: Any) -> None:
    other = client(HALF, LOST, CUT, PAY, DONE)
    asks = around(lambda request, handler: other.invoke(request.messages))
    within = ModelFallbackMiddleware(other) if how == "a fallback" else asks
    found, paid = run(face, client(ValueError("down")), within)
    assert (paid, found["outcome"]["summary"]) == ([("ada", 1000)], "Second.")


@FACES
def test_a_call_without_arguments_runs_where_the_reply_has_ended(face: Any) -> None:
    assert run(face, client(streamed(("pay", "")), DONE))[1] == [("nobody", 500)]


@FACES
def test_arguments_may_break_off_anywhere(face: Any) -> None:
    halves = [streamed(("pay", WHOLE[:at])) for at in range(1, len(WHOLE), 4)]
    found, paid = run(face, client(*halves, DONE), turns=99, repeats=None)
    assert (ended(found), paid) == (ACCEPTED, [])


def test_nothing_twice_ends_the_task_under_guards() -> None:
    found, _ = run(agent, client(NOTHING, NOTHING, DONE))
    assert ended(found) == ("error", "model_error")


@FACES
def test_a_reply_that_a_middleware_remembers_counts(face: Any) -> None:
    kept: dict[int, Any] = {}

    def remembers(request: Any, handler: Any) -> Any:
        at = len(request.messages)
        kept[at] = kept.get(at) or handler(request).result[0]
        return kept[at]

    for _ in range(2):
        assert run(face, client(PAY, DONE), around(remembers))[1] == [("ada", 1000)]


def test_a_reply_of_langchains_cache_counts() -> None:
    model = client(PAY, DONE)
    set_llm_cache(InMemoryCache())
    try:
        for _ in range(2):
            assert run(agent, model)[1] == [("ada", 1000)]
    finally:
        set_llm_cache(None)
