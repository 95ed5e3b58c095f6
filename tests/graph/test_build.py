"""What `build_graph` refuses, and the shape of what it returns."""

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.store.memory import InMemoryStore

from signoff import ControlTool, Effect, SetupError, build_graph
from signoff.graph.kinds import Kind, kind_of
from signoff.models import ScriptedModel, call
from signoff.tools.control import ControlRegistry, standard_controls


def look() -> str:
    """Look."""
    return "x"


@tool
def finish_task(text: str) -> str:
    """Shadows the control tool."""
    return text


@tool
def stop_here(summary: str) -> str:
    """Stop here."""
    return summary


@tool
def odd() -> str:
    """Has a kind that does not exist."""
    return ""


odd.metadata = {"kind": "sometimes"}
MODEL = ScriptedModel([])


class Both:
    checkpointer, store = InMemorySaver(), None


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two tools with one name": ({"tools": [look, look]}, "Two tools are named 'look'"),
    "a tool that shadows a control tool": ({"tools": [finish_task]}, "has the name of a control tool"),
    "a model without tool calling": ({"model": FakeListChatModel(responses=["x"])}, "cannot call tools"),
    "a name in place of a model": ({"model": "gpt"}, "write 'provider:model'"),
    "a function without a docstring": ({"tools": [lambda text: text]}, "function with a docstring"),
    "a dict in place of a tool": ({"tools": [{"name": "x"}]}, "cannot be a tool"),
    "storage given twice": ({"storage": Both(), "checkpointer": InMemorySaver()}, "not both"),
    "a kind that does not exist": ({"tools": [odd]}, "use one of: control, read, write, terminal"),
    "no control tool at all": ({"control_tools": []}, "can finish"),
    "no tool that can finish": ({"control_tools": standard_controls()[1:]}, "can finish"),
    "two control tools with one name": ({"control_tools": standard_controls() * 2}, "the same name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_sentence(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(SetupError, match=message):
        build_graph(**{"model": MODEL, **given})


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (None, Kind.WRITE),
        ({}, Kind.WRITE),
        ({"kind": "read"}, Kind.READ),
        ({"readOnlyHint": True}, Kind.WRITE),
        ({"readOnlyHint": False}, Kind.WRITE),
        ({"readOnlyHint": True, "kind": "terminal"}, Kind.TERMINAL),
    ],
)
def test_kinds(metadata: dict[str, Any] | None, kind: Kind) -> None:
    fresh = tool(look)
    fresh.metadata = metadata
    assert kind_of(fresh) is kind


def test_a_control_tool_of_ones_own_ends_the_task() -> None:
    controls = [ControlTool(stop_here, Effect.FINISH)]
    with ScriptedModel([call("stop_here", summary="That is all.")]) as model:
        outcome = build_graph(model, control_tools=controls).invoke({"messages": ["go"]})["outcome"]
    assert (outcome["status"], outcome["reason"], outcome["summary"]) == (
        "success",
        "stop_here",
        "That is all.",
    )


def test_effects_are_looked_up_by_name() -> None:
    controls = ControlRegistry(standard_controls())
    effects = {name: controls.effect(name) for name in [*controls, "read_file"]}
    assert effects == {
        "finish_task": Effect.FINISH,
        "ask_user": Effect.ASK,
        "think": Effect.CONTINUE,
        "read_file": None,
    }


def test_a_callers_own_step_limit_raises_and_loses_nothing() -> None:
    graph = build_graph(
        ScriptedModel([call("look"), call("finish_task", summary="x")]),
        [look],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    with pytest.raises(GraphRecursionError):
        graph.invoke({"messages": ["go"]}, config | {"recursion_limit": 4})
    assert graph.invoke(None, config)["outcome"]["status"] == "success"


def test_the_models_tools_are_the_given_ones_and_the_control_tools() -> None:
    with ScriptedModel([call("finish_task", summary="x")]) as model:
        build_graph(model, [look]).invoke({"messages": ["go"]})
    assert model.seen[0].tool_names == ["look", "finish_task", "ask_user", "think"]


def test_input_and_context_schemas_describe_themselves() -> None:
    graph = build_graph(MODEL)
    assert list(graph.get_input_jsonschema()["properties"]) == ["messages"]
    context = graph.get_context_jsonschema()
    assert context is not None
    assert all(field["description"] for field in context["properties"].values())
