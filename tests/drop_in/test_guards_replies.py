"""What of a reply runs, and what counts, under `Guards` and on the machine: only what came whole.

LangChain hands the guards a message in which its lenient parser has repaired the arguments. The models here
stream as a provider's package does: text in pieces, a finish reason at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import replace
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from signoff import build_graph
from signoff.graph.errors import MiddlewareWarning
from signoff.graph.messages import marks, nudge_kind
from signoff.guards import Guards, guarded

# By LangChain's newest way to stream, which it calls experimental.
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")

GO: Any = {"messages": [("user", "Pay Ada 1000.")]}
WHOLE = '{"to": "ada", "amount": 1000}'
SIX = {"turns": 6}
Chunks = list[AIMessageChunk]


def streamed(*calls: tuple[str, str], reason: str | None = "tool_calls", **metadata: Any) -> Chunks:
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

    def _generate(self, messages: list[BaseMessage], *rest: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _next(self) -> Chunks:
        reply = self.replies[min(self._at, len(self.replies) - 1)]
        self._at += 1
        if isinstance(reply, Exception):
            raise reply
        return [chunk.model_copy(deep=True) for chunk in reply]

    def _stream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._next():
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self, messages: list[BaseMessage], *rest: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._next():
            yield ChatGenerationChunk(message=chunk)


def client(replies: Sequence[Any]) -> Client:
    return Client(replies=replies, streaming=True)


def invoked(agent: Any) -> Any:
    return agent.invoke(GO)


def ainvoked(agent: Any) -> Any:
    return asyncio.run(agent.ainvoke(GO))


def listened_to(agent: Any) -> Any:
    *_, last = (
        values for mode, values in agent.stream(GO, stream_mode=["messages", "values"]) if mode == "values"
    )
    return last


def by_events(agent: Any) -> Any:
    async def run() -> Any:
        events = agent.astream_events(GO, version="v2")
        return [event["data"]["output"] async for event in events if event["event"] == "on_chain_end"][-1]

    return asyncio.run(run())


def by_protocol(agent: Any) -> Any:
    async def run() -> Any:
        stream = await agent.astream_events(GO, version="v3")
        return [values async for values in stream.values][-1]

    return asyncio.run(run())


WAYS = {
    "sync": invoked,
    "async": ainvoked,
    "listened to": listened_to,
    "events": by_events,
    "protocol": by_protocol,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


class Bank:
    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, to: str = "nobody", amount: int = 500) -> str:
        """Pay somebody."""
        self.paid.append((to, amount))
        return "paid"


def on_guards(model: Any, bank: Bank, *within: Any, limits: Any = SIX) -> Any:
    return create_agent(model, [bank.pay], middleware=[Guards(limits=limits), *within])


def on_the_machine(model: Any, bank: Bank, *within: Any, limits: Any = SIX) -> Any:
    return build_graph(model, [bank.pay], limits=limits, middleware=within)


MAKERS = {"Guards": on_guards, "build_graph": on_the_machine}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)

# A reply of which nothing may run or count.
NOTHING: dict[str, Chunks] = {
    "half a call": streamed(("pay", WHOLE[:20])),
    "a repairable text": streamed(("pay", '{"to": "eve",}')),
    "no JSON value": streamed(("pay", '{"to": "eve", "amount": NaN}')),
    "single quotes": streamed(("pay", "{'to': 'eve'}")),
    "a text after it": streamed(("pay", '{"to": "eve"} and')),
    "half a call, then a finish": streamed(("pay", WHOLE[:20]), ("finish_task", '{"summary": "First."}')),
    "half a finish": streamed(("finish_task", '{"summary": "First')),
    "dropped after the name": streamed(("pay", ""), reason=None),
    "dropped after a whole call": streamed(("pay", WHOLE), reason=None),
    "dropped after a finish": streamed(("finish_task", '{"summary": "First."}'), reason=None),
    "dropped with usage": streamed(("pay", WHOLE), reason=None, usage={"total_tokens": 9}),
    **{
        f"{name}, {reason}": streamed(call, reason=reason)
        for reason in ("length", "MAX_TOKENS", "content_filter", "FinishReason.SAFETY", "refusal")
        for name, call in (("a call", ("pay", WHOLE)), ("a finish", ("finish_task", '{"summary": "First."}')))
    },
}  # fmt: skip


@every_maker
@pytest.mark.parametrize("name", NOTHING)
@every_way
def test_nothing_of_it_runs_and_the_model_is_asked_again(
    way: Callable[[Any], Any], name: str, make: Callable[..., Any]
) -> None:
    bank = Bank()
    result = way(make(client([NOTHING[name], streamed(("pay", WHOLE)), DONE]), bank))
    assert bank.paid == [("ada", 1000)]
    assert (result["outcome"]["status"], result["outcome"]["summary"]) == ("success", "Second.")
    answered = {m.tool_call_id for m in result["messages"] if isinstance(m, ToolMessage)}
    replies = [m for m in result["messages"] if isinstance(m, AIMessage)]
    assert answered >= {call["id"] for m in replies for call in [*m.tool_calls, *m.invalid_tool_calls]}


def _changed(response: Any, change: Callable[[AIMessage], AIMessage]) -> Any:
    return replace(
        response, result=[change(one) if isinstance(one, AIMessage) else one for one in response.result]
    )


class Changes(AgentMiddleware[Any, Any, Any]):
    """Changes each reply of the model."""

    def __init__(self, change: Callable[[AIMessage], AIMessage]) -> None:
        super().__init__()
        self.change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return _changed(handler(request), self.change)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return _changed(await handler(request), self.change)


class TimeLimit(AgentMiddleware[Any, Any, Any]):
    """Calls the model in a thread without the context of the call, as a time limit is often written."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(handler, request).result(30)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await asyncio.create_task(handler(request), context=Context())


def _new_ids(message: AIMessage) -> AIMessage:
    calls = [{**call, "id": f"new-{call['id']}"} for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": calls})


def _rebuilt(message: AIMessage) -> AIMessage:
    return AIMessage(content=message.content, tool_calls=_new_ids(message).tool_calls)


def _one_more(message: AIMessage) -> AIMessage:
    calls = [{**call, "args": {**call["args"], "amount": 10}} for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": calls})


TOUCHING: dict[str, Callable[[], AgentMiddleware[Any, Any, Any]]] = {
    "in another thread": TimeLimit,
    "new ids": lambda: Changes(_new_ids),
    "a new message": lambda: Changes(_rebuilt),
    "another argument": lambda: Changes(_one_more),
}
CUT_CALLS = ["half a call", "dropped after the name", "dropped after a whole call", "a call, length"]


@every_maker
@pytest.mark.parametrize("name", CUT_CALLS)
@pytest.mark.parametrize("touching", TOUCHING)
@pytest.mark.parametrize("way", [invoked, ainvoked])
def test_nothing_of_it_runs_where_a_middleware_has_touched_the_reply(
    way: Callable[[Any], Any], touching: str, name: str, make: Callable[..., Any]
) -> None:
    bank = Bank()
    result = way(make(client([NOTHING[name], DONE]), bank, TOUCHING[touching]()))
    assert bank.paid == []
    assert (result["outcome"]["status"], result["outcome"]["summary"]) == ("success", "Second.")


def test_what_a_middleware_makes_of_a_whole_call_counts_as_written() -> None:
    bank = Bank()
    on_guards(client([streamed(("pay", WHOLE)), DONE]), bank, Changes(_one_more)).invoke(GO)
    assert bank.paid == [("ada", 10)]


@every_maker
@every_way
def test_a_call_without_arguments_runs_where_the_reply_has_ended(
    way: Callable[[Any], Any], make: Callable[..., Any]
) -> None:
    bank = Bank()
    way(make(client([streamed(("pay", "")), DONE]), bank))
    assert bank.paid == [("nobody", 500)]


@every_maker
def test_arguments_that_break_off_after_any_character(make: Callable[..., Any]) -> None:
    bank, limits = Bank(), {"turns": 99, "repeats": None}
    halves = [streamed(("pay", WHOLE[:at])) for at in range(1, len(WHOLE))]
    result = make(client([*halves, DONE]), bank, limits=limits).invoke(GO, {"recursion_limit": 999})
    assert (result["outcome"]["status"], bank.paid) == ("success", [])


def test_a_lost_reply_is_marked_under_guards_so_that_a_restart_decides_the_same() -> None:
    result = on_guards(client([streamed(("pay", WHOLE), reason=None), DONE]), Bank()).invoke(GO)
    lost = next(message for message in result["messages"] if isinstance(message, AIMessage))
    assert marks(lost).get("dropped") is True
    assert [kind for m in result["messages"] if (kind := nudge_kind(m))] == ["truncated"]


@every_maker
@every_way
def test_a_stream_with_nothing_in_it_is_asked_for_once_more(
    way: Callable[[Any], Any], make: Callable[..., Any]
) -> None:
    result = way(make(client([[], DONE]), Bank()))
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 1)


def test_nothing_twice_ends_the_task_under_guards() -> None:
    result = on_guards(client([[], [], DONE]), Bank()).invoke(GO)
    assert (result["outcome"]["status"], result["outcome"]["reason"]) == ("error", "model_error")


class Rewrites(AgentMiddleware[Any, Any, Any]):
    """Writes other arguments into the first call of each reply. copies: whether the reply stays the same
    message."""

    def __init__(self, *, copies: bool) -> None:
        super().__init__()
        self.copies = copies

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        (reply,) = handler(request).result
        if not reply.tool_calls or reply.tool_calls[0]["name"] != "pay":
            return reply
        calls = [{**reply.tool_calls[0], "args": {"to": "bob"}}, *reply.tool_calls[1:]]
        bad = reply.invalid_tool_calls
        if not self.copies:
            return AIMessage("", tool_calls=calls, invalid_tool_calls=bad)
        return reply.model_copy(update={"tool_calls": calls})


@every_maker
@pytest.mark.parametrize("copies", [True, False])
def test_what_a_middleware_writes_counts_as_written(copies: bool, make: Callable[..., Any]) -> None:
    bank = Bank()
    replies = [streamed(("pay", WHOLE), ("pay", WHOLE[:20])), DONE]
    make(client(replies), bank, Rewrites(copies=copies)).invoke(GO)
    assert bank.paid == [("bob", 500)]


class Asks(AgentMiddleware[Any, Any, Any]):
    """Asks a model of its own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.model.invoke(request.messages)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await self.model.ainvoke(request.messages)


OTHER: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "a fallback": lambda model: (client([ValueError("down")]), ModelFallbackMiddleware(model)),
    "a model of a middleware": lambda model: (client([DONE]), Asks(model)),
}


@every_maker
@pytest.mark.parametrize("name", ["half a call", "dropped after a whole call", "a call, length"])
@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("way", [invoked, ainvoked])
def test_it_holds_for_a_model_that_a_middleware_takes(
    way: Callable[[Any], Any], other: str, name: str, make: Callable[..., Any]
) -> None:
    bank = Bank()
    model, within = OTHER[other](client([NOTHING[name], streamed(("pay", WHOLE)), DONE]))
    result = way(make(model, bank, within))
    assert (bank.paid, result["outcome"]["summary"]) == ([("ada", 1000)], "Second.")


class Remembers(AgentMiddleware[Any, Any, Any]):
    """Answers from memory where it has been asked as often before."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Any] = {}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        at = len(request.messages)
        if at not in self.kept:
            self.kept[at] = handler(request).result[0]
        return self.kept[at]


@every_maker
def test_a_reply_that_a_middleware_remembers_counts(make: Callable[..., Any]) -> None:
    bank, remembers = Bank(), Remembers()
    for _ in range(2):
        make(client([streamed(("pay", WHOLE)), DONE]), bank, remembers).invoke(GO)
    assert bank.paid == [("ada", 1000)] * 2


def test_a_reply_of_langchains_cache_counts() -> None:
    bank, model = Bank(), client([streamed(("pay", WHOLE)), DONE])
    set_llm_cache(InMemoryCache())
    try:
        for _ in range(2):
            on_guards(model, bank).invoke(GO)
    finally:
        set_llm_cache(None)
    assert bank.paid == [("ada", 1000)] * 2


def deep(*middleware: Any) -> Any:
    name: Any = {"name": "general-purpose", "description": "Helps.", "system_prompt": "Help."}
    helper: Any = {**name, "middleware": list(middleware)}
    return create_deep_agent(client([DONE]), middleware=[Guards()], subagents=[helper])


def test_guarded_warns_of_a_sub_agent_without_guards(recwarn: pytest.WarningsRecorder) -> None:
    guarded(deep(Guards()))
    assert not [each for each in recwarn if each.category is MiddlewareWarning]
    with pytest.warns(MiddlewareWarning, match="general-purpose"):
        guarded(deep())
