"""The callbacks of a run that nothing listens to are LangChain's own but for how they are handed on."""

import uuid
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, CallbackManager
from langchain_core.globals import set_debug
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config

from signoff import build_graph
from signoff.graph.inside.speed import with_quiet_callbacks
from signoff.models import ScriptedModel, call

FINISH = call("finish_task", summary="Done.")
GO: Any = {"messages": [("user", "go")]}
RUN = uuid.UUID(int=7)


class Ear(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.heard.append(kwargs.get("name", ""))


def parts(manager: Any) -> dict[str, Any]:
    return dict(vars(manager))


@pytest.mark.parametrize("tag", [None, "graph:step:3"])
@pytest.mark.parametrize("listens", [False, True])
async def test_what_a_node_is_handed_is_what_langchain_makes(tag: str | None, listens: bool) -> None:
    found: dict[str, list[dict[str, Any]]] = {"quiet": [], "own": []}
    ear = Ear()
    for name, sync, in_loop in (
        ("quiet", with_quiet_callbacks({}, in_loop=False), with_quiet_callbacks({}, in_loop=True)),
        ("own", {"callbacks": CallbackManager([])}, {"callbacks": AsyncCallbackManager([])}),
    ):
        for config in (sync, in_loop):
            manager: Any = config["callbacks"].copy()  # type: ignore[union-attr]  # a manager
            manager.add_tags(["a"])
            manager.add_metadata({"thread_id": "t", "lc_versions": {"x": "1"}})
            begun = manager.on_chain_start({"name": "graph"}, {}, run_id=RUN)
            begun = await begun if config is in_loop else begun
            if listens:
                # LangGraph does so for a stream of messages.
                begun.inheritable_handlers.append(ear)
            found[name].append(parts(begun.get_child(tag)))
    assert found["quiet"] == found["own"]


def test_they_are_not_put_in_the_place_of_others() -> None:
    ear = Ear()
    given: RunnableConfig = {"callbacks": [ear]}
    assert with_quiet_callbacks(given, in_loop=False) is given
    token = var_child_runnable_config.set(given)
    try:
        assert with_quiet_callbacks({}, in_loop=False) == {}
    finally:
        var_child_runnable_config.reset(token)
    set_debug(True)
    try:
        assert with_quiet_callbacks({}, in_loop=False) == {}
    finally:
        set_debug(False)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_handler_of_the_graph_or_within_a_tool_hears_what_it_heard_before(way: str) -> None:
    inner, outer = Ear(), Ear()

    def look() -> str:
        """Look."""
        step = RunnableLambda(lambda text: text, name="step").with_config(callbacks=[inner])
        return str(step.invoke("seen"))

    graph = build_graph(ScriptedModel([call("look"), FINISH] * 2), [look])
    for one in (graph, graph.with_config(callbacks=[outer])):
        result = await one.ainvoke(GO) if way == "ainvoke" else one.invoke(GO)
        assert result["outcome"]["status"] == "success"
    assert inner.heard == ["step", "step"]
    assert {"decide", "call_llm", "execute"} <= set(outer.heard)


async def test_a_stream_of_messages_and_of_events_brings_what_the_model_says() -> None:
    graph = build_graph(ScriptedModel(["Hm.", FINISH] * 2))
    said = [chunk.text for chunk, _ in graph.stream(GO, stream_mode="messages") if chunk.text]
    assert "Hm." in "".join(said)
    events = {event["event"] async for event in graph.astream_events(GO, version="v2")}
    assert "on_chat_model_stream" in events
