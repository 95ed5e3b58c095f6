"""In what form a model is given its prompt, and what `invoke` gives back: LangGraph's own, for less work."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph

from signoff import build_graph
from signoff.models import ScriptedModel, call
from signoff.nodes.model.guard import guarded
from signoff.nodes.model.messages import model_input, streams
from tests.support.histories import CONTROLS

FINISH = call("finish_task", summary="Done.")
VIEW = [HumanMessage("go"), AIMessage("Yes?")]


class Own(ScriptedModel):
    """A model that looks at what it is asked with."""

    def stream(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        return super().stream(list(input), *args, **kwargs)


MODELS: dict[str, tuple[Runnable[Any, Any], bool]] = {
    "a chat model": (ScriptedModel([]), True),
    "with the inner guard": (guarded(ScriptedModel([]), CONTROLS), True),
    "bound to options": (ScriptedModel([]).bind(stop=["x"]).bind(temperature=0), True),
    "with a stream of its own": (Own(script=[]), False),
    "the same, bound": (Own(script=[]).bind(stop=["x"]), False),
    "no chat model": (RunnableLambda(lambda view: AIMessage("Yes.")), False),
}


@pytest.mark.parametrize("name", MODELS)
def test_langchains_own_code_is_given_messages_as_they_are(name: str) -> None:
    model, as_they_are = MODELS[name]
    given = model_input(model, list(VIEW))
    if as_they_are:
        assert isinstance(given, ChatPromptValue)
        assert all(one is other for one, other in zip(given.to_messages(), VIEW, strict=True))
    else:
        assert given == VIEW


class Whole(FakeMessagesListChatModel):
    """A model that gives whole replies only."""


STREAMS: dict[str, tuple[Runnable[Any, Any], bool]] = {
    "a chat model": (ScriptedModel([]), True),
    "with a stream of its own": (Own(script=[]), True),
    "with whole replies only": (Whole(responses=[]), False),
    "the same, bound": (Whole(responses=[]).bind(stop=["x"]), False),
    "no chat model": (RunnableLambda(lambda view: AIMessage("Yes.")), True),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_can_be_streamed_is(name: str) -> None:
    model, whether = STREAMS[name]
    assert streams(model) is whether


def test_a_model_that_looks_at_its_input_is_given_a_list() -> None:
    assert build_graph(Own(script=[FINISH])).invoke({"messages": ["go"]})["outcome"]["status"] == "success"


SCRIPTS: dict[str, list[Any]] = {
    "ends": [FINISH],
    "asks": [call("ask_user", question="Which?")],
    "fails": [ValueError("no such model")],
}


@pytest.mark.parametrize(
    "options", [{}, *({"output_keys": keys} for keys in (["outcome"], "outcome", "messages"))], ids=str
)
@pytest.mark.parametrize("name", SCRIPTS)
def test_invoke_gives_what_langgraphs_own_gives(name: str, options: dict[str, Any]) -> None:
    def told(invoke: Any) -> Any:
        graph = build_graph(ScriptedModel(SCRIPTS[name]), checkpointer=InMemorySaver())
        found = invoke(graph, {"messages": ["go"]}, {"configurable": {"thread_id": "t"}}, **options)
        return outline(asyncio.run(found) if asyncio.iscoroutine(found) else found)

    own = told(type(build_graph(ScriptedModel([]))).invoke)
    assert own == told(CompiledStateGraph.invoke)
    assert own == told(type(build_graph(ScriptedModel([]))).ainvoke)


def outline(found: Any) -> Any:
    """What does not differ from run to run."""
    if isinstance(found, list):
        return [message.text for message in found]
    if not isinstance(found, dict):
        return found
    return {
        "keys": sorted(found),
        "messages": [message.text for message in found.get("messages", [])],
        "interrupts": [interrupt.value for interrupt in found.get("__interrupt__", [])],
        "interrupts come in a": type(found.get("__interrupt__")),
        "outcome": (found.get("outcome") or {}).get("status"),
        "status": found.get("status"),
    }
