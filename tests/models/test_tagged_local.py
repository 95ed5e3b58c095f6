"""The embedded model by text alone: it computes with Python in the sandbox and finishes."""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import build_graph
from signoff.models.local import local_model
from signoff.models.local.install import is_installed
from signoff.models.tagged import TAGGED_LIMITS, TaggedText
from signoff.tools.sandbox import choose_sandbox, python_tool

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not is_installed(), reason="the extra signoff[local] is not installed")
@pytest.mark.thorough
@pytest.mark.embedded
def test_the_embedded_model_computes_and_finishes() -> None:
    sandbox = choose_sandbox()
    with local_model() as model:
        graph = build_graph(
            TaggedText(model),
            [python_tool(sandbox)],
            limits=TAGGED_LIMITS,
            checkpointer=InMemorySaver(),
            store=InMemoryStore(),
        )
        result = graph.invoke({"messages": [("user", "Compute 12345 * 6789 with Python.")]}, CONFIG)
    sandbox.close()
    outputs = [message.text for message in result["messages"] if getattr(message, "name", "") == "run_python"]
    assert (result["outcome"]["status"], result["outcome"]["reason"]) == ("success", "finish_task")
    assert outputs[-1] == "83810205"
    assert "83810205" in result["outcome"]["summary"]
