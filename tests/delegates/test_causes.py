"""Why a delegate failed is told in the words of what failed: in its result at each level, in the outcome, by
`signoff show`; without keys, and in bounds."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import SecretStr
from typer.testing import CliRunner

from signoff import build_graph, delegate, outcome_of, sqlite_storage
from signoff.cli.app import app
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "Find it.")]}
DONE = call("finish_task", summary="Found.")
BLOCKED = call("finish_task", summary="It could not be found.", outcome="blocked")
CAUSE = "401: your API key was revoked"


class Hook(AgentMiddleware[Any, Any, Any]):
    def before_model(self, state: Any, runtime: Any) -> None:
        raise PermissionError(CAUSE)


class Around(AgentMiddleware[Any, Any, Any]):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        raise PermissionError(CAUSE)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        raise PermissionError(CAUSE)


def failing(*_: Any) -> Any:
    raise RuntimeError(CAUSE)


async def coroutine() -> Graph:
    return build_graph(ScriptedModel([DONE]))


def foreign() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("x", lambda state: state)
    return graph.add_edge(START, "x").compile()


def broken(*steps: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel(list(steps) or failing), model_retries=None, **options)


CAUSES: dict[str, tuple[Callable[[], Any], str]] = {
    # What the graph of the delegate is, and what must be told.
    "its model": (broken, f"error: The model failed: RuntimeError: {CAUSE}"),
    "its model in the middle of the work": (
        lambda: broken(call("think", thought="Hm."), ConnectionError(CAUSE)),
        f"error: The model failed: ConnectionError: {CAUSE}",
    ),
    "its model, with a reply that is none": (
        lambda: broken(call("think", thought="Hm."), 3),
        "error: The model failed: ",
    ),
    "a hook of a middleware": (
        lambda: broken(DONE, middleware=[Hook()]),
        f"error: Ended by a middleware: before_model of the middleware Hook failed: PermissionError: {CAUSE}",
    ),
    "a middleware around its model": (
        lambda: broken(DONE, middleware=[Around()]),
        f"wrap_model_call of the middleware Around failed (PermissionError: {CAUSE}",
    ),
    "a function that makes its prompt": (
        lambda: broken(DONE, system_prompt=lambda state, context: failing()),
        f"raised RuntimeError: {CAUSE}",
    ),
    "a limit": (
        lambda: broken(call("think", thought="Hm."), limits={"turns": 1}),
        "(limit: Turn limit reached).",
    ),
    "a question that nobody can answer": (
        lambda: broken(call("ask_user", question="Which one?")),
        "error: It needs a person: The model asks: Which one?",
    ),
    "a function that raises": (lambda: failing, f"failed: RuntimeError: {CAUSE}"),
    "a function that ends the process": (lambda: exit, "failed: SystemExit"),
    "a function that gives nothing": (lambda: lambda: None, "was given NoneType"),
    "a function that is a coroutine": (lambda: coroutine, "was given coroutine"),
    "a function that gives another graph": (lambda: foreign, "was not made by build_graph"),
}


def asking(name: str, below: Any, last: Any = BLOCKED) -> tuple[ScriptedModel, list[Any]]:
    """A model that calls the delegate once and ends its task, and the delegate."""
    return ScriptedModel([call(name, task="Look it up."), last]), [
        delegate(name, below, description="Looks things up.")
    ]


def run(graph: Graph, way: str, config: Any = None) -> Any:
    return graph.invoke(GO, config) if way == "sync" else asyncio.run(graph.ainvoke(GO, config))


def told(values: Any) -> list[str]:
    results = (found for found in values["messages"] if isinstance(found, ToolMessage))
    return [found.text for found in results if found.name != "finish_task"]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", CAUSES)
def test_the_lead_reads_why_its_delegate_failed(name: str, way: str) -> None:
    makes, cause = CAUSES[name]
    values = run(build_graph(*asking("research", makes())), way)
    (text,) = told(values)
    assert text.startswith("research did not succeed (")
    assert cause in text
    (point,) = outcome_of(values).open_points
    assert cause.rstrip(").") in point


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_the_cause_reaches_every_level_the_outcome_and_show(levels: int, tmp_path: Path) -> None:
    graph, models, names = broken(), [], "abcd"[:levels]
    for name in reversed(names[1:]):
        model, tools = asking(name, graph)
        models.append(model)
        graph = build_graph(model, tools)
    model, tools = asking(names[0], graph)
    file = tmp_path / "t.sqlite"
    with sqlite_storage(file) as storage:
        values = build_graph(model, tools, storage=storage).invoke(GO, THREAD)
    for lead in (*models, model):
        assert CAUSE in lead.seen[-1].messages[-1].text
    assert [CAUSE in point for point in outcome_of(values).open_points] == [True]
    for options in ([], ["--depth", "0"], ["--json"]):
        shown = CliRunner().invoke(
            app, ["show", "t", "--database", str(file), *options], env={"COLUMNS": "80"}
        )
        assert CAUSE in shown.stdout, options


def test_show_has_the_whole_cause_however_long_its_line_is(tmp_path: Path) -> None:
    error = RuntimeError("so it is " * 50 + CAUSE)
    file = tmp_path / "t.sqlite"
    with sqlite_storage(file) as storage:
        build_graph(*asking("research", broken(error)), storage=storage).invoke(GO, THREAD)
    shown = CliRunner().invoke(app, ["show", "t", "--database", str(file)], env={"COLUMNS": "80"})
    assert shown.stdout.count(CAUSE) == 3, "in the result, below the delegate, and in what is open"


def test_each_of_several_that_failed_has_its_own_cause() -> None:
    tools = [
        delegate("one", broken(RuntimeError("no key")), description="Looks."),
        delegate("two", broken(RuntimeError("no credit")), description="Looks."),
        delegate("three", broken(DONE), description="Looks."),
    ]
    calls = [call(name, task="Look.") for name in ("one", "one", "two", "three")]
    graph = build_graph(ScriptedModel([calls, BLOCKED]), tools)
    # Both calls of one share a model with a single reply.
    values = graph.invoke(GO)
    points = outcome_of(values).open_points
    assert [point.split(" ")[0] for point in points] == ["one", "one", "two"]
    assert "no key" in points[0] + points[1]
    assert "no credit" in points[2]


def test_what_was_made_good_later_is_not_open() -> None:
    tools = [delegate("research", broken(RuntimeError(CAUSE), DONE), description="Looks things up.")]
    steps = [call("research", task="Look."), call("research", task="Look again."), BLOCKED]
    values = build_graph(ScriptedModel(steps), tools).invoke(GO)
    assert [CAUSE in text for text in told(values)] == [True, False]
    assert outcome_of(values).open_points == []


# Secrets and bounds.

KEY = "a-key-of-this-house-4711"


class Keyed(BaseChatModel):
    """A model with a key, whose server echoes it."""

    api_key: SecretStr = SecretStr(KEY)

    @property
    def _llm_type(self) -> str:
        return "keyed"

    def bind_tools(self, tools: Any, **_: Any) -> Runnable[Any, Any]:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        raise RuntimeError(f"no such key: {KEY} (Bearer sk-0123456789abcdef)")


class Leaking(AgentMiddleware[Any, Any, Any]):
    def before_model(self, state: Any, runtime: Any) -> None:
        raise RuntimeError(f"no such key: {KEY} (Bearer sk-0123456789abcdef)")


def leaking() -> Any:
    raise RuntimeError("no such key: (Bearer sk-0123456789abcdef)")


LEAKS: dict[str, Callable[[], Any]] = {
    "its model": lambda: build_graph(Keyed(), model_retries=None),
    "a middleware": lambda: build_graph(Keyed(), middleware=[Leaking()]),
    "a function": lambda: leaking,
}


@pytest.mark.parametrize("name", LEAKS)
def test_no_key_is_told_above(name: str) -> None:
    values = build_graph(*asking("research", LEAKS[name]())).invoke(GO)
    stored = json.dumps([values["messages"], values["outcome"]], default=str)
    assert "no such key" in stored
    assert KEY not in stored
    assert "0123456789abcdef" not in stored


def five_times(name: str) -> ScriptedModel:
    """A model that calls the delegate five times in one reply, and then ends its task."""
    calls = [call(name, task=f"Look {number}.") for number in range(5)]
    return ScriptedModel(lambda messages: BLOCKED if messages[-1].type == "tool" else calls)


def test_a_cause_is_bounded_at_every_level() -> None:
    """A prompt function may raise anything, and several may fail at each level."""

    def shouting(state: Any, context: Any) -> str:
        raise RuntimeError("x" * 100_000)

    below = broken(DONE, system_prompt=shouting)
    for name in ("c", "b", "a"):
        below = build_graph(five_times(name), [delegate(name, below, description="Looks things up.")])
    values = below.invoke(GO)
    assert all("xxx" in text and len(text) < 2_500 for text in told(values))
    assert all(len(point) < 2_500 for point in outcome_of(values).open_points)
