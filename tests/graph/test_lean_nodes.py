"""The nodes of a run that nothing listens to run as LangGraph's own do."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda

from signoff import build_graph
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "go")]}


class Ear(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.heard.append(kwargs.get("name", ""))


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("listens", [False, True])
async def test_a_runnable_within_a_tool_runs_under_its_own_name(way: str, listens: bool) -> None:
    inner, outer = Ear(), Ear()

    def look() -> str:
        """Look."""
        step: Callable[[str], str] = (
            RunnableLambda(lambda text: text, name="step").with_config(callbacks=[inner]).invoke
        )
        return step("seen")

    script = [call("look"), call("finish_task", summary="Done.")]
    graph = build_graph(ScriptedModel(script), [look])
    config: Any = {"callbacks": [outer]} if listens else {}
    result = await graph.ainvoke(GO, config) if way == "ainvoke" else graph.invoke(GO, config)
    assert result["outcome"]["status"] == "success"
    assert inner.heard == ["step"]
    assert ({"decide", "call_llm", "execute"} <= set(outer.heard)) is listens
