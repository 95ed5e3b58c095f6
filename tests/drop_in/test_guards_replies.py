"""What of a reply runs, and what counts, under `Guards` as on the machine: only what came whole.

LangChain hands the guards a message in which its lenient parser has repaired the arguments. The model here
streams as a provider's package does: text in pieces, a finish reason at the end.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, wrap_model_call
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from signoff import build_graph
from signoff.guards import Guards
from tests.drop_in.playing import ACCEPTED, GO, ended

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


class Bank:
    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        self.paid.append((to, amount))
        return "paid"


def on_guards(model: Any, bank: Bank, *within: Any, limits: Any = None) -> Any:
    return create_agent(model, [bank.pay], middleware=[Guards(limits=limits or {"turns": 6}), *within])


def on_the_machine(model: Any, bank: Bank, *within: Any, limits: Any = None) -> Any:
    return build_graph(model, [bank.pay], limits=limits or {"turns": 6}, middleware=within)


MAKERS = pytest.mark.parametrize("make", [on_guards, on_the_machine], ids=["Guards", "build_graph"])
HALF = streamed(("pay", WHOLE[:20]))
LOST = streamed(("pay", WHOLE), reason=None)
CUT = streamed(("pay", WHOLE), reason="length")
ENDED = ("finish_task", '{"summary": "First."}')
# Replies of which nothing may run or count.
NOTHING: Mapping[str, list[AIMessageChunk]] = {
    "half a call": HALF,
    "a repairable text": streamed(("pay", '{"to": "eve",}')),
    "no JSON value": streamed(("pay", '{"to": "eve", "amount": NaN}')),
    "single quotes": streamed(("pay", "{'to': 'eve'}")),
    "a text after it": streamed(("pay", '{"to": "eve"} and')),
    "half a call, then a finish": streamed(("pay", WHOLE[:20]), ENDED),
    "half a finish": streamed(("finish_task", '{"summary": "First')),
    "dropped after the name": streamed(("pay", ""), reason=None),
    "dropped after a whole call": LOST,
    "dropped after a finish": streamed(ENDED, reason=None),
    "dropped with usage": streamed(("pay", WHOLE), reason=None, usage={"total_tokens": 9}),
    "a call, length": CUT,
    "a finish, MAX_TOKENS": streamed(ENDED, reason="MAX_TOKENS"),
    "a call, content_filter": streamed(("pay", WHOLE), reason="content_filter"),
    "a finish, FinishReason.SAFETY": streamed(ENDED, reason="FinishReason.SAFETY"),
    "a call, refusal": streamed(("pay", WHOLE), reason="refusal"),
}


@MAKERS
@pytest.mark.parametrize("case", NOTHING)
def test_nothing_of_it_runs_and_the_model_is_asked_again(case: str, make: Any) -> None:
    bank = Bank()
    found = make(client(NOTHING[case], PAY, DONE), bank).invoke(GO)
    assert (bank.paid, ended(found), found["outcome"]["summary"]) == ([("ada", 1000)], ACCEPTED, "Second.")
    replies = [message for message in found["messages"] if isinstance(message, AIMessage)]
    calls = {call["id"] for said in replies for call in [*said.tool_calls, *said.invalid_tool_calls]}
    assert {message.tool_call_id for message in found["messages"] if message.type == "tool"} >= calls


async def _events(agent: Any, version: Any) -> Any:
    if version == "v3":
        stream = await agent.astream_events(GO, version="v3")
        return [values async for values in stream.values][-1]
    events = agent.astream_events(GO, version=version)
    return [event["data"]["output"] async for event in events if event["event"] == "on_chain_end"][-1]


WAYS: Mapping[str, Callable[[Any], Any]] = {
    "async": lambda agent: asyncio.run(agent.ainvoke(GO)),
    "listened to": lambda agent: [*agent.stream(GO, stream_mode=["messages", "values"])][-1][1],
    "events": lambda agent: asyncio.run(_events(agent, "v2")),
    "protocol": lambda agent: asyncio.run(_events(agent, "v3")),
}


# LangChain calls its newest way to stream experimental.
@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@MAKERS
@pytest.mark.parametrize("said", [HALF, LOST, CUT, []], ids=["half", "lost", "cut off", "nothing"])
@pytest.mark.parametrize("way", WAYS)
def test_it_holds_however_the_agent_is_listened_to(way: str, said: Any, make: Any) -> None:
    bank = Bank()
    found = WAYS[way](make(client(said, PAY, DONE), bank))
    assert (bank.paid, ended(found)) == ([("ada", 1000)], ACCEPTED)


def changes(change: Callable[[AIMessage], AIMessage]) -> Any:
    @wrap_model_call
    def changing(request: Any, handler: Any) -> Any:
        response = handler(request)
        said = [change(each) if isinstance(each, AIMessage) else each for each in response.result]
        return replace(response, result=said)

    return changing


@wrap_model_call
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
    "in another thread": in_another_thread,
    "new ids": changes(new_ids),
    "a new message": changes(lambda said: AIMessage(said.content, tool_calls=new_ids(said).tool_calls)),
    "another argument": changes(cheaper),
}


@MAKERS
@pytest.mark.parametrize("said", [HALF, LOST, CUT], ids=["half", "lost", "cut off"])
@pytest.mark.parametrize("case", TOUCHING)
def test_nothing_of_it_runs_where_a_middleware_has_touched_it(case: str, said: Any, make: Any) -> None:
    bank = Bank()
    found = make(client(said, DONE), bank, TOUCHING[case]).invoke(GO)
    assert (bank.paid, ended(found)) == ([], ACCEPTED)


@MAKERS
@pytest.mark.parametrize("copies", [True, False], ids=["a copy", "a new message"])
def test_what_a_middleware_writes_into_a_reply_counts_as_written(copies: bool, make: Any) -> None:
    def rewrites(said: AIMessage) -> AIMessage:
        if not said.tool_calls or said.tool_calls[0]["name"] != "pay":
            return said
        calls: Any = [{**said.tool_calls[0], "args": {"to": "bob"}}, *said.tool_calls[1:]]
        bad = said.invalid_tool_calls
        if copies:
            return said.model_copy(update={"tool_calls": calls})
        return AIMessage("", tool_calls=calls, invalid_tool_calls=bad)

    bank = Bank()
    model = client(streamed(("pay", WHOLE), ("pay", WHOLE[:20])), DONE)
    make(model, bank, changes(rewrites)).invoke(GO)
    assert bank.paid == [("bob", 500)]


@MAKERS
@pytest.mark.parametrize("said", [HALF, LOST, CUT], ids=["half", "lost", "cut off"])
@pytest.mark.parametrize("how", ["a fallback", "a model of a middleware"])
def test_it_holds_for_a_model_that_a_middleware_takes(how: str, said: Any, make: Any) -> None:
    bank, other = Bank(), client(said, PAY, DONE)
    asks = wrap_model_call(lambda request, handler: other.invoke(request.messages))
    within = ModelFallbackMiddleware(other) if how == "a fallback" else asks
    found = make(client(ValueError("down")), bank, within).invoke(GO)
    assert (bank.paid, found["outcome"]["summary"]) == ([("ada", 1000)], "Second.")


@MAKERS
def test_a_call_without_arguments_runs_where_the_reply_has_ended(make: Any) -> None:
    bank = Bank()
    make(client(streamed(("pay", "")), DONE), bank).invoke(GO)
    assert bank.paid == [("nobody", 500)]


@MAKERS
def test_arguments_may_break_off_anywhere(make: Any) -> None:
    bank, limits = Bank(), {"turns": 99, "repeats": None}
    halves = [streamed(("pay", WHOLE[:at])) for at in range(1, len(WHOLE), 4)]
    found = make(client(*halves, DONE), bank, limits=limits).invoke(GO, {"recursion_limit": 999})
    assert (ended(found), bank.paid) == (ACCEPTED, [])


def test_nothing_twice_ends_the_task_under_guards() -> None:
    assert ended(on_guards(client([], [], DONE), Bank()).invoke(GO)) == ("error", "model_error")


@MAKERS
def test_a_reply_that_a_middleware_remembers_counts(make: Any) -> None:
    kept: dict[int, Any] = {}

    @wrap_model_call
    def remembers(request: Any, handler: Any) -> Any:
        at = len(request.messages)
        kept[at] = kept.get(at) or handler(request).result[0]
        return kept[at]

    bank = Bank()
    for _ in range(2):
        make(client(PAY, DONE), bank, remembers).invoke(GO)
    assert bank.paid == [("ada", 1000)] * 2


def test_a_reply_of_langchains_cache_counts() -> None:
    bank, model = Bank(), client(PAY, DONE)
    set_llm_cache(InMemoryCache())
    try:
        for _ in range(2):
            on_guards(model, bank).invoke(GO)
    finally:
        set_llm_cache(None)
    assert bank.paid == [("ada", 1000)] * 2
