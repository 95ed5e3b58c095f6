"""Runs a script through a graph with settings of its own, sync and async, and says what came of it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel
from tests.support.cases.loop import THREAD, Bench, Case

MODES = ["sync", "async"]
both_modes = pytest.mark.parametrize("mode", MODES)


@dataclass
class Review(Case):
    """A case with settings of `build_graph`. asks: parts of the payload of the first interrupt; no case has
    one that does not say so. saved: whether there is a checkpointer, so that a person can be asked."""

    options: dict[str, Any] = field(default_factory=dict)
    asks: dict[str, Any] | None = None
    saved: bool = True


@contextlib.contextmanager
def storage_of(case: Review, tmp_path: Path) -> Iterator[dict[str, Any]]:
    if not case.saved:
        yield {}
        return
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        yield {"storage": storage}


async def play(case: Review, mode: str, tmp_path: Path) -> dict[str, Any]:
    """Runs the case, checks it, and returns the last state."""
    bench, asked = Bench(), list[Any]()
    with (
        ScriptedModel(case.script, disable_streaming=not case.streamed) as model,
        storage_of(case, tmp_path) as storage,
    ):
        tools = [*bench.tools(), *case.options.get("tools", ())]
        options = {key: value for key, value in case.options.items() if key != "tools"}
        graph = build_graph(model, tools, limits=case.limits, **storage, **options)
        for given in case.given:
            what = given if isinstance(given, Command) else {"messages": given}
            result = await graph.ainvoke(what, THREAD) if mode == "async" else graph.invoke(what, THREAD)
            asked += [pending.value for pending in result.get("__interrupt__", ())]
    assert bench.ran == case.ran
    if case.asks is None:
        assert asked == []
    else:
        assert {key: asked[0].get(key) for key in case.asks} == case.asks
    outcome = result["outcome"]
    if case.ends is None:
        assert outcome is None
    else:
        assert {key: outcome[key] for key in case.ends} == case.ends
    shown = "\n".join(
        str(message.text) for message in result["messages"] if not isinstance(message, AIMessage)
    )
    assert [text for text in case.says if text not in shown] == []
    return result
