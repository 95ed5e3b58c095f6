"""How a model is named and asked: by which client, streamed or not, and what follows when that is refused."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.types import Command
from pydantic import SecretStr

from signoff import Ended, Limits, Session, SetupError, build_graph, outcome_of
from signoff.guards import Guards
from signoff.models import ScriptedModel, TaggedText
from tests.support.plays import GO, THREAD, saved
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, sse, tool_call

NOTED = Reply(calls=[tool_call("note", text="x")])
DONE = Reply("All done.", calls=[tool_call("finish_task", summary="All of it.")])
DENIED = error(401, "No.")


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def chat(server: FakeProvider, name: str = "m", **options: Any) -> ChatOpenAI:
    given = {"api_key": SecretStr("k"), "max_retries": 0, **options}
    return ChatOpenAI(model=name, base_url=server.url, **given)


def streamed(server: FakeProvider) -> list[bool]:
    return [request.streamed for request in server.requests]


def sent(server: FakeProvider, key: str) -> list[Any]:
    return [request.body.get(key) for request in server.requests]


# By name.


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for provider in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    return monkeypatch


def test_a_name_with_a_provider_asks_its_model(no_keys: pytest.MonkeyPatch, server: FakeProvider) -> None:
    server.plays(DONE)
    no_keys.setenv("OPENAI_API_KEY", "k")
    no_keys.setenv("OPENAI_BASE_URL", server.url)
    assert outcome_of(build_graph("OpenAI: ft:gpt-4o:me").invoke(GO)).succeeded
    assert sent(server, "model") == ["ft:gpt-4o:me"]


@pytest.mark.parametrize(("name", "named"), {"anthropic:m": "ANTHROPIC_API_KEY", "gpt-5": "gpt-5"}.items())
def test_a_missing_key_is_named_by_its_variable_and_a_name_without_a_provider_is_none(
    name: str, named: str, no_keys: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError) as refusal:
        build_graph(name)
    assert named in str(refusal.value)
    assert "OPENAI" not in str(refusal.value)


def test_without_langchain_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # So Python notes that there is none.
    monkeypatch.setitem(sys.modules, "langchain", None)
    with pytest.raises(SetupError) as refusal:
        build_graph("perplexity:sonar")
    assert "[langchain]" in str(refusal.value)
    assert "langchain-perplexity" in str(refusal.value)


def test_a_run_names_another_model_of_the_same_client(server: FakeProvider) -> None:
    server.plays(DONE)
    graph = build_graph(chat(server, "a", seed=7), **saved())
    decision = Session(graph, "t", context={"model": "c"}).run("go")
    assert isinstance(decision, Ended)
    assert (sent(server, "model"), sent(server, "seed")) == (["c"], [7])
    assert decision.outcome.models == {"m": 1}, "as the provider calls it"


WRAPPED: list[Any] = [
    ScriptedModel([]).bind(temperature=0.25),
    init_chat_model("openai:m", configurable_fields=("model",)),
]


@pytest.mark.parametrize("wrapped", WRAPPED, ids=["bind", "made anew for each run"])
def test_a_wrapped_model_is_refused_and_the_words_for_it_are_named(wrapped: Any) -> None:
    for arguments in ({"model": wrapped}, {"model": ScriptedModel([]), "policy": {"compaction": wrapped}}):
        with pytest.raises(SetupError) as refusal:
            build_graph(**arguments)
        for name in (type(wrapped).__name__, "model_retries", "ModelFallbackMiddleware"):
            assert name in str(refusal.value)


# When a reply is streamed.


class Tokens(BaseCallbackHandler):
    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None: ...


class WholeReplies(BaseCallbackHandler):
    def on_llm_end(self, response: Any, **kwargs: Any) -> None: ...


async def take_events(graph: Any) -> None:
    async for _ in graph.astream_events(GO, THREAD, version="v2"):
        pass


def called_back(*handlers: Any) -> Callable[[Any], Any]:
    return lambda graph: graph.invoke(GO, {**THREAD, "callbacks": [*handlers]})


def takes(*modes: str) -> Callable[[Any], Any]:
    return lambda graph: list(graph.stream(GO, THREAD, stream_mode=[*modes]))


# How a graph is run, and whether somebody takes the pieces of the reply.
LISTENED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "invoke": (called_back(), False),
    "messages among others": (takes("updates", "messages"), True),
    "astream_events": (lambda graph: asyncio.run(take_events(graph)), True),
    "callbacks for whole replies": (called_back(WholeReplies()), False),
    "a callback for tokens": (called_back(WholeReplies(), Tokens()), True),
}


@pytest.mark.parametrize(("run", "listened"), LISTENED.values(), ids=LISTENED)
def test_a_reply_is_streamed_by_the_policy(
    run: Callable[[Any], Any], listened: bool, server: FakeProvider
) -> None:
    for streaming, streams in {"auto": listened, "always": True, "never": False}.items():
        server.plays(DONE)
        run(build_graph(chat(server), policy={"streaming": streaming}, **saved()))
        assert streamed(server) == [streams], streaming


def test_never_holds_for_what_is_wrapped_and_for_fallbacks_and_changes_no_model(server: FakeProvider) -> None:
    server.plays(DENIED, DONE)
    second = chat(server, streaming=True)
    middleware = [ModelFallbackMiddleware(second)]
    policy = {"streaming": "never"}
    graph = build_graph(TaggedText(chat(server, streaming=True)), middleware=middleware, policy=policy)
    list(graph.stream(GO, stream_mode="messages"))
    assert (streamed(server), second.disable_streaming) == ([False, False], False)


# A provider that refuses to stream is asked once more without it, and the run stays without.

UNVERIFIED = error(400, "Your organization must be verified to stream this model.", "unsupported_value")
NO_STREAM: dict[str, Fault] = {
    "OpenAI: not verified": UNVERIFIED,
    "Bedrock: a policy": error(403, "not authorized to perform: bedrock:InvokeModelWithResponseStream"),
    "a server that has none": error(501, "Not Implemented"),
    "a parameter alone": Fault(400, {"error": {"message": "Invalid request", "param": "stream"}}),
    "options of a stream": error(422, "Unrecognized request argument supplied: 'stream_options'"),
}
OTHER_REFUSALS: dict[str, Fault] = {
    "only streams": error(400, "Non-streaming calls are not supported; set stream to true"),
}


def machine(model: Any, **policy: Any) -> Any:
    return build_graph(model, [note], policy=policy, **saved())


def guards(model: Any, *middleware: Any) -> Any:
    return create_agent(model, [note], middleware=[Guards(), *middleware], **saved())


@pytest.mark.parametrize(
    ("name", "face"), [*((name, machine) for name in NO_STREAM), ("OpenAI: not verified", guards)]
)
def test_a_run_whose_stream_is_refused_goes_on_without(
    name: str, face: Callable[[Any], Any], server: FakeProvider
) -> None:
    server.plays(NO_STREAM[name], NOTED, DONE)
    agent = face(chat(server, streaming=True))
    with pytest.warns(UserWarning, match="streaming=") as warnings:
        agent.invoke(GO, THREAD)
    assert outcome_of(agent.get_state(THREAD).values).succeeded
    assert (streamed(server), len(warnings)) == ([True, False, False], 1)
    own = {"stream", "stream_options"}
    first, second, _ = ({key: r.body[key] for key in r.body.keys() - own} for r in server.requests)
    assert first == second, "it is the same request"


@pytest.mark.parametrize("refusal", OTHER_REFUSALS.values(), ids=OTHER_REFUSALS)
def test_any_other_refusal_is_an_error(refusal: Fault, server: FakeProvider) -> None:
    server.plays(refusal, DONE)
    outcome = machine(chat(server), model_retries=None).invoke(GO, THREAD)["outcome"]
    assert (outcome["reason"], streamed(server)) == ("model_error", [True])


told_of_streaming = pytest.mark.filterwarnings("ignore:.*streaming=:UserWarning")


@told_of_streaming
def test_a_resumed_task_stays_without_and_the_next_task_tries_again(server: FakeProvider) -> None:
    server.plays(UNVERIFIED, Reply(calls=[tool_call("ask_user", question="Which?")]), DONE, DONE)
    memory = saved()
    answer: Any = Command(resume="blue")
    for given in (GO, answer, GO):
        build_graph(chat(server), **memory).invoke(given, THREAD)
    assert streamed(server) == [True, False, False, True]


@told_of_streaming
def test_a_listener_hears_the_reply_and_a_fallback_does_not_take_the_place_of_the_model(
    server: FakeProvider,
) -> None:
    server.plays(UNVERIFIED, DONE)
    agent = guards(chat(server, streaming=True), ModelFallbackMiddleware(chat(server, "elsewhere")))
    parts = [part for part, _ in agent.stream(GO, THREAD, stream_mode="messages")]
    assert next(part.text for part in parts if isinstance(part, AIMessage)) == "All done."
    assert (streamed(server), sent(server, "model")) == ([True, False], ["m", "m"])


# A call that the provider refuses is the model's mistake: a turn, a reminder, a looser choice of tools.

MISSING = error(400, "Tool choice is required, but model did not call a tool", "tool_use_failed")
NO_CALL: dict[str, Fault] = {
    "Groq: no call": MISSING,
    "Groq: in the stream": sse('data: {"error": {"message": "no", "code": "tool_use_failed"}}'),
    "Nova": error(424, "Model produced invalid sequence as part of ToolUse.", "ModelErrorException"),
    "Ollama": error(500, "error parsing tool call: raw='{', err=unexpected end of JSON input"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "face"), [*((name, machine) for name in NO_CALL), ("Groq: no call", guards)]
)
def test_a_refused_call_is_an_empty_reply_that_is_reminded(
    name: str, face: Callable[[Any], Any], server: FakeProvider
) -> None:
    server.plays(NO_CALL[name], NOTED, DONE)
    outcome = outcome_of(face(chat(server, streaming=True)).invoke(GO, THREAD))
    assert len(server.requests) == 3, "it is not tried again with the same prompt"
    assert (outcome.succeeded, outcome.turns, outcome.nudges) == (True, 3, 1)
    assert sent(server, "messages")[1][-1]["role"] == "user"


TALK = [Reply("One."), Reply("Two."), Reply("Three.")]
PATIENT = {"limits": Limits(talk_turns=9)}
LADDER: dict[str, tuple[Any, Sequence[Any], list[Any]]] = {
    "required, then free": ({}, [*TALK, MISSING, DONE], [None, None, None, "required", None]),
    "a control call, then any call, then free": (
        PATIENT,
        [*TALK, Reply("Four."), MISSING, MISSING, DONE],
        [None, None, None, "required", "required", "required", None],
    ),
    "strict talk": ({"policy": {"talk": "strict"}}, [MISSING, NOTED, DONE], ["required", None, "required"]),
}


@pytest.mark.parametrize(("options", "script", "asked"), LADDER.values(), ids=LADDER)
def test_the_next_choice_is_looser(
    options: Any, script: Sequence[Any], asked: list[Any], server: FakeProvider
) -> None:
    server.plays(*script)
    assert outcome_of(build_graph(chat(server), [note], **options).invoke(GO)).succeeded
    assert sent(server, "tool_choice") == asked


def test_the_choice_follows_from_the_history_after_a_restart(server: FakeProvider) -> None:
    memory = saved()
    server.plays(*TALK, MISSING, DONE)
    for update in build_graph(chat(server), **memory).stream(GO, THREAD):
        if len(server.requests) == 4 and "call_llm" in update:
            break
    assert outcome_of(build_graph(chat(server), **memory).invoke(None, THREAD)).succeeded
    assert sent(server, "tool_choice")[-2:] == ["required", None]
