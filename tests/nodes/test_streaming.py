"""When a reply is streamed: always, when somebody takes its pieces, or never; and what bounds it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.base import BaseTracer
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from signoff import Limits, Session, build_graph
from signoff.graph.errors import SetupError
from signoff.models import ScriptedModel, call, reply
from signoff.models.tagged import TaggedText
from tests.support.servers import hostile_server as hostile
from tests.support.servers.fake_provider import FakeProvider, Reply, tool_call
from tests.support.servers.hostile_server import HostileServer

FINISH = Reply("All done.", calls=[tool_call("finish_task", summary="All of it.")])
TASK: Any = {"messages": ["go"]}
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def model_of(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=url, api_key=SecretStr("none"), timeout=10, **options)


class Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.pieces: list[str] = []

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.pieces.append(token)


class AsyncTokens(AsyncCallbackHandler):
    async def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        pass


class Ends(BaseCallbackHandler):
    """Waits for whole replies."""

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        pass


class Tracer(BaseTracer):
    def _persist_run(self, run: Any) -> None:
        pass


async def _events(graph: Any) -> None:
    async for _ in graph.astream_events(TASK, CONFIG, version="v2"):
        pass


async def _log(graph: Any) -> None:
    with pytest.deprecated_call():
        async for _ in graph.astream_log(TASK, CONFIG):
            pass


async def _messages(graph: Any) -> None:
    async for _ in graph.astream(TASK, CONFIG, stream_mode="messages"):
        pass


def _called_back(*handlers: Any) -> Callable[[Any], Any]:
    return lambda graph: graph.invoke(TASK, {**CONFIG, "callbacks": [*handlers]})


# How a graph is run, and whether somebody takes the pieces of the reply.
LISTENED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "invoke": (lambda graph: graph.invoke(TASK, CONFIG), False),
    "ainvoke": (lambda graph: asyncio.run(graph.ainvoke(TASK, CONFIG)), False),
    "updates": (lambda graph: list(graph.stream(TASK, CONFIG, stream_mode="updates")), False),
    "a session": (lambda graph: Session(graph, "t").run("go"), False),
    "a session's events": (lambda graph: list(Session(graph, "t").events("go")), True),
    "a session's whole events": (lambda graph: list(Session(graph, "t").events("go", tokens=False)), False),
    "a callback for whole replies": (_called_back(Ends()), False),
    "a tracer": (_called_back(Tracer()), False),
    "messages": (lambda graph: list(graph.stream(TASK, CONFIG, stream_mode="messages")), True),
    "messages among others": (
        lambda graph: list(graph.stream(TASK, CONFIG, stream_mode=["updates", "messages"])),
        True,
    ),
    "messages, async": (lambda graph: asyncio.run(_messages(graph)), True),
    "astream_events": (lambda graph: asyncio.run(_events(graph)), True),
    "astream_log": (lambda graph: asyncio.run(_log(graph)), True),
    "a callback for tokens": (_called_back(Ends(), Tokens()), True),
    "an async callback for tokens": (
        lambda graph: asyncio.run(graph.ainvoke(TASK, {**CONFIG, "callbacks": [AsyncTokens()]})),
        True,
    ),
}
POLICIES: dict[str, Callable[[bool], bool]] = {
    "always": lambda listened: True,
    "auto": lambda listened: listened,
    "never": lambda listened: False,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("run", "listened"), LISTENED.values(), ids=LISTENED)
def test_a_reply_is_streamed_by_the_policy(run: Callable[[Any], Any], listened: bool, policy: Any) -> None:
    with FakeProvider([FINISH]) as server:
        run(build_graph(model_of(server.url), streaming=policy, checkpointer=InMemorySaver()))
        assert [request.streamed for request in server.requests] == [POLICIES[policy](listened)]


def test_by_default_each_reply_is_streamed() -> None:
    with FakeProvider([FINISH]) as server:
        build_graph(model_of(server.url)).invoke(TASK)
        assert [request.streamed for request in server.requests] == [True]


# What a model says of itself.


@pytest.mark.parametrize(
    ("made", "streamed"),
    [
        (lambda url: model_of(url), False),
        (lambda url: model_of(url, streaming=True), True),
        (lambda url: model_of(url, callbacks=[Tokens()]), True),
        (lambda url: model_of(url, streaming=False), False),
        (lambda url: model_of(url, disable_streaming=True, callbacks=[Tokens()]), False),
    ],
)
def test_auto_asks_the_model_too(made: Callable[[str], Any], streamed: bool) -> None:
    with FakeProvider([FINISH]) as server:
        build_graph(made(server.url), streaming="auto").invoke(TASK)
        assert [request.streamed for request in server.requests] == [streamed]


@pytest.mark.parametrize("inner", [{}, {"streaming": True}])
def test_never_holds_for_what_is_wrapped_for_fallbacks_and_for_summaries(inner: dict[str, Any]) -> None:
    late = Reply("Late.", finish="length")
    with FakeProvider([Reply("<finish>All of it.</finish>")] * 4) as server, FakeProvider([late]) as second:
        tagged = TaggedText(model=model_of(server.url, **inner))
        graph = build_graph(
            tagged, fallbacks=[model_of(second.url, **inner)], streaming="never", limits={"turns": 1}
        )
        list(graph.stream(TASK, stream_mode="messages"))
        assert server.requests
        assert not any(request.streamed for request in (*server.requests, *second.requests))


def test_the_users_model_stays_as_it_is() -> None:
    model = model_of("http://127.0.0.1:9")
    build_graph(model, streaming="never")
    assert not model.disable_streaming


# The same run, either way.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_outcome_is_the_same(policy: Any, mode: str) -> None:
    script: list[Any] = [reply("First.", call("think", thought="hm")), call("finish_task", summary="Done.")]
    graph = build_graph(ScriptedModel(script), streaming=policy)
    result = asyncio.run(graph.ainvoke(TASK)) if mode == "async" else graph.invoke(TASK)
    texts = [message.text for message in result["messages"] if isinstance(message, AIMessage)]
    assert (result["outcome"]["status"], texts[0]) == ("success", "First.")


@pytest.mark.timed
@pytest.mark.parametrize("policy", ["auto", "never"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"model_seconds": 0.3}, "model_error"), ({"limits": Limits(seconds=0.4)}, "seconds")],
)
def test_time_bounds_a_reply_that_comes_whole(
    policy: Any, mode: str, bounds: dict[str, Any], reason: str
) -> None:
    with HostileServer(hostile.silent) as server:
        graph = build_graph(model_of(server.url), streaming=policy, model_retries=None, **bounds)
        begun = time.monotonic()
        result = asyncio.run(graph.ainvoke(TASK)) if mode == "async" else graph.invoke(TASK)
        assert time.monotonic() - begun < 5
    assert reason in (result["outcome"]["reason"], result["outcome"].get("limit"))


@pytest.mark.parametrize("given", ["sometimes", True, None])
def test_another_word_is_refused(given: Any) -> None:
    with pytest.raises(SetupError, match=r"streaming is .*; use one of: always, auto, never"):
        build_graph(ScriptedModel([]), streaming=given)
