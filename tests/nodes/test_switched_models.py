"""A thread goes on with another provider's model: by a fallback, in another run, under `Guards`.

The clients are real, and what they send is recorded by a server on loopback.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRequest,
    ModelResponse,
    wrap_model_call,
)
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import ModelRetries, build_graph
from signoff.guards import Guards
from tests.support.servers.fake_provider import FakeProvider, Fault, error

pytestmark = [
    # Of Google's own client in an event loop.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
]

Body = dict[str, Any]
FINISH = ("finish_task", {"summary": "All of it is noted and checked."})
NOTE = ("note", {"text": "x"})
PLACEHOLDER = "skip_thought_signature_validator"
THINKS: Body = {"type": "enabled", "budget_tokens": 1024}


def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


def _anthropic(thought: str, name: str, args: Body) -> Body:
    thoughts = [{"type": "thinking", "thinking": thought, "signature": f"signed {thought}"}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            *thoughts,
            {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": name, "input": args},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }


def _google(thought: str, name: str, args: Body) -> Body:
    signature = b64encode(f"signed {thought}".encode()).decode()
    call = {"functionCall": {"name": name, "args": args}, "thoughtSignature": signature}
    parts = [{"text": thought, "thought": True}, call]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": "STOP"}],
        "modelVersion": "gemini-3-pro",
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12},
    }


def _bedrock(thought: str, name: str, args: Body) -> Body:
    reasoning = {"reasoningText": {"text": thought, "signature": f"signed {thought}"}}
    call = {"toolUse": {"toolUseId": f"tooluse_{uuid4().hex[:20]}", "name": name, "input": args}}
    return {
        "output": {"message": {"role": "assistant", "content": [{"reasoningContent": reasoning}, call]}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12},
        "metrics": {"latencyMs": 1},
    }


def _responses(thought: str, name: str, args: Body) -> Body:
    summary = [{"type": "summary_text", "text": thought}]
    call = {"type": "function_call", "id": "fc_1", "call_id": f"call_{uuid4().hex}", "status": "completed"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": f"signed {thought}"},
            {**call, "name": name, "arguments": json.dumps(args)},
        ],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "error": None,
        "usage": {
            "input_tokens": 9,
            "output_tokens": 3,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 1},
        },
    }


def _ollama(thought: str, name: str, args: Body) -> Body:
    call = {"function": {"name": name, "arguments": args}}
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "", "thinking": thought, "tool_calls": [call]},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 9,
        "eval_count": 3,
    }


@dataclass(frozen=True)
class Client:
    """A provider: its package, the options of its client, and its reply with a thought and a call."""

    package: str
    options: Body
    reply: Callable[[str, str, Body], Body]

    def model(self, url: str) -> BaseChatModel:
        options: Body = {"model": "m", "api_key": "none", "max_retries": 0, **self.options}
        options = {
            key: value.format(url=url) if type(value) is str else value for key, value in options.items()
        }
        made: BaseChatModel = init_chat_model(model_provider=self.package, **options)
        return made

    def answer(self, thought: str, call: tuple[str, Body]) -> Fault:
        return Fault(200, self.reply(thought, *call))


_AWS = {
    "model": "anthropic.claude-sonnet-4-20250514-v1:0",
    "region_name": "us-east-1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
    "api_key": None,
    "endpoint_url": "{url}",
}
CLIENTS = {
    "anthropic": Client(
        "anthropic", {"base_url": "{url}", "thinking": THINKS, "max_tokens": 4096}, _anthropic
    ),
    "bedrock": Client("bedrock_converse", _AWS, _bedrock),
    "gemini": Client(
        "google_genai", {"model": "gemini-3-pro-preview", "base_url": "{url}", "max_retries": 1}, _google
    ),
    "ollama": Client("ollama", {"base_url": "{url}", "reasoning": True}, _ollama),
    "responses": Client("openai", {"base_url": "{url}/v1", "use_responses_api": True}, _responses),
}
PAIRS = [
    pytest.param(first, second, id=f"{first} then {second}")
    for first in CLIENTS
    for second in CLIENTS
    if first != second
]


def has(body: Body, thought: str) -> bool:
    """Whether the thought or its signature is in the request."""
    text = json.dumps(body)
    return thought in text or b64encode(f"signed {thought}".encode()).decode() in text


def by_guards(model: BaseChatModel, saver: InMemorySaver) -> Any:
    return create_agent(model, [note], middleware=[Guards()], checkpointer=saver, store=InMemoryStore())


def by_build_graph(model: BaseChatModel, saver: InMemorySaver) -> Any:
    return build_graph(model, [note], checkpointer=saver, store=InMemoryStore(), streaming="never")


@pytest.mark.sample(10)
@pytest.mark.parametrize("face", [by_build_graph, by_guards])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_next_run_has_another_model(first: str, second: str, face: Callable[..., Any]) -> None:
    one, other, saver = CLIENTS[first], CLIENTS[second], InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}}
    ours = [
        one.answer("our thought 1", NOTE),
        one.answer("our thought 2", FINISH),
        one.answer("our thought 3", FINISH),
    ]
    theirs = [other.answer("their thought 1", NOTE), other.answer("their thought 2", FINISH)]
    with FakeProvider(ours) as server, FakeProvider(theirs) as elsewhere:
        for model in (one.model(server.root), other.model(elsewhere.root), one.model(server.root)):
            state = face(model, saver).invoke({"messages": [("user", "Note it.")]}, config)
            assert state["outcome"]["status"] == "success"
    sent = [request.body for request in elsewhere.requests]
    assert not any(has(body, thought) for body in sent for thought in ("our thought 1", "our thought 2"))
    assert has(sent[-1], "their thought 1")
    back = server.requests[-1].body
    assert (has(back, "our thought 1"), has(back, "their thought 1"), has(back, "their thought 2")) == (
        True,
        False,
        False,
    )
    assert json.dumps(back).count('"note"') >= 2, "the calls of both are shown"
    replies = [message for message in state["messages"] if isinstance(message, AIMessage)]
    assert "our thought 1" in repr(replies[0]), "the history keeps it"


def with_fallback(model: BaseChatModel, fallback: BaseChatModel) -> Any:
    retries = ModelRetries(tries=1)
    return build_graph(model, [note], fallbacks=[fallback], model_retries=retries, streaming="never")


def with_a_middleware(model: BaseChatModel, fallback: BaseChatModel) -> Any:
    return create_agent(model, [note], middleware=[Guards(), ModelFallbackMiddleware(fallback)])


@pytest.mark.sample(10)
@pytest.mark.parametrize("face", [with_fallback, with_a_middleware])
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_fallback_takes_over_and_gives_back(
    first: str, second: str, face: Callable[[BaseChatModel, BaseChatModel], Any]
) -> None:
    one, other = CLIENTS[first], CLIENTS[second]
    broken = error(500, "broken")
    ours = [
        one.answer("our thought 1", NOTE),
        broken,
        one.answer("our thought 2", NOTE),
        one.answer("our thought 3", FINISH),
    ]
    with FakeProvider(ours) as server, FakeProvider([other.answer("their thought 1", NOTE)]) as elsewhere:
        graph = face(one.model(server.root), other.model(elsewhere.root))
        state = await graph.ainvoke({"messages": [("user", "Note it.")]})
    assert state["outcome"]["status"] == "success"
    assert [has(request.body, "our thought 1") for request in elsewhere.requests] == [False]
    last = server.requests[-1].body
    assert (has(last, "our thought 1"), has(last, "our thought 2"), has(last, "their thought 1")) == (
        True,
        True,
        False,
    )


def test_gemini_is_given_the_documented_signature() -> None:
    claude, gemini = CLIENTS["anthropic"], CLIENTS["gemini"]
    with (
        FakeProvider([claude.answer("our thought 1", NOTE), error(500, "broken")]) as server,
        FakeProvider([gemini.answer("their thought 1", FINISH)]) as elsewhere,
    ):
        models = claude.model(server.root), gemini.model(elsewhere.root)
        retries = ModelRetries(tries=1)
        graph = build_graph(
            models[0], [note], fallbacks=[models[1]], model_retries=retries, streaming="never"
        )
        state = graph.invoke({"messages": [("user", "Note it.")]})
    assert state["outcome"]["status"] == "success"
    (call,) = [
        part
        for content in elsewhere.requests[0].body["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert call["thoughtSignature"] == PLACEHOLDER


def test_claude_begins_a_turn_of_its_own_after_calls_of_another() -> None:
    """With thinking on it refuses results of calls before which it has not thought; and what was sent once
    stays as it was."""
    claude, other = CLIENTS["anthropic"], CLIENTS["responses"]
    theirs = [claude.answer("their thought 1", NOTE), claude.answer("their thought 2", FINISH)]
    with (
        FakeProvider([other.answer("our thought 1", NOTE)]) as server,
        FakeProvider(theirs) as elsewhere,
    ):
        models = other.model(server.root), claude.model(elsewhere.root)
        retries = ModelRetries(tries=1)
        graph = build_graph(
            models[0], [note], fallbacks=[models[1]], model_retries=retries, streaming="never"
        )
        state = graph.invoke({"messages": [("user", "Note it.")]})
    assert state["outcome"]["status"] == "success"
    first, second = (request.body["messages"] for request in elsewhere.requests)
    assert first[-1]["role"] == "user"
    assert "tool_result" not in json.dumps(first[-1])
    assert second[: len(first)] == first
    assert "tool_result" in json.dumps(second[-1])


def test_a_model_that_a_middleware_behind_guards_has_chosen_gets_its_own_thoughts() -> None:
    claude, unused = CLIENTS["anthropic"], CLIENTS["responses"]

    @wrap_model_call
    def chooses(request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
        return handler(request.override(model=chosen))

    with FakeProvider(
        [claude.answer("our thought 1", NOTE), claude.answer("our thought 2", FINISH)]
    ) as server:
        chosen, model = claude.model(server.root), unused.model(server.root)
        agent = create_agent(model, [note], middleware=[Guards(), chooses])
        state: Any = agent.invoke({"messages": [HumanMessage("Note it.")]})
    assert state["outcome"]["status"] == "success"
    assert has(server.requests[-1].body, "our thought 1")


def test_a_client_that_asks_several_providers_is_shown_everything() -> None:
    claude = CLIENTS["anthropic"]

    class Router(BaseChatModel):
        inner: Any

        @property
        def _llm_type(self) -> str:
            return "router"

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self.model_copy(update={"inner": self.inner.bind_tools(tools)})

        def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            from langchain_core.outputs import ChatGeneration, ChatResult

            return ChatResult(generations=[ChatGeneration(message=self.inner.invoke(messages))])

    with FakeProvider(
        [claude.answer("our thought 1", NOTE), claude.answer("our thought 2", FINISH)]
    ) as server:
        graph = build_graph(Router(inner=claude.model(server.root)), [note])
        state = graph.invoke({"messages": [("user", "Note it.")]})
    assert state["outcome"]["status"] == "success"
    assert has(server.requests[-1].body, "our thought 1")
