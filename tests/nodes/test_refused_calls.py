"""A call that the provider refuses is the model's mistake: a turn, a reminder, a looser choice of tools."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from signoff import Limits, ModelRetries, build_graph, outcome_of
from signoff.graph.messages import is_reply, marks, nudge_kind
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.guards import Guards
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, sse, tool_call

GO: Any = {"messages": [("user", "do it")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
REMINDER = DEFAULT_TEXTS.nudges["refused_call"]
NOTED = Reply(calls=[tool_call("note", text="x")])
DONE = Reply(calls=[tool_call("finish_task", summary="All of it.")])
MISSING = error(400, "Tool choice is required, but model did not call a tool", "tool_use_failed")

REFUSED: dict[str, Fault] = {
    "Groq: no call": MISSING,
    "Groq: unreadable": error(400, "Failed to call a function.", "tool_use_failed"),
    "Groq: an unknown tool": error(400, "tool call validation failed: attempted to call tool 'open'"),
    "Groq: in the stream": sse('data: {"error": {"message": "no", "code": "tool_use_failed"}}'),
    "Nova": error(424, "Model produced invalid sequence as part of ToolUse.", "ModelErrorException"),
    "Cerebras": error(400, "Failed to generate tool_calls. Please adjust your prompt."),
    "Ollama": error(500, "error parsing tool call: raw='{', err=unexpected end of JSON input"),
}  # fmt: skip


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def model_at(server: FakeProvider, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("k"), max_retries=0, **options)


class Looks(AgentMiddleware[Any, Any, Any]):
    """Hands each reply on as it is."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


def agent_at(server: FakeProvider, way: str, **options: Any) -> Any:
    saver = InMemorySaver()
    if way == "Guards":
        return create_agent(
            model_at(server, **options), [note], middleware=[Guards(), Looks()], checkpointer=saver
        )
    around: Sequence[Any] = [Looks()] if way == "middleware" else []
    fast = ModelRetries(first_wait=0)
    with pytest.warns(UserWarning, match="note may change something"):
        return build_graph(
            model_at(server, **options), [note], middleware=around, checkpointer=saver, model_retries=fast
        )


async def run(agent: Any, mode: str) -> Any:
    return await agent.ainvoke(GO, THREAD) if mode == "async" else agent.invoke(GO, THREAD)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("way", ["graph", "middleware", "Guards"])
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.sample(7)
@pytest.mark.filterwarnings("ignore:note may change something")
async def test_it_is_an_empty_reply_that_is_reminded(name: str, way: str, mode: str) -> None:
    with FakeProvider([REFUSED[name], NOTED, DONE]) as server:
        found = await run(agent_at(server, way, streaming=True), mode)
    assert len(server.requests) == 3, "it is not tried again with the same prompt"
    assert (outcome_of(found).succeeded, outcome_of(found).turns) == (True, 3)
    refused, *others = [message for message in found["messages"] if is_reply(message)]
    assert (refused.text, refused.tool_calls, marks(refused).get("call_refused")) == ("", [], True)
    assert not any("call_refused" in marks(message) for message in others)
    assert [nudge_kind(message) for message in found["messages"] if nudge_kind(message)] == ["empty"]
    assert server.requests[1].body["messages"][-1] == {"role": "user", "content": REMINDER}


def choices(server: FakeProvider) -> list[Any]:
    return [request.body.get("tool_choice") for request in server.requests]


TALK = [Reply("One."), Reply("Two."), Reply("Three.")]
LADDER: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "free, then free": ({}, [MISSING, DONE], [None, None]),
    "required, then free": ({}, [*TALK, MISSING, DONE], [None, None, None, "required", None]),
    "and it climbs again after talk": (
        {"limits": Limits(talk_turns=9)},
        [*TALK, MISSING, Reply("Four."), DONE],
        [None, None, None, "required", None, "required"],
    ),
    "a control call, then any call, then free": (
        {"limits": Limits(talk_turns=9)},
        [*TALK, Reply("Four."), MISSING, MISSING, DONE],
        [None, None, None, "required", "required", "required", None],
    ),
    "strict talk": ({"talk": "strict"}, [MISSING, NOTED, DONE], ["required", None, "required"]),
}


@pytest.mark.parametrize(("options", "script", "asked"), LADDER.values(), ids=LADDER)
@pytest.mark.filterwarnings("ignore:note may change something")
def test_the_next_choice_is_looser(options: dict[str, Any], script: list[Any], asked: list[Any]) -> None:
    with FakeProvider(script) as server:
        graph = build_graph(model_at(server), [note], checkpointer=InMemorySaver(), **options)
        assert outcome_of(graph.invoke(GO, THREAD)).succeeded
    assert choices(server) == asked


def test_the_choice_follows_from_the_history_after_a_restart() -> None:
    saver = InMemorySaver()
    with FakeProvider([*TALK, MISSING]) as server:
        for update in build_graph(model_at(server), checkpointer=saver).stream(GO, THREAD):
            if len(server.requests) == 4 and "call_llm" in update:
                break
    with FakeProvider([DONE]) as other:
        assert outcome_of(build_graph(model_at(other), checkpointer=saver).invoke(None, THREAD)).succeeded
    assert (choices(server)[-1], choices(other)) == ("required", [None])
    assert other.requests[0].body["messages"][-1]["content"] == REMINDER


def test_a_model_whose_every_call_is_refused_comes_to_a_limit() -> None:
    with FakeProvider([MISSING] * 9) as server:
        graph = build_graph(model_at(server), checkpointer=InMemorySaver())
        outcome = outcome_of(graph.invoke(GO, THREAD))
    assert (outcome.status, outcome.reason) == ("limit", "talk_turns")
