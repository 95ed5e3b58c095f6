"""A provider that refuses to stream is asked once more without it, and the run stays without."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import SecretStr

from signoff import build_graph, outcome_of
from signoff.graph.messages import is_reply, marks
from signoff.guards import Guards
from signoff.models import ScriptedModel
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, tool_call

GO: Any = {"messages": [("user", "do it")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
UNVERIFIED = error(400, "Your organization must be verified to stream this model.", "unsupported_value")
NOTED = Reply(calls=[tool_call("note", text="x")])
DONE = Reply(calls=[tool_call("finish_task", summary="All of it.")])
REFUSED: dict[str, Fault] = {
    "OpenAI: not verified": UNVERIFIED,
    "OpenAI: a value": error(400, "Unsupported value: 'stream' does not support true with this model."),
    "Bedrock: a policy": error(403, "not authorized to perform: bedrock:InvokeModelWithResponseStream"),
    "Bedrock: with tools": error(400, "This model doesn't support tool use in streaming mode."),
    "a server": error(400, "Streaming is not supported for this model"),
    "another server": error(501, "This endpoint does not support streaming"),
    "a server that has none": error(501, "Not Implemented"),
    "a parameter alone": Fault(400, {"error": {"message": "Invalid request", "param": "stream"}}),
    "a setting": error(400, "Parameter `stream` must be set to false for this model"),
    "an account": error(403, "Streaming has been disabled for your account"),
    "options of a stream": error(422, "Unrecognized request argument supplied: 'stream_options'"),
}
OTHER: dict[str, Fault] = {
    "no tools": error(400, "m does not support tools"),
    "no rights": error(403, "You may not use m"),
    "upstream": error(400, "The upstream is not available"),
    "only streams": error(400, "Non-streaming calls are not supported; set stream to true"),
    "no tools, not implemented": error(501, "m does not support tools"),
    "another parameter": Fault(400, {"error": {"message": "Invalid request", "param": "n"}}),
}


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def model_at(server: FakeProvider, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("k"), max_retries=0, **options)


def graph_at(server: FakeProvider, **options: Any) -> Any:
    return build_graph(model_at(server), [note], checkpointer=InMemorySaver(), **options)


def guards_at(server: FakeProvider, **options: Any) -> Any:
    model = model_at(server, **options)
    return create_agent(model, [note], middleware=[Guards()], checkpointer=InMemorySaver())


class Choosing(AgentMiddleware[Any, Any, Any]):
    """Asks another model than the agent's."""

    def __init__(self, model: BaseChatModel) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model=self.model))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(model=self.model))


def chosen_at(server: FakeProvider) -> Any:
    middleware = [Guards(), Choosing(model_at(server, streaming=True))]
    return create_agent(ScriptedModel([]), [note], middleware=middleware, checkpointer=InMemorySaver())


WAYS: dict[str, tuple[Callable[[FakeProvider], Any], bool]] = {
    "graph": (graph_at, False),
    "graph, auto, with somebody who listens": (lambda server: graph_at(server, streaming="auto"), True),
    "Guards, with a model that streams": (lambda server: guards_at(server, streaming=True), False),
    "Guards, with somebody who listens": (guards_at, True),
    "Guards, with a model that another middleware chooses": (chosen_at, False),
}
pytestmark = pytest.mark.filterwarnings("ignore:note may change something")


async def run(agent: Any, mode: str, *, listens: bool) -> Any:
    """The values at the end. listens: whether somebody takes the pieces of the replies."""
    if mode == "sync":
        for _ in agent.stream(GO, THREAD, stream_mode="messages" if listens else "values"):
            pass
    else:
        async for _ in agent.astream(GO, THREAD, stream_mode="messages" if listens else "values"):
            pass
    return agent.get_state(THREAD).values


def streamed(server: FakeProvider) -> list[bool]:
    return [request.streamed for request in server.requests]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.sample(8)
async def test_it_is_asked_once_more_without_and_the_run_stays_without(
    name: str, way: str, mode: str
) -> None:
    make, listens = WAYS[way]
    with FakeProvider([REFUSED[name], NOTED, DONE]) as server:
        agent = make(server)
        with pytest.warns(UserWarning, match="streaming=") as said:
            found = await run(agent, mode, listens=listens)
    assert outcome_of(found).succeeded
    assert streamed(server) == [True, False, False]
    assert len([one for one in said if "streaming=" in str(one.message)]) == 1
    assert [marks(one).get("unstreamed") for one in found["messages"] if is_reply(one)] == [True, True]
    first, second, _ = (request.body for request in server.requests)
    unlike = {"stream", "stream_options"}
    assert {key: first[key] for key in first.keys() - unlike} == {
        key: second[key] for key in second.keys() - unlike
    }, "it is the same request"


@pytest.mark.parametrize("name", OTHER)
def test_any_other_refusal_is_what_it_was(name: str) -> None:
    with FakeProvider([OTHER[name], DONE]) as server:
        outcome = outcome_of(graph_at(server, model_retries=None).invoke(GO, THREAD))
    assert (outcome.reason, streamed(server)) == ("model_error", [True])


def test_a_resumed_task_stays_without_and_the_next_task_tries_again() -> None:
    asks = Reply(calls=[tool_call("ask_user", question="Which?")])
    saver = InMemorySaver()
    with FakeProvider([UNVERIFIED, asks]) as server, pytest.warns(UserWarning, match="streaming="):
        build_graph(model_at(server), checkpointer=saver).invoke(GO, THREAD)
    with FakeProvider([DONE, DONE]) as other:
        graph = build_graph(model_at(other), checkpointer=saver)
        graph.invoke(Command(resume="blue"), THREAD)
        graph.invoke(GO, THREAD)
    assert (streamed(server), streamed(other)) == ([True, False], [False, True])


def test_a_looser_choice_is_asked_for_without_it_too() -> None:
    no_choice = error(400, "tool_choice 'required' is not supported")
    with FakeProvider([UNVERIFIED, no_choice, DONE]) as server:
        graph = graph_at(server, talk="strict")
        with pytest.warns(UserWarning, match="streaming="):
            found = graph.invoke(GO, THREAD)
    assert outcome_of(found).succeeded
    assert streamed(server) == [True, False, False]
    assert [request.body.get("tool_choice") for request in server.requests] == ["required", "required", None]


@pytest.mark.parametrize("own", [True, False], ids=["the same model", "another model"])
def test_a_summary_is_asked_for_without_it_too(own: bool) -> None:
    notes = [Reply(calls=[tool_call("note", text=f"{at} " + "x" * 4000)]) for at in range(8)]
    with FakeProvider([UNVERIFIED, *notes, *[Reply("Noted: all.")] * 3, DONE]) as server:
        compaction: Any = "model" if own else model_at(server)
        graph = graph_at(server, prompt_tokens=6000, compaction=compaction)
        with pytest.warns(UserWarning, match="streaming="):
            graph.invoke(GO, THREAD)
    assert streamed(server) == [True] + [False] * (len(server.requests) - 1)
    assert any("Noted: all." in str(request.body["messages"]) for request in server.requests)


def test_nothing_but_the_reply_is_told_to_who_listens() -> None:
    with FakeProvider([UNVERIFIED, Reply("Hello.", calls=DONE.calls)]) as server:
        graph = graph_at(server)
        with pytest.warns(UserWarning, match="streaming="):
            told = [chunk for chunk, _ in graph.stream(GO, THREAD, stream_mode="messages")]
    assert next(one.text for one in told if isinstance(one, AIMessage)) == "Hello."


async def test_a_fallback_behind_guards_does_not_take_the_place_of_a_model_that_may_not_stream() -> None:
    with FakeProvider([UNVERIFIED, NOTED, DONE]) as server, FakeProvider([DONE]) as elsewhere:
        middleware = [Guards(), ModelFallbackMiddleware(model_at(elsewhere))]
        agent = create_agent(model_at(server, streaming=True), [note], middleware=middleware)
        with pytest.warns(UserWarning, match="streaming="):
            found = await agent.ainvoke(GO)
    assert outcome_of(found).succeeded
    assert (streamed(server), elsewhere.requests) == ([True, False, False], [])
