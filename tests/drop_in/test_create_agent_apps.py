"""Small apps, written for LangChain's `create_agent` as its documentation shows them, with one line changed.

Each app is a function that is given what builds its agent: `create_agent` itself, or `build_graph`. The
script of the model differs in how it ends, since a Signoff graph ends by `finish_task`.
"""

import asyncio
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRequest,
    ModelRetryMiddleware,
    TodoListMiddleware,
    dynamic_prompt,
)
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call

Build = Callable[..., Any]
Ask = Callable[..., dict[str, Any]]
ASKED: Any = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}]}


def ending(build: Build, text: str) -> Any:
    """How the model ends: with words, or by signing off."""
    return text if build is create_agent else call("finish_task", summary=text)


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}."


@dataclass
class Reader:
    role: str


def prompt_with_context(build: Build, ask: Ask) -> Any:
    """A prompt that is made for each call, of the context of the run."""
    model = ScriptedModel([call("get_weather", city="Rome"), ending(build, "Sunny.")])

    @dynamic_prompt
    def by_role(request: ModelRequest[Reader]) -> str:
        return f"Explain it to an {request.runtime.context.role}."

    agent = build(model, tools=[get_weather], middleware=[by_role], context_schema=Reader)
    ask(agent, ASKED, context=Reader(role="expert"))
    return [one.messages[0].text.partition("\n")[0] for one in model.seen]


class Plan(BaseModel):
    city: str
    sunny: bool


def todo_list(build: Build, ask: Ask) -> Any:
    """A list of what is to be done, in the state."""
    todos = [{"content": "Look at the weather", "status": "in_progress"}]
    steps = [call("write_todos", todos=todos), call("get_weather", city="Rome"), ending(build, "Sunny.")]
    agent = build(ScriptedModel(steps), tools=[get_weather], middleware=[TodoListMiddleware()])
    return ask(agent, ASKED)["todos"]


def retry_and_fallback(build: Build, ask: Ask) -> Any:
    """A model that is asked again, and one in its place."""
    first = ScriptedModel([ValueError("down")] * 6)
    second = ScriptedModel([call("get_weather", city="Rome"), ending(build, "Sunny.")])
    again = ModelRetryMiddleware(max_retries=2, initial_delay=0, on_failure="error")
    agent = build(first, tools=[get_weather], middleware=[ModelFallbackMiddleware(second), again])
    found = ask(agent, ASKED)
    return next(m.text for m in found["messages"] if m.type == "tool"), len(second.seen)


def structured_answer(build: Build, ask: Ask) -> Any:
    """An answer of a shape."""
    plan: dict[str, Any] = {"city": "Rome", "sunny": True}
    ends = (
        call("Plan", **plan) if build is create_agent else call("finish_task", summary="Sunny.", result=plan)
    )
    agent = build(
        ScriptedModel([call("get_weather", city="Rome"), ends]), tools=[get_weather], response_format=Plan
    )
    found = ask(agent, ASKED)
    return Plan.model_validate(
        found["structured_response"] if build is create_agent else found["outcome"]["result"]
    )


class Seen(AgentState[Any]):
    cities: Annotated[list[str], operator.add]


def tool_that_writes(build: Build, ask: Ask) -> Any:
    """A tool that reads the state, and writes to it."""

    @tool
    def remember(city: str, runtime: ToolRuntime[None, Seen]) -> Command[Any]:
        """Remember a city."""
        known = len(runtime.state["cities"])
        told = ToolMessage(f"{city} is number {known + 1}", tool_call_id=runtime.tool_call_id)
        return Command(update={"cities": [city], "messages": [told]})

    steps = [call("remember", city="Rome"), call("remember", city="Oslo"), ending(build, "Noted.")]
    agent = build(ScriptedModel(steps), tools=[remember], state_schema=Seen)
    found = ask(agent, {**ASKED, "cities": ["Bern"]})
    return found["cities"], [m.text for m in found["messages"] if m.type == "tool"][:2]


APPS: dict[str, Callable[[Build, Ask], Any]] = {
    "a prompt with context": prompt_with_context,
    "a todo list": todo_list,
    "retry and fallback": retry_and_fallback,
    "a structured answer": structured_answer,
    "a tool that writes state": tool_that_writes,
}


def invoked(agent: Any, given: Any, **options: Any) -> dict[str, Any]:
    return dict(agent.invoke(given, **options))


def awaited(agent: Any, given: Any, **options: Any) -> dict[str, Any]:
    return dict(asyncio.run(agent.ainvoke(given, **options)))


@pytest.mark.parametrize("ask", [invoked, awaited])
@pytest.mark.parametrize("app", APPS)
def test_an_app_for_create_agent_says_the_same_of_a_signoff_graph(app: str, ask: Ask) -> None:
    theirs, ours = (APPS[app](build, ask) for build in (create_agent, build_graph))
    assert ours == theirs


def test_a_prompt_with_context_may_be_a_function_as_well() -> None:
    """`system_prompt` takes a function of (state, context), where `create_agent` needs a middleware."""
    model = ScriptedModel([call("finish_task", summary="Sunny.")])
    prompt = lambda state, context: f"Explain it to an {context.role}."  # noqa: E731  as an app writes it
    agent = build_graph(model, tools=[get_weather], system_prompt=prompt, context_schema=Reader)
    invoked(agent, ASKED, context=Reader(role="expert"))
    assert model.seen[0].messages[0].text.startswith("Explain it to an expert.")


@pytest.mark.parametrize("build", [create_agent, build_graph])
@pytest.mark.parametrize(("runtime", "warns"), [(ToolRuntime, True), (ToolRuntime[Reader, Any], False)])
def test_of_a_context_it_warns_where_the_runtime_does_not_name_its_type(
    runtime: Any, warns: bool, build: Build
) -> None:
    """It is LangChain's package that takes the context of a bare `ToolRuntime` to be None."""

    def role(runtime: Any) -> str:
        """Tell the role."""
        return str(runtime.context.role)

    role.__annotations__["runtime"] = runtime
    agent = build(ScriptedModel([call("role"), ending(build, "Told.")]), tools=[role], context_schema=Reader)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = invoked(agent, ASKED, context=Reader(role="expert"))
    assert next(m.text for m in found["messages"] if m.type == "tool") == "expert"
    assert any("Pydantic serializer" in str(one.message) for one in caught) is warns


PAUSES: dict[str, tuple[dict[str, Any], str | None]] = {
    "before the tools of `create_agent`": ({"interrupt_before": ["tools"]}, "'tools', .*approvals="),
    "after its model": ({"interrupt_after": "model"}, "'model', .*call_llm"),
    "before a state that there is": ({"interrupt_before": ["execute"]}, None),
    "before each": ({"interrupt_before": "*"}, None),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", PAUSES)
def test_a_pause_at_a_node_that_there_is_none_of_is_refused(case: str, way: str) -> None:
    options, refused = PAUSES[case]
    steps = [call("get_weather", city="Rome"), call("finish_task", summary="Sunny.")]
    agent = build_graph(
        ScriptedModel(steps), tools=[get_weather], checkpointer=InMemorySaver(), store=InMemoryStore()
    )
    config: Any = {"configurable": {"thread_id": "t"}}

    def run() -> Any:
        if way == "sync":
            return agent.invoke(ASKED, config, **options)
        return asyncio.run(agent.ainvoke(ASKED, config, **options))

    if refused:
        with pytest.raises(SetupError, match=refused):
            run()
    else:
        run()
    assert bool(agent.get_state(config).next) is (refused is None)
